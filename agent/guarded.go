package agent

import (
	"context"
	"sync"
	"time"

	"github.com/warmpath/warmpath/agent/guard"
	"github.com/warmpath/warmpath/control/heartbeat"
)

// How often a guarded engine is read: its own dispatches the guard knows at once,
// so this is for what ends and what grows there.
const (
	lookCalm = 250 * time.Millisecond
	lookBusy = 100 * time.Millisecond // while requests wait
)

// guard serves the guard, if there is one, and reads the engine for it, until stop.
func (a *Agent) guard() (stop func()) {
	g := a.cfg.Guard
	if g == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Serve(a.cfg.GuardListener); err != nil {
			a.log.Error("guard ended", "err", err)
		}
	})
	running.Go(func() { a.watchFor(ctx, g) })
	return func() {
		if left := g.Close(); left > 0 {
			a.log.Warn("requests were cut at the end", "worker", a.worker, "requests", left)
		}
		cancel()
		running.Wait()
	}
}

// watchFor reads the engine again and again, and tells the guard.
func (a *Agent) watchFor(ctx context.Context, g *guard.Guard) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		asked, began := g.Ask(), time.Now()
		load, err := a.scrape(ctx)
		if a.observe(load, began, err) {
			a.watch.hurry()
		}
		if err != nil {
			g.Unobserved()
		} else {
			g.Observe(guard.Load{
				Running: load.Running, Waiting: load.Waiting, KVShare: load.KVShare, CapacityTokens: load.Facts.CapacityTokens,
				PromptTokens: load.PromptTokens,
			}, asked)
		}
		next := lookCalm
		if g.Waiting() > 0 {
			next = lookBusy
		}
		timer.Reset(next)
	}
}

// addQueue adds what waits in front of the engine to what the engine has.
func (a *Agent) addQueue(h *heartbeat.Heartbeat) {
	if h.Load != nil {
		h.Load.Waiting += a.cfg.Guard.Waiting()
	}
	if h.Engine.QueueLimit == 0 {
		h.Engine.QueueLimit = a.cfg.Guard.QueueLimit()
	}
}
