package hostsim

import (
	"container/heap"
	"sync"
	"time"
)

// Clock is where a host takes its time from. [RealClock] is the machine's;
// [NewVirtualClock] stands still until the test moves it.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now, on a goroutine of the clock's
	// choosing. The function it returns cancels the call if it has not begun.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// RealClock returns the machine's clock.
func RealClock() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// VirtualClock only moves when told to (by [Host.Advance]). Timers that are due
// at the same instant fire in the order in which they were set.
type VirtualClock struct {
	mu     sync.Mutex
	now    time.Time
	jumped time.Duration // of the wall clock against now, which timers go by
	seq    uint64
	timers timerHeap
}

// NewVirtualClock returns a clock that stands at start.
func NewVirtualClock(start time.Time) *VirtualClock { return &VirtualClock{now: start} }

// Now returns the virtual time.
func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Add(c.jumped)
}

// Jump moves the wall clock by d, ahead or back, as a step of NTP or a restored
// machine does. Timers (ticks, timeouts) and WASI's monotonic clock do not notice.
func (c *VirtualClock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumped += d
}

// monotonic is the time that timers go by.
func (c *VirtualClock) monotonic() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc sets a virtual timer.
func (c *VirtualClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	t := &virtualTimer{at: c.now.Add(max(d, 0)), seq: c.seq, f: f}
	heap.Push(&c.timers, t)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.f = nil
	}
}

// next moves the clock to the earliest timer that is due at or before limit (on
// the monotonic clock) and returns its function. With none left it moves the
// clock to limit and returns nil.
func (c *VirtualClock) next(limit time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.timers) > 0 && !c.timers[0].at.After(limit) {
		t := heap.Pop(&c.timers).(*virtualTimer)
		if t.f == nil {
			continue
		}
		if t.at.After(c.now) {
			c.now = t.at
		}
		return t.f
	}
	if limit.After(c.now) {
		c.now = limit
	}
	return nil
}

type virtualTimer struct {
	at  time.Time
	seq uint64
	f   func()
}

type timerHeap []*virtualTimer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}

func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)   { *h = append(*h, x.(*virtualTimer)) }

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
