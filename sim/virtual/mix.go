package virtual

import "time"

// mix joins several workloads into one, each with a name for its figures.
type mix struct {
	parts []*part
	id    uint64
}

// part is one workload of a mix: its clock begins at from; it opens nothing
// after until (0: no end).
type part struct {
	Source
	from, until time.Duration
	group       func(at time.Duration) string

	at   time.Duration
	next *Request
	done bool
}

func newMix(parts ...*part) *mix { return &mix{parts: parts} }

// Open returns the part's request that comes first.
func (m *mix) Open() (time.Duration, *Request, bool) {
	var first *part
	at := -1
	for i, p := range m.parts {
		if p.next == nil && !p.done {
			when, r, ok := p.Source.Open()
			p.at, p.next = when+p.from, r
			if !ok || p.until > 0 && p.at >= p.until {
				p.next, p.done = nil, true
			}
		}
		if p.next != nil && (first == nil || p.at < first.at) {
			first, at = p, i
		}
	}
	if first == nil {
		return 0, nil, false
	}
	r := first.next
	first.next = nil
	return first.at, m.name(r, at, first.at), true
}

// After asks the part that r is of.
func (m *mix) After(r *Request, now time.Duration) (time.Duration, *Request, bool) {
	p := m.parts[r.part]
	at, next, ok := p.Source.After(r, now-p.from)
	if !ok {
		return 0, nil, false
	}
	return at + p.from, m.name(next, r.part, at+p.from), true
}

// name gives a request what is unique in the mix.
func (m *mix) name(r *Request, part int, at time.Duration) *Request {
	m.id++
	r.ID, r.part, r.Group = m.id, part, m.parts[part].group(at)
	return r
}
