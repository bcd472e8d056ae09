package engine

import (
	"iter"
	"time"
)

// Counters only grow.
type Counters struct {
	QueriedTokens   uint64 // prompt tokens of admitted requests
	HitTokens       uint64 // of those, found in the cache
	ComputedTokens  uint64 // prompt tokens computed
	GeneratedTokens uint64
	Finished        uint64
	Cancelled       uint64
	Refused         uint64
	Evictions       uint64 // blocks
	Steps           uint64
	Busy            time.Duration // sum of all steps begun
}

// Stats are the engine's state at one time.
type Stats struct {
	Counters
	Running int
	Waiting int
	// ResidentBlocks have a hash; idle ones are among them.
	ResidentBlocks int
	// BlocksInUse belong to running requests and cannot be evicted.
	BlocksInUse    int
	CapacityBlocks int
	// UncomputedTokens are prompt tokens of running and waiting requests that
	// are still to be computed, hits of waiting ones not yet taken off.
	UncomputedTokens int
}

// KVUsage is the share of the cache held by running requests: 0 when idle even
// if the cache is full, as vLLM reports it.
func (s Stats) KVUsage() float64 { return float64(s.BlocksInUse) / float64(s.CapacityBlocks) }

// Stats returns the state at now.
func (e *Engine) Stats(now time.Duration) Stats {
	e.run(now)
	e.applyRepeats()
	s := Stats{
		Counters:       e.counters,
		Running:        len(e.running),
		Waiting:        len(e.waiting),
		ResidentBlocks: e.pool.resident,
		BlocksInUse:    e.pool.inUse(),
		CapacityBlocks: e.pool.capacity(),
	}
	s.Evictions = e.pool.evictions
	for _, q := range e.running {
		s.UncomputedTokens += q.PromptTokens - q.computed
	}
	for _, q := range e.waiting {
		s.UncomputedTokens += q.PromptTokens
	}
	return s
}

// Resident yields the hash of each resident block, in no order. The engine
// must not be used meanwhile.
func (e *Engine) Resident() iter.Seq[BlockHash] {
	return func(yield func(BlockHash) bool) {
		for i := range e.pool.slots {
			if s := &e.pool.slots[i]; s.refs != none && !yield(s.hash) {
				return
			}
		}
	}
}

// Holds counts how many of the blocks are resident from the first on.
func (e *Engine) Holds(blocks []BlockHash) int {
	for i, h := range blocks {
		if e.pool.index.find(e.pool.slots, h) == none {
			return i
		}
	}
	return len(blocks)
}

// ClearCache drops every block that no running request holds.
func (e *Engine) ClearCache(now time.Duration) {
	e.run(now)
	e.pool.clear()
}
