package index

import (
	"math"
	"time"
)

// Several indexes hear the same reports, each in an order of its own: a gateway
// reports to one replica of control, which tells the others. So that they come to
// hold the same, a report has one order everywhere, which the replica that a
// gateway told gives it. What was used last, and what was used since a dispatch,
// goes by it. An order is a logical clock that keeps near the time:
//
//	bits   meaning
//	63-12  microseconds since 1970 of the fastest clock among the replicas, or
//	       the next number where the clock hasn't gone on
//	11-0   who gave it
//
// The clocks needn't agree: whoever hears of a later order goes on from there. A
// report that comes late is put where it belongs.
const (
	orderBits = 12
	// firstOrder is less than any order, of 1978, and more than an earlier version
	// counts: it numbers uses from 1.
	firstOrder = 1 << 60
	// farAhead is how far an order may be ahead of the clock here. Whoever gives one
	// beyond has a clock that is broken, and isn't followed.
	farAhead = 24 * time.Hour
	// farBehind is how many checkpoints further than the newest a late report is put.
	// One that is later still counts as used there: thousands of them that were asked
	// for again would take too long.
	farBehind = 4096
	// unplaced is of a node that has no place in the order of use yet.
	unplaced = math.MaxUint64
)

// Order gives reports that come now their order, and those that follow a later one.
func (x *Index) Order(now time.Time) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.order(0, now)
}

// order notes a given order, or gives the next one.
func (x *Index) order(given uint64, now time.Time) uint64 {
	micros := uint64(max(now.UnixMicro(), 0))
	if given == 0 || given>>orderBits > micros+uint64(farAhead/time.Microsecond) {
		given = max(micros, x.seq>>orderBits+1)<<orderBits | uint64(x.cfg.Replica)&(1<<orderBits-1)
	}
	x.seq = max(x.seq, given)
	x.times.add(given, now)
	x.store.tick(now)
	return given
}

// touch makes the path that ends at id used at an order. What was used later stays
// where it is.
func (m *model) touch(id uint32, order uint64) {
	for beside := uint32(0); id != 0; id = m.node(id).parent {
		n := m.node(id)
		switch {
		case n.touched == unplaced:
		case n.touched > order:
			// Who holds it holds all that is before, so that was used then, too.
			order, beside = n.touched, id
			continue
		default:
			m.unlinkRecency(id)
		}
		n.touched = m.place(id, beside, order)
		order, beside = n.touched, id
	}
}

// place puts a node among those in order of use, newer than others of the same
// order: from beside on, a node of that order or an earlier one, or from the newest
// on when that is 0. It returns the order that it has there.
func (m *model) place(id, beside uint32, order uint64) uint64 {
	older := beside
	if older == 0 {
		older = m.newest
		for range farBehind {
			if older == 0 || m.node(older).touched <= order {
				break
			}
			older = m.node(older).older
		}
		if older != 0 {
			order = max(order, m.node(older).touched)
		}
	}
	for older != 0 && m.node(older).newer != 0 && m.node(m.node(older).newer).touched <= order {
		older = m.node(older).newer
	}
	m.linkRecency(id, older)
	return order
}

// linkRecency puts a node before the next older one; 0: it becomes the oldest.
func (m *model) linkRecency(id, older uint32) {
	newer := m.oldest
	if older != 0 {
		newer = m.node(older).newer
		m.node(older).newer = id
	} else {
		m.oldest = id
	}
	if newer != 0 {
		m.node(newer).older = id
	} else {
		m.newest = id
	}
	n := m.node(id)
	n.newer, n.older = newer, older
}
