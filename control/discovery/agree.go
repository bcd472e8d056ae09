package discovery

import (
	"cmp"
	"slices"
	"time"
)

// Replicas of the control service agree on refs: one that sees a new process asks
// for a ref (Wanted), whoever writes the common list gives it (Propose), and all
// take the list over (Agree). In such a fleet a ref is never given by assign.

// Wanted returns the workers that were probed and have no ref in the common list.
func (f *Fleet) Wanted() []Identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted()
}

func (f *Fleet) wanted() []Identity {
	var out []Identity
	for _, addr := range sortedKeys(f.workers) {
		w := f.workers[addr]
		if !w.probed && !f.opened {
			return nil // the first list is asked for in one piece
		}
		if _, known := f.refs.ref[w.identity()]; w.probed && !known {
			out = append(out, w.identity())
		}
	}
	return out
}

// Propose adds refs for ids to a common list: the ones that hints name where they
// are free, otherwise the ones that a replica alone would give.
func Propose(list []Ref, ids []Identity, hints []Ref) []Ref {
	t := newRefTable(0)
	for _, r := range list {
		t.restore(r.Identity, r.Ref)
	}
	wanted := map[Identity]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	for _, h := range hints {
		if wanted[h.Identity] {
			t.restore(h.Identity, h.Ref)
		}
	}
	t.assign(slices.Clone(ids))
	out := make([]Ref, 0, len(t.ref))
	for id, ref := range t.ref {
		out = append(out, Ref{Identity: id, Ref: ref})
	}
	slices.SortFunc(out, func(a, b Ref) int { return cmp.Compare(a.Ref, b.Ref) })
	return out
}

// Agree takes the common list over: workers in it get their refs, those that it
// gives to others lose them.
func (f *Fleet) Agree(list []Ref, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	agreed := make(map[Identity]uint16, len(list))
	for _, r := range list {
		agreed[r.Identity] = r.Ref
	}
	changed := false
	for id, ref := range f.refs.ref {
		if agreed[id] == ref {
			continue
		}
		if w := f.workers[id.Address]; w != nil && w.Ref == ref {
			f.retire(w, now)
			changed = true
		}
		f.refs.drop(id)
	}
	for _, r := range list {
		if f.refs.restore(r.Identity, r.Ref) {
			f.refs.retire(r.Identity, now) // until a worker here is that one
		}
	}
	for _, w := range f.workers {
		if w.source == genCounted {
			// Another replica has seen it start again.
			if last := f.refs.lastCounted(w.Address, w.Pool, w.Incarnation); last > w.counted {
				w.counted = last
				changed = f.newGeneration(w, last, genCounted, now) || changed
			}
		}
	}
	if f.assign() || changed {
		f.hooks.Changed(true)
	}
}

// Releasable returns the refs whose rest is over, as Release does, without giving
// them up: the common list has to drop them first.
func (f *Fleet) Releasable(passed uint64, busy func(ref uint16) bool, now time.Time) []Ref {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Ref
	for ref, r := range f.refs.resting {
		if f.refs.rested(ref, r, passed, busy, now) {
			out = append(out, Ref{Identity: f.refs.owner[ref], Ref: ref})
		}
	}
	slices.SortFunc(out, func(a, b Ref) int { return cmp.Compare(a.Ref, b.Ref) })
	return out
}
