package virtual

import (
	"testing"

	"github.com/warmpath/warmpath/sim/engine"
)

func TestScenariosPlayThePresetOfTwoH200(t *testing.T) {
	p, err := engine.FindPreset("llama-3.1-70b-2xh200")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Params(), h200Pair(); got != want {
		t.Errorf("the preset is %+v, the scenarios' engine %+v", got, want)
	}
}
