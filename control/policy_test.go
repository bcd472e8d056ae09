package control

import (
	"testing"

	"github.com/warmpath/warmpath/control/vocabulary"
)

func TestThePolicyWithoutPoolsCanBeSwitchedOffAndOn(t *testing.T) {
	d, err := parsePolicy("policy", ".", []byte(`pools: []`), &vocabulary.Store{})
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []bool{true, false} {
		if d, err = d.withOff(off); err != nil {
			t.Fatalf("off %t: %v", off, err)
		}
		if d.parsed.Off != off {
			t.Errorf("off is %t, want %t", d.parsed.Off, off)
		}
	}
}
