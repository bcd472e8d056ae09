package policy

import (
	"math"
	"strings"
	"testing"
)

func TestAControlGroupIsReadStrictly(t *testing.T) {
	read := func(group string) (*Set, error) {
		return Parse([]byte(`{"pools":[{"name":"a","models":["*"],"policy":{"name":"cost"},"control_group":` + group + `}]}`))
	}
	set, err := read(`{"share":0.05,"policy":{"name":"least_load","watermark":0.9}}`)
	if err != nil {
		t.Fatal(err)
	}
	if g := set.Pools[0].Control; g.Share != 0.05 || g.Policy.Name != LeastLoad || g.Policy.Watermark != 0.9 || set.Pools[0].Policy.Name != Cost {
		t.Errorf("%+v", g)
	}
	for group, place := range map[string]string{
		`[]`:            "pools[0].control_group: not an object",
		`{"share":0.1}`: "pools[0].control_group.policy: missing",
		`{"share":0.6,"policy":{"name":"random"}}`:                   "pools[0].control_group.share: out of range",
		`{"share":0.1,"policy":{"name":"random","miss_weight":1}}`:   "pools[0].control_group.policy.miss_weight: unknown key",
		`{"share":0.1,"policy":{"name":"best"}}`:                     "pools[0].control_group.policy.name: unknown policy",
		`{"share":0.1,"policy":{"name":"chwbl","virtual_nodes":64}}`: "pools[0].control_group.policy.virtual_nodes: not a setting",
		`{"share":0.1,"policy":{"name":"random"},"seed":1}`:          "pools[0].control_group.seed: unknown key",
		`{"share":0.1,"share":0.2,"policy":{"name":"random"}}`:       "pools[0].control_group.share: given twice",
	} {
		if _, err := read(group); err == nil || !strings.HasPrefix(err.Error(), place) {
			t.Errorf("%s: %v, want %s", group, err, place)
		}
	}
}

func TestTheShareOfAControlGroupHoldsAndGrowsByAdding(t *testing.T) {
	const n = 100_000
	for _, share := range []float64{0.001, 0.05, 0.5} {
		small, large, in := ControlGroup{Share: share}, ControlGroup{Share: min(0.5, 2*share)}, 0
		for key := uint64(1); key <= n; key++ {
			if !small.Has(key) {
				continue
			}
			in++
			if !large.Has(key) {
				t.Fatalf("key %d left the group when it grew", key)
			}
		}
		if off := math.Abs(float64(in) - share*n); off > 5*math.Sqrt(share*n) {
			t.Errorf("share %v: %d of %d keys", share, in, n)
		}
	}
	if g := (ControlGroup{Share: 0.5}); g.Has(0) {
		t.Error("a request that nothing is known of is in the group")
	}
	if g := (ControlGroup{}); g.Has(1) {
		t.Error("a group of no share has a member")
	}
}
