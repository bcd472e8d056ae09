package virtual

import (
	"slices"
	"time"
)

// overload tells when a run's queue only grows: what comes later waits longer than what came
// before, for as long as anybody cares to look.
type overload struct {
	from     time.Duration // not before
	arrivals int           // nor before so many requests
	waiting  int           // nor while fewer wait

	counts []int // requests without a first token, second by second, the last two windows
}

// growingFor is how long a queue has to have grown: every count of the second half of it is
// above every count of the first.
const growingFor = time.Minute

// newOverload watches a run that comes to its rate at from: it takes a minute to be sure, and
// ten seconds' worth of requests that wait.
func newOverload(from time.Duration, rate float64, arrivals int) *overload {
	return &overload{from: from + growingFor, arrivals: arrivals, waiting: int(10 * rate)}
}

// second takes one second's count, and tells whether there is no hope.
func (o *overload) second(now time.Duration, arrived, waiting int) bool {
	const all = int(growingFor / time.Second)
	if len(o.counts) == all {
		o.counts = append(o.counts[:0], o.counts[1:]...)
	}
	o.counts = append(o.counts, waiting)
	if len(o.counts) < all || now < o.from || arrived < o.arrivals {
		return false
	}
	least := slices.Min(o.counts[all/2:])
	return least > o.waiting && least > slices.Max(o.counts[:all/2])
}

// giveUp ends a run with its requests on their way. Those that have no first token yet have
// waited so long at least.
func (f *Fleet) giveUp() {
	f.saturated = true
	all := make([]*Request, 0, len(f.live))
	for _, r := range f.live {
		all = append(all, r)
	}
	sortRequests(all)
	f.counts.Open = len(all)
	for _, r := range all {
		if r.firstToken == 0 && f.cfg.Record != nil {
			f.cfg.Record(Outcome{Request: r, Worker: r.worker, Arrived: r.arrived, TTFT: f.now - r.arrived, Waiting: true})
		}
	}
}
