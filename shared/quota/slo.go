package quota

import (
	"math"

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

// Above is how many times are above a number of milliseconds, to the end of its bucket.
func (h *Histogram) Above(millis uint32) (n uint64) {
	for _, c := range h[wire.TTFTBucket(millis)+1:] {
		n += uint64(c)
	}
	return n
}

const (
	// openStep is what the controller gives back in a step, closeFactor what it leaves when it
	// takes: additive increase, multiplicative decrease, as in TCP.
	openStep    = 0.05
	closeFactor = 0.7
	// A hundred times tell something about their 99th percentile; after windowSeconds a step takes
	// what there is.
	manySamples   = 100
	windowSeconds = 5
)

// Controller keeps P0's time to first token within its objective. What it turns is how much
// the classes below P0 get: Open times the way from their floors to their shares, and the same
// part of what is lent.
type Controller struct {
	// Open is 1 at the start, and at rest.
	Open float64

	window  Histogram
	seconds int
}

// NewController returns a controller at rest.
func NewController() Controller { return Controller{Open: 1} }

// Step takes in the times to first token of one second. It moves when it has seen enough of them
// to know their 99th percentile, or after some seconds with less; without any it gives back:
// nobody is there to be protected.
func (c *Controller) Step(second *Histogram, objectiveMillis uint32) {
	if objectiveMillis == 0 {
		*c = NewController()
		return
	}
	c.window.Add(second, &Histogram{})
	if c.seconds++; c.window.Count() < manySamples && c.seconds < windowSeconds {
		return
	}
	// One in a hundred may be late, and two deviations more by chance.
	expected := float64(c.window.Count()) / 100
	if late := c.window.Above(objectiveMillis); late > 1 && float64(late) > expected+2*math.Sqrt(expected) {
		if c.Open *= closeFactor; c.Open < openStep {
			c.Open = 0
		}
	} else {
		c.Open = min(c.Open+openStep, 1)
	}
	c.window, c.seconds = Histogram{}, 0
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
