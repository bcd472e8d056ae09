// Package books counts what is in flight at each worker.
//
// A request that is sent to a worker opens a Claim: one request in flight and
// the tokens the worker still has to prefill for it. The first answer token
// returns the prefill share, the end of the stream returns the rest, and a
// claim moves when another worker turns out to have served the request. Every
// step of a claim is idempotent, so whatever order and number of callbacks a
// proxy delivers, each claim is returned exactly once.
//
// The VM's own claims are one Tally. The rows of sibling VMs, added up, are
// another. Together they are the gateway's books.
package books

// MaxWorkers is how many workers can have something in flight in one Tally.
// It is what a row of 8 KiB can carry.
const MaxWorkers = 1000

// Line is what is in flight at one worker.
type Line struct {
	Ref            uint16
	InFlight       uint32 // requests sent and not ended
	UncachedTokens uint64 // of requests whose first token has not been seen
}

// Tally adds up claims by worker ref. Its memory is fixed: a direct index over
// all refs and at most MaxWorkers lines, in no order.
type Tally struct {
	index [1 << 16]uint16 // position in lines + 1, 0 for none
	lines []Line
}

// NewTally makes an empty Tally.
func NewTally() *Tally {
	return &Tally{lines: make([]Line, 0, MaxWorkers)}
}

// Lines are the workers that have something in flight. The slice is valid
// until the next change.
func (t *Tally) Lines() []Line { return t.lines }

// Of is what ref has in flight.
func (t *Tally) Of(ref uint16) Line {
	if i := t.index[ref]; i != 0 {
		return t.lines[i-1]
	}
	return Line{Ref: ref}
}

// Add counts inFlight requests and uncached tokens at ref. It answers false
// when all lines are taken by other workers, and then counts nothing.
func (t *Tally) Add(ref uint16, inFlight uint32, uncached uint64) bool {
	if inFlight == 0 && uncached == 0 {
		return true
	}
	i := t.index[ref]
	if i == 0 {
		if len(t.lines) == MaxWorkers {
			return false
		}
		t.lines = append(t.lines, Line{Ref: ref})
		i = uint16(len(t.lines))
		t.index[ref] = i
	}
	t.lines[i-1].InFlight += inFlight
	t.lines[i-1].UncachedTokens += uncached
	return true
}

// Sub takes back what Add has counted. More than there is leaves zero.
func (t *Tally) Sub(ref uint16, inFlight uint32, uncached uint64) {
	i := t.index[ref]
	if i == 0 {
		return
	}
	line := &t.lines[i-1]
	line.InFlight -= min(inFlight, line.InFlight)
	line.UncachedTokens -= min(uncached, line.UncachedTokens)
	if line.InFlight != 0 || line.UncachedTokens != 0 {
		return
	}
	last := t.lines[len(t.lines)-1]
	*line = last
	t.index[last.Ref] = i
	t.index[ref] = 0
	t.lines = t.lines[:len(t.lines)-1]
}

// Reset forgets everything.
func (t *Tally) Reset() {
	for _, line := range t.lines {
		t.index[line.Ref] = 0
	}
	t.lines = t.lines[:0]
}

// Claim is one request's part of a Tally. The zero value is closed; a Claim
// lives in the request's stream context.
type Claim struct {
	ref      uint16
	uncached uint32
	open     bool
	prefill  bool
}

// Ref is the worker that the claim is booked on, 0 when it is not open.
func (c *Claim) Ref() uint16 {
	if !c.open {
		return 0
	}
	return c.ref
}

// Open books a request with uncached tokens on ref. An open claim is closed
// first. It answers false when the tally is full; the claim is then closed.
func (c *Claim) Open(t *Tally, ref uint16, uncached uint32) bool {
	c.Close(t)
	if !t.Add(ref, 1, uint64(uncached)) {
		return false
	}
	*c = Claim{ref: ref, uncached: uncached, open: true, prefill: true}
	return true
}

// Move books an open claim on another worker: the one that really serves the
// request. Only what is still owed moves. It answers false when the tally has
// no line for ref; the claim is then closed.
func (c *Claim) Move(t *Tally, ref uint16) bool {
	if !c.open || c.ref == ref {
		return true
	}
	t.Sub(c.ref, 1, c.owedPrefill())
	if !t.Add(ref, 1, c.owedPrefill()) {
		*c = Claim{}
		return false
	}
	c.ref = ref
	return true
}

// FirstToken returns the prefill share: the worker is decoding now.
func (c *Claim) FirstToken(t *Tally) {
	if !c.open || !c.prefill {
		return
	}
	t.Sub(c.ref, 0, uint64(c.uncached))
	c.prefill = false
}

// Close returns what is left of the claim. It answers whether the claim was
// open, so that a caller can count releases.
func (c *Claim) Close(t *Tally) bool {
	if !c.open {
		return false
	}
	t.Sub(c.ref, 1, c.owedPrefill())
	*c = Claim{}
	return true
}

func (c *Claim) owedPrefill() uint64 {
	if c.prefill {
		return uint64(c.uncached)
	}
	return 0
}
