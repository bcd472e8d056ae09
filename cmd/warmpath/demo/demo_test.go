package demo

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// The rule cost is played by its defaults in engines' time, whatever the clock.
func TestCostCountsEnginesTime(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{1, 25} {
		settings := Policy{"cost", policy.Cost}.settings(scale)
		doc, err := json.Marshal(map[string]any{"pools": []any{map[string]any{
			"name": "default", "index": 0, "models": []string{"*"}, "policy": settings,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.Parse(doc)
		if err != nil {
			t.Fatalf("scale %v: %v", scale, err)
		}
		got, want := set.Pools[0].Policy, policy.Default(policy.Cost)
		clock := func(d time.Duration) time.Duration { return time.Duration(float64(d) / scale) }
		for name, v := range map[string][2]time.Duration{
			"spread_weight": {got.SpreadWeight, want.SpreadWeight}, "tail_decay": {got.TailDecay, want.TailDecay},
			"ramp": {got.Ramp, want.Ramp}, "decode_step": {got.DecodeStep, want.DecodeStep},
		} {
			if v[0] != clock(v[1]) {
				t.Errorf("scale %v: %s is %v of the clock, want %v", scale, name, v[0], clock(v[1]))
			}
		}
		if v := clock(want.RampFirst).Round(time.Millisecond); got.RampFirst != v {
			t.Errorf("scale %v: ramp_first is %v of the clock, want %v", scale, got.RampFirst, v)
		}
	}
}
