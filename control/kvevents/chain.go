package kvevents

import (
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

const unit = fingerprint.UnitTokens

// resume brings the chain to where block id begins. At the start of a prompt it
// keeps the salt with the block.
func (m *Map) resume(e *Event, id, parent uint32) {
	if parent == 0 {
		number := m.number(e.Adapter)
		a := m.adapters[number]
		salt := fingerprint.Salt(m.cfg.Pool, a.name, a.generation, e.CacheSalt, fingerprint.Exact)
		m.addPoint(id, point{fingerprint: salt, end: saltBit | uint32(number)})
		m.chain.Reset(salt)
		return
	}
	m.walk = m.walk[:0]
	for at := parent; at != 0; at = m.nodes.at(at).parent {
		m.walk = append(m.walk, at)
		if start, ok := m.segment(at); ok {
			m.rewrite(start)
			return
		}
	}
}

// rewrite goes back to the start of a segment and chains the tokens of the blocks
// of walk again, which is the last of them first.
func (m *Map) rewrite(start point) {
	m.chain.Resume(start.fingerprint, start.units())
	m.scratch = m.scratch[:0]
	for i := len(m.walk) - 1; i >= 0; i-- {
		n := m.nodes.at(m.walk[i])
		from := max(0, int(start.units())*unit-int(n.depth-1)*m.tokens.size)
		if from < m.tokens.size {
			m.scratch = m.tokens.append(m.scratch, n.tokens, from)
		}
	}
	m.chain.WriteTokens(m.scratch)
}

// segment is the deepest checkpoint of the schedule, or the salt, that a block
// completes.
func (m *Map) segment(id uint32) (best point, ok bool) {
	for at := m.nodes.at(id).points; at != 0; at = m.points.at(at).next {
		p := *m.points.at(at)
		if !p.isTurn() && (!ok || p.units() > best.units()) {
			best, ok = p, true
		}
	}
	return best, ok
}

// write feeds a new block's tokens and keeps the checkpoints that it completes.
func (m *Map) write(id uint32, tokens []uint32) {
	n := m.nodes.at(id)
	from := int(n.depth-1) * len(tokens)
	c := &m.chain
	next := fingerprint.NextScheduled(c.Units())
	after := false // the token before ended a turn
	for at := 0; at < len(tokens); {
		stop := min(len(tokens), int(next)*unit-from)
		turn, ended := false, false
		if after && (from+at+1)%unit == 0 {
			// A line break may belong to the turn too, and here it makes a unit whole.
			stop, turn = at+1, true
		} else if len(m.cfg.TurnEnds) > 0 {
			for i, t := range tokens[at:stop] {
				if slices.Contains(m.cfg.TurnEnds, t) {
					stop, turn, ended = at+i+1, true, true
					break
				}
			}
		}
		c.WriteTokens(tokens[at:stop])
		after = ended
		at = stop
		units := c.Units()
		if units == next {
			m.addPoint(id, point{fingerprint: c.Fingerprint(), end: units})
			next = fingerprint.NextScheduled(units)
		}
		if turn && units > 0 {
			m.addTurn(id, from, units, c.Fingerprint())
		}
	}
	if end := from + len(tokens); !segmentEnd(end) {
		n.tokens = m.tokens.put(tokens)
	}
}

// addTurn keeps the end of a turn with the block that completes it, which may be
// the one before id.
func (m *Map) addTurn(id uint32, from int, units uint32, fp uint64) {
	owner := id
	if int(units)*unit <= from {
		owner = m.nodes.at(id).parent
	}
	for at := m.nodes.at(owner).points; at != 0; at = m.points.at(at).next {
		if m.points.at(at).units() == units {
			return
		}
	}
	if int(units)*unit <= from-m.tokens.size {
		return // two blocks back: blocks shorter than a unit
	}
	p := point{fingerprint: fp, end: units | turnBit}
	m.addPoint(owner, p)
	if owner == id {
		return
	}
	if m.nodes.at(owner).flags&held != 0 {
		m.complete(m.inside, owner, p)
		m.tellPoint(owner, p)
	}
	if m.nodes.at(owner).flags&slow != 0 {
		m.complete(m.insideSlow, owner, p)
		m.sink.Slow(p.fingerprint, true)
	}
}

// addPoint appends, so that points lie in the order in which they come.
func (m *Map) addPoint(id uint32, p point) {
	new := m.points.alloc()
	*m.points.at(new) = p
	at := &m.nodes.at(id).points
	for *at != 0 {
		at = &m.points.at(*at).next
	}
	*at = new
}

// segmentEnd: a segment ends after this many tokens, so what follows needs none
// of those before.
func segmentEnd(tokens int) bool {
	if tokens%unit != 0 {
		return false
	}
	units := uint32(tokens / unit)
	return fingerprint.NextScheduled(units-1) == units
}
