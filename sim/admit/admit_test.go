package admit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScenariosHoldTheirFigures(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			if s.Alone || testing.Short() && s.Name != "stampede" {
				return
			}
			t.Parallel()
			r, err := Play(s, 1, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Checks {
				t.Logf("%-70s %8.3f", c.Name, c.Value)
				if !c.Holds {
					t.Errorf("%s: %.3f, want %.3f (at least: %v)", c.Name, c.Value, c.Target, c.AtLeast)
				}
			}
			for _, run := range r.Runs {
				if run.Name != "off" && run.MostInUse > workers*slots && run.Refused > 0 {
					t.Errorf("%s: %d at the workers, they take %d", run.Name, run.MostInUse, workers*slots)
				}
			}
		})
	}
}

// TestAFloodDelaysNobodyElseWhateverTheSeed looks at what a flood changes for the others: how long
// they wait in their gateways. How long engines take is the same few requests' luck with and without
// it, which warmpath sim admission flood --seeds 10 has enough of.
func TestAFloodDelaysNobodyElseWhateverTheSeed(t *testing.T) {
	if testing.Short() {
		return
	}
	all := map[string][]float64{}
	for seed := range uint64(10) {
		for _, run := range flood().Runs(seed + 1)[:2] {
			run.Config.Length = 90 * seconds
			r, err := Run(run.Config)
			if err != nil {
				t.Fatal(err)
			}
			var waits []float64
			for _, rec := range r.Of(NotTenant("flood"), Between(30*seconds, 85*seconds)) {
				if rec.Admitted < 0 {
					t.Errorf("seed %d, %s: %s is refused", seed+1, run.Name, rec.Tenant)
					continue
				}
				waits = append(waits, (rec.Admitted - rec.Arrived).Seconds())
			}
			if p99 := quantile(0.99, waits); p99 > 0.25 {
				t.Errorf("seed %d, %s: p99 of the others' waits %.3f s", seed+1, run.Name, p99)
			}
			all[run.Name] = append(all[run.Name], waits...)
		}
	}
	if calm, flooded := quantile(0.99, all["calm"]), quantile(0.99, all["flood"]); flooded > calm+0.03 {
		t.Errorf("p99 of the others' waits %.3f s, and %.3f s without the flood", flooded, calm)
	}
}

func TestSeveralSeedsAreToldByTheirMedianAndHoldTogether(t *testing.T) {
	s := Scenario{
		Name:  "seeds",
		Runs:  func(seed uint64) []Named { return []Named{{"run", base(seed, seconds, "")}} },
		Judge: func(r map[string]*Result) []Check { return []Check{atMost("seed", float64(r["run"].Config.Seed), 4)} },
	}
	for seeds, holds := range map[uint64]bool{3: true, 4: false} {
		r, err := PlaySeeds(s, 2, seeds, "")
		if err != nil {
			t.Fatal(err)
		}
		want := Check{Name: "seed", Value: 3, Seeds: []float64{2, 3, 4}, Target: 4, Holds: true}
		if seeds == 4 {
			want.Value, want.Seeds, want.Holds = 4, []float64{2, 3, 4, 5}, false
		}
		if diff := cmp.Diff([]Check{want}, r.Checks); diff != "" || r.Holds() != holds {
			t.Errorf("%d seeds: %v %s", seeds, r.Holds(), diff)
		}
	}
}

func TestARunIsTheSameEachTime(t *testing.T) {
	s := stampede()
	first, err := Play(s, 7, "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := Play(s, 7, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
}
