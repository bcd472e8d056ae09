package books

import "math"

// recentNanos is the time in which work fades to 1/e, ten seconds as in
// control's own sum.
const recentNanos = 10e9

// maxSpan bounds the exponent of a weight: a clock that jumps must not make
// one request outweigh all others.
const maxSpan = 30

// Recent adds up the uncached tokens that were sent to each worker, old work
// fading away. Its memory is fixed: at most MaxWorkers lines; when all are
// taken, the one that is worth the least makes room. Time comes from the
// caller, in unix ns.
type Recent struct {
	index [1 << 16]uint16 // position in lines + 1, 0 for none
	lines []recentLine
}

type recentLine struct {
	ref    uint16
	tokens float64
	at     int64
}

// NewRecent makes an empty Recent.
func NewRecent() *Recent { return &Recent{lines: make([]recentLine, 0, MaxWorkers)} }

// Add counts tokens sent to ref at a time; negative ones take back what went
// elsewhere after all, down to nothing.
func (r *Recent) Add(ref uint16, tokens float64, at int64) {
	i := r.index[ref]
	if i == 0 && !(tokens > 0) {
		return
	}
	if i == 0 {
		i = r.take(ref, at)
	}
	line := &r.lines[i-1]
	line.tokens, line.at = max(0, line.worth(at)+tokens), at
}

// SetBack tells that the clock was set back by so many ns. Otherwise what was sent
// before would lie ahead, and outweigh all that is sent from then on.
func (r *Recent) SetBack(nanos int64) {
	for i := range r.lines {
		r.lines[i].at -= nanos
	}
}

// take finds a line for ref.
func (r *Recent) take(ref uint16, at int64) uint16 {
	if len(r.lines) < MaxWorkers {
		r.lines = append(r.lines, recentLine{ref: ref})
		r.index[ref] = uint16(len(r.lines))
		return r.index[ref]
	}
	least := 0
	for i := range r.lines {
		if r.lines[i].worth(at) < r.lines[least].worth(at) {
			least = i
		}
	}
	r.index[r.lines[least].ref] = 0
	r.lines[least] = recentLine{ref: ref}
	r.index[ref] = uint16(least + 1)
	return r.index[ref]
}

// Of is the sum of ref's work weighed as of a time. Of a time before the last
// Add, work since then weighs more than 1: sums as of the same time compare as
// they would at any other.
func (r *Recent) Of(ref uint16, at int64) float64 {
	if i := r.index[ref]; i != 0 {
		return r.lines[i-1].worth(at)
	}
	return 0
}

func (l *recentLine) worth(at int64) float64 {
	if l.tokens == 0 {
		return 0
	}
	return l.tokens * math.Exp(min(max(float64(l.at-at)/recentNanos, -maxSpan), maxSpan))
}
