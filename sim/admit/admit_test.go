package admit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScenariosHoldTheirFigures(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			if testing.Short() && s.Name != "stampede" {
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
