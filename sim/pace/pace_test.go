package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestEngineTimeRunsAtThePaceAndNeverBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock(20)
		told := 0
		forget := c.OnChange(func() { told++ })
		<-time.After(time.Second)
		if got := c.Now(); got != 20*time.Second {
			t.Errorf("after 1 s at 20x: %v", got)
		}
		c.SetPace(5)
		<-time.After(2 * time.Second)
		if got := c.Now(); got != 30*time.Second {
			t.Errorf("after 2 s more at 5x: %v", got)
		}
		if got := c.Until(40 * time.Second); got != 2*time.Second {
			t.Errorf("10 engine seconds ahead at 5x: %v", got)
		}
		if got := c.Until(time.Second); got != 0 {
			t.Errorf("the past is %v away", got)
		}
		forget()
		c.SetPace(7)
		if told != 1 {
			t.Errorf("told of %d changes, want the one before it left", told)
		}
	})
}

func TestALateMachineSlowsTheClockAtOnceAndGetsItBackSlowly(t *testing.T) {
	c := NewClock(25)
	if got := c.next(100 * time.Microsecond); got != 25 {
		t.Errorf("wake-ups 0.1 ms late: %v", got)
	}
	c.SetPace(c.next(2 * time.Millisecond))
	if got := c.Pace(); got != 10 {
		t.Errorf("wake-ups 2 ms late: %v, want 20 ms / 2 ms", got)
	}
	if got := c.next(0); got != 10.5 {
		t.Errorf("one good window: %v, want a twentieth more", got)
	}
	c.SetPace(c.next(time.Second))
	if got := c.Pace(); got != 7.5 {
		t.Errorf("a stalled machine: %v, want the floor of 0.3 x 25", got)
	}
	for range 40 {
		c.SetPace(c.next(0))
	}
	if got := c.Pace(); got != 25 {
		t.Errorf("after 40 good windows: %v", got)
	}
}
