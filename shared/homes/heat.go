package homes

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

const (
	// fadeFor is the time in which a request's heat fades to 1/e: short, as a prefix that gets hot
	// wants all its homes within two seconds: each that comes later is another cold prompt.
	fadeFor = time.Second
	// maxCounters bounds the memory to about 5 MB a pool. It holds what some thousand requests a
	// second open within fadeFor; beyond it the coolest half goes.
	maxCounters = 1 << 16
	// maxOpened counters are opened by one request. Most of a prompt's end is its own; a prefix
	// that many share is known to its end after a few of them.
	maxOpened = 8
	// rebase bounds the exponent of a request's weight.
	rebase = 100 * fadeFor
)

// Heat counts how many of a pool's recent requests begin with a prefix. Not safe for concurrent
// use.
//
// A count that fades is kept without touching it: instead of old requests getting lighter, new
// ones get heavier, by exp(time / fadeFor), and whoever asks divides by that (Cormode et al.,
// "Forward decay", 2009).
type Heat struct {
	index    map[uint64]int32 // of a fingerprint's counter
	counters []counter
	total    float64
	base     time.Duration // at which a request weighs 1
	scratch  []float64
}

// counter is one checkpoint.
type counter struct {
	fingerprint uint64
	weight      float64 // of its requests
	parent      uint64  // the checkpoint before it; 0 for none
	units       uint32
	sender      uint64        // the gateway that most of its requests came from
	lead        float64       // weight of the sender's requests beyond that of others'
	last        time.Duration // when the last came
}

// vote keeps the sender by majority, each request with its weight (Boyer and Moore, "MJRTY", 1981).
func (c *counter) vote(sender uint64, weight float64) {
	switch {
	case sender == 0: // not known
	case c.sender == sender:
		c.lead += weight
	case c.lead >= weight:
		c.lead -= weight
	default:
		c.sender, c.lead = sender, weight-c.lead
	}
}

// mainSender is the gateway that three quarters of its requests came from, or more; 0 for none.
func (c *counter) mainSender() uint64 {
	if c.lead < c.weight/2 {
		return 0
	}
	return c.sender
}

// NewHeat returns a count of nothing.
func NewHeat() *Heat { return &Heat{index: map[uint64]int32{}} }

// weigh is what a request of now weighs.
func (h *Heat) weigh(now time.Duration) float64 {
	if now-h.base > rebase {
		by := math.Exp(-float64(now-h.base) / float64(fadeFor))
		for i := range h.counters {
			h.counters[i].weight *= by
			h.counters[i].lead *= by
		}
		h.total *= by
		h.base = now
	}
	return math.Exp(float64(now-h.base) / float64(fadeFor))
}

// Add counts a request by the checkpoints of its prompt, ascending.
func (h *Heat) Add(path []fingerprint.Checkpoint, now time.Duration) { h.AddOf(0, path, now) }

// AddOf counts a request of a gateway, one of the makers that Plan is given.
func (h *Heat) AddOf(sender uint64, path []fingerprint.Checkpoint, now time.Duration) {
	weight := h.weigh(now)
	h.total += weight
	parent, opened := uint64(0), 0
	for i := range path {
		fp := path[i].Fingerprint
		at, known := h.index[fp]
		if !known {
			if opened++; opened > maxOpened {
				break
			}
			at = int32(len(h.counters))
			h.counters = append(h.counters, counter{fingerprint: fp})
			h.index[fp] = at
		}
		c := &h.counters[at]
		c.weight, c.parent, c.units, c.last = c.weight+weight, parent, path[i].End, now
		c.vote(sender, weight)
		parent = fp
	}
	if len(h.counters) > maxCounters {
		h.forgetHalf()
	}
}

// forgetHalf drops the cooler half of the counters.
func (h *Heat) forgetHalf() {
	h.scratch = h.scratch[:0]
	for _, c := range h.counters {
		h.scratch = append(h.scratch, c.weight)
	}
	slices.Sort(h.scratch)
	least := h.scratch[len(h.scratch)/2]
	kept := h.counters[:0]
	for _, c := range h.counters {
		// A checkpoint is at most as hot as the one before it, so what is kept keeps its parents;
		// of equals all go, as half of them might be the wrong half.
		if c.weight <= least {
			delete(h.index, c.fingerprint)
			continue
		}
		h.index[c.fingerprint] = int32(len(kept))
		kept = append(kept, c)
	}
	h.counters = kept
}

// Requests is the number of recent requests, old ones counting less.
func (h *Heat) Requests(now time.Duration) float64 { return h.total / h.weigh(now) }

// hot is a checkpoint with the number of recent requests that begin with it.
type hot struct {
	fingerprint uint64
	units       uint32
	parent      uint64
	requests    float64
	sender      uint64        // see mainSender
	last        time.Duration // when the last of them came
}

// above lists the checkpoints that at least so many recent requests begin with, deepest first.
func (h *Heat) above(least float64, now time.Duration) (all []hot) {
	weight := h.weigh(now)
	for i := range h.counters {
		c := &h.counters[i]
		if n := c.weight / weight; n >= least {
			all = append(all, hot{c.fingerprint, c.units, c.parent, n, c.mainSender(), c.last})
		}
	}
	slices.SortFunc(all, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.units, a.units), cmp.Compare(a.fingerprint, b.fingerprint))
	})
	return all
}
