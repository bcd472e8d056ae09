package index

import "time"

// What a worker says of its cache without telling every change of it: its words
// are taken for what they are, and between them its cache is modelled as that of
// any worker. Only a complete list is the truth for a while; see Reporting.

// Told takes in that a worker holds every checkpoint of path.
func (x *Index) Told(ref uint16, path []Checkpoint, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return
	}
	if !validPath(path) {
		x.counters.Malformed++
		return
	}
	if x.insert(m, path, x.order(0, now)) {
		m.confirm(path)
		x.counters.Told += uint64(len(path))
	}
}

// ToldGone takes in that a worker no longer holds a checkpoint, nor any beyond
// it.
func (x *Index) ToldGone(ref uint16, fp uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return
	}
	if id, ok := m.at[fp]; ok {
		x.counters.Withdrawn += uint64(m.remove(id))
	}
}

// ToldEmpty takes in that a worker holds nothing.
func (x *Index) ToldEmpty(ref uint16) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil {
		return
	}
	x.counters.Withdrawn += uint64(len(m.at))
	m.clear()
	m.unproven, m.proven = nil, nil
}

// ToldAll takes in that a reporting worker holds paths and nothing else. What it
// had said before and doesn't say again goes; what was dispatched meanwhile has
// the time of any prediction.
func (x *Index) ToldAll(ref uint16, paths [][]Checkpoint, now time.Time) {
	said := map[uint64]bool{}
	for _, path := range paths {
		x.Report(ref, path, now)
		for _, c := range path {
			said[c.Fingerprint] = true
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.models[ref]
	if m == nil || !m.reporting {
		return
	}
	// From the oldest on every child comes before its parent, and what holds a
	// child holds the parent, said or not.
	for id := m.oldest; id != 0; {
		n := m.node(id)
		newer := n.newer
		if n.reported && n.child == 0 && !said[n.fingerprint] {
			m.removeLeaf(id)
			x.counters.Withdrawn++
		}
		id = newer
	}
}
