package engine

import (
	"iter"
	"sort"
	"time"
)

// Counters only grow.
type Counters struct {
	QueriedTokens   uint64 // prompt tokens of admitted requests
	HitTokens       uint64 // of those, found in the cache
	ComputedTokens  uint64 // prompt tokens computed, for the first time
	GeneratedTokens uint64
	// Preemptions count how often a running request had to give its blocks away.
	// What it was admitted with again is not part of the hits above, as it isn't in
	// vLLM's metrics (PrefixCacheStats.preempted_queries and preempted_hits).
	Preemptions          uint64
	RecomputedTokens     uint64 // tokens computed again, of prompt and answer
	ResumedQueriedTokens uint64 // tokens known of requests that were admitted again
	ResumedHitTokens     uint64 // of those, found in the cache
	Finished             uint64
	Cancelled            uint64
	Refused              uint64
	Evictions            uint64 // blocks
	Steps                uint64
	Busy                 time.Duration // sum of all steps begun
	Work                 time.Duration // of that what requests cost: all but the steps' fixed part
}

// Stats are the engine's state at one time.
type Stats struct {
	Counters
	Running int
	Waiting int
	// ResidentBlocks have a hash; idle ones are among them.
	ResidentBlocks int
	// BlocksInUse belong to running requests and cannot be evicted.
	BlocksInUse int
	// AnswerBlocks of them are behind the prompts': what is being decoded.
	AnswerBlocks   int
	CapacityBlocks int
	privateBlocks  int
	// UncomputedTokens are prompt tokens of running and waiting requests that
	// are still to be computed, hits of waiting ones not yet taken off. What a
	// preempted request has generated is among them.
	UncomputedTokens int
	// TailIdle is how long the block that would be evicted next has not been
	// used; 0 while nothing can be evicted or there is room.
	TailIdle time.Duration
	// DecodeStep is how long a step takes that only decodes what decodes now.
	DecodeStep time.Duration
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
		CapacityBlocks: e.pool.capacity,
		privateBlocks:  e.pool.private,
	}
	s.Evictions = e.pool.evictions
	for _, q := range e.running {
		s.AnswerBlocks += max(0, q.published+q.private-blocksFor(q.PromptTokens))
		if !q.decoding() {
			s.UncomputedTokens += q.known() - q.computed
		}
	}
	for _, q := range e.waiting {
		s.UncomputedTokens += q.known()
	}
	if e.pool.head != none && e.pool.resident+e.pool.private == e.pool.capacity {
		s.TailIdle = max(now-e.pool.all[e.pool.head].released, 1)
	}
	s.DecodeStep = e.params.stepTime(stepLoad{requests: len(e.running), kvTokens: e.step.load.kvTokens})
	return s
}

// FreeTokens is the room for new tokens before a block must be evicted.
func (s Stats) FreeTokens() int {
	return max(0, s.CapacityBlocks-s.ResidentBlocks-s.privateBlocks) * BlockTokens
}

// Watch calls f whenever a block has become resident (now true), at the end of
// the step that computed it, or is evicted, from within the calls that move the
// engine. Of a block that was computed twice only the first is told, and the
// eviction of the last.
func (e *Engine) Watch(f func(h BlockHash, now bool)) { e.pool.watch = f }

// Resident yields the hash of each resident block, in no order. The engine
// must not be used meanwhile.
func (e *Engine) Resident() iter.Seq[BlockHash] {
	return func(yield func(BlockHash) bool) {
		for i := range e.pool.all {
			for h := e.pool.all[i].first; h < e.pool.all[i].end(); h++ {
				if e.pool.all[i].spare && e.pool.find(h) != int32(i) {
					continue
				}
				if !yield(h) {
					return
				}
			}
		}
	}
}

// Holds counts how many of the blocks are resident from the first on. Blocks of
// one chain go last first (blockPool), so none is resident behind one that isn't.
func (e *Engine) Holds(blocks []BlockHash) int {
	return sort.Search(len(blocks), func(i int) bool { return e.pool.find(blocks[i]) == none })
}

// ClearCache drops every block that no running request holds.
func (e *Engine) ClearCache(now time.Duration) {
	e.run(now)
	e.pool.clear()
}
