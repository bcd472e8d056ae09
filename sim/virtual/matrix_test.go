package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"
)

// smallMatrix is a plan and what it plays: one scenario at two loads, and one with a fault.
func smallMatrix() (*MatrixPlan, []toPlay) {
	p := &MatrixPlan{Seeds: []uint64{1, 2}}
	var all []toPlay
	add := func(s Scenario, rate float64, names ...string) {
		play := Play{Rate: rate, Requests: 600, Gateways: 2, Pooled: true, GiveUp: true}
		all = append(all, toPlay{s.comparison(names, p.Seeds, play), s, play})
	}
	add(small(), 10, "cost", "weighted", "smg", "reference")
	add(small(), 14, "cost", "reference")
	deaths := small(func(s *Scenario) {
		s.Name, s.Faults = "deaths", []Fault{{At: 20 * time.Second, Workers: []int{1}, Kind: Die}}
	})
	add(deaths, 10, "cost")
	return p, all
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAMatrixThatWasStoppedGoesOnAndSaysTheSame(t *testing.T) {
	plan, all := smallMatrix()
	whole, err := plan.play(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Checks) == 0 || len(whole.Summary) == 0 {
		t.Fatalf("%d checks, %d in the summary", len(whole.Checks), len(whole.Summary))
	}

	path := filepath.Join(t.TempDir(), "runs.jsonl")
	plan, all = smallMatrix()
	if plan.Kept, err = OpenKept(path, "build 1", Delays{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	plan.Progress = func(p MatrixProgress) {
		if p.Done == 5 {
			stop()
		}
	}
	if _, err := plan.play(ctx, all); !errors.Is(err, context.Canceled) {
		t.Fatalf("a matrix that is stopped: %v", err)
	}
	if err := plan.Kept.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.WriteString(`{"scenario":"small","rate":1`) // the machine stopped here
	file.Close()

	for _, other := range []struct {
		program string
		delays  Delays
	}{{"build 2", Delays{}}, {"build 1", DefaultDelays()}} {
		if _, err := OpenKept(path, other.program, other.delays); err == nil || !strings.Contains(err.Error(), "another build") {
			t.Errorf("runs of %+v: %v", other, err)
		}
	}
	plan, all = smallMatrix()
	if plan.Kept, err = OpenKept(path, "build 1", Delays{}); err != nil {
		t.Fatal(err)
	}
	defer plan.Kept.Close()
	first, last := -1, MatrixProgress{}
	plan.Progress = func(p MatrixProgress) {
		if first < 0 {
			first = p.Done
		}
		last = p
	}
	again, err := plan.play(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if first < 5 || first == last.All || last.Done != 14 || last.All != 14 || last.Kept != first {
		t.Errorf("began with %d runs, ended with %+v", first, last)
	}
	if one, other := asJSON(t, whole), asJSON(t, again); one != other {
		t.Errorf("in one go and in two:\n%s\n%s", one, other)
	}
}

func TestAFigureIsTheMeanOfItsSeeds(t *testing.T) {
	result := func(ttft, p99, goodput float64) *Result {
		return &Result{TTFT: Quantiles{Mean: ttft, P99: p99}, Goodput: goodput}
	}
	c := &Comparison{Scenario: "agents", Load: 0.85, Gateways: 2, Policies: map[string]*Summed{}}
	c.add(map[string][]*Result{
		"cost":      {result(110, 100, 1), result(130, 300, 1)},
		"smg":       {result(100, 100, 0.5), result(200, 100, 0.5)},
		"reference": {result(100, 100, 1), result(100, 0, 1)},
	})
	m := &Matrix{Seeds: []uint64{1, 2}, Runs: []*Comparison{c}}
	checks := m.checkSeeds()
	find := func(what string) Check {
		for _, c := range checks {
			if strings.HasSuffix(c.Name, what) {
				return c
			}
		}
		t.Fatalf("no figure %q in %v", what, checks)
		return Check{}
	}
	best := find(": mean TTFT of cost to the best rule's")
	if best.Value != 1.05 || best.Spread < 0.0499 || best.Spread > 0.0501 || !best.Holds || len(best.Values) != 2 {
		t.Errorf("1.10 and 1.00: %+v", best)
	}
	if mean := find("agents at 0.85, 2 gateways: mean TTFT of cost to the reference's"); mean.Holds != (mean.Value <= mean.Target) || mean.Value < 1.19 {
		t.Errorf("1.1 and 1.3: %+v", mean)
	}
	if p99 := find(": p99 TTFT of cost to the reference's"); p99.Holds || !p99.Missing {
		t.Errorf("a ratio to nothing: %+v", p99)
	}
	short := 0
	for _, f := range summarise(checks) {
		if f.Holds < f.Of {
			short++
			if f.Worst.Holds {
				t.Errorf("the worst of %q holds", f.What)
			}
		}
	}
	if short == 0 {
		t.Error("nothing is short in short")
	}
}

// A matrix keeps two thousand results, and not what they were made from: every request's times, every
// second of every run.
func TestAResultDoesNotHoldItsCollector(t *testing.T) {
	c := newCollector(2, SLO{h200Pair()}, 0)
	collector := weak.Make(c)
	r := c.finish(make([]time.Duration, 2), time.Second)
	c = nil
	runtime.GC()
	if collector.Value() != nil {
		t.Error("the collector lives as long as its result")
	}
	runtime.KeepAlive(r)
}
