package index

import (
	"cmp"
	"slices"
	"time"
)

// What engines report is the truth, and stands beside what dispatches predict: a
// prediction that a reporting engine doesn't come to confirm goes.
const (
	// unreportedFor is how long an answered prompt may lack the engine's report. It
	// comes within milliseconds of the last prefill step; the rest is for a replay.
	unreportedFor = 30 * time.Second
	// unansweredFor is the same for a prompt that was only dispatched: it may wait
	// in the engine's queue.
	unansweredFor = 2 * time.Minute
	// unknownFor is the same for what was believed before the reports began. The
	// engine's replay is short: what it stored long ago and only hits since shows
	// up in answers.
	unknownFor = 10 * time.Minute
)

type unproven struct {
	fingerprint uint64
	due         time.Time
}

// Reporting says that an engine's reports begin or have ended. While they last
// nothing is taken from its model on a guess about its size.
func (x *Index) Reporting(ref uint16, on bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil || m.reporting == on {
		return
	}
	m.reporting, m.spread, m.doubted, m.unproven, m.proven = on, false, false, nil, nil
	if !on {
		for id := m.newest; id != 0; id = m.node(id).older {
			m.node(id).reported = false
		}
		x.counters.EvictedCapacity += uint64(m.shrink(x.capacityUnits(m)))
		return
	}
	m.awaitAll(now.Add(unknownFor))
}

// Spread says that a reporting worker has several caches and that nobody knows
// which of them a request will meet: what requests imply is no prediction then, and
// what was predicted goes. Reporting ends it.
func (x *Index) Spread(ref uint16) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.models[ref]; m != nil && m.reporting {
		m.spread = true
		m.clear()
		m.unproven, m.proven = nil, nil
	}
}

// Report takes in that a reporting engine holds every checkpoint of path,
// ascending, of which the first may be known already.
func (x *Index) Report(ref uint16, path []Checkpoint, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil || !m.reporting {
		return
	}
	if !validPath(path) {
		x.counters.Malformed++
		return
	}
	if !x.insert(m, path, x.order(0, now)) {
		return
	}
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok {
			if n := m.node(id); !n.reported {
				n.reported, n.confirmed = true, true
				x.counters.Reported++
			}
		}
	}
}

// Recall takes in that a block map saved before a restart holds every checkpoint
// of path. What a restored snapshot has of it keeps its place in the order of
// use; the rest is as if reported now.
func (x *Index) Recall(ref uint16, path []Checkpoint, now time.Time) {
	if !x.recalled(ref, path) {
		x.Report(ref, path, now)
	}
}

// recalled marks path as reported where all of it is known.
func (x *Index) recalled(ref uint16, path []Checkpoint) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil || !m.reporting {
		return false
	}
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; !ok || m.node(id).end != c.End {
			return false
		}
	}
	for _, c := range path {
		m.node(m.at[c.Fingerprint]).reported = true
	}
	return true
}

// RecallDone says that the saved map has told all it holds. What else is
// believed of its engine is a prediction, or went between two saves: it has the
// time of any other prediction to be confirmed.
func (x *Index) RecallDone(ref uint16, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return
	}
	due := now.Add(unreportedFor)
	for i := range m.unproven {
		if m.unproven[i].due.After(due) {
			m.unproven[i].due = due
		}
	}
}

// Doubt takes in that removals of a reporting engine may have been missed: it is
// trusted by half at most, until hits that come true prove it.
func (x *Index) Doubt(ref uint16) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.learned[ref]; l != nil {
		l.trust = trusted(min(l.trust.value(), staleTrust))
	}
	if m := x.models[ref]; m != nil {
		m.doubted = true
	}
}

// Withdraw takes in that a reporting engine no longer holds a checkpoint, nor
// any beyond it.
func (x *Index) Withdraw(ref uint16, fp uint64, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil || !m.reporting {
		return
	}
	id, ok := m.at[fp]
	if !ok {
		return
	}
	parent := m.node(id).parent
	x.counters.Withdrawn += uint64(m.remove(id))
	m.awaitAgain(parent, now)
}

// WithdrawAll takes in that a reporting engine holds nothing.
func (x *Index) WithdrawAll(ref uint16) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil || !m.reporting {
		return
	}
	x.counters.Withdrawn += uint64(len(m.at))
	m.doubted = false
	m.clear()
	m.unproven, m.proven = nil, nil
}

// awaitAll notes that the engine has reported nothing of what is believed.
func (m *model) awaitAll(due time.Time) {
	for id := m.newest; id != 0; id = m.node(id).older {
		m.unproven = append(m.unproven, unproven{m.node(id).fingerprint, due})
	}
}

// awaitReport notes what of path the engine has not reported yet.
func (m *model) awaitReport(path []Checkpoint, due time.Time) {
	if !m.reporting {
		return
	}
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok && !m.node(id).reported && m.proven[c.Fingerprint].IsZero() {
			m.unproven = append(m.unproven, unproven{c.Fingerprint, due})
		}
	}
	if len(m.unproven) > 2*m.tidied+tidyFrom {
		m.tidy()
	}
}

// tidyFrom notes may wait before it is looked which are still of use.
const tidyFrom = 1024

// tidy drops the notes of what was reported meanwhile or is gone, and of several
// of one checkpoint all but the first that is due. Without, what waits would grow
// with the traffic of two minutes and not with what is held, which has a bound.
func (m *model) tidy() {
	kept := m.unproven[:0]
	at := make(map[uint64]int)
	for _, u := range m.unproven {
		id, ok := m.at[u.fingerprint]
		if !ok || m.node(id).reported {
			delete(m.proven, u.fingerprint)
			continue
		}
		if i, twice := at[u.fingerprint]; twice {
			if u.due.Before(kept[i].due) {
				kept[i].due = u.due
			}
			continue
		}
		at[u.fingerprint] = len(kept)
		kept = append(kept, u)
	}
	m.unproven, m.tidied = kept, len(kept)
}

// proven gives what an answer showed to be held the time of what was believed
// before the reports began: a hit emits no event, so a block that was stored
// before anybody listened is known by its hits alone.
func (x *Index) proven(m *model, p *pending, d *Done, now time.Time) {
	if !m.reporting || d.CachedTokens <= 0 {
		return
	}
	units := uint32(float64(d.CachedTokens) / x.poolOf(m.pool).tokensPerUnit)
	for _, c := range p.path {
		if id, ok := m.at[c.Fingerprint]; ok && c.End <= units && !m.node(id).reported {
			if m.proven == nil {
				m.proven = map[uint64]time.Time{}
			}
			m.proven[c.Fingerprint] = now.Add(unknownFor)
		}
	}
}

// awaitAgain notes a node that what was beyond it no longer proves.
func (m *model) awaitAgain(id uint32, now time.Time) {
	if id != 0 && !m.node(id).reported && m.node(id).child == 0 {
		m.unproven = append(m.unproven, unproven{m.node(id).fingerprint, now.Add(unreportedFor)})
	}
}

// expireUnproven removes the predictions whose time is over. One on the way to
// something that is held stays: it is held too.
func (m *model) expireUnproven(now time.Time) (removed int) {
	waiting := m.unproven[:0]
	var due []unproven
	for _, u := range m.unproven {
		if u.due.After(now) {
			waiting = append(waiting, u)
		} else {
			due = append(due, u)
		}
	}
	// The deepest first: a path whose time is over goes as a whole.
	end := func(u unproven) uint32 { return m.end(m.at[u.fingerprint]) }
	slices.SortFunc(due, func(a, b unproven) int { return cmp.Compare(end(b), end(a)) })
	var again []uint32
	for _, u := range due {
		id, ok := m.at[u.fingerprint]
		switch until := m.proven[u.fingerprint]; {
		case !ok || m.node(id).reported:
			delete(m.proven, u.fingerprint)
		case until.After(now):
			waiting = append(waiting, unproven{u.fingerprint, until})
		case m.node(id).child != 0:
			waiting = append(waiting, unproven{u.fingerprint, now.Add(unansweredFor)})
		default:
			if parent := m.node(id).parent; parent != 0 {
				again = append(again, parent)
			}
			delete(m.proven, u.fingerprint)
			m.removeLeaf(id)
			removed++
		}
	}
	m.unproven = waiting
	for _, id := range again {
		if fp := m.node(id).fingerprint; fp != 0 {
			m.awaitAgain(id, now)
		}
	}
	return removed
}
