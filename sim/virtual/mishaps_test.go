package virtual

import (
	"math"
	"testing"
	"time"
)

// seconds of two workers, the second of which comes at second 3.
func timeline() *Summed {
	r := &Result{}
	for second := range 8 {
		b := Bucket{Second: second, Waiting: 1, Queue: 1000, Work: []float64{float64(second), 0}}
		if second >= 3 {
			b.Work[1] = 0.5 * float64(second-2)
		}
		r.Timeline = append(r.Timeline, b)
	}
	r.Timeline[4].Waiting, r.Timeline[6].Waiting, r.Timeline[6].Queue = 5, 3, 9000
	return &Summed{Runs: []*Result{r}}
}

func TestAFleetHasRecoveredWhenItsLastLongQueueIsGone(t *testing.T) {
	s := timeline()
	for _, c := range []struct {
		limit float64
		want  int
	}{{1, 3}, {3, 1}, {4, 1}, {5, 0}} {
		if got := s.recovery(4, 8, c.limit); got != c.want {
			t.Errorf("%d s until no queue is longer than %v, want %d", got, c.limit, c.want)
		}
	}
	if s.queue(0, 4) != 1 || s.queue(4, 8) != 5 || s.queueTokens(4, 8) != 9000 {
		t.Errorf("queues of %v, then %v requests and %v tokens", s.queue(0, 4), s.queue(4, 8), s.queueTokens(4, 8))
	}
}

func TestTheShareOfTheWorkIsThatOfSomeSeconds(t *testing.T) {
	s := timeline()
	if got, want := s.workOf([]int{1}, 4, 8), 2*2.0/6; math.Abs(got-want) > 1e-9 {
		t.Errorf("the late worker did %v of its fair share, want %v", got, want)
	}
	if got := s.workOf([]int{0}, 1, 3); got != 2 {
		t.Errorf("the only one at work did %v of its fair share, want 2", got)
	}
}

// Where all share a system prompt that takes longer than ramp_first, a worker that returns is one of its
// homes: it makes its copy at once, and has its share.
func TestAReturnedWorkerHasItsShareOfAPromptThatAllShare(t *testing.T) {
	s, err := FindScenario("one-tenant")
	if err != nil {
		t.Fatal(err)
	}
	const back = 30 * time.Second
	s.Workers, s.Requests, s.Rate = 4, 30*50, 30
	s.Faults = []Fault{{At: 20 * time.Second, Workers: []int{2}, Kind: Die}, {At: back, Workers: []int{2}, Kind: Return}}
	all, its := 0, 0
	cfg := s.config(t, "cost", 1, func(o Outcome) {
		if o.Arrived < back+5*time.Second || o.Arrived >= back+15*time.Second {
			return
		}
		if all++; o.Worker == 2 {
			its++
		}
	})
	if _, err := Run(cfg); err != nil {
		t.Fatal(err)
	}
	if share := 4 * float64(its) / float64(all); all < 100 || share < 0.6 || share > 1.5 {
		t.Errorf("%d of %d requests in seconds 5 to 15, %.2f of a fair share", its, all, share)
	}
}
