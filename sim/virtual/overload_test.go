package virtual

import (
	"testing"
	"time"
)

func TestARunWhoseQueueOnlyGrowsIsGivenUpAndEveryRequestCounted(t *testing.T) {
	s := small(func(s *Scenario) { s.Params.MaxQueued = -1 })
	overloaded := Play{Seed: 1, Rate: 60, Requests: 12_000, Policy: "least_load", GiveUp: true}
	r, err := s.Run(overloaded)
	if err != nil {
		t.Fatal(err)
	}
	overloaded.GiveUp = false
	whole, err := s.Run(overloaded)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Counts
	switch {
	case r.Saturated != 1 || whole.Saturated != 0:
		t.Fatalf("given up: %d, and %d where it isn't wanted", r.Saturated, whole.Saturated)
	case c.Open == 0 || c.Arrived != c.Answered+c.Refused+c.Failed+c.Open || r.Seconds > 0.8*whole.Seconds:
		t.Errorf("%+v in %.0f s, %.0f the whole run", c, r.Seconds, whole.Seconds)
	case whole.Counts.Arrived != 12_000 || whole.Counts.Open != 0:
		t.Errorf("whole: %+v", whole.Counts)
	case r.TTFT.Mean > whole.TTFT.Mean || r.TTFT.Mean < 5000:
		t.Errorf("mean TTFT %.0f ms, %.0f of the whole run: not a lower bound, or none that says anything", r.TTFT.Mean, whole.TTFT.Mean)
	case r.Goodput > 0.2 || len(r.TTFTs) != r.Requests-r.Refused-r.Failed:
		t.Errorf("goodput %.2f, %d first tokens of %d requests", r.Goodput, len(r.TTFTs), r.Requests)
	}
}

func TestABusyRunIsNotGivenUp(t *testing.T) {
	waves := newOverload(0, 1, 0)
	for second := range 2000 { // a burst each half minute
		if waves.second(time.Duration(second)*time.Second, 1000, 500-second%30*10) {
			t.Fatalf("given up at %d s of equal waves", second)
		}
	}
	grows := newOverload(0, 1, 1000)
	at := -1
	for second := range 200 {
		if grows.second(time.Duration(second)*time.Second, 10*second, second) {
			at = second
			break
		}
	}
	if at != 100 {
		t.Errorf("a queue that grows by one a second is given up at %d s, want 100, when a thousand have come", at)
	}
}
