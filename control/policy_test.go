package control

import (
	"bytes"
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

// Modules of two versions may differ in the rule that is meant where none is named.
func TestGatewaysAreToldTheRuleThatIsMeant(t *testing.T) {
	for _, written := range []string{
		`pools: [{name: a, models: ["*"]}]`,
		`pools: [{name: a, models: ["*"], policy: {watermark: 0.9}}]`,
		`pools: [{name: a, models: ["*"], policy: {name: random}, control_group: {share: 0.1, policy: {watermark: 0.9}}}]`,
	} {
		d, err := parsePolicy("policy", ".", []byte(written), &vocabulary.Store{})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(d.text, []byte(`"name":"cost"`)) || !bytes.Contains(d.shown, []byte(`"cost"`)) {
			t.Errorf("%s is published as %s and shown as %s", written, d.text, d.shown)
		}
	}
	d, err := derivePolicy([]string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(d.text, []byte(`"name":"cost"`)); n != 2 {
		t.Errorf("the policy of a fleet without one: %s", d.text)
	}
}
