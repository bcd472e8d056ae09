package kvevents

import (
	"maps"
	"slices"
)

// adapter is whose cache a prompt is of: its number stands with the prompt's
// salt. Number 0 is the base model.
type adapter struct {
	name       string
	generation uint64
	current    bool // the engine has these weights under the name now
}

const (
	// maxAdapters bounds what a stream of ever new names may cost. Beyond, a new one
	// takes the number of one that nothing is cached of any more.
	maxAdapters    = 4096
	maxAdapterName = 255
)

// named makes sure that a name has a number in its generation of now, where there
// is room for it.
func (m *Map) named(name string) bool {
	if m.number(name) >= 0 {
		return true
	}
	if len(m.adapters) == 0 {
		m.adapters = append(m.adapters, adapter{current: true})
	}
	a := adapter{name, m.generations[name], true}
	switch {
	case name == "":
		return true // it has number 0 now
	case len(name) > maxAdapterName:
		return false
	case len(m.adapters) < maxAdapters:
		m.adapters = append(m.adapters, a)
	default:
		number := m.spareNumber()
		if number == 0 {
			return false
		}
		m.adapters[number] = a
	}
	return true
}

// spareNumber is one that no prompt's first block has, 0 when all are taken. All
// blocks are looked at, so not again before the last look's finds are used up and a
// first block has gone since. What it finds is nobody's from then on.
func (m *Map) spareNumber() int {
	if len(m.spare) == 0 && m.rootsGone != m.lookedAt {
		m.lookedAt = m.rootsGone
		var used [maxAdapters]bool
		for root := range m.roots {
			for at := m.nodes.at(root).points; at != 0; at = m.points.at(at).next {
				if p := m.points.at(at); p.salt() {
					used[p.end&endMask] = true
				}
			}
		}
		for number := 1; number < maxAdapters; number++ {
			if !used[number] {
				m.adapters[number] = adapter{current: true}
				m.spare = append(m.spare, number)
			}
		}
	}
	n := len(m.spare)
	if n == 0 {
		return 0
	}
	number := m.spare[n-1]
	m.spare = m.spare[:n-1]
	return number
}

// number is that of a name in its generation of now, -1 when it has none.
func (m *Map) number(name string) int {
	generation := m.generations[name]
	return slices.IndexFunc(m.adapters, func(a adapter) bool { return a.name == name && a.generation == generation })
}

// SetAdapters says which generation of each adapter the engine has now, 0 for
// those that aren't named. What is cached of another one stays where it is, and
// an engine that gets the old weights back goes on hitting it, but until then it
// is not held. It reports whether that changes anything.
func (m *Map) SetAdapters(generations map[string]uint64) (changed bool) {
	m.generations = maps.Clone(generations)
	for i := 1; i < len(m.adapters); i++ {
		a := &m.adapters[i]
		was := a.current
		a.current = m.generations[a.name] == a.generation
		changed = changed || a.current != was
	}
	if !changed {
		return false
	}
	for root := range m.roots {
		n := m.nodes.at(root)
		switch current := m.current(root); {
		case !current && n.flags&kept != 0:
			m.unkeep(root)
			if n.flags&held != 0 {
				m.unhold(root)
			}
		case current && n.flags&kept == 0:
			m.begin(root)
		}
	}
	m.flush()
	return true
}

// begin holds and keeps what there is from the first block of a prompt on.
func (m *Map) begin(root uint32) {
	n := m.nodes.at(root)
	if n.media&GPU != 0 {
		m.hold(root)
	}
	if n.media != 0 {
		m.keep(root)
	}
}

// current tells whether the first block of a prompt is of the weights that the
// engine has now. Opaque blocks are nobody's.
func (m *Map) current(root uint32) bool {
	for at := m.nodes.at(root).points; at != 0; at = m.points.at(at).next {
		if p := m.points.at(at); p.salt() {
			return m.adapters[p.end&endMask].current
		}
	}
	return true
}

// roots are the first blocks of prompts.
func (m *Map) roots(yield func(uint32) bool) {
	for id := uint32(1); id < m.nodes.used; id++ {
		if m.nodes.at(id).depth == 1 && !yield(id) {
			return
		}
	}
}
