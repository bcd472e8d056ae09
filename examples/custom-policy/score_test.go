package main

import (
	"strings"
	"testing"

	"github.com/warmpath/warmpath/hostsim/hosttest"
	"github.com/warmpath/warmpath/integration/moduletest"
	"github.com/warmpath/warmpath/shared/route"
)

func TestARentedWorkerHasToBeHalfASecondSooner(t *testing.T) {
	owned := &route.Worker{Address: "10.0.0.1:8000", UncachedTokens: 4000}
	other := &route.Worker{Address: "10.9.0.1:8000"}
	f := &route.Facts{UncachedTokens: 1000, PrefillRate: 10_000}
	if score(nil, owned, f) <= score(nil, other, f) {
		t.Error("0.5 s of our own against 0.1 s rented: ours should win")
	}
	owned.UncachedTokens = 6000
	if score(nil, owned, f) >= score(nil, other, f) {
		t.Error("0.7 s of our own against 0.1 s rented: the rented one should win")
	}
}

// The finished module, in a proxy's host with a control service beside it.
func TestTheModuleChoosesByTheScore(t *testing.T) {
	module := hosttest.BuildGo(t, ".")
	fleet := func(ahead ...int) []route.Worker {
		workers := []route.Worker{{Address: "10.0.0.1:8000"}, {Address: "10.0.0.2:8000"}, {Address: "10.9.0.1:8000"}}
		for i := range workers {
			workers[i].PrefillRate, workers[i].UncachedTokens = 10_000, ahead[i]
		}
		return workers
	}
	g := moduletest.Load(t, module, `{"name": "custom"}`, fleet(2000, 4000, 0)...)
	prompt := strings.Repeat("a long story. ", 1143) // 4,000 tokens

	for _, c := range []struct {
		what         string
		ahead        []int // uncached tokens before us, by worker
		best, second string
	}{
		{"the first of our own", []int{2000, 4000, 0}, "10.0.0.1:8000", "10.0.0.2:8000"},
		{"what is cached there saves 0.4 s", []int{5000, 2000, 0}, "10.0.0.1:8000", "10.0.0.2:8000"},
		{"but not a whole second", []int{14000, 2000, 0}, "10.0.0.2:8000", "10.9.0.1:8000"},
		{"a peak", []int{14000, 13000, 0}, "10.9.0.1:8000", "10.0.0.2:8000"},
	} {
		g.SetWorkers(fleet(c.ahead...)...)
		a := g.Ask(prompt)
		if a.Best != c.best || a.Second != c.second || a.Why != "custom" {
			t.Errorf("%s: %s, then %s, by %s; want %s, then %s%s", c.what, a.Best, a.Second, a.Why, c.best, c.second, a.Exchange.Transcript())
		}
	}
	if n := g.Metric("warmpath.decisions.custom"); n != 4 {
		t.Errorf("%d decisions by the score, want 4", n)
	}
	if n := g.Metric("warmpath.panics") + g.Metric("warmpath.no_score"); n != 0 {
		t.Errorf("%d panics or missing scores", n)
	}
}
