// Package pace is the engines' clock in live runs: real time sped up, and sped
// up less while the machine can't follow.
//
// A simulated fleet runs many engine seconds in one real second, so a hiccup of
// 10 ms of a busy machine is a quarter of an engine second: enough to make
// queues that no real fleet would have, and to feed on itself. A Clock is shared
// by everything that lives in engine time, the engines and the load generator.
// Govern measures how late the process wakes up and slows the clock for all of
// them at once, so that a busy machine takes longer instead of telling lies.
package pace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Clock maps real time to engine time. Safe for concurrent use.
type Clock struct {
	mu         sync.Mutex
	baseReal   time.Time
	baseEngine time.Duration
	pace       float64 // engine seconds in one real second
	top        float64
	changed    map[*func()]struct{}
}

// NewClock starts a clock at 0 that runs pace engine seconds a real second.
func NewClock(pace float64) *Clock {
	return &Clock{baseReal: time.Now(), pace: pace, top: pace}
}

// Now is the engine time.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(time.Now())
}

func (c *Clock) at(t time.Time) time.Duration {
	return c.baseEngine + time.Duration(float64(t.Sub(c.baseReal))*c.pace)
}

// Until is the real time that is left until an engine time at today's pace; it
// is 0 for what is past.
func (c *Clock) Until(engine time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, time.Duration(float64(engine-c.at(time.Now()))/c.pace))
}

// Pace is the engine seconds in one real second now.
func (c *Clock) Pace() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pace
}

// SetPace changes the pace from now on and tells everyone who waits.
func (c *Clock) SetPace(pace float64) {
	c.mu.Lock()
	now := time.Now()
	c.baseEngine, c.baseReal = c.at(now), now
	c.pace = pace
	waiting := slices.Collect(maps.Keys(c.changed))
	c.mu.Unlock()
	for _, f := range waiting {
		(*f)()
	}
}

// OnChange has f called after every change of pace, so that timers can be set
// anew, until forget. f must be quick.
func (c *Clock) OnChange(f func()) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = map[*func()]struct{}{}
	}
	c.changed[&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.changed, &f)
	}
}

const (
	// probe is how long the governor sleeps to see how late it wakes.
	probe = 2 * time.Millisecond
	// window is how many probes make one decision.
	window = 16
	// tolerable is how much engine time a late wake-up may cost on average: a
	// tenth of a warm request's time to first token in the demo.
	tolerable = 20 * time.Millisecond
	// slowest is the smallest share of the top pace: below it a run would take
	// too long to wait for, and says that its latencies can't be trusted.
	slowest = 0.3
)

// Govern slows the clock while the process wakes up late and speeds it up again,
// until ctx ends.
func (c *Clock) Govern(ctx context.Context) {
	timer := time.NewTimer(probe)
	defer timer.Stop()
	var late time.Duration
	for n := 1; ; n++ {
		began := time.Now()
		timer.Reset(probe)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		late += time.Since(began) - probe
		if n%window == 0 {
			if next := c.next(late / window); next != c.Pace() {
				c.SetPace(next)
			}
			late = 0
		}
	}
}

// next is the pace after a window whose wake-ups were late on average by so
// much. It falls at once and rises by a twentieth at a time, and doesn't move
// for less than that.
func (c *Clock) next(late time.Duration) float64 {
	now := c.Pace()
	wanted := c.top
	if late > 0 {
		wanted = min(c.top, float64(tolerable)/float64(late))
	}
	wanted = max(wanted, c.top*slowest)
	switch {
	case wanted < now*0.95:
		return wanted
	case wanted > now:
		return min(wanted, now*1.05)
	}
	return now
}
