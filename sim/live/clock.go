package live

import (
	"sync"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/pace"
)

// A driver moves one engine along with real time. Handlers submit and cancel
// under its lock; one timer wakes it at the engine's next event, and it wakes
// the handlers whose requests moved. There is no goroutine per request or per
// worker beyond the handlers themselves.
type driver struct {
	mu     sync.Mutex
	engine *engine.Engine
	timer  *time.Timer
	flows  map[uint64]*flow
	nextID uint64
	closed bool

	// The engine's own time: baseEngine at baseClock, then one second in slowness
	// seconds of the clock.
	clock                 *pace.Clock
	baseClock, baseEngine time.Duration
	slowness              float64
	forget                func() // leaves the clock
}

// A flow is one sequence in the engine, seen from its handler. The driver
// writes it under its lock.
type flow struct {
	id        uint64
	wake      chan<- struct{} // buffered, shared by the flows of one request
	generated int
	cached    int
	done      bool
}

func newDriver(p engine.Params, clock *pace.Clock) (*driver, error) {
	e, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	d := &driver{engine: e, flows: map[uint64]*flow{}, clock: clock, baseClock: clock.Now(), slowness: 1}
	d.timer = time.AfterFunc(time.Hour, d.tick)
	d.timer.Stop()
	d.forget = clock.OnChange(d.tick)
	return d, nil
}

// now is the engine's time. Callers hold mu.
func (d *driver) now() time.Duration {
	return d.baseEngine + time.Duration(float64(d.clock.Now()-d.baseClock)/d.slowness)
}

// setSlowness makes this engine slower than its clock from now on: 1 is normal.
func (d *driver) setSlowness(slowness float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.baseEngine, d.baseClock = d.now(), d.clock.Now()
	d.slowness = slowness
	d.deliver(d.baseEngine)
}

func (d *driver) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.deliver(d.now())
	}
}

// deliver tells the handlers what happened by now and sets the timer.
func (d *driver) deliver(now time.Duration) {
	for _, ev := range d.engine.Advance(now) {
		f := d.flows[ev.ID]
		if f == nil {
			continue
		}
		f.generated, f.cached = ev.Generated, ev.CachedTokens
		if ev.Kind == engine.Finished {
			f.done = true
			delete(d.flows, ev.ID)
		}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	if next, ok := d.engine.NextEvent(); ok {
		d.timer.Reset(d.clock.Until(d.baseClock + time.Duration(float64(next-d.baseEngine)*d.slowness)))
	}
}

// submit hands all sequences of one request to the engine, or none.
func (d *driver) submit(flows []flow, requests []engine.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for i := range requests {
		d.nextID++
		requests[i].ID = d.nextID
		if err := d.engine.Submit(now, requests[i]); err != nil {
			for j := range i {
				d.engine.Cancel(now, flows[j].id)
				delete(d.flows, flows[j].id)
			}
			d.deliver(now)
			return err
		}
		flows[i].id = d.nextID
		d.flows[d.nextID] = &flows[i]
	}
	d.deliver(now)
	return nil
}

// read copies the state of the flows.
func (d *driver) read(dst, flows []flow) {
	d.mu.Lock()
	copy(dst, flows)
	d.mu.Unlock()
}

// abort cancels what is still running of a request.
func (d *driver) abort(flows []flow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for i := range flows {
		if _, running := d.flows[flows[i].id]; running {
			d.engine.Cancel(now, flows[i].id)
			delete(d.flows, flows[i].id)
		}
	}
	d.deliver(now)
}

func (d *driver) stats() engine.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	s := d.engine.Stats(now)
	d.deliver(now)
	return s
}

func (d *driver) close() {
	d.forget()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.timer.Stop()
}
