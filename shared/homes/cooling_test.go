package homes

import (
	"slices"
	"testing"
	"time"
)

// A prefix gets homes above a worker's share of the requests, and loses them below half of it: at
// three quarters who has homes keeps them, and who has none gets none.
func TestHomesStayUntilAPrefixHasCooledBelowHalfAShare(t *testing.T) {
	const n = 8
	plan := func(f *traffic) int { return len(f.p.Plan(f.now, workers(n, 20), nil, unknown, nobody)) }
	f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 2900, 7: 300}}
	f.play(6 * time.Second)
	if plan(f) != 0 {
		t.Fatal("homes at three quarters of a share that was never above one")
	}
	f.rate[0], f.rate[7] = 2400, 800 // two shares
	f.play(6 * time.Second)
	if plan(f) != 1 {
		t.Fatal("no homes at two shares")
	}
	f.rate[0], f.rate[7] = 2900, 300
	for range 20 {
		f.play(300 * time.Millisecond)
		if plan(f) != 1 {
			t.Fatal("the homes are gone at three quarters of a share")
		}
	}
	f.rate[0], f.rate[7] = 3000, 100
	f.play(6 * time.Second)
	if plan(f) != 0 {
		t.Error("homes at a quarter of a share")
	}
}

// A long prompt that nobody shares opens a few counters only; what many begin with is known to its
// end after a few of them.
func TestAPromptOpensFewCountersAndASharedOneAllAfterSome(t *testing.T) {
	h := NewHeat()
	h.Add(path(7, 40, 60, 1), 0)
	if n := len(h.counters); n != maxOpened {
		t.Errorf("%d counters after one prompt of 60 checkpoints, want %d", n, maxOpened)
	}
	for i := range uint64(5) {
		h.Add(path(7, 40, 60, 2+i), time.Duration(i)*time.Millisecond)
	}
	if _, known := h.index[7<<32+40]; !known {
		t.Error("the end of a shared prefix isn't known after six requests")
	}
}

// Two hot prefixes share as few homes as they can.
func TestAPrefixGetsHomesThatOtherHotOnesLoadLeast(t *testing.T) {
	f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 2000, 7: 600, 8: 600}}
	f.play(6 * time.Second)
	plan := f.p.Plan(f.now, workers(16, 20), nil, unknown, nobody)
	if len(plan) != 2 {
		t.Fatalf("%d prefixes have homes, want 2", len(plan))
	}
	both := 0
	for _, ref := range plan[0].Homes {
		if slices.Contains(plan[1].Homes, ref) {
			both++
		}
	}
	if least := max(0, len(plan[0].Homes)+len(plan[1].Homes)-16); both > least {
		t.Errorf("%v and %v share %d homes, %d would do", plan[0].Homes, plan[1].Homes, both, least)
	}
}
