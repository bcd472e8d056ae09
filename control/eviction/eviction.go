// Package eviction tells a mass eviction from the steady one of a full cache.
//
// A Detector is fed with what an engine counts (cached tokens pushed out since
// its start) and measures (the share of the cache that running requests hold),
// and answers with a Notice while much of the cache goes, or is about to. A full
// LRU cache removes as many tokens as it stores, all the time: that is normal.
// What isn't is a removal faster than prompts can be computed, or running
// requests that grow into what is cached.
//
// Time comes from the caller.
package eviction

import (
	"fmt"
	"time"
)

// Config sets the thresholds; zero values take the defaults.
type Config struct {
	// Share of the capacity removed within a second that is a mass eviction. 0.2:
	// a cache of 200,000 tokens would have to be refilled at 40,000 tokens/s.
	Share float64
	// Watermark is the running share at which hardly anything else is left. 0.95.
	Watermark float64
	// Ahead is how far the growth of the running share is looked ahead. 5 s.
	Ahead time.Duration
}

// Notice says that Share of what is cached goes: it begins in In and is over For
// later. The zero Notice says that nothing happens.
type Notice struct {
	In, For time.Duration
	Share   float64
	Why     string
}

// Active tells whether n says anything.
func (n Notice) Active() bool { return n.Share > 0 }

const (
	// window is over which rates are taken, and at least half of it is needed.
	window = 2 * time.Second
	// lasts is how long a mass eviction is believed to go on without another word.
	lasts = 2 * time.Second
	// leastGrowth of the running share in a second is more than requests that come
	// and go, and below leastRunning nothing is pressed yet.
	leastGrowth, leastRunning = 0.1, 0.3
)

// Detector watches one process of an engine. The zero value with a Config is
// ready.
type Detector struct {
	Config
	removed, running series
	until            time.Time // of the mass eviction that was seen last
	share            float64   // of the capacity that it takes
	why              string
}

// Observe takes in that since its start the process has pushed removed tokens
// out of a cache of capacity tokens (0 for either not known), while running
// requests hold the share running of it.
func (d *Detector) Observe(removed, capacity, running float64, now time.Time) {
	d.defaults()
	d.running.add(running, now)
	if capacity <= 0 {
		return
	}
	d.removed.add(removed, now)
	if rate, ok := d.removed.rate(); ok && rate >= d.Share*capacity {
		if now.After(d.until) {
			d.share = 0
		}
		d.share = min(1, max(d.share, rate*lasts.Seconds()/capacity))
		d.until = now.Add(lasts)
		d.why = fmt.Sprintf("%.0f cached tokens removed in a second", rate)
	}
}

// Notice is what to announce now.
func (d *Detector) Notice(now time.Time) Notice {
	d.defaults()
	if now.Before(d.until) {
		return Notice{For: min(d.until.Sub(now), lasts), Share: d.share, Why: d.why}
	}
	growth, ok := d.running.rate()
	at := d.running.last()
	if !ok || growth < leastGrowth || at < leastRunning || at >= d.Watermark {
		return Notice{}
	}
	then := at + growth*d.Ahead.Seconds()
	if then < d.Watermark {
		return Notice{}
	}
	// What running requests will hold beyond what they hold now is taken from the
	// rest.
	return Notice{
		In: time.Duration((d.Watermark - at) / growth * float64(time.Second)), For: lasts,
		Share: (min(then, 1) - at) / (1 - at),
		Why:   fmt.Sprintf("running requests hold %.0f %% of the cache and grow by %.0f %% in a second", 100*at, 100*growth),
	}
}

func (d *Detector) defaults() {
	if d.Share <= 0 {
		d.Share = 0.2
	}
	if d.Watermark <= 0 {
		d.Watermark = 0.95
	}
	if d.Ahead <= 0 {
		d.Ahead = 5 * time.Second
	}
}

// series is what a value was within the window.
type series struct{ samples []sample }

type sample struct {
	at    time.Time
	value float64
}

// add drops what is older than the window but for one sample, and everything
// when the clock went back.
func (s *series) add(v float64, now time.Time) {
	if n := len(s.samples); n > 0 && !now.After(s.samples[n-1].at) {
		s.samples = s.samples[:0]
	}
	old := 0
	for old+1 < len(s.samples) && now.Sub(s.samples[old+1].at) >= window {
		old++
	}
	s.samples = append(s.samples[:0], s.samples[old:]...)
	s.samples = append(s.samples, sample{now, v})
}

func (s *series) last() float64 {
	if len(s.samples) == 0 {
		return 0
	}
	return s.samples[len(s.samples)-1].value
}

// rate is the growth in a second over the window.
func (s *series) rate() (perSecond float64, ok bool) {
	if len(s.samples) < 2 {
		return 0, false
	}
	first, last := s.samples[0], s.samples[len(s.samples)-1]
	took := last.at.Sub(first.at)
	if took < window/2 {
		return 0, false
	}
	return (last.value - first.value) / took.Seconds(), true
}
