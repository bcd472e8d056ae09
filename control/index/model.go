package index

import (
	"math"
	"time"
)

// model is one worker's prefix cache as we believe it to be: a forest of
// checkpoints in order of use, bounded by the cache's size.
//
// Invariant: walking from newest to oldest, orders of use never grow, and a parent
// comes before each of its children. So the oldest is a leaf.
type model struct {
	*store
	ref            uint16
	pool           string
	capacityTokens int
	// capacityAssumed: capacityTokens is a guess.
	capacityAssumed bool
	blockTokens     int
	at              map[uint64]uint32 // fingerprint -> node
	newest, oldest  uint32
	// reporting: the engine tells what it removes, so nothing is evicted on a guess.
	reporting bool
	// spread: it reports, and has several caches, one of which a request meets by
	// chance. What it reports is held by all of them.
	spread bool
	// doubted: some of its removals may have been missed.
	doubted  bool
	unproven []unproven // predictions that wait for a report
	tidied   int        // of them, after the last tidying
	// proven are those of them that an answer showed to be held, until when that
	// is believed.
	proven map[uint64]time.Time
	units  uint64 // sum of what the nodes cover, tails included
}

func newModel(s *store, ref uint16) *model {
	return &model{store: s, ref: ref, at: map[uint64]uint32{}}
}

// insert makes m hold every checkpoint of path (ascending by End), used at an
// order. It returns false, having changed nothing
// beyond recency, when the path contradicts what is known (same fingerprint,
// other position): a hash collision or a broken report.
func (m *model) insert(path []Checkpoint, order uint64) bool {
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok && m.node(id).end != c.End {
			return false
		}
	}
	last := uint32(0)
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok {
			m.between(last, id)
			last = id
			continue
		}
		id := m.alloc()
		m.born++
		*m.node(id) = node{fingerprint: c.Fingerprint, end: c.End, ref: m.ref, born: m.born, touched: unplaced}
		m.at[c.Fingerprint] = id
		m.units += uint64(c.End)
		m.adopt(last, id)
		m.setTail(last, 0)
		m.hold(id)
		last = id
	}
	m.touch(last, order)
	return true
}

// between puts last, a shorter prefix of the same prompt, on the way from id to
// the root when it isn't there yet: reports of one prompt may list different
// positions.
func (m *model) between(last, id uint32) {
	if last == 0 {
		return
	}
	end := m.end(last)
	for {
		parent := m.node(id).parent
		if parent == last {
			return
		}
		if m.end(parent) <= end {
			break
		}
		id = parent
	}
	m.orphan(id)
	m.adopt(last, id)
	m.setTail(last, 0)
}

// adopt makes child, which has no parent, a child of parent. What the parent
// covers isn't counted twice.
func (m *model) adopt(parent, child uint32) {
	if parent == 0 {
		return
	}
	p, c := m.node(parent), m.node(child)
	c.parent = parent
	c.prev, c.next = 0, p.child
	if p.child != 0 {
		m.node(p.child).prev = child
	}
	p.child = child
	m.units -= uint64(p.end)
}

// orphan takes child from its parent.
func (m *model) orphan(child uint32) {
	c := m.node(child)
	if c.parent == 0 {
		return
	}
	p := m.node(c.parent)
	if p.child == child {
		p.child = c.next
	}
	if c.prev != 0 {
		m.node(c.prev).next = c.next
	}
	if c.next != 0 {
		m.node(c.next).prev = c.prev
	}
	m.units += uint64(p.end)
	c.parent, c.prev, c.next = 0, 0, 0
}

// setTail sets the units of generated text behind a node, as far as they can be
// counted.
func (m *model) setTail(id uint32, units uint32) {
	if id == 0 {
		return
	}
	n := m.node(id)
	tail := uint16(min(units, math.MaxUint16))
	m.units += uint64(tail)
	m.units -= uint64(n.tail)
	n.tail = tail
}

func (m *model) unlinkRecency(id uint32) {
	n := m.node(id)
	if n.newer != 0 {
		m.node(n.newer).older = n.older
	} else {
		m.newest = n.older
	}
	if n.older != 0 {
		m.node(n.older).newer = n.newer
	} else {
		m.oldest = n.newer
	}
}

// removeLeaf forgets a node without children.
func (m *model) removeLeaf(id uint32) {
	m.setTail(id, 0)
	m.orphan(id)
	n := m.node(id)
	m.units -= uint64(n.end)
	m.unlinkRecency(id)
	delete(m.at, n.fingerprint)
	m.unhold(id)
	m.release(id)
}

// remove forgets a node and all that is beyond it. It returns how many went.
func (m *model) remove(id uint32) int {
	removed := 0
	at := id
	for {
		for m.node(at).child != 0 {
			at = m.node(at).child
		}
		parent := m.node(at).parent
		m.removeLeaf(at)
		removed++
		if at == id {
			return removed
		}
		at = parent
	}
}

// shrink evicts until the model covers at most units, least recent leaf first.
func (m *model) shrink(units uint64) int {
	evicted := 0
	for m.units > units && m.oldest != 0 {
		m.removeLeaf(m.oldest)
		evicted++
	}
	return evicted
}

// clear forgets everything.
func (m *model) clear() {
	for m.oldest != 0 {
		m.removeLeaf(m.oldest)
	}
}

// deepest returns the End of the deepest checkpoint of path that m holds, and of
// the deepest that an engine confirmed.
func (m *model) deepest(path []Checkpoint) (held, confirmed uint32) {
	for i := len(path) - 1; i >= 0; i-- {
		id, ok := m.at[path[i].Fingerprint]
		if !ok || m.node(id).end != path[i].End {
			continue
		}
		if held == 0 {
			held = path[i].End
		}
		if m.node(id).confirmed {
			return held, path[i].End
		}
	}
	return held, 0
}

// predict notes that a dispatch rests on the nodes of path.
func (m *model) predict(path []Checkpoint) {
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok {
			if n := m.node(id); n.predictions < many {
				n.predictions++
			}
		}
	}
}

// undo takes back what a dispatch predicted when so many nodes had been born: those
// of path that no other dispatch rests on and that nothing proves. Who of several
// was heard of first makes no difference.
func (m *model) undo(path []Checkpoint, born uint64) {
	for i := len(path) - 1; i >= 0; i-- {
		id, ok := m.at[path[i].Fingerprint]
		if !ok {
			continue
		}
		n := m.node(id)
		if n.born > born || n.end != path[i].End {
			continue // it went meanwhile, and is another's
		}
		if n.predictions > 0 && n.predictions < many {
			n.predictions--
		}
		for id != 0 && m.node(id).idle() {
			parent := m.node(id).parent
			m.removeLeaf(id)
			id = parent
		}
	}
}

// confirm marks the nodes of path as proven.
func (m *model) confirm(path []Checkpoint) {
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok && m.node(id).end == c.End {
			m.node(id).confirmed = true
		}
	}
}

// dropStale acts on an engine's word that at dispatch seq it held only the first
// held units of path: everything that hangs off the path beyond them and wasn't
// used since seq is gone. The path itself was computed anew by that request, so
// it stays.
func (m *model) dropStale(path []Checkpoint, held uint32, seq uint64) int {
	var root uint32
	for _, c := range path {
		if id, ok := m.at[c.Fingerprint]; ok && c.End > held {
			root = id
			break
		}
	}
	if root == 0 {
		return 0
	}
	var stale []uint32
	stack := []uint32{root}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if m.node(id).touched < seq {
			stale = append(stale, id)
			continue
		}
		for c := m.node(id).child; c != 0; c = m.node(c).next {
			stack = append(stack, c)
		}
	}
	removed := 0
	for _, id := range stale {
		removed += m.removeStale(id)
	}
	return removed
}

// removeStale forgets a node and what is beyond it, but for what a reporting
// engine says that it holds: that goes with its word, and wouldn't come back, as
// nothing is told twice.
func (m *model) removeStale(id uint32) (removed int) {
	if !m.reporting || m.doubted {
		return m.remove(id)
	}
	for c := m.node(id).child; c != 0; {
		next := m.node(c).next
		removed += m.removeStale(c)
		c = next
	}
	if n := m.node(id); !n.reported && n.child == 0 {
		m.removeLeaf(id)
		removed++
	}
	return removed
}
