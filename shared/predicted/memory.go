// Package predicted remembers for a moment what a gateway has just sent where.
//
// A dispatch implies that its worker will hold the prompt. The cache-location table learns of it by
// way of the control service, some tenths of a second later; what follows a new prefix comes sooner,
// as when an agent hands a task to several others. A gateway Adds every dispatch here, Finds it for
// the requests that come next, and Forgets it when the request failed. After Lifetime the table
// knows better.
//
// A Memory is a set-associative cache of fixed size: nothing allocates, and what is pushed out early
// costs what all of it cost before, a prompt computed twice.
package predicted

import (
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
)

const (
	// Lifetime of an entry: ten times what a dispatch takes to the table (make bench-delays).
	Lifetime = 2 * time.Second

	ways = 4
	sets = 1 << 10
)

// Memory holds checkpoints, each with the worker that it was sent to. The zero value is empty; it
// is 128 KiB.
type Memory struct {
	entries [sets][ways]entry
	last    int64 // when the newest entry was sent
}

type entry struct {
	fingerprint uint64
	dispatch    uint64
	sent        int64 // unix ns, or on any other clock that doesn't begin at 0; 0 for no entry
	ready       int32 // ms from then until the prompt is computed
	ref         uint16
}

// Dispatch is a request that was sent to a worker.
type Dispatch struct {
	ID  uint64
	Ref uint16
	// Sent is in ns on the caller's clock, Ready how long from then the worker takes to have
	// computed the prompt, as it looks.
	Sent  int64
	Ready time.Duration
}

// Add notes that a prompt was sent, with its checkpoints that end beyond so many units: those
// before are known to be there.
func (m *Memory) Add(d *Dispatch, checkpoints []fingerprint.Checkpoint, beyond uint32) {
	for i := len(checkpoints) - 1; i >= 0 && checkpoints[i].End > beyond; i-- {
		m.Put(d, checkpoints[i].Fingerprint)
	}
}

// Put notes one checkpoint. Sent to the same worker again it is young again, and ready when it was.
func (m *Memory) Put(d *Dispatch, checkpoint uint64) {
	e := entry{checkpoint, d.ID, d.Sent, int32(min(max(d.Ready, 0), time.Hour) / time.Millisecond), d.Ref}
	m.last = max(m.last, d.Sent)
	set := m.set(checkpoint)
	oldest := &set[0]
	for i := range set {
		k := &set[i]
		if k.fingerprint == e.fingerprint && k.ref == e.ref && k.sent != 0 {
			if e.sent < k.sent {
				return
			}
			if e.sent-k.sent < int64(Lifetime) {
				ready := k.sent + int64(k.ready)*int64(time.Millisecond) - e.sent
				e.ready = min(e.ready, int32(max(ready, 0)/int64(time.Millisecond)))
			}
			*k = e
			return
		}
		if k.sent < oldest.sent {
			oldest = k
		}
	}
	*oldest = e
}

// set is chosen by bits that neither pages nor blocks are named by.
func (m *Memory) set(checkpoint uint64) *[ways]entry { return &m.entries[checkpoint>>20%sets] }

// Forget drops what a dispatch has left that failed, unless a later one to the same worker has
// renewed it.
func (m *Memory) Forget(id uint64) {
	for s := range m.entries {
		for i := range m.entries[s] {
			if e := &m.entries[s][i]; e.dispatch == id {
				*e = entry{}
			}
		}
	}
}

// Find appends the longest prefix of a prompt that was sent to each worker lately. A clock that was set
// back makes it forget everything.
func (m *Memory) Find(checkpoints []fingerprint.Checkpoint, now int64, out []route.Sent) []route.Sent {
	switch age := now - m.last; {
	case m.last == 0 || age >= int64(Lifetime):
		return out
	case age <= -int64(Lifetime):
		*m = Memory{}
		return out
	}
	first := len(out)
	for i := len(checkpoints) - 1; i >= 0; i-- {
		set := m.set(checkpoints[i].Fingerprint)
		for k := range set {
			e := &set[k]
			if e.fingerprint != checkpoints[i].Fingerprint || e.sent == 0 || now-e.sent >= int64(Lifetime) || has(out[first:], e.ref) {
				continue
			}
			ago := time.Duration(max(now-e.sent, 0))
			out = append(out, route.Sent{
				Ref: e.ref, Units: checkpoints[i].End, Ago: ago,
				Ready: max(0, time.Duration(e.ready)*time.Millisecond-ago),
			})
		}
	}
	return out
}

func has(out []route.Sent, ref uint16) bool {
	for i := range out {
		if out[i].Ref == ref {
			return true
		}
	}
	return false
}
