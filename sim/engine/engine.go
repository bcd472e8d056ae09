// Package engine models a continuous-batching LLM engine with a block prefix
// cache, in pure code on whatever clock the caller has.
//
// A request travels through it so: Submit puts it into the queue or refuses
// it. At the start of a step, while the batch has a place, the step's token
// budget is not spent and the blocks of its whole life can be reserved, the
// oldest waiting request is admitted; the leading full blocks that are
// resident are a hit and the rest of the prompt is computed in chunks. The
// step that computes the last prompt token yields the first output token;
// every later step one more. When the last token is out its blocks are
// released, but stay resident until the space is needed.
//
// Time only moves through the arguments. Between two calls nothing happens:
// Advance runs every step that ended by now, so an engine may be driven by a
// virtual clock event by event or by a timer that is late, with equal results.
//
// One simplification against vLLM: admission reserves all blocks a request can
// ever need (prompt and the whole answer, as TGI does), so nothing is ever
// preempted.
package engine

import (
	"errors"
	"fmt"
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
	// CachedTokens of the prompt were found in the cache.
	CachedTokens int
	// Queued is the time from Submit to admission.
	Queued time.Duration
}

// An Engine is one engine. It is not safe for concurrent use.
type Engine struct {
	params Params
	pool   *blockPool

	now      time.Duration // latest time seen
	waiting  []*sequence   // oldest first
	running  []*sequence   // in order of admission
	reserved int           // blocks promised to running requests and not taken yet

	step     step
	changed  bool // the batch or queue changed during the step
	events   []Event
	spare    []Event // what the last Advance returned
	counters Counters
	recycled []*sequence
}

// A step in progress. Runs of steps that only decode are counted, not worked
// through, until one of them yields an event.
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
	cached    int // prompt tokens found in the cache
	computed  int // prompt tokens in the cache or computed
	chunk     int // prompt tokens being computed in this step
	generated int
	published int // blocks with a hash, referenced
	private   int // blocks being filled
	promised  int // blocks reserved and not taken
	nextEvent int // generated tokens at which the next event is due
}

func (s *sequence) decoding() bool { return s.computed == s.PromptTokens && s.chunk == 0 }

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
func (r *Request) blocksNeeded() int {
	return (r.PromptTokens + max(r.OutputTokens-1, 0) + BlockTokens - 1) / BlockTokens
}

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

// beginStep plans the step that starts at start: one token for each decoding
// request, then prefill chunks in order of admission, then new requests.
func (e *Engine) beginStep(start time.Duration) {
	st := &e.step
	*st = step{}
	e.changed = false
	budget := e.params.StepTokens
	for _, s := range e.running {
		if s.decoding() {
			st.decoding++
			st.load.kvTokens += int64(s.PromptTokens + s.generated)
			until := s.nextEvent - s.generated
			if st.untilEvent == 0 || until < st.untilEvent {
				st.untilEvent = until
			}
			budget--
		}
	}
	for _, s := range e.running {
		if s.computed < s.PromptTokens {
			budget -= e.planChunk(s, budget)
		}
	}
	for budget > 0 && len(e.waiting) > 0 && len(e.running) < e.params.MaxRunning {
		s := e.waiting[0]
		if !e.admit(s) {
			break
		}
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		s.queued = start - s.submitted
		e.running = append(e.running, s)
		budget -= e.planChunk(s, budget)
	}
	st.load.requests = len(e.running)
	if len(e.running) == 0 {
		return
	}
	took := e.params.stepTime(st.load)
	st.active = true
	st.end = start + took
	e.counters.Steps++
	e.counters.Busy += took
	e.counters.Work += took - e.params.StepBase
}

// admit reserves all blocks of a request, if there are enough.
func (e *Engine) admit(s *sequence) bool {
	matched, idle := 0, 0
	if s.Blocks != nil {
		matched, idle = e.pool.match(s.Blocks[:(s.PromptTokens-1)/BlockTokens])
	}
	need := s.blocksNeeded() - matched
	if e.pool.inUse()+e.reserved+idle+need > e.pool.capacity {
		return false
	}
	e.pool.reference(s.Blocks[:matched])
	s.published = matched
	s.cached = matched * BlockTokens
	s.computed = s.cached
	s.promised = need
	e.reserved += need
	e.counters.QueriedTokens += uint64(s.PromptTokens)
	e.counters.HitTokens += uint64(s.cached)
	return true
}

func (e *Engine) planChunk(s *sequence, budget int) int {
	s.chunk = max(0, min(budget, s.PromptTokens-s.computed))
	if s.chunk > 0 {
		e.step.load.prefillTokens += int64(s.chunk)
		e.step.load.prefillPairs += pairs(s.computed, s.chunk)
		e.hold(s, s.computed+s.chunk)
	}
	return s.chunk
}

// hold takes blocks so that tokens tokens of the request have a place.
func (e *Engine) hold(s *sequence, tokens int) {
	more := (tokens+BlockTokens-1)/BlockTokens - s.published - s.private
	if more > 0 {
		e.pool.takePrivate(more)
		s.private += more
		s.promised -= more
		e.reserved -= more
	}
}

// publish gives hashes to the blocks that tokens tokens have filled.
func (e *Engine) publish(s *sequence, tokens int) {
	if s.Blocks == nil {
		return
	}
	if full := tokens / BlockTokens; s.published < full {
		e.pool.publish(s.Blocks[:full], s.published)
		s.private -= full - s.published
		s.published = full
	}
}

// applyRepeats gives the decoding requests the tokens of the counted steps.
func (e *Engine) applyRepeats() {
	st := &e.step
	if st.repeats == 0 {
		return
	}
	for _, s := range e.running {
		if s.decoding() {
			e.decode(s, st.repeats)
		}
	}
	st.untilEvent -= st.repeats
	st.repeats = 0
}

// decode adds n output tokens; the KV of all but the newest is computed.
func (e *Engine) decode(s *sequence, n int) {
	s.generated += n
	e.counters.GeneratedTokens += uint64(n)
	tokens := s.PromptTokens + s.generated - 1
	e.hold(s, tokens)
	e.publish(s, tokens)
}

func (e *Engine) endStep() {
	e.applyRepeats()
	kept := e.running[:0]
	for _, s := range e.running {
		switch {
		case s.chunk > 0:
			s.computed += s.chunk
			e.counters.ComputedTokens += uint64(s.chunk)
			s.chunk = 0
			e.publish(s, s.computed)
			if s.computed == s.PromptTokens && s.OutputTokens > 0 {
				s.generated = 1
				s.nextEvent = 1
				e.counters.GeneratedTokens++
			}
		case s.computed == s.PromptTokens:
			e.decode(s, 1)
		}
		if s.computed == s.PromptTokens && s.generated == s.OutputTokens {
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
	e.pool.release(s.Blocks[:s.published], s.private)
	e.reserved -= s.promised
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
