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

// Law decides from P0's times to first token how far the classes below it are let. It is asked
// once a second with those of that second; open is how far they are let now, 0 to 1, and the answer
// how far they are from then on.
type Law interface {
	Next(open float64, second *Histogram, objectiveMillis uint32) float64
}

// Controller keeps P0's time to first token within its objective. What it turns is how much
// the classes below P0 get: Open times the way from their floors to their shares, and the same
// part of what is lent.
type Controller struct {
	// Open is 1 at the start, and at rest.
	Open float64
	// Law moves it.
	Law Law
}

// NewController returns a controller at rest, with the law that did best of those that the
// simulator compares (warmpath sim admission laws).
func NewController() Controller {
	return Controller{Open: 1, Law: &AIMD{Guard: 0.9, Close: 0.5, Rise: 0.01, Settle: 2, Budget: 0.008, Memory: 60}}
}

// Step takes in the times to first token of one second.
func (c *Controller) Step(second *Histogram, objectiveMillis uint32) {
	if objectiveMillis == 0 {
		c.Open = 1
		return
	}
	c.Open = min(max(c.Law.Next(c.Open, second, objectiveMillis), 0), 1)
}

const (
	// A hundred times tell something about their 99th percentile; after windowSeconds a step takes
	// what there is.
	manySamples   = 100
	windowSeconds = 5
	// Below leastOpen nothing is left to halve.
	leastOpen = 0.03
)

// AIMD gives back by addition and takes by multiplication, as TCP does. With Memory it also has a
// budget: while more than that were late it gives nothing back. Without one it finds the limit by
// going beyond it again and again, which is too often for a 99th percentile. With a whole hundredth
// the percentile is at the objective, and beyond it in some minutes; eight in a thousand cost the
// classes below 3 % of what they get.
type AIMD struct {
	// Guard is the part of the objective above which a time counts as late.
	Guard float64
	// Close is what is left of Open when it takes, Rise what it gives back for each second.
	Close, Rise float64
	// Settle is the seconds after taking in which it doesn't judge: what comes then was let in before.
	Settle int
	// Budget is the share that may be late without that nothing is given back, Memory the seconds
	// over which that is forgotten; 0 for no budget.
	Budget, Memory float64

	window  Histogram
	seconds int
	settles int
	debt    float64 // late ones beyond the budget
}

// Next is a step.
func (a *AIMD) Next(open float64, second *Histogram, objectiveMillis uint32) float64 {
	limit := uint32(a.Guard * float64(objectiveMillis))
	if a.Memory > 0 {
		a.debt += float64(second.Above(limit)) - a.Budget*float64(second.Count()) - a.debt/a.Memory
	}
	if a.settles > 0 {
		a.settles--
		return open
	}
	a.window.Add(second, &Histogram{})
	a.seconds++
	late := a.window.late(limit)
	if !late && a.window.Count() < manySamples && a.seconds < windowSeconds {
		return open
	}
	next := open
	switch {
	case late:
		a.settles = a.Settle
		if next *= a.Close; next < leastOpen {
			next = 0
		}
	case a.debt <= 0:
		next += a.Rise * float64(a.seconds)
	}
	a.window, a.seconds = Histogram{}, 0
	return next
}

// late tells whether more than one in a hundred took longer than so many milliseconds, and by more
// than chance explains.
func (h *Histogram) late(millis uint32) bool {
	expected := float64(h.Count()) / 100
	above := h.Above(millis)
	return above > 1 && float64(above) > expected+2*math.Sqrt(expected)
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
