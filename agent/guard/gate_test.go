package guard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// play is a gate with a clock.
type play struct {
	t    *testing.T
	gate *gate
	now  time.Time
	in   []*ticket // let in, in this order
}

func newPlay(t *testing.T, l Limits, fair bool) *play {
	return &play{t: t, gate: newGate(l.withDefaults(), fair), now: time.Unix(1_700_000_000, 0)}
}

// comes lets one request come; it is let in, waits, or is refused.
func (p *play) comes(class uint8, tenant uint16, tokens int) *ticket {
	p.t.Helper()
	t := &ticket{class: class, tenant: tenant, tokens: tokens, bytes: bytesPerToken * tokens}
	if p.gate.enter(t, p.now); t.phase == computing {
		p.in = append(p.in, t)
	}
	p.pump()
	return t
}

func (p *play) pump() {
	for t := p.gate.next(p.now); t != nil; t = p.gate.next(p.now) {
		p.in = append(p.in, t)
	}
}

func (p *play) leaves(t *ticket) {
	p.gate.leave(t)
	p.pump()
}

// first ends the request that was let in first.
func (p *play) first() {
	t := p.in[0]
	p.in = p.in[1:]
	p.leaves(t)
}

func (p *play) observe(l Load) {
	p.gate.observe(l, p.gate.engine.now, p.now)
	p.pump()
}

// empty wants that nothing is left of anybody.
func (p *play) empty() {
	p.t.Helper()
	g := p.gate
	if g.total() != 0 || g.waiting() != 0 || g.prefill.pending != 0 || g.inFlight != [classes]int{} {
		p.t.Errorf("left: %v in flight, %d waiting, %d tokens", g.inFlight, g.waiting(), g.prefill.pending)
	}
	for c, q := range g.queues {
		if q.Bytes() != 0 || len(g.finish[c]) != 0 {
			p.t.Errorf("left in class %d: %d bytes, accounts %v", c, q.Bytes(), g.finish[c])
		}
	}
}

func TestTheBatchLimitHoldsAndWhoWaitsFollowsAtOnce(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 4, EngineQueue: 1}, false)
	for range 9 {
		p.comes(p1, 0, 10)
	}
	if len(p.in) != 5 || p.gate.waiting() != 4 {
		t.Fatalf("%d let in, %d wait", len(p.in), p.gate.waiting())
	}
	for left := 3; left >= 0; left-- {
		p.first()
		if len(p.in) != 5 || p.gate.waiting() != left {
			t.Fatalf("%d at the engine, %d wait, want %d", len(p.in), p.gate.waiting(), left)
		}
	}
	for len(p.in) > 0 {
		p.first()
	}
	p.empty()
}

func TestOthersRequestsAndTheEnginesQueueCount(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 8, EngineQueue: 2}, false)
	p.comes(p1, 0, 10)
	p.observe(Load{Running: 8, Waiting: 2}) // most of them somebody else's
	if p.comes(p1, 0, 10); len(p.in) != 1 {
		t.Error("let in on top of others' requests")
	}
	p.observe(Load{Running: 5})
	if len(p.in) != 2 {
		t.Error("not let in when they had gone")
	}
	// Nobody waits in the engine, and others have the batch and what may wait behind it.
	p.observe(Load{Running: 10})
	if p.comes(p1, 0, 10); len(p.in) != 2 {
		t.Error("let in beside ten others where eight run and two may wait")
	}
	p.observe(Load{Running: 5})
	if len(p.in) != 3 {
		t.Error("not let in when they had gone")
	}
	// The batch has room, and still somebody waits in it: for memory, say.
	p.observe(Load{Running: 5, Waiting: 2})
	if p.comes(p1, 0, 10); len(p.in) != 3 {
		t.Error("let in behind two that wait in the engine")
	}
}

func TestP2HasHalfOfTheEnginesQueue(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 4, EngineQueue: 8}, false)
	for range 20 {
		p.comes(p2, 0, 10)
	}
	if len(p.in) != 8 {
		t.Errorf("%d of P2 let in, want four that run and four of eight places in the queue", len(p.in))
	}
	for range 20 {
		p.comes(p1, 0, 10)
	}
	if len(p.in) != 12 {
		t.Errorf("%d let in, P1 has the other places", len(p.in))
	}
}

func TestWithoutALimitTheEngineProvesWhatItRuns(t *testing.T) {
	p := newPlay(t, Limits{EngineQueue: 8}, false)
	for range 100 {
		p.comes(p1, 0, 10)
	}
	if len(p.in) != 100 {
		t.Fatalf("%d let in; unknown is not full", len(p.in))
	}
	for len(p.in) > 0 {
		p.first()
	}
	p.observe(Load{})
	for range 100 {
		p.comes(p1, 0, 10)
	}
	for _, want := range []int{8, 16, 24} {
		if len(p.in) != want {
			t.Errorf("%d let in before the engine has shown that it runs them, want %d", len(p.in), want)
		}
		p.observe(Load{Running: len(p.in)})
	}
	p.observe(Load{Running: 30, Waiting: 2})
	if n := len(p.in); n != 38 {
		t.Errorf("%d let in, 30 run", n)
	}
	// What it ran once it runs again, without steps.
	for len(p.in) > 0 {
		p.first()
	}
	if p.gate.waiting() != 0 {
		t.Errorf("%d still wait", p.gate.waiting())
	}
	p.observe(Load{})
	for range 38 {
		p.comes(p1, 0, 10)
	}
	if len(p.in) != 38 {
		t.Errorf("%d of 38 let in at once", len(p.in))
	}
}

func TestP1KeepsItsShareBesideP0AndP2TakesWhatTheyLeave(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 1, EngineQueue: 1, QueueRequests: 400}, false)
	p.comes(p1, 0, 100)
	p.comes(p1, 0, 100)
	for range 200 {
		p.comes(p2, 0, 100)
		p.comes(p1, 0, 100)
		p.comes(p0, 0, 100)
	}
	var got [classes]int
	for range 200 {
		p.first()
		got[p.in[len(p.in)-1].class]++
	}
	if got[p2] != 0 || got[p0] < 138 || got[p0] > 142 {
		t.Errorf("of 200 places: %v, want 140, 60, 0", got)
	}
	for p.gate.queues[p0].Len()+p.gate.queues[p1].Len() > 0 {
		p.first()
	}
	if p.first(); p.gate.queues[p2].Len() == 200 {
		t.Error("P2 gets nothing of an engine that the others leave")
	}
	// And stops at once when P0 comes.
	left := p.gate.queues[p2].Len()
	p.comes(p0, 0, 100)
	if p.first(); p.gate.queues[p0].Len() != 0 || p.gate.queues[p2].Len() != left {
		t.Error("P2 was served before P0")
	}
}

func TestTenantsShareAClassByWork(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 1, EngineQueue: 1}, true)
	p.comes(p1, 9, 1)
	p.comes(p1, 9, 1)
	for range 60 {
		p.comes(p1, 1, 1000) // floods, with long prompts
	}
	for range 30 {
		p.comes(p1, 2, 100)
	}
	var work [3]int
	for range 22 {
		p.first()
		last := p.in[len(p.in)-1]
		work[last.tenant] += last.tokens
	}
	if d := work[1] - work[2]; d < -1000 || d > 1000 {
		t.Errorf("work %v: more than a request apart", work)
	}
	// Nor can it fill the queue.
	refusals := 0
	for range 300 {
		if p.comes(p1, 1, 1000).phase == over {
			refusals++
		}
	}
	if t2 := p.comes(p1, 2, 100); refusals == 0 || t2.phase != waiting {
		t.Errorf("%d of the flood refused; another tenant: %v", refusals, t2.phase)
	}
}

func TestLongPromptsWaitForMemoryAndShortOnesPassThem(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 100, MemoryHigh: 0.9, MemoryLow: 0.8, LongPromptTokens: 1000}, false)
	full := Load{Running: 2, CapacityTokens: 100_000}
	share := func(x float64) { full.KVShare = x; p.observe(full) }
	p.comes(p1, 0, 10)
	share(0.92)
	long := p.comes(p1, 0, 5000)
	short := p.comes(p1, 0, 500)
	late := p.comes(p1, 0, 500)
	if long.phase != waiting || short.phase != computing || late.phase != computing {
		t.Fatalf("long %v, short %v and %v", long.phase, short.phase, late.phase)
	}
	if share(0.85); long.phase != waiting {
		t.Error("let in above the lower mark")
	}
	if share(0.79); long.phase != computing {
		t.Error("still waits below the lower mark")
	}
	// What was let in since the page was read counts.
	other := p.comes(p1, 0, 5000)
	third := p.comes(p1, 0, 5000)
	if other.phase != computing || third.phase != waiting {
		t.Errorf("%v, %v: 0.79 and three times 0.05 of the cache", other.phase, third.phase)
	}
	// An idle engine takes anything: nothing would come free there.
	for _, one := range []*ticket{long, short, late, other, p.in[0]} {
		p.leaves(one)
	}
	if third.phase != computing {
		t.Error("waits before an idle engine")
	}
}

// TestAPromptThatWasComputedSinceThePageWasReadStillCounts: the page comes every
// half second, and a first token sooner.
func TestAPromptThatWasComputedSinceThePageWasReadStillCounts(t *testing.T) {
	load := Load{Running: 2, CapacityTokens: 100_000}
	begin := func(t *testing.T) (p *play, first *ticket) {
		p = newPlay(t, Limits{MaxRunning: 100, MemoryHigh: 0.5, MemoryLow: 0.4, LongPromptTokens: 1000}, false)
		p.gate.answers(p.comes(p1, 0, 10), true, p.now)
		p.observe(load)
		first = p.comes(p1, 0, 30_000)
		p.gate.answers(first, true, p.now.Add(100*time.Millisecond))
		return p, first
	}
	waits := func(t *testing.T, what string, long *ticket, want bool) {
		t.Helper()
		if got := long.phase == waiting; got != want {
			t.Errorf("%s: it waits: %v", what, got)
		}
	}

	p, first := begin(t)
	long := p.comes(p1, 0, 30_000)
	waits(t, "computed, and on no page", long, true)
	asked := p.gate.engine.now
	p.leaves(first)
	waits(t, "ended, and on no page", long, false)
	// The page was asked for while the first one was there.
	p.leaves(long)
	shows := load
	shows.KVShare = 0.3
	p.gate.observe(shows, asked, p.now)
	waits(t, "ended, and on the page still", p.comes(p1, 0, 30_000), false)

	p, first = begin(t)
	long = p.comes(p1, 0, 30_000)
	p.observe(shows)
	waits(t, "on the page", long, true)
	p.leaves(first)
	waits(t, "ended, and on the page before", long, true)
	p.observe(load)
	waits(t, "gone from the page", long, false)
	p.gate.answers(long, true, p.now)
	p.observe(shows)
	waits(t, "nothing is counted twice", p.comes(p1, 0, 20_000), false)
}

// TestMemoryThatWasShortMustComeDownToTheLowerMark: an engine that doesn't tell its capacity has the
// two marks alone.
func TestMemoryThatWasShortMustComeDownToTheLowerMark(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 100, MemoryHigh: 0.9, MemoryLow: 0.8, LongPromptTokens: 1000}, false)
	p.comes(p1, 0, 10)
	for _, step := range []struct {
		share float64
		waits bool
	}{{0.85, false}, {0.91, true}, {0.85, true}, {0.81, true}, {0.79, false}, {0.85, false}} {
		p.observe(Load{Running: 2, KVShare: step.share})
		if long := p.comes(p1, 0, 2000); (long.phase == waiting) != step.waits {
			t.Errorf("at %v a long prompt waits: %v", step.share, long.phase == waiting)
		}
	}
}

func TestABacklogOfPromptsIsKeptShort(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 100, PrefillAhead: time.Second, QueueWait: [classes]time.Duration{p1: 3 * time.Second}}, false)
	// 10,000 tokens/s, as one stream shows.
	one := p.comes(p1, 0, 5000)
	p.now = p.now.Add(500 * time.Millisecond)
	p.gate.answers(one, true, p.now)
	if r := p.gate.prefill.rate; r != 10_000 {
		t.Fatalf("rate %v", r)
	}
	var came []*ticket
	for range 12 {
		came = append(came, p.comes(p1, 0, 4000))
	}
	phases := map[phase]int{}
	for _, c := range came {
		phases[c.phase]++
	}
	// Two are within a second; those behind them wait up to 3 s, and the rest is
	// told at once.
	if phases[computing] != 2 || phases[waiting] != 6 || phases[over] != 4 {
		t.Fatalf("%v", phases)
	}
	if last := came[11]; last.retryAfter != 200*time.Millisecond {
		t.Errorf("may come again after %v", last.retryAfter)
	}
	// P0 is let in before all P1 that wait here.
	high := p.comes(p0, 0, 4000)
	p.now = p.now.Add(400 * time.Millisecond)
	p.gate.answers(came[0], true, p.now)
	p.pump()
	if high.phase != computing || came[2].phase != waiting {
		t.Errorf("P0 %v, P1 %v", high.phase, came[2].phase)
	}
	// Whole answers don't show when their prompt was computed; that it must have been
	// is enough.
	p.now = p.now.Add(10 * time.Second)
	p.pump()
	if came[2].phase != computing {
		t.Error("a prompt without an answer stands for ever")
	}
	for _, c := range append(came, high, one) {
		p.leaves(c)
	}
	p.empty()
}

// Before the first rate is known little is let in of an engine that will show it;
// then as much as it shows. Whole answers say nothing until they are there, and keep
// nothing waiting all the same.
func TestTheEnginesCounterTeachesTheRate(t *testing.T) {
	const speed = 20_000 // tokens/s
	p := newPlay(t, Limits{MaxRunning: 1000, PrefillAhead: time.Second, QueueWait: [classes]time.Duration{p1: time.Hour}}, false)
	p.observe(Load{PromptTokens: 1000})
	for range 200 {
		p.comes(p1, 0, 4000)
	}
	if len(p.in) != coldPrefill/4000 {
		t.Fatalf("%d let in of a flood, of which nobody knows how long it takes", len(p.in))
	}
	done, most := 0.0, 0 // tokens computed
	for range 100 {
		p.now = p.now.Add(100 * time.Millisecond)
		done = min(done+speed/10, float64(4000*len(p.in)))
		queue := len(p.in) - int(done)/4000
		most = max(most, queue)
		p.observe(Load{Running: len(p.in) - queue, Waiting: queue, PromptTokens: 1000 + done})
	}
	if r := p.gate.prefill.rate; r < 0.7*speed || r > speed {
		t.Errorf("rate %v", r)
	}
	if done < 10*0.7*speed || most > 6 {
		t.Errorf("%v tokens computed in 10 s, at most %d prompts in the engine's queue", done, most)
	}
	for _, w := range p.in {
		p.gate.leave(w)
	}
}

// TestAnEngineThatHasCountedNothingYetIsNotOneWithoutACounter: a flood comes just after a fresh engine
// was read. Let in whole, it would stand before every P0 of the next half minute.
func TestAnEngineThatHasCountedNothingYetIsNotOneWithoutACounter(t *testing.T) {
	limits := Limits{MaxRunning: 64, QueueWait: [classes]time.Duration{p2: time.Hour}}
	const half = coldPrefill / 2 / 4000 // P2's part
	flood := func(p *play) {
		for range 150 {
			p.comes(p2, 0, 4000)
		}
	}
	// Its pages lack the counter, or say 0, until the first prompt is computed.
	p := newPlay(t, limits, false)
	p.observe(Load{})
	flood(p)
	p.now = p.now.Add(100 * time.Millisecond)
	p.observe(Load{Running: half})
	if len(p.in) != half {
		t.Fatalf("%d of a flood let in of an engine that has counted nothing yet, want %d", len(p.in), half)
	}
	if high := p.comes(p0, 0, 500); high.phase != computing {
		t.Errorf("P0 beside it: %v", high.phase)
	}

	// Nor is it without a counter after an error, an answer that was cut, or a page
	// that was asked for as its first answer ended.
	p = newPlay(t, limits, false)
	p.observe(Load{})
	for range 3 {
		one := p.comes(p1, 0, 10)
		p.gate.answers(one, false, p.now)
		p.leaves(one)
		p.observe(Load{})
	}
	one := p.comes(p1, 0, 10)
	p.gate.answers(one, false, p.now)
	one.served = true
	p.leaves(one)
	p.observe(Load{})
	p.in = nil
	if flood(p); len(p.in) != half {
		t.Fatalf("%d of a flood let in, want %d", len(p.in), half)
	}
	// When it has served and still counts nothing it has none: unknown is not full.
	p.now = p.now.Add(100 * time.Millisecond)
	p.observe(Load{Running: half})
	if len(p.in) != 64+4 {
		t.Errorf("%d let in of an engine without a counter, want all that fit", len(p.in))
	}

	// One that counted before it started anew does have one.
	p = newPlay(t, limits, false)
	one = p.comes(p1, 0, 10)
	p.gate.answers(one, false, p.now)
	one.served = true
	p.leaves(one)
	p.observe(Load{PromptTokens: 10})
	p.gate.forget()
	p.observe(Load{})
	p.observe(Load{})
	p.in = nil
	if flood(p); len(p.in) != half {
		t.Errorf("%d of a flood let in of an engine that started anew, want %d", len(p.in), half)
	}
}

// TestPromptsThatOvertakeOthersOnTheWayShowNoHigherRate: what is let in at once reaches the engine in
// any order.
func TestPromptsThatOvertakeOthersOnTheWayShowNoHigherRate(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 100}, false)
	var came []*ticket
	for range 4 {
		came = append(came, p.comes(p1, 0, 4000))
	}
	for i := len(came) - 1; i >= 0; i-- { // 10,000 tokens/s
		p.now = p.now.Add(400 * time.Millisecond)
		p.gate.answers(came[i], true, p.now)
		if r := p.gate.prefill.rate; r != 10_000 {
			t.Fatalf("rate %v after the %dth, of an engine that took them in the reverse order", r, i+1)
		}
	}
	// What came behind a prompt that has left the backlog was not before it.
	p = newPlay(t, Limits{MaxRunning: 100}, false)
	one := p.comes(p1, 0, 4000)
	p.gate.prefill.begunUntil(p.gate.engine.now.sent)
	p.comes(p1, 0, 3000)
	p.now = p.now.Add(400 * time.Millisecond)
	if p.gate.answers(one, true, p.now); p.gate.prefill.rate != 10_000 {
		t.Errorf("rate %v with another prompt behind", p.gate.prefill.rate)
	}
}

// TestACounterThatMovesSlowlyTeachesNothing: an engine that has one prompt to compute counts that one
// in a second, whatever it could do. A stream that others wait for does show it.
func TestACounterThatMovesSlowlyTeachesNothing(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 100, PrefillAhead: time.Second, QueueWait: [classes]time.Duration{p1: time.Hour}}, false)
	p.gate.prefill.rate = 20_000
	done := 1000.0
	for range 20 { // a prompt of 4,000 tokens a second
		one := p.comes(p1, 0, 4000)
		p.observe(Load{Running: 1, PromptTokens: done})
		p.now = p.now.Add(time.Second)
		done += 4000
		p.observe(Load{Running: 1, PromptTokens: done})
		p.leaves(one)
	}
	if r := p.gate.prefill.rate; r != 20_000 {
		t.Errorf("the counter of an engine that was idle most of the time brought the rate down to %v", r)
	}
	first := p.comes(p1, 0, 15_000)
	p.comes(p1, 0, 15_000) // waits for it
	p.now = p.now.Add(1500 * time.Millisecond)
	if p.gate.answers(first, true, p.now); p.gate.prefill.rate != 19_000 {
		t.Errorf("%v after a stream that took twice as long, with another one waiting", p.gate.prefill.rate)
	}
}

func TestShortPromptsTeachNoRate(t *testing.T) {
	p := newPlay(t, Limits{}, false)
	one := p.comes(p1, 0, 30)
	p.now = p.now.Add(20 * time.Millisecond)
	p.gate.answers(one, true, p.now)
	two := p.comes(p1, 0, 5000)
	p.now = p.now.Add(5 * time.Second)
	p.gate.answers(two, false, p.now) // a whole answer: most of that was decoding
	if r := p.gate.prefill.rate; r != 0 {
		t.Errorf("rate %v", r)
	}
}

func TestRefusalsHaveReasons(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 1, EngineQueue: 1, QueueRequests: 4, QueueBytes: 1000}, true)
	refusal := func(tk *ticket) Reason { return p.gate.enter(tk, p.now) }
	p.comes(p1, 0, 10)
	p.comes(p1, 0, 10)
	if why := refusal(&ticket{class: p1, bytes: 1001}); why != queueFull {
		t.Errorf("bytes: %v", why)
	}
	for tenant := range uint16(2) {
		p.comes(p1, tenant, 10)
	}
	p.comes(p1, 1, 10)
	if why := refusal(&ticket{class: p1, tenant: 1}); why != tenantQueue || why.status() != 429 {
		t.Errorf("tenant: %v", why)
	}
	p.comes(p1, 3, 10)
	if why := refusal(&ticket{class: p1, tenant: 4}); why != queueFull || why.status() != 503 {
		t.Errorf("requests: %v", why)
	}
	last := p.gate.queues[p1].Oldest().Owner.(*ticket)
	p.gate.drain()
	if why := <-last.told; why != draining || p.gate.waiting() != 0 {
		t.Errorf("who waited: %v", why)
	}
	if why := refusal(&ticket{class: p0}); why != draining {
		t.Errorf("who comes: %v", why)
	}
	p.first()
	p.first()
	p.empty()
}

func TestAnEngineThatDoesNotTellItsLoadIsNotFull(t *testing.T) {
	p := newPlay(t, Limits{MaxRunning: 2, EngineQueue: 1}, false)
	p.comes(p1, 0, 10)
	p.observe(Load{Running: 50, Waiting: 9, KVShare: 0.99})
	if p.comes(p1, 0, 9000); len(p.in) != 1 {
		t.Fatal("let in")
	}
	p.gate.forget()
	if p.pump(); len(p.in) != 2 {
		t.Error("its old load stands for ever")
	}
	for range 5 {
		p.comes(p1, 0, 10)
	}
	if len(p.in) != 3 {
		t.Errorf("%d let in: the batch limit is known all the same", len(p.in))
	}
}

// Whatever happens in whatever order: nobody is let in twice or forgotten, limits
// hold, and at the end nothing is left.
func TestNothingIsLeftAfterAnyStory(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := Limits{MaxRunning: rng.IntN(4), EngineQueue: 1 + rng.IntN(3), QueueRequests: 1 + rng.IntN(20), QueueBytes: 40_000}
		p := newPlay(t, l, seed%2 == 0)
		var open []*ticket
		for range 400 {
			p.now = p.now.Add(time.Duration(rng.IntN(50)) * time.Millisecond)
			switch rng.IntN(6) {
			case 0, 1:
				if c := p.comes(uint8(rng.IntN(classes)), uint16(rng.IntN(5)), 1+rng.IntN(4000)); c.phase != over {
					open = append(open, c)
				}
			case 2:
				p.observe(Load{Running: rng.IntN(8), Waiting: rng.IntN(4), KVShare: rng.Float64(), CapacityTokens: 20_000 * rng.IntN(2)})
			case 3:
				if len(open) > 0 {
					p.gate.answers(open[rng.IntN(len(open))], rng.IntN(2) == 0, p.now)
					p.pump()
				}
			default:
				if len(open) > 0 {
					i := rng.IntN(len(open))
					if rng.IntN(4) == 0 {
						p.gate.giveUp(open[i])
						p.pump()
					}
					p.leaves(open[i])
					p.leaves(open[i]) // the second time is nothing
					open = slices.Delete(open, i, i+1)
				}
			}
			if limit := l.MaxRunning + l.EngineQueue; l.MaxRunning > 0 && p.gate.total() > limit {
				t.Fatalf("seed %d: %d at the engine, limit %d", seed, p.gate.total(), limit)
			}
			// Whoever could be let in has been.
			if next := p.gate.next(p.now); next != nil {
				t.Fatalf("seed %d: %+v was left waiting", seed, next)
			}
		}
		for _, c := range open {
			p.leaves(c)
		}
		if p.empty(); t.Failed() {
			t.Fatal(fmt.Sprint("seed ", seed))
		}
	}
}
