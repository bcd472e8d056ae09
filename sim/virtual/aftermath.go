package virtual

import "time"

// aftermathFor is how long after a fault requests are told apart by what it took from them.
const aftermathFor = 30 * time.Second

// aftermath tells what a fault has taken from a request: it knows where conversations lived, and
// what the best worker still held when a request came.
type aftermath struct {
	homes map[uint64]home // by session, where it was answered last
	until time.Duration   // requests are told apart
}

type home struct {
	worker int
	lost   uint32 // how often that worker had lost its cache by then
}

func newAftermath() *aftermath { return &aftermath{homes: map[uint64]home{}} }

// Parts of a run with a fault, in Outcome.Group.
const (
	homeKept = "after the fault, home kept"
	homeLost = "after the fault, home lost"
)

// arrived names the part that r belongs to, and notes the longest prefix that anybody holds.
func (a *aftermath) arrived(f *Fleet, r *Request) {
	if f.now >= a.until {
		return
	}
	for _, w := range f.workers {
		if w.up {
			r.held = max(r.held, w.engine.Holds(r.promptBlocks()))
		}
	}
	if h, ok := a.homes[r.Session]; ok && r.Group == "" {
		r.Group = homeKept
		if f.workers[h.worker].lost != h.lost {
			r.Group = homeLost
		}
	}
}

// answered notes where a conversation lives.
func (a *aftermath) answered(f *Fleet, r *Request, worker int) {
	a.homes[r.Session] = home{worker, f.workers[worker].lost}
}

// fault begins to tell requests apart.
func (a *aftermath) fault(now time.Duration) {
	if now > 0 {
		a.until = now + aftermathFor
	}
}
