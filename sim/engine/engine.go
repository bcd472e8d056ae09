// Package engine models a continuous-batching LLM engine with a block prefix
// cache, in pure code on whatever clock the caller has.
//
// A request travels through it so: Submit puts it into the queue or refuses
// it. At the start of a step, while the batch has a place, the step's token
// budget is not spent and there is room for all blocks of its prompt, the
// oldest waiting request is admitted; the leading full blocks that are
// resident are a hit and the rest of the prompt is computed in chunks. Blocks
// that a step fills are resident once it is planned: who is admitted to the
// same step after their request hits them. The
// step that computes the last prompt token yields the first output token;
// every later step one more. When the last token is out its blocks are
// released, but stay resident until the space is needed.
//
// Blocks are taken as chunks and tokens need them. When there is none for a
// running request, the one that was admitted last is preempted: its blocks are
// released, and it waits again, before all others, for room for its prompt and
// what it has generated. That is then computed anew but for what is still
// resident. In such a step nobody is admitted. The oldest running request thus
// always goes on.
//
// This is what vLLM's V1 scheduler does (0.32, v1/core/sched/scheduler.py and
// kv_cache_manager.py) with first come first served, no watermark and
// scheduler_reserve_full_isl, its defaults. package calibration in integration
// holds the two together.
//
// Time only moves through the arguments. Between two calls nothing happens:
// Advance runs every step that ended by now, so an engine may be driven by a
// virtual clock event by event or by a timer that is late, with equal results.
package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of Submit.
var (
	ErrQueueFull = errors.New("engine: the waiting queue is full")
	ErrTooLong   = errors.New("engine: the request needs more blocks than the cache has")
)

// A Request is one sequence of tokens: a prompt and the answer that the engine
// will decode.
type Request struct {
	// ID names the request in events and in Cancel; the caller keeps it unique.
	ID uint64
	// PromptTokens is at least 1.
	PromptTokens int
	// OutputTokens is how many tokens are decoded; 0 is an embedding: it
	// finishes when its prompt is computed.
	OutputTokens int
	// Blocks are the hashes of the full blocks of prompt and answer together.
	// The engine keeps the slice until the request has ended. nil: nothing of
	// it is in the cache, and nothing stays.
	Blocks []BlockHash
	// EventTokens asks for a Tokens event each time so many tokens were
	// decoded; 0: only the first token and the end are told.
	EventTokens int
}

// EventKind tells what happened to a request.
type EventKind uint8

const (
	// FirstToken: the prompt is computed and the first token is out. Skipped
	// if it is also the last.
	FirstToken EventKind = iota
	// Tokens: EventTokens more are out.
	Tokens
	// Finished: the last token is out, the request is gone.
	Finished
)

// An Event is something the client of a request would see.
type Event struct {
	ID   uint64
	Kind EventKind
	// At is the end of the step in which it happened.
	At time.Duration
	// Generated counts the output tokens so far.
	Generated int
	// CachedTokens of the prompt were found in the cache when the request was
	// first admitted. What it finds again after a preemption isn't counted.
	CachedTokens int
	// Queued is the time from Submit to the first admission.
	Queued time.Duration
}

// An Engine is one engine. It is not safe for concurrent use.
type Engine struct {
	params Params
	pool   *blockPool

	now     time.Duration // latest time seen
	waiting []*sequence   // preempted ones, then oldest first
	running []*sequence   // in order of admission

	step     step
	changed  bool // the batch or queue changed during the step
	events   []Event
	spare    []Event // what the last Advance returned
	counters Counters
	recycled []*sequence
}

// A step in progress. Runs of steps that only decode are counted, not worked
// through, until one of them yields an event or memory may run out after it.
type step struct {
	active     bool
	end        time.Duration
	load       stepLoad
	decoding   int           // requests that get a token at the end
	repeats    int           // equal steps already over and not yet applied
	untilEvent int           // steps, this first one included, until an event
	eventAt    time.Duration // end of that step, 0 if not yet worked out
}

type sequence struct {
	Request
	submitted time.Duration
	queued    time.Duration
	cached    int // prompt tokens found in the cache, at first
	computed  int // tokens in the cache or computed
	chunk     int // tokens being computed in this step
	generated int
	published int // blocks with a hash, referenced: those that the step fills included
	private   int // blocks being filled
	spares    []spare
	nextEvent int // generated tokens at which the next event is due
	preempted int // how often
	reached   int // tokens that were computed before a preemption
}

// known counts the tokens of prompt and answer so far. The newest generated
// one is sampled but not fed back yet: its KV is what the next step computes.
func (s *sequence) known() int { return s.PromptTokens + s.generated }

// decoding tells whether the request's next step gives it a token and computes
// nothing but the one before.
func (s *sequence) decoding() bool { return s.generated > 0 && s.computed+1 == s.known() }

// New returns an idle engine with an empty cache.
func New(p Params) (*Engine, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Engine{params: p, pool: newBlockPool(p.CapacityBlocks)}, nil
}

// Params returns what the engine was made with.
func (e *Engine) Params() Params { return e.params }

// Submit queues a request that arrives at now. It returns ErrQueueFull or
// ErrTooLong, wrapped, if the engine refuses it.
func (e *Engine) Submit(now time.Duration, r Request) error {
	e.run(now)
	if r.PromptTokens < 1 || r.OutputTokens < 0 {
		return fmt.Errorf("engine: request %d has %d prompt and %d output tokens", r.ID, r.PromptTokens, r.OutputTokens)
	}
	if full := (r.PromptTokens + r.OutputTokens) / BlockTokens; r.Blocks != nil && len(r.Blocks) < full {
		return fmt.Errorf("engine: request %d brings %d block hashes for %d full blocks", r.ID, len(r.Blocks), full)
	}
	if need := r.blocksNeeded(); need > e.params.CapacityBlocks {
		e.counters.Refused++
		return fmt.Errorf("%w: %d of %d", ErrTooLong, need, e.params.CapacityBlocks)
	}
	if e.params.MaxQueued >= 0 && len(e.waiting) >= e.params.MaxQueued && (e.step.active || len(e.waiting) > 0) {
		e.counters.Refused++
		return fmt.Errorf("%w: %d waiting", ErrQueueFull, len(e.waiting))
	}
	s := e.newSequence()
	*s = sequence{Request: r, submitted: e.now}
	e.waiting = append(e.waiting, s)
	e.changed = true
	if !e.step.active {
		e.beginStep(e.now)
	}
	return nil
}

// blocksNeeded is the most blocks the request ever holds. The last token is
// sampled but never fed back, so its KV is not computed.
func (r *Request) blocksNeeded() int { return blocksFor(r.PromptTokens + max(r.OutputTokens-1, 0)) }

// blocksFor counts the blocks that have a place for so many tokens.
func blocksFor(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }

// Advance runs all steps that end by now and returns what happened since the
// last call, in order. The slice is reused by the next call.
func (e *Engine) Advance(now time.Duration) []Event {
	e.run(now)
	out := e.events
	e.events, e.spare = e.spare[:0], out
	return out
}

// NextEvent tells when Advance should be called next: no event happens before,
// unless a request is submitted or cancelled. False if the engine is idle.
func (e *Engine) NextEvent() (time.Duration, bool) {
	st := &e.step
	switch {
	case len(e.events) > 0:
		return e.now, true
	case !st.active:
		return 0, false
	case e.changed || st.load.prefillTokens > 0:
		return st.end, true
	}
	if st.eventAt == 0 {
		at, load := st.end, st.load
		for range st.untilEvent - st.repeats - 1 {
			load.kvTokens += int64(st.decoding)
			at += e.params.stepTime(load)
		}
		st.eventAt = at
	}
	return st.eventAt, true
}

// Cancel ends a request at now, wherever it is. It reports whether the request
// was there; no event follows.
func (e *Engine) Cancel(now time.Duration, id uint64) bool {
	e.run(now)
	for i, s := range e.waiting {
		if s.ID == id {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			e.counters.Cancelled++
			e.recycle(s)
			e.changed = true
			return true
		}
	}
	for i, s := range e.running {
		if s.ID == id {
			e.applyRepeats()
			e.running = append(e.running[:i], e.running[i+1:]...)
			e.release(s)
			e.counters.Cancelled++
			e.recycle(s)
			e.changed = true
			return true
		}
	}
	return false
}

func (e *Engine) run(now time.Duration) {
	e.now = max(e.now, now)
	for st := &e.step; st.active && st.end <= e.now; {
		if !e.changed && st.load.prefillTokens == 0 && st.repeats+1 < st.untilEvent {
			st.repeats++
			st.load.kvTokens += int64(st.decoding)
			took := e.params.stepTime(st.load)
			st.end += took
			e.counters.Steps++
			e.counters.Busy += took
			e.counters.Work += took - e.params.StepBase
			continue
		}
		e.endStep()
		e.beginStep(st.end)
	}
}

// beginStep plans the step that starts at start: first those that run, in order
// of admission, then new requests, unless somebody had to be preempted.
func (e *Engine) beginStep(start time.Duration) {
	st := &e.step
	*st = step{}
	e.changed = false
	budget := e.params.StepTokens
	preempted := false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		chunk := e.chunk(s, budget)
		for more := s.missing(s.computed + chunk); more > e.pool.free() && i < len(e.running); {
			e.preemptLast(start)
			preempted = true
		}
		if i < len(e.running) { // else it was preempted itself
			budget -= e.plan(s, chunk)
		}
	}
	for !preempted && budget > 0 && len(e.waiting) > 0 && len(e.running) < e.params.MaxRunning {
		s := e.waiting[0]
		if !e.admit(s, start) {
			break
		}
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		e.running = append(e.running, s)
		budget -= e.plan(s, e.chunk(s, budget))
	}
	if st.load.requests == 0 {
		return
	}
	if st.load.prefillTokens == 0 {
		st.untilEvent = min(st.untilEvent, e.stepsOfMemory(st.untilEvent))
	}
	took := e.params.stepTime(st.load)
	st.active = true
	st.end = start + took
	e.counters.Steps++
	e.counters.Busy += took
	e.counters.Work += took - e.params.StepBase
}

// chunk is how many tokens of a request the step may compute.
func (e *Engine) chunk(s *sequence, budget int) int {
	if most := e.params.LongPrefillTokens; most > 0 && len(e.running)+len(e.waiting) > 1 {
		budget = min(budget, most)
	}
	return min(budget, s.known()-s.computed)
}

// plan makes a chunk of a request part of the step. There is room for it.
func (e *Engine) plan(s *sequence, chunk int) int {
	st := &e.step
	st.load.requests++
	if s.decoding() {
		st.decoding++
		st.load.kvTokens += int64(s.known())
		if until := s.nextEvent - s.generated; st.untilEvent == 0 || until < st.untilEvent {
			st.untilEvent = until
		}
	} else {
		st.load.prefillTokens += int64(chunk)
		st.load.prefillPairs += pairs(s.computed, chunk)
	}
	s.chunk = chunk
	e.hold(s, s.computed+chunk)
	e.publish(s, s.computed+chunk)
	return chunk
}

// stepsOfMemory is how many steps like this one, this one included and at most
// so many, certainly find the blocks that they need.
func (e *Engine) stepsOfMemory(most int) int {
	free := e.pool.free()
	if len(e.running)*blocksFor(most) <= free {
		return most
	}
	var by [BlockTokens]int // requests by the tokens that their last block still has a place for
	for _, s := range e.running {
		by[(s.published+s.private)*BlockTokens-s.known()]++
	}
	for n := 1; n < most; n++ { // the next step takes the blocks of those without a place
		if free -= by[(n-1)%BlockTokens]; free < 0 {
			return n
		}
	}
	return most
}

// preemptLast lets the request that was admitted last wait again.
func (e *Engine) preemptLast(now time.Duration) {
	last := len(e.running) - 1
	s := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	e.pool.now = now
	e.pool.release(s.Blocks[:s.published], s.private, s.spares)
	s.reached = max(s.reached, s.computed)
	s.published, s.private, s.spares, s.computed = 0, 0, nil, 0
	s.preempted++
	e.counters.Preemptions++
	e.waiting = slices.Insert(e.waiting, 0, s)
}

// admit takes what is resident of a request, if all that is known of it has a
// place. Blocks for the rest of it are taken later, and may be gone by then.
func (e *Engine) admit(s *sequence, now time.Duration) bool {
	matched, idle := 0, 0
	if s.Blocks != nil {
		matched, idle = e.pool.match(s.Blocks[:(s.known()-1)/BlockTokens])
	}
	if idle+blocksFor(s.known())-matched > e.pool.free() {
		return false
	}
	e.pool.reference(s.Blocks[:matched])
	s.published = matched
	s.computed = matched * BlockTokens
	if s.preempted > 0 {
		e.counters.ResumedQueriedTokens += uint64(s.known())
		e.counters.ResumedHitTokens += uint64(s.computed)
		return true
	}
	s.cached = s.computed
	s.queued = now - s.submitted
	e.counters.QueriedTokens += uint64(s.PromptTokens)
	e.counters.HitTokens += uint64(s.cached)
	return true
}

// missing counts the blocks that a request doesn't hold yet of those for so
// many tokens.
func (s *sequence) missing(tokens int) int { return blocksFor(tokens) - s.published - s.private }

// hold takes blocks so that tokens tokens of the request have a place.
func (e *Engine) hold(s *sequence, tokens int) {
	if more := s.missing(tokens); more > 0 {
		e.pool.takePrivate(more)
		s.private += more
	}
}

// publish gives hashes to the blocks that tokens tokens fill.
func (e *Engine) publish(s *sequence, tokens int) {
	if s.Blocks == nil {
		return
	}
	if full := tokens / BlockTokens; s.published < full {
		s.spares = e.pool.publish(s.Blocks[:full], s.published, s.spares)
		s.private -= full - s.published
		s.published = full
	}
}

// applyRepeats gives the decoding requests the tokens of the counted steps, and
// the blocks that the present one needs.
func (e *Engine) applyRepeats() {
	st := &e.step
	if st.repeats == 0 {
		return
	}
	for _, s := range e.running {
		s.generated += st.repeats
		s.computed += st.repeats
		e.hold(s, s.known())
		e.publish(s, s.computed)
	}
	e.pool.tell() // of what the steps that are over have filled, and not yet of the present one's
	for _, s := range e.running {
		e.publish(s, s.known())
	}
	e.counters.GeneratedTokens += uint64(st.repeats * len(e.running))
	st.untilEvent -= st.repeats
	st.repeats = 0
}

func (e *Engine) endStep() {
	e.applyRepeats()
	e.pool.tell()
	kept := e.running[:0]
	for _, s := range e.running {
		if s.chunk == 0 { // left no token of the step
			kept = append(kept, s)
			continue
		}
		if !s.decoding() {
			to := s.computed + s.chunk
			e.counters.RecomputedTokens += uint64(max(0, min(to, s.reached)-s.computed))
			e.counters.ComputedTokens += uint64(max(0, min(to, s.PromptTokens)-max(s.computed, s.reached)))
		}
		s.computed += s.chunk
		s.chunk = 0
		if s.computed == s.known() && s.OutputTokens > 0 {
			s.generated++
			e.counters.GeneratedTokens++
			s.nextEvent = max(s.nextEvent, 1)
		}
		if s.computed >= s.PromptTokens && s.generated == s.OutputTokens {
			e.emit(s, Finished)
			e.release(s)
			e.counters.Finished++
			e.recycle(s)
			continue
		}
		if s.generated > 0 && s.generated == s.nextEvent {
			kind := Tokens
			if s.generated == 1 {
				kind = FirstToken
			}
			e.emit(s, kind)
			s.nextEvent = s.OutputTokens
			if s.EventTokens > 0 {
				s.nextEvent = min(s.OutputTokens, s.generated+s.EventTokens)
			}
		}
		kept = append(kept, s)
	}
	clear(e.running[len(kept):])
	e.running = kept
}

func (e *Engine) emit(s *sequence, kind EventKind) {
	e.events = append(e.events, Event{
		ID: s.ID, Kind: kind, At: e.step.end,
		Generated: s.generated, CachedTokens: s.cached, Queued: s.queued,
	})
}

func (e *Engine) release(s *sequence) {
	e.pool.now = e.now
	if e.step.active {
		e.pool.now = min(e.now, e.step.end)
	}
	e.pool.release(s.Blocks[:s.published], s.private, s.spares)
}

func (e *Engine) newSequence() *sequence {
	if n := len(e.recycled); n > 0 {
		s := e.recycled[n-1]
		e.recycled = e.recycled[:n-1]
		return s
	}
	return new(sequence)
}

func (e *Engine) recycle(s *sequence) {
	*s = sequence{}
	e.recycled = append(e.recycled, s)
}
