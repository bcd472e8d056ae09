package admit

import "testing"

func TestScenariosHoldTheirFigures(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			if testing.Short() && s.Name != "stampede" {
				return
			}
			t.Parallel()
			results := map[string]*Result{}
			for _, run := range s.Runs(1) {
				r, err := Run(run.Config)
				if err != nil {
					t.Fatal(err)
				}
				results[run.Name] = r
			}
			for _, c := range s.Judge(results) {
				t.Logf("%-70s %8.3f", c.Name, c.Value)
				if !c.Holds {
					t.Errorf("%s: %.3f, want %.3f (at least: %v)", c.Name, c.Value, c.Target, c.AtLeast)
				}
			}
		})
	}
}
