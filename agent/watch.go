package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/eviction"
)

// watch is what was read of the engine last, and the eviction detector that sees
// every reading.
type watch struct {
	urgent chan struct{} // asks for a heartbeat now

	mu       sync.Mutex
	load     *discovery.Load // nil: not read
	read     time.Time       // when it was asked for
	err      error
	config   eviction.Config
	detector eviction.Detector
	started  uint64 // of the engine's process that the detector watches
	warned   bool   // of the present notice
}

func newWatch(c eviction.Config) watch {
	return watch{urgent: make(chan struct{}, 1), err: errUnread, config: c, detector: eviction.Detector{Config: c}}
}

var errUnread = errors.New("not read yet")

// observe keeps a reading and what was removed of the cache until then, and tells
// whether it is the first that shows an eviction.
func (a *Agent) observe(load *discovery.Load, read time.Time, err error) (news bool) {
	w := &a.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.load, w.read, w.err = load, read, err
	if load == nil {
		return false
	}
	if load.StartedMillis != w.started {
		w.detector = eviction.Detector{Config: w.config}
		w.started = load.StartedMillis
	}
	removed, capacity := a.removals(load)
	w.detector.Observe(removed, capacity, load.KVShare, read)
	before := w.warned
	w.warned = w.detector.Notice(read).Active()
	return w.warned && !before
}

// hurry asks for a heartbeat now.
func (w *watch) hurry() {
	select {
	case w.urgent <- struct{}{}:
	default:
	}
}

func (w *watch) last() (load *discovery.Load, read time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.load, w.read, w.err
}

func (w *watch) notice(now time.Time) eviction.Notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.detector.Notice(now)
}

// load is the engine's: read now, or as the guard's watch has it.
func (a *Agent) load(ctx context.Context) (load *discovery.Load, read time.Time, err error) {
	if a.cfg.Guard != nil {
		return a.watch.last()
	}
	read = time.Now()
	load, err = a.scrape(ctx)
	a.observe(load, read, err)
	return load, read, err
}
