package cluster

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// store is the key behind a network that delays, loses and reorders.
type store struct {
	revision uint64
	value    []byte
}

// clock is a machine's: it runs at a rate of its own, and is set to another time.
type clock struct {
	base time.Time
	rate float64
}

func (c clock) at(t time.Duration) time.Time {
	return c.base.Add(time.Duration(float64(t) * c.rate))
}

// contender is a replica: what it would do next waits for a pause to end.
type contender struct {
	seat
	clock
	paused time.Duration // until then nothing of it runs
	waits  []func(now time.Duration)
}

// event is something that happens at a time.
type event struct {
	at time.Duration
	f  func(now time.Duration)
}

// world plays contenders in one true time.
type world struct {
	t      *rapid.T
	now    time.Duration
	events []event
	store  store
	all    []*contender
	led    map[int]bool
}

func (w *world) after(d time.Duration, f func(now time.Duration)) {
	w.events = append(w.events, event{w.now + d, f})
}

// run does f at the contender's machine, when that isn't paused.
func (w *world) run(c *contender, f func(now time.Duration)) {
	if w.now < c.paused {
		c.waits = append(c.waits, f)
		return
	}
	f(w.now)
}

func (w *world) delay(label string) time.Duration {
	if rapid.IntRange(0, 9).Draw(w.t, label+" late") == 0 {
		return time.Duration(rapid.IntRange(0, 4000).Draw(w.t, label)) * time.Millisecond
	}
	return time.Duration(rapid.IntRange(0, 60).Draw(w.t, label)) * time.Millisecond
}

// look is what a replica does again and again: read, then write where it may. Each
// message may be late, and answers may be lost; a write that is late is done all the same.
func (w *world) look(c *contender) {
	lost := func(label string) bool { return rapid.IntRange(0, 14).Draw(w.t, label) == 0 }
	w.after(w.delay("read"), func(time.Duration) {
		read := w.store
		if lost("read lost") {
			return
		}
		w.after(w.delay("read back"), func(time.Duration) {
			w.run(c, func(now time.Duration) {
				if err := c.saw(read.revision, read.value, c.at(now)); err != nil {
					w.t.Fatal(err)
				}
				sent := c.at(now)
				value, ok := c.claim(sent)
				if !ok {
					return
				}
				// The process may be stopped between the decision and the sending.
				revision := c.revision
				w.after(w.delay("write"), func(time.Duration) {
					if w.store.revision != revision {
						return
					}
					w.store = store{w.store.revision + 1, value}
					written := w.store
					if lost("write lost") {
						return
					}
					w.after(w.delay("write back"), func(time.Duration) {
						w.run(c, func(now time.Duration) {
							if err := c.wrote(written.revision, written.value, sent, c.at(now)); err != nil {
								w.t.Fatal(err)
							}
						})
					})
				})
			})
		})
	})
}

// step lets one event happen and checks the one thing that must be true.
func (w *world) step() bool {
	if len(w.events) == 0 {
		return false
	}
	first := 0
	for i := range w.events {
		if w.events[i].at < w.events[first].at {
			first = i
		}
	}
	e := w.events[first]
	w.events = append(w.events[:first], w.events[first+1:]...)
	w.now = e.at
	e.f(w.now)
	leaders := 0
	for i, c := range w.all {
		if c.leads(c.at(w.now)) {
			leaders++
			w.led[i] = true
		}
	}
	if leaders > 1 {
		w.t.Fatalf("%d leaders at %v", leaders, w.now)
	}
	return true
}

// TestTwoNeverLeadAtATime: processes stop for seconds, messages and answers are late
// or lost, clocks are set to other times and run up to 2 % fast and slow.
func TestTwoNeverLeadAtATime(t *testing.T) {
	took, changed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const length, horizon = 1500 * time.Millisecond, 30 * time.Second
		w := &world{t: t, led: map[int]bool{}}
		for i := range 3 {
			c := &contender{seat: seat{self: Replica{Name: fmt.Sprint(i), Nonce: uint64(i + 1)}, length: length}, clock: clock{
				base: time.Unix(1_800_000_000+int64(rapid.IntRange(-3600, 3600).Draw(t, "set")), 0),
				rate: 1 + float64(rapid.IntRange(-20, 20).Draw(t, "rate"))/1000,
			}}
			w.all = append(w.all, c)
			var again func(time.Duration)
			again = func(now time.Duration) {
				if now < horizon {
					w.run(c, func(time.Duration) { w.look(c) })
					w.after(length/looks, again)
				}
			}
			w.after(time.Duration(i)*50*time.Millisecond, again)
			for range rapid.IntRange(0, 3).Draw(t, "pauses") {
				at := time.Duration(rapid.IntRange(0, 30000).Draw(t, "pause at")) * time.Millisecond
				long := time.Duration(rapid.IntRange(200, 6000).Draw(t, "pause")) * time.Millisecond
				w.after(at, func(now time.Duration) {
					c.paused = max(c.paused, now+long)
					w.after(long, func(now time.Duration) {
						if now < c.paused {
							return
						}
						waits := c.waits
						c.waits = nil
						for _, f := range waits {
							f(now)
						}
					})
				})
			}
		}
		for w.step() {
		}
		if len(w.led) > 0 {
			took++
		}
		if len(w.led) > 1 {
			changed++
		}
	})
	if took == 0 || changed == 0 {
		t.Errorf("somebody led in %d runs, more than one after the other in %d: nothing was tried", took, changed)
	}
}

func TestALostStoreDoesNotEndTheLeaseThatWasInIt(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	a := &seat{self: Replica{Nonce: 1}, length: time.Second}
	b := &seat{self: Replica{Nonce: 2}, length: time.Second}
	for _, s := range []*seat{a, b} {
		if err := s.saw(0, nil, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := a.claim(now); ok {
		t.Fatal("an absent key was taken at once")
	}
	now = now.Add(1020 * time.Millisecond)
	value, ok := a.claim(now)
	if !ok || a.wrote(7, value, now, now) != nil || !a.leads(now) {
		t.Fatal("not taken after the wait")
	}
	if err := b.saw(7, value, now); err != nil {
		t.Fatal(err)
	}
	now = now.Add(500 * time.Millisecond)
	if err := b.saw(0, nil, now); err != nil { // the store was lost
		t.Fatal(err)
	}
	for ; a.leads(now); now = now.Add(10 * time.Millisecond) {
		if _, ok := b.claim(now); ok {
			t.Fatalf("taken %v before the end", a.until.Sub(now))
		}
	}
	if value, ok = b.claim(now.Add(time.Second)); !ok {
		t.Fatal("never taken")
	}
	first := a.term
	if err := b.wrote(1, value, now.Add(time.Second), now.Add(time.Second)); err != nil || b.term <= first {
		t.Fatalf("%v: term %d after %d", err, b.term, first)
	}
}

func TestALeaseThatWasGivenUpIsTakenAtOnce(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	a := &seat{self: Replica{Nonce: 1}, length: time.Second, alone: true}
	if err := a.saw(0, nil, now); err != nil {
		t.Fatal(err)
	}
	value, ok := a.claim(now)
	if !ok || a.wrote(1, value, now, now) != nil {
		t.Fatal("who is alone waits for nobody")
	}
	value, ok = a.resign()
	if !ok || a.leads(now) {
		t.Fatal("still leads")
	}
	b := &seat{self: Replica{Nonce: 2}, length: time.Second}
	if err := b.saw(2, value, now); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.claim(now); !ok {
		t.Error("not taken at once")
	}
}

// TestTheMarginsCoverTheRatesOfClocks: the leader's clock is 2 % slow, the follower's 2 % fast.
func TestTheMarginsCoverTheRatesOfClocks(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	slow, fast := clock{start, 1 / 1.02}, clock{start.Add(time.Hour), 1.02}
	a := &seat{self: Replica{Nonce: 1}, length: time.Second, alone: true}
	b := &seat{self: Replica{Nonce: 2}, length: time.Second}
	if err := a.saw(0, nil, slow.at(0)); err != nil {
		t.Fatal(err)
	}
	value, _ := a.claim(slow.at(0))
	a.alone = false
	if err := a.wrote(1, value, slow.at(0), slow.at(0)); err != nil {
		t.Fatal(err)
	}
	if err := b.saw(1, value, fast.at(0)); err != nil {
		t.Fatal(err)
	}
	ended, taken := time.Duration(0), time.Duration(0)
	for at := time.Duration(0); taken == 0; at += time.Millisecond {
		if ended == 0 && !a.leads(slow.at(at)) {
			ended = at
		}
		if _, ok := b.claim(fast.at(at)); ok {
			taken = at
		}
	}
	if ended == 0 || taken < ended || ended < 900*time.Millisecond || taken > 1100*time.Millisecond {
		t.Errorf("ended at %v, taken at %v", ended, taken)
	}
}
