package agent

import (
	"context"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// maxBlocks bounds what is remembered of an engine's cache: 125 bytes a block.
const maxBlocks = 1 << 20

// unheard is who wants to know what the engine holds: nobody here. The agent counts
// what leaves the cache.
type unheard struct{}

func (unheard) Hold([]fingerprint.Checkpoint) {}
func (unheard) Drop(uint64)                   {}
func (unheard) Slow(uint64, bool)             {}
func (unheard) Clear()                        {}

// follow counts removals by the engine's KV events, where they are configured, until
// stop.
func (a *Agent) follow() (stop func()) {
	if a.cfg.Events.Events == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.events = kvevents.NewSource(a.cfg.Events, kvevents.Config{MaxBlocks: maxBlocks}, unheard{}, nil, a.log)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.events.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// removals are the tokens that have left the cache since the process of the engine,
// or this one, began, and the size of the cache; 0, 0 where one of them isn't known.
func (a *Agent) removals(load *discovery.Load) (removed, capacity float64) {
	capacity = float64(load.Facts.CapacityTokens)
	switch {
	case a.events != nil:
		// What a replay tells is of any time; it would look like all of it at once.
		st := a.events.Status()
		return float64(st.Map.Evicted-st.EvictedLate) * float64(st.Map.BlockTokens), capacity
	case load.RemovalsKnown:
		return load.RemovedTokens, capacity
	}
	return 0, 0
}
