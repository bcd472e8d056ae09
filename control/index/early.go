package index

import "time"

// A report may name a worker that isn't known here yet: another replica has probed it
// first, or this one has just started. Such a report waits for its worker, and what
// follows about the same request waits behind it. It counts as of its order then, as if
// it had not waited; when the worker doesn't come, it counts without it.

const (
	// earlyFor is how long a report waits: some probes.
	earlyFor = 10 * time.Second
	// maxEarly reports may wait, 4 KB each at most.
	maxEarly = 4096
)

// early is a report that waits: a dispatch, whose path is its own, or a done.
type early struct {
	at       time.Time
	dispatch *Dispatch
	done     *Done
}

func (e *early) request() RequestID {
	if e.dispatch != nil {
		return e.dispatch.Request
	}
	return e.done.Request
}

// earlySet holds reports in the order in which they came.
type earlySet struct {
	queue    []early
	requests map[RequestID]int // how many reports of a request wait
}

func (s *earlySet) add(e early) {
	if s.requests == nil {
		s.requests = map[RequestID]int{}
	}
	s.queue = append(s.queue, e)
	s.requests[e.request()]++
}

// tooEarly tells whether a report has to wait: its worker isn't known, or something
// about its request waits.
func (x *Index) tooEarly(request RequestID, ref uint16) bool {
	return ref != 0 && x.models[ref] == nil || x.early.requests[request] > 0
}

// retryEarly takes in what has its worker now.
func (x *Index) retryEarly() {
	waiting := x.early.queue
	x.early = earlySet{}
	for _, e := range waiting {
		switch {
		case e.dispatch != nil && !x.tooEarly(e.dispatch.Request, e.dispatch.Chosen):
			x.dispatch(*e.dispatch, e.at)
		case e.done != nil && !x.tooEarly(e.done.Request, e.done.Served):
			x.done(*e.done, e.at)
		default:
			x.early.add(e)
		}
	}
}

// endEarly takes in, as it is, what came before a time, and what is more than may wait.
func (x *Index) endEarly(before time.Time) {
	n := 0
	for ; n < len(x.early.queue) && (len(x.early.queue)-n > maxEarly || x.early.queue[n].at.Before(before)); n++ {
		e := &x.early.queue[n]
		if x.early.requests[e.request()]--; x.early.requests[e.request()] == 0 {
			delete(x.early.requests, e.request())
		}
		if e.dispatch != nil {
			x.dispatch(*e.dispatch, e.at)
		} else {
			x.done(*e.done, e.at)
		}
	}
	x.early.queue = x.early.queue[n:]
}
