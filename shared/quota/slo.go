package quota

import (
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// Histogram counts times to first token by wire.TTFTBucket.
type Histogram [wire.TTFTBuckets]uint32

// Add adds what came to b since before. A count that has become smaller, of a gateway's VM that
// is gone, adds nothing.
func (h *Histogram) Add(b, before *Histogram) {
	for i := range h {
		h[i] += sub(b[i], before[i])
	}
}

// Count is how many times were counted.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h {
		n += uint64(c)
	}
	return n
}

// Quantile is the time in milliseconds that the share q of the times is not above, to the end of
// its bucket; 0 without any.
func (h *Histogram) Quantile(q float64) uint32 {
	rank := q * float64(h.Count())
	seen := 0.0
	for i, c := range h {
		if seen += float64(c); c > 0 && seen >= rank {
			return wire.TTFTBucketEnd(i)
		}
	}
	return 0
}

const (
	// openStep is what the controller gives back in a step, closeFactor what it leaves when it
	// takes: additive increase, multiplicative decrease, as in TCP.
	openStep    = 0.05
	closeFactor = 0.7
	// easy is the share of the objective below which there is room to give.
	easy = 0.8
	// minSamples is how many times a step needs: the 99th percentile of fewer is their maximum.
	minSamples = 20
	// leastPrefill is how far the prefill horizon shrinks at most.
	leastPrefill = 0.25
)

// Controller keeps P0's time to first token within its objective. What it turns is how much
// the classes below P0 get: Open times the way from their floors to their shares, and the same
// part of what is lent. When they have been taken down and the objective is still missed, it is
// P0's own prefill work that is in the way, and the prefill horizon shrinks.
type Controller struct {
	// Open and Prefill are 1 at the start, and at rest.
	Open, Prefill float64
}

// NewController returns a controller at rest.
func NewController() Controller { return Controller{Open: 1, Prefill: 1} }

// Step takes in the times to first token of one second. Without enough of them it gives back:
// nobody is there to be protected.
func (c *Controller) Step(window *Histogram, objectiveMillis uint32) {
	if objectiveMillis == 0 {
		c.Open, c.Prefill = 1, 1
		return
	}
	p99 := window.Quantile(0.99)
	switch enough := window.Count() >= minSamples; {
	case enough && p99 > objectiveMillis:
		if c.Open > openStep {
			c.Open *= closeFactor
			return
		}
		c.Open = 0
		c.Prefill = max(c.Prefill*closeFactor, leastPrefill)
	case enough && float64(p99) > easy*float64(objectiveMillis):
		// Within the objective, without room: stay.
	case c.Prefill < 1:
		c.Prefill = min(c.Prefill+openStep, 1)
	default:
		c.Open = min(c.Open+openStep, 1)
	}
}

// Shares are the shares in force.
func (c *Controller) Shares(classes *[policy.Classes]policy.Class) Shares {
	s := Shares{Lend: c.Open}
	rest := 1.0
	for i := 1; i < len(classes); i++ {
		s.Class[i] = classes[i].Floor + (classes[i].Share-classes[i].Floor)*c.Open
		rest -= s.Class[i]
	}
	// What is taken from the classes below is P0's; what nobody was given, nobody gets.
	s.Class[0] = min(rest, classes[0].Share+(rest-classes[0].Share)*(1-c.Open))
	return s
}
