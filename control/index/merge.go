package index

import (
	"slices"
	"time"
)

// Merge takes in what another replica's index held a moment ago, as AppendSnapshot
// wrote it. Of a worker that is live here only what is missing is added, as used when
// it was used there; whatever else is known of it stays. Of one that isn't it counts once AddWorker makes its ref live. It returns
// the number of checkpoints that were missing.
func (x *Index) Merge(b []byte, now time.Time) (added int, err error) {
	models, heats, err := readSnapshot(b, true)
	if err != nil {
		return 0, err
	}
	for ref, r := range models {
		added += x.merge(ref, r, heats, now)
	}
	return added, nil
}

// merge takes one worker in, so that reports wait for one at most.
func (x *Index) merge(ref uint16, r *restoredModel, heats map[uint64]float32, now time.Time) (added int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.store.remembered = heats
	m := x.models[ref]
	switch {
	case m == nil:
		x.restored[ref] = r
		return len(r.nodes)
	case m.pool != r.pool:
		return 0
	case len(m.at) == 0:
		r.into(m, x.learned[ref])
		if m.reporting {
			m.awaitAll(now.Add(unknownFor))
		}
		x.poolOf(m.pool).tokensPerUnit = max(r.tokensPerUnit, 1)
		x.seq = max(x.seq, r.seq)
		return len(m.at)
	}
	x.order(r.seq, now)
	var path []Checkpoint
	known := make([]bool, len(r.nodes))
	// Children come after their parents, the least recently used ones at the end:
	// from there, what is missing and was not on the way to something missing before.
	for i := len(r.nodes) - 1; i >= 0; i-- {
		if id := m.at[r.nodes[i].fingerprint]; id != 0 {
			m.node(id).confirmed = m.node(id).confirmed || r.nodes[i].confirmed
			continue
		}
		if known[i] || r.nodes[i].fingerprint == 0 {
			continue
		}
		path = path[:0]
		missing, confirmed := 0, 0
		for at := i; at >= 0; at = int(r.nodes[at].parent) - 1 {
			n := &r.nodes[at]
			if known[at] = true; m.at[n.fingerprint] == 0 {
				missing++
			}
			if path = append(path, Checkpoint{Fingerprint: n.fingerprint, End: n.end}); confirmed == 0 && n.confirmed {
				confirmed = len(path)
			}
		}
		slices.Reverse(path)
		order := r.nodes[i].touched
		if order < firstOrder {
			order = 0 // an earlier version's: it counts as used just now
		}
		if !x.insert(m, path, x.order(order, now)) {
			continue
		}
		added += missing
		m.borrow(path)
		if confirmed > 0 {
			m.confirm(path[:len(path)-confirmed+1])
		}
		m.awaitReport(path, now.Add(unansweredFor))
	}
	return added
}

// borrow notes of what nothing speaks for here that something does elsewhere.
func (m *model) borrow(path []Checkpoint) {
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok && m.node(id).predictions == 0 {
			m.node(id).predictions = many
		}
	}
}
