package discovery

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// Monitor keeps one probe loop per listed worker and feeds the Fleet.
type Monitor struct {
	Fleet *Fleet

	cfg    HealthConfig
	prober *prober
	log    *slog.Logger
	idle   func()

	mu      sync.Mutex
	ctx     context.Context // nil until Run, done after it
	specs   []Spec          // listed before Run
	loops   map[string]*loop
	pending sync.WaitGroup
}

type loop struct {
	cancel context.CancelFunc
	nudge  chan struct{}
}

// NewMonitor returns a monitor for fleet. transport nil means a transport of
// its own with short timeouts and no proxy.
func NewMonitor(fleet *Fleet, cfg HealthConfig, transport http.RoundTripper, log *slog.Logger) *Monitor {
	cfg = cfg.withDefaults()
	idle := func() {}
	if transport == nil {
		t := &http.Transport{
			DialContext:         (&net.Dialer{Timeout: cfg.Timeout}).DialContext,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     30 * time.Second,
			DisableCompression:  true,
		}
		transport, idle = t, t.CloseIdleConnections
	}
	return &Monitor{Fleet: fleet, cfg: cfg, prober: newProber(cfg, transport), log: log, idle: idle, loops: map[string]*loop{}}
}

// SetList replaces the worker list. Loops of workers that went stop, loops of
// new ones start at once.
func (m *Monitor) SetList(specs []Spec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	added, removed := m.Fleet.SetList(specs, time.Now())
	if len(added)+len(removed) > 0 {
		m.log.Info("worker list changed", "workers", len(specs), "added", len(added), "removed", len(removed))
	}
	m.specs = specs
	m.sync()
}

// sync makes the loops match the list. Requires mu.
func (m *Monitor) sync() {
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	want := make(map[string]bool, len(m.specs))
	for _, s := range m.specs {
		want[s.Address] = true
	}
	for addr, l := range m.loops {
		if !want[addr] {
			l.cancel()
			delete(m.loops, addr)
		}
	}
	for addr := range want {
		if m.loops[addr] == nil {
			ctx, cancel := context.WithCancel(m.ctx)
			l := &loop{cancel: cancel, nudge: make(chan struct{}, 1)}
			m.loops[addr] = l
			m.pending.Go(func() { m.probe(ctx, addr, l.nudge) })
		}
	}
}

// Run probes until ctx ends and returns when the last loop has.
func (m *Monitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	m.ctx = ctx
	m.sync()
	m.mu.Unlock()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-tick.C:
			m.Fleet.Tick(now)
		}
	}
	m.mu.Lock()
	cancel()
	clear(m.loops)
	m.mu.Unlock()
	m.pending.Wait()
	m.idle()
	return nil
}

// Nudge asks for a probe of the worker now: somebody saw it fail.
func (m *Monitor) Nudge(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.loops[address]; l != nil {
		select {
		case l.nudge <- struct{}{}:
		default:
		}
	}
}

// jittered takes up to a tenth from d, so that workers listed together aren't
// asked together for ever.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// watched is how many workers are probed.
func (m *Monitor) watched() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.loops)
}

func (m *Monitor) probe(ctx context.Context, address string, nudge <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	up, first := false, true
	var healthAt, metricsAt time.Time // when each is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-nudge:
			healthAt = time.Time{}
		case <-timer.C:
		}
		now := time.Now()
		var o Observation
		if up && now.Before(healthAt) {
			o = Observation{OK: true}
			m.prober.scrape(ctx, address, &o)
			if o.Load == nil {
				// The scrape failed: only a health check may say "down".
				why := o.MetricsProblem
				o = m.prober.health(ctx, address)
				o.MetricsProblem = why
			}
		} else {
			o = m.prober.round(ctx, address, !up || !now.Before(metricsAt))
			healthAt = now.Add(jittered(m.cfg.IntervalUp))
		}
		if ctx.Err() != nil {
			return
		}
		if o.OK != up || first {
			m.log.Info("worker health changed", "worker", address, "up", o.OK, "reason", o.Reason)
		}
		m.Fleet.Observe(address, o, time.Now())
		up, first = o.OK, false
		if !up {
			timer.Reset(m.cfg.IntervalDown - rand.N(m.cfg.IntervalDown/5+1))
			continue
		}
		next := healthAt
		if m.cfg.MetricsPath != "-" {
			if !now.Before(metricsAt) {
				metricsAt = now.Add(jittered(m.cfg.scrapeEvery(m.watched())))
			}
			if metricsAt.Before(next) {
				next = metricsAt
			}
		}
		timer.Reset(max(time.Until(next), time.Millisecond))
	}
}
