package engine

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// request makes a request whose prompt is the given number of tokens of one
// stream, so two requests of one stream share what they can.
func request(id uint64, stream uint32, prompt, output int) Request {
	tokens := make([]uint32, prompt+output)
	for i := range tokens {
		tokens[i] = stream*1_000_003 + uint32(i)
	}
	return Request{
		ID: id, PromptTokens: prompt, OutputTokens: output,
		Blocks: AppendBlockHashes(nil, RootHash(""), tokens),
	}
}

func newEngine(t testing.TB, change func(*Params)) *Engine {
	t.Helper()
	p := DefaultParams()
	if change != nil {
		change(&p)
	}
	e, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// drain runs the engine until it is idle and returns all events.
func drain(e *Engine) []Event {
	var all []Event
	for {
		at, ok := e.NextEvent()
		if !ok {
			return all
		}
		all = append(all, e.Advance(at)...)
	}
}

func (e *Engine) check(t interface{ Fatalf(string, ...any) }) {
	if used := e.pool.resident + e.pool.private; used > e.pool.capacity {
		t.Fatalf("%d blocks used of %d", used, e.pool.capacity)
	}
	blocks, spares := 0, 0
	for _, r := range e.pool.all {
		blocks += int(r.n)
		if r.n > 0 && r.spare {
			spares++
		}
	}
	if blocks != e.pool.resident || spares != e.pool.spares {
		t.Fatalf("%d blocks in runs, %d of them spare; want %d, %d", blocks, spares, e.pool.resident, e.pool.spares)
	}
	distinct := map[BlockHash]bool{}
	for h := range e.Resident() {
		if distinct[h] {
			t.Fatalf("block %x is told twice", h)
		}
		distinct[h] = true
	}
	if n := len(distinct); n > blocks || n < blocks-spares {
		t.Fatalf("%d distinct blocks of %d, %d of them spare", n, blocks, spares)
	}
	if len(e.running) == 0 && e.pool.inUse() != 0 {
		t.Fatalf("idle engine holds %d blocks", e.pool.inUse())
	}
}

func TestWaitAgreesWithMD1(t *testing.T) {
	const promptTokens, arrivals = 1000, 100_000
	e := newEngine(t, func(p *Params) { p.MaxRunning = 1; p.MaxQueued = -1 })
	service := e.Params().PrefillTime(promptTokens)
	for _, load := range []float64{0.5, 0.8} {
		rng := rand.New(rand.NewPCG(1, uint64(load*100)))
		start := e.now
		at := start
		var waited time.Duration
		finished := 0
		count := func(events []Event) {
			for _, ev := range events {
				waited += ev.Queued
				finished++
			}
		}
		for i := range arrivals {
			at += time.Duration(rng.ExpFloat64() / load * float64(service))
			count(e.Advance(at))
			r := Request{ID: uint64(i), PromptTokens: promptTokens, Blocks: make([]BlockHash, promptTokens/BlockTokens)}
			for b := range r.Blocks {
				r.Blocks[b] = BlockHash(rng.Uint64())
			}
			if err := e.Submit(at, r); err != nil {
				t.Fatal(err)
			}
		}
		count(drain(e))
		if finished != arrivals {
			t.Fatalf("%d of %d finished", finished, arrivals)
		}
		got := float64(waited) / arrivals
		want := load * float64(service) / (2 * (1 - load))
		if math.Abs(got/want-1) > 0.05 {
			t.Errorf("load %.1f: mean wait %v, M/D/1 says %v", load, time.Duration(got), time.Duration(want))
		}
	}
}

func TestFollowUpTurnHitsPromptAndDecodedBlocks(t *testing.T) {
	e := newEngine(t, nil)
	if err := e.Submit(0, request(1, 7, 100, 60)); err != nil {
		t.Fatal(err)
	}
	first := drain(e)
	// 159 tokens have KV: the 160th was sampled and never fed back.
	if err := e.Submit(e.now, request(2, 7, 200, 1)); err != nil {
		t.Fatal(err)
	}
	second := drain(e)
	if got := first[0].CachedTokens; got != 0 {
		t.Errorf("the cold prompt hit %d tokens", got)
	}
	if got := second[0].CachedTokens; got != 144 {
		t.Errorf("the follow-up hit %d tokens, want the 9 full blocks of 159", got)
	}
}

func TestPromptThatEndsOnABlockEdgeNeverHitsItsLastBlock(t *testing.T) {
	for prompt, want := range map[int]int{15: 0, 16: 0, 17: 16, 31: 16, 32: 16, 33: 32} {
		e := newEngine(t, nil)
		for id := range uint64(2) {
			if err := e.Submit(e.now, request(id, 3, prompt, 1)); err != nil {
				t.Fatal(err)
			}
			events := drain(e)
			if id == 1 && events[0].CachedTokens != want {
				t.Errorf("%d tokens again: hit %d, want %d", prompt, events[0].CachedTokens, want)
			}
		}
	}
}

func TestFirstTokenComesWhenThePromptIsComputed(t *testing.T) {
	e := newEngine(t, nil)
	r := request(1, 1, 5000, 100)
	r.EventTokens = 40
	if err := e.Submit(time.Second, r); err != nil {
		t.Fatal(err)
	}
	events := drain(e)
	if want := time.Second + e.Params().PrefillTime(5000); events[0].At != want || events[0].Kind != FirstToken {
		t.Errorf("first event %+v, want FirstToken at %v", events[0], want)
	}
	var generated []int
	for _, ev := range events {
		generated = append(generated, ev.Generated)
	}
	if !slices.Equal(generated, []int{1, 41, 81, 100}) || events[3].Kind != Finished {
		t.Errorf("events at %v tokens", generated)
	}
}

func TestDecodingSlowsWithTheBatch(t *testing.T) {
	tpot := func(batch int) time.Duration {
		e := newEngine(t, nil)
		for i := range batch {
			if err := e.Submit(0, request(uint64(i), uint32(i), 64, 200)); err != nil {
				t.Fatal(err)
			}
		}
		events := drain(e)
		return (events[len(events)-1].At - events[0].At) / 199
	}
	one, many := tpot(1), tpot(60)
	if many < one+50*50*time.Microsecond {
		t.Errorf("TPOT %v alone, %v in a batch of 60", one, many)
	}
}

func TestEachDecodeStepReadsTheWholeContext(t *testing.T) {
	const prompt, output = 1000, 300
	e := newEngine(t, nil)
	p := e.Params()
	if err := e.Submit(0, request(1, 1, prompt, output)); err != nil {
		t.Fatal(err)
	}
	want := p.PrefillTime(prompt)
	for generated := 1; generated < output; generated++ {
		want += p.StepBase + p.StepPerRequest + time.Duration(prompt+generated)*p.DecodePerKVToken
	}
	events := drain(e)
	if got := events[len(events)-1].At; got != want {
		t.Errorf("finished at %v, want %v", got, want)
	}
	s := e.Stats(want)
	if s.Busy != want {
		t.Errorf("busy for %v of %v", s.Busy, want)
	}
	if work := want - time.Duration(s.Steps)*p.StepBase; s.Work != work {
		t.Errorf("its work is %v, want %v: the time without the fixed part of %d steps", s.Work, work, s.Steps)
	}
}

func TestPrefillLeavesDecodingItsShareOfTheStep(t *testing.T) {
	e := newEngine(t, nil)
	r := request(1, 1, 64, 30)
	r.EventTokens = 1
	_ = e.Submit(0, r)
	_ = e.Submit(e.Params().PrefillTime(64)+1, request(2, 2, 20_000, 1))
	during := 0
	for _, ev := range drain(e) {
		if ev.ID == 2 {
			break
		}
		during++
	}
	// 20,000 tokens take ten steps of 2,048; the decoding request gets one each.
	if during < 10 || during > 14 {
		t.Errorf("%d events of the short request before the long one's first", during)
	}
}

func TestDecodingRequestsTakeTheirTokensFromTheStepsBudget(t *testing.T) {
	e := newEngine(t, func(p *Params) { p.MaxRunning = 10; p.StepTokens = 20 })
	for id := range uint64(5) {
		_ = e.Submit(0, request(id, uint32(id), 1, 500))
	}
	e.Advance(time.Second)
	before := e.Stats(time.Second).Steps
	_ = e.Submit(time.Second, request(9, 9, 16, 2))
	for {
		at, ok := e.NextEvent()
		if !ok {
			t.Fatal("no first token")
		}
		if events := e.Advance(at); len(events) > 0 && events[0].ID == 9 {
			break
		}
	}
	// Five of twenty tokens go to decoding: 15 prompt tokens in one step, the
	// last in a second; a third has begun.
	if got := e.counters.Steps - before; got != 3 {
		t.Errorf("%d steps for 16 prompt tokens, want 3", got)
	}
}

func TestABoundOnLongPromptsLetsShortOnesPassAndSiblingsComputeTwice(t *testing.T) {
	for _, c := range []struct {
		bound        int
		short, long  uint64 // steps until the first token
		sharedCached int    // of one that comes with the short one and shares the long one's 8,200 tokens
	}{
		{bound: 0, short: 5, long: 5, sharedCached: 8192}, // four steps of 2,048, and room beside the last 8 tokens
		{bound: 4096, short: 5, long: 5, sharedCached: 8192},
		{bound: 512, short: 2, long: 14, sharedCached: 2560}, // alone it isn't bounded: 2,048, then 13 of 512 at most
	} {
		e := newEngine(t, func(p *Params) { p.LongPrefillTokens = c.bound })
		const long, short, shares = 0, 1, 2
		_ = e.Submit(0, request(long, 1, 8200, 2))
		_ = e.Submit(1, request(short, 2, 300, 2)) // during the first step
		_ = e.Submit(1, request(shares, 1, 8300, 2))
		after := map[uint64]uint64{}
		cached := map[uint64]int{}
		for at, ok := e.NextEvent(); ok; at, ok = e.NextEvent() {
			before := e.counters.Steps // the one that ends now is the last of them
			for _, ev := range e.Advance(at) {
				if ev.Kind == FirstToken {
					after[ev.ID], cached[ev.ID] = before, ev.CachedTokens
				}
			}
		}
		if after[short] != c.short || after[long] != c.long || cached[shares] != c.sharedCached {
			t.Errorf("bound %d: the short prompt after %d steps, want %d, the long one after %d, want %d; its sibling found %d tokens, want %d",
				c.bound, after[short], c.short, after[long], c.long, cached[shares], c.sharedCached)
		}
		alone := newEngine(t, func(p *Params) { p.LongPrefillTokens = c.bound })
		_ = alone.Submit(0, request(long, 1, 8200, 1))
		if got := drain(alone)[0].At; got != alone.Params().PrefillTime(8200) {
			t.Errorf("bound %d: a prompt that is alone takes %v, want %v", c.bound, got, alone.Params().PrefillTime(8200))
		}
	}
}

func TestQueueAboveItsLimitIsRefused(t *testing.T) {
	e := newEngine(t, func(p *Params) { p.MaxRunning = 2; p.MaxQueued = 3 })
	refused := 0
	for i := range 10 {
		if err := e.Submit(0, request(uint64(i), uint32(i), 1000, 10)); errors.Is(err, ErrQueueFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// The first is admitted at once, three wait: the step has begun.
	if refused != 6 {
		t.Errorf("%d of 10 refused, want 6", refused)
	}
	if s := e.Stats(0); s.Running != 1 || s.Waiting != 3 || s.Refused != 6 {
		t.Errorf("%+v", s)
	}
}

func TestRequestLargerThanTheCacheIsRefusedNotStuck(t *testing.T) {
	e := newEngine(t, func(p *Params) { p.CapacityBlocks = 10 })
	if err := e.Submit(0, request(1, 1, 150, 12)); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
	if err := e.Submit(0, request(1, 1, 150, 11)); err != nil {
		t.Errorf("160 tokens with KV fit into ten blocks: %v", err)
	}
}

func TestAdmissionWaitsForBlocksOfRunningRequests(t *testing.T) {
	e := newEngine(t, func(p *Params) { p.CapacityBlocks = 20 })
	_ = e.Submit(0, request(1, 1, 160, 81)) // 15 blocks
	_ = e.Submit(0, request(2, 2, 160, 1))  // 10 blocks
	var order []uint64
	for {
		at, ok := e.NextEvent()
		if !ok {
			break
		}
		for _, ev := range e.Advance(at) {
			if ev.Kind == Finished {
				order = append(order, ev.ID)
			}
		}
		e.check(t)
	}
	if !slices.Equal(order, []uint64{1, 2}) {
		t.Errorf("finished in order %v", order)
	}
}

func TestIdleEngineReportsNoUsageThoughItsCacheIsFull(t *testing.T) {
	e := newEngine(t, func(p *Params) { p.CapacityBlocks = 64 })
	for i := range uint64(10) {
		_ = e.Submit(e.now, request(i, uint32(i), 500, 20))
		drain(e)
	}
	s := e.Stats(e.now)
	if s.KVUsage() != 0 || s.ResidentBlocks < 60 || s.Evictions == 0 {
		t.Errorf("usage %v, resident %d, evictions %d", s.KVUsage(), s.ResidentBlocks, s.Evictions)
	}
}

func TestParamsThatCannotWorkAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Params){
		"no cache":       func(p *Params) { p.CapacityBlocks = 0 },
		"no batch":       func(p *Params) { p.MaxRunning = 0 },
		"small step":     func(p *Params) { p.StepTokens = p.MaxRunning },
		"long prefill":   func(p *Params) { p.LongPrefillTokens = -1 },
		"free step":      func(p *Params) { p.StepBase = 0 },
		"negative costs": func(p *Params) { p.PrefillPerToken = -1 },
	} {
		p := DefaultParams()
		change(&p)
		if _, err := New(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// An operation of the property tests.
type operation struct {
	after  time.Duration
	cancel bool
	target uint64
	r      Request
}

func drawOperations(t *rapid.T) []operation {
	n := rapid.IntRange(1, 40).Draw(t, "operations")
	ops := make([]operation, n)
	for i := range ops {
		ops[i] = operation{
			after:  time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond,
			cancel: i > 0 && rapid.IntRange(0, 4).Draw(t, "kind") == 0,
			target: uint64(rapid.IntRange(0, max(i-1, 0)).Draw(t, "target")),
		}
		ops[i].r = request(uint64(i), uint32(rapid.IntRange(0, 3).Draw(t, "stream")),
			rapid.IntRange(1, 700).Draw(t, "prompt"), rapid.IntRange(0, 90).Draw(t, "output"))
		ops[i].r.EventTokens = rapid.IntRange(0, 9).Draw(t, "event tokens")
	}
	return ops
}

func drawParams(t *rapid.T) Params {
	p := DefaultParams()
	p.CapacityBlocks = rapid.IntRange(50, 200).Draw(t, "capacity")
	p.MaxRunning = rapid.IntRange(1, 8).Draw(t, "running")
	p.MaxQueued = rapid.IntRange(-1, 8).Draw(t, "queue")
	p.StepTokens = rapid.IntRange(9, 600).Draw(t, "step tokens")
	return p
}

// play runs the operations. With a tick the engine is also advanced at each
// multiple of it; without, only when it asks to be.
func play(t *rapid.T, p Params, ops []operation, tick time.Duration) ([]Event, *Engine) {
	e, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	var all []Event
	var now time.Duration
	take := func(events []Event) { all = append(all, slices.Clone(events)...); e.check(t) }
	until := func(end time.Duration) {
		for {
			next, ok := e.NextEvent()
			if tick > 0 {
				next = now + tick
			}
			if !ok && tick == 0 || next > end {
				return
			}
			now = max(now, next)
			events := e.Advance(now)
			for _, ev := range events {
				if tick == 0 && ev.At != now {
					t.Fatalf("NextEvent said %v, the event %+v was before", now, ev)
				}
			}
			take(events)
		}
	}
	accepted, cancelled, refused := 0, 0, 0
	for _, op := range ops {
		at := now + op.after
		until(at)
		now = at
		if op.cancel {
			if e.Cancel(now, op.target) {
				cancelled++
			}
		} else if err := e.Submit(now, op.r); err != nil {
			refused++
		} else {
			accepted++
		}
		e.check(t)
	}
	for _, ok := e.NextEvent(); ok; _, ok = e.NextEvent() {
		end := now + time.Second
		until(end)
		now = end
	}
	take(e.Advance(now))
	s := e.Stats(now)
	if int(s.Finished)+cancelled != accepted || int(s.Refused) != refused {
		t.Fatalf("%d accepted, %d finished, %d cancelled; %d refused, counted %d",
			accepted, s.Finished, cancelled, refused, s.Refused)
	}
	if s.Running+s.Waiting+s.BlocksInUse+s.UncomputedTokens != 0 {
		t.Fatalf("not empty at the end: %+v", s)
	}
	// What a preempted request finds may be what others have computed meanwhile.
	missing := int(s.QueriedTokens) - int(s.HitTokens+s.ComputedTokens)
	if cancelled == 0 && (missing < 0 || missing > int(s.ResumedHitTokens)) || (s.Preemptions == 0) != (s.RecomputedTokens+s.ResumedQueriedTokens == 0) && cancelled == 0 {
		t.Fatalf("prompt tokens are not conserved: %+v", s.Counters)
	}
	return all, e
}

func TestEveryRequestEndsOnceAndEveryBlockComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := drawOperations(t)
		events, _ := play(t, drawParams(t), ops, 0)
		last := map[uint64]Event{}
		for i, ev := range events {
			if i > 0 && ev.At < events[i-1].At {
				t.Fatalf("event %d is earlier than the one before", i)
			}
			before, seen := last[ev.ID]
			if seen && (before.Kind == Finished || ev.Generated <= before.Generated) {
				t.Fatalf("event %+v after %+v", ev, before)
			}
			if !seen && ev.Kind == Tokens {
				t.Fatalf("no first token before %+v", ev)
			}
			if r := ops[ev.ID].r; ev.Kind == Finished && ev.Generated != r.OutputTokens || ev.CachedTokens >= r.PromptTokens {
				t.Fatalf("%+v of %d prompt and %d output tokens", ev, r.PromptTokens, r.OutputTokens)
			}
			last[ev.ID] = ev
		}
	})
}

func TestResultDoesNotDependOnHowOftenTheEngineIsAdvanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, ops := drawParams(t), drawOperations(t)
		lazy, _ := play(t, p, ops, 0)
		eager, _ := play(t, p, ops, 7*time.Millisecond)
		if !slices.Equal(lazy, eager) {
			t.Fatalf("lazy %+v\neager %+v", lazy, eager)
		}
	})
}

func TestPromptsWithoutHashesTakeTheirTimeAndLeaveNothing(t *testing.T) {
	with := newEngine(t, nil)
	without := newEngine(t, nil)
	var events [2][]Event
	for i := range uint64(40) {
		r := request(i, uint32(i), 3000, 20)
		for k, e := range []*Engine{with, without} {
			if k == 1 {
				r.Blocks = nil
			}
			if err := e.Submit(0, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for k, e := range []*Engine{with, without} {
		events[k] = slices.Clone(drain(e))
		e.check(t)
	}
	if !slices.Equal(events[0], events[1]) {
		t.Error("they take another time")
	}
	if n := without.pool.resident; n != 0 {
		t.Errorf("%d blocks stay", n)
	}
}
