package discovery

import (
	"cmp"
	"errors"
	"math"
	"time"
)

// Beat is what a worker's heartbeat says beside its cache.
type Beat struct {
	Sequence uint64 // rises from beat to beat of one process
	// StartedMillis is the process's start in Unix milliseconds; 0 not told.
	StartedMillis uint64
	Draining      bool
	Load          *BeatLoad // nil not told
	Facts         Facts
	Evict         *Eviction // nil says nothing
}

// BeatLoad is the load in a heartbeat.
type BeatLoad struct {
	Age              time.Duration
	Running, Waiting int
	KVShare          float64
	// Utilization is the share of the batch limit that is in use, for engines that
	// don't count requests; it counts where that limit is known.
	Utilization float64
}

// Eviction is the notice that a share of a worker's cache will go.
type Eviction struct {
	In, For time.Duration // begins in, lasts; For 0 takes a notice back
	Share   float64       // of what is cached
	Why     string
}

// Why a beat wasn't taken.
var (
	ErrNotListed     = errors.New("not in the worker list")
	ErrOldGeneration = errors.New("of a process that is gone")
	ErrRepeated      = errors.New("heard before")
	// ErrStartAhead: a start in another unit than milliseconds would make every
	// later process an earlier one.
	ErrStartAhead = errors.New("started in the future")
)

const (
	// beatMemory is how long a sequence is held against later beats. A repeated
	// request is never as old, and a clock that was set back is heard again.
	beatMemory = 10 * time.Second
	// sameStart: two ways to tell when a process started differ by less.
	sameStart = 2 * time.Second
	// startAhead is more than clocks are apart.
	startAhead = 24 * time.Hour
	// drainWord is how long a beat's wish to drain holds without another beat.
	drainWord = time.Minute
)

// Beat takes a heartbeat in and returns the worker as it is then. Its Ref is 0
// until the worker was probed once.
func (f *Fleet) Beat(address string, b Beat, now time.Time) (Worker, error) {
	canonical, err := canonicalAddress(address)
	if err != nil {
		return Worker{}, errors.Join(ErrNotListed, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.workers[canonical]
	if !ok {
		return Worker{}, ErrNotListed
	}
	if int64(b.StartedMillis) > now.Add(startAhead).UnixMilli() {
		return w.Worker, ErrStartAhead
	}
	newer := false
	if b.StartedMillis != 0 && w.started != 0 {
		apart := time.Duration(int64(b.StartedMillis)-int64(w.started)) * time.Millisecond
		if apart < -sameStart {
			return w.Worker, ErrOldGeneration
		}
		newer = apart > sameStart
	}
	if !newer && b.Sequence <= w.beatSequence && now.Sub(w.BeatAt) < beatMemory {
		return w.Worker, ErrRepeated
	}
	urgent := false
	if b.StartedMillis != 0 && (newer || w.started == 0) {
		urgent = f.startedAt(w, b.StartedMillis, now)
	}
	w.beatSequence, w.BeatAt, w.Beats = b.Sequence, now, w.Beats+1
	urgent = f.learn(w, b.Facts) || urgent
	if b.Load != nil {
		// What a heartbeat doesn't tell is as it was.
		l := w.Load
		l.Running, l.Waiting, l.KVShare, l.Known, l.Facts = b.Load.Running, b.Load.Waiting, b.Load.KVShare, true, w.facts
		l.Running = max(l.Running, int(math.Ceil(b.Load.Utilization*float64(w.MaxRunning))))
		// A share of something says that requests run, not how many.
		l.Counted = l.Running > 0 || b.Load.Utilization == 0 && b.Load.KVShare == 0
		urgent = f.takeLoad(w, l, now.Add(-b.Load.Age)) || urgent
	}
	w.BeatDraining = b.Draining
	if b.Evict != nil {
		urgent = w.evicting(*b.Evict, now) || urgent
	}
	urgent = f.settle(w, now) || urgent
	urgent = f.assign() || urgent
	f.hooks.Changed(urgent)
	return w.Worker, nil
}

// pageStartedAt takes in the start that a metrics page tells. One that it told
// before is no news: a heartbeat may have told of a later process meanwhile, and
// two that disagree for good must not take turns.
func (f *Fleet) pageStartedAt(w *worker, millis uint64, now time.Time) bool {
	if millis == w.pageStarted {
		return false
	}
	w.pageStarted = millis
	return f.startedAt(w, millis, now)
}

// startedAt takes in when the process behind w began; true when it is another.
func (f *Fleet) startedAt(w *worker, millis uint64, now time.Time) bool {
	w.started = millis
	if w.source == genConfigured {
		return false
	}
	return f.newGeneration(w, millis, genStartTime, now)
}

// Evicting gives notice of an eviction at the worker of a live ref.
func (f *Fleet) Evicting(ref uint16, e Eviction, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.Ref == ref && ref != 0 {
			f.hooks.Changed(w.evicting(e, now))
			return
		}
	}
}

// evicting keeps a notice: of two the later end and the larger share count, and
// one of no length ends both. True when gateways should hear of it at once.
func (w *worker) evicting(e Eviction, now time.Time) bool {
	running := w.EvictUntil.After(now)
	if e.For <= 0 {
		w.EvictUntil, w.EvictShare, w.EvictWhy = time.Time{}, 0, ""
		return running
	}
	until := now.Add(e.In + e.For)
	if running {
		e.Share = max(e.Share, w.EvictShare)
		if w.EvictUntil.After(until) {
			until = w.EvictUntil
		}
	}
	larger := e.Share > w.EvictShare
	w.EvictUntil, w.EvictShare, w.EvictWhy = until, e.Share, cmp.Or(e.Why, w.EvictWhy)
	return !running || larger
}

// drains tells whether the last beat's wish to drain holds.
func (w *worker) drains(now time.Time) bool { return w.BeatDraining && now.Sub(w.BeatAt) < drainWord }
