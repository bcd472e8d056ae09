package kvevents

import (
	"sync"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Union joins the ranks behind one address: a checkpoint is held while any of
// them holds it. Which rank a request meets is the engine's choice, so this is
// an upper bound; one port per rank tells more.
type Union struct {
	mu     sync.Mutex
	out    Sink
	owners map[uint64]int
	slow   map[uint64]int
}

// NewUnion returns a union that tells out.
func NewUnion(out Sink) *Union {
	return &Union{out: out, owners: map[uint64]int{}, slow: map[uint64]int{}}
}

// Rank returns the sink of one more rank.
func (u *Union) Rank() Sink {
	return &rank{union: u, held: map[uint64]struct{}{}, slow: map[uint64]struct{}{}}
}

type rank struct {
	union *Union
	held  map[uint64]struct{}
	slow  map[uint64]struct{}
}

func (r *rank) Hold(path []fingerprint.Checkpoint) {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	for _, c := range path {
		if _, ok := r.held[c.Fingerprint]; !ok {
			r.held[c.Fingerprint] = struct{}{}
			r.union.owners[c.Fingerprint]++
		}
	}
	r.union.out.Hold(path)
}

func (r *rank) Drop(fp uint64) {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	if _, ok := r.held[fp]; ok {
		delete(r.held, fp)
		r.release(fp)
	}
}

func (r *rank) Clear() {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	for fp := range r.held {
		r.release(fp)
	}
	clear(r.held)
	for fp := range r.slow {
		r.quick(fp)
	}
	clear(r.slow)
}

func (r *rank) Slow(fp uint64, on bool) {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	switch _, was := r.slow[fp]; {
	case on && !was:
		r.slow[fp] = struct{}{}
		if r.union.slow[fp]++; r.union.slow[fp] == 1 {
			r.union.out.Slow(fp, true)
		}
	case !on && was:
		delete(r.slow, fp)
		r.quick(fp)
	}
}

func (r *rank) quick(fp uint64) {
	if r.union.slow[fp]--; r.union.slow[fp] == 0 {
		delete(r.union.slow, fp)
		r.union.out.Slow(fp, false)
	}
}

func (r *rank) release(fp uint64) {
	if r.union.owners[fp]--; r.union.owners[fp] == 0 {
		delete(r.union.owners, fp)
		r.union.out.Drop(fp)
	}
}
