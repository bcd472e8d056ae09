package kvevents

import (
	"sync"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Union joins the ranks behind one address where nobody can say which of them a
// request meets: that is the engine's choice. What every rank holds is held. What
// some of them have, on the GPU or not, is slow: it is found by a part of the
// requests, so it is worth a part, and nobody is told to count on it. One worker
// for each rank tells more.
type Union struct {
	mu    sync.Mutex
	out   Sink
	ranks int
	has   map[uint64]having
	path  []fingerprint.Checkpoint
}

// having is how many ranks hold a checkpoint, and how many have it slow.
type having struct{ held, slow uint8 }

// NewUnion returns a union of so many ranks, 2 to MaxRanks, that tells out.
func NewUnion(out Sink, ranks int) *Union {
	return &Union{out: out, ranks: ranks, has: map[uint64]having{}}
}

// Rank returns the sink of one of the ranks.
func (u *Union) Rank() Sink {
	return &rank{union: u, held: map[uint64]struct{}{}, slow: map[uint64]struct{}{}}
}

type rank struct {
	union *Union
	held  map[uint64]struct{}
	slow  map[uint64]struct{}
}

// set notes that so many ranks more hold a checkpoint, or have it slow, and tells
// what that makes of it, but for that it is held: see Hold. Requires mu.
func (u *Union) set(fp uint64, held, slow int) {
	before := u.has[fp]
	after := having{uint8(int(before.held) + held), uint8(int(before.slow) + slow)}
	if u.has[fp] = after; after == (having{}) {
		delete(u.has, fp)
	}
	if u.all(before) && !u.all(after) {
		u.out.Drop(fp)
	}
	if was, is := u.some(before), u.some(after); was != is {
		u.out.Slow(fp, is)
	}
}

func (u *Union) all(h having) bool { return int(h.held) == u.ranks }

func (u *Union) some(h having) bool { return h != having{} && !u.all(h) }

// Hold tells on what of the path every rank holds now: with a checkpoint all that
// comes before it is, so this is the path's beginning.
func (r *rank) Hold(path []fingerprint.Checkpoint) {
	u := r.union
	u.mu.Lock()
	defer u.mu.Unlock()
	u.path = u.path[:0]
	for _, c := range path {
		if _, ok := r.held[c.Fingerprint]; !ok {
			r.held[c.Fingerprint] = struct{}{}
			u.set(c.Fingerprint, 1, 0)
		}
		if u.all(u.has[c.Fingerprint]) {
			u.path = append(u.path, c)
		}
	}
	if len(u.path) > 0 {
		u.out.Hold(u.path)
	}
}

func (r *rank) Drop(fp uint64) {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	if _, ok := r.held[fp]; ok {
		delete(r.held, fp)
		r.union.set(fp, -1, 0)
	}
}

func (r *rank) Clear() {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	for fp := range r.held {
		r.union.set(fp, -1, 0)
	}
	clear(r.held)
	for fp := range r.slow {
		r.union.set(fp, 0, -1)
	}
	clear(r.slow)
}

func (r *rank) Slow(fp uint64, on bool) {
	r.union.mu.Lock()
	defer r.union.mu.Unlock()
	switch _, was := r.slow[fp]; {
	case on && !was:
		r.slow[fp] = struct{}{}
		r.union.set(fp, 0, 1)
	case !on && was:
		delete(r.slow, fp)
		r.union.set(fp, 0, -1)
	}
}
