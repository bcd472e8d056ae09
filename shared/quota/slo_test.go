package quota

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/wire"
)

// times is a histogram of n times, and of late others.
func times(millis, n uint32, lateMillis, late uint32) *Histogram {
	h := &Histogram{}
	h[wire.TTFTBucket(millis)] += n
	h[wire.TTFTBucket(lateMillis)] += late
	return h
}

func TestTheControllerClosesOnALateP0AndOpensAgain(t *testing.T) {
	classes := testAdmission(t, `{}`).Classes
	c := NewController()
	for range 20 {
		c.Step(times(3000, 200, 0, 0), 2000)
	}
	if s := c.Shares(&classes); c.Open != 0 || s.Class[1] != classes[1].Floor || s.Class[0] != 1-classes[1].Floor || s.Lend != 0 {
		t.Errorf("%+v %+v", c, s)
	}
	steps := 0
	for c.Open < 1 {
		c.Step(times(500, 200, 0, 0), 2000)
		if steps++; steps > 600 {
			t.Fatalf("open to %v after ten minutes in time", c.Open)
		}
	}
	if s := c.Shares(&classes); s.Class[0] != 0.7 || s.Class[1] != 0.3 || s.Lend != 1 {
		t.Errorf("%v %+v", c.Open, s)
	}
	for range 10 {
		c.Step(times(500, 199, 4000, 1), 2000) // one in two hundred
	}
	if c.Open != 1 {
		t.Errorf("closed to %v for what chance explains", c.Open)
	}
	c.Step(times(3000, 200, 0, 0), 0)
	if c.Open != 1 {
		t.Error("closed without an objective")
	}
}

func TestNothingIsGivenBackWhileMoreThanOneInAHundredWereLate(t *testing.T) {
	law := &AIMD{Guard: 1, Close: 0.5, Rise: 0.1, Budget: 0.01, Memory: 60}
	open := law.Next(1, times(500, 180, 4000, 20), 2000)
	if open != 0.5 {
		t.Fatalf("%v after one in ten was late", open)
	}
	// 18 too many are paid back by 1,800 in time, less what is forgotten meanwhile.
	paid := 0
	for ; open == 0.5 && paid < 100; paid++ {
		open = law.Next(open, times(500, 100, 0, 0), 2000)
	}
	if paid < 12 || paid > 20 {
		t.Errorf("given back after %d seconds of 100", paid)
	}
}

// TestABucketIsAnEighthWide: what the controller works with is counts in buckets, of all gateways
// together. None that is in time counts as late, and none is missed that is later by an eighth.
func TestABucketIsAnEighthWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Uint32Range(50, 100_000).Draw(t, "limit")
		exact := rapid.SliceOfN(rapid.Uint32Range(0, 200_000), 1, 50).Draw(t, "times")
		var h Histogram
		late, surely := uint64(0), uint64(0)
		for _, ms := range exact {
			part := Histogram{}
			part[wire.TTFTBucket(ms)] = 1
			h.Add(&part, &Histogram{})
			if ms > limit {
				late++
			}
			if float64(ms) > math.Ceil(float64(limit)*1.125) {
				surely++
			}
		}
		if got := h.Above(limit); got > late || got < surely {
			t.Fatalf("%d above %d ms, of which %d are and %d by an eighth", got, limit, late, surely)
		}
	})
}
