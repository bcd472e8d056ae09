package guard

import (
	"time"

	"github.com/warmpath/warmpath/shared/quota"
)

// Classes: P0 real-time, P1 standard, P2 only what the others leave.
const (
	p0 = iota
	p1
	p2
	classes
)

// phase is how far a request has come.
type phase uint8

const (
	outside phase = iota
	waiting
	computing // let in, no byte of the answer yet
	answering
	over
)

// ticket is one request at the gate.
type ticket struct {
	class  uint8
	tenant uint16 // 0 to 32,767: tenants without a name share 0
	tokens int    // that its prompt is expected to have
	bytes  int    // that are held while it waits
	// retryAfter goes with a refusal.
	retryAfter time.Duration

	phase   phase
	served  bool // its answer came whole, and was no error
	waiter  quota.Waiter
	arrived time.Time
	told    chan Reason // of a ticket that waits: none when it is let in

	// Of its prompt at the engine: whether it is believed to be uncomputed, what it
	// waits for with what was there before, since when.
	pends   bool
	backlog int
	begun   time.Time
	// answered is its number among those whose answer began.
	answered int
}

// gate decides who is let in. Its caller gives it one call at a time.
type gate struct {
	limits   Limits
	fair     bool // tenants are known
	engine   engine
	prefill  prefill
	turns    turns
	queues   [classes]*quota.Queue
	finish   [classes]map[uint16]float64 // virtual time at which a tenant's last request is done
	inFlight [classes]int
	yielding bool // who waits does so for memory alone, and lets others pass
	draining bool
}

func newGate(l Limits, fair bool) *gate {
	g := &gate{limits: l, fair: fair, prefill: prefill{ahead: l.PrefillAhead}}
	for c := range g.queues {
		g.queues[c] = quota.NewQueue(l.QueueRequests, l.QueueBytes)
		g.finish[c] = map[uint16]float64{}
	}
	return g
}

// need is what holds a request back.
type need uint8

const (
	nothing need = iota
	memory       // room for a long prompt
	prompts      // the prompts before it to be computed
	place        // a place at the engine
)

// enter lets t in, has it wait, or says why not. After a wait begins, the caller
// asks next.
func (g *gate) enter(t *ticket, now time.Time) Reason {
	t.arrived = now
	if g.draining {
		return g.refuse(t, draining, 0)
	}
	if capacity := g.engine.load.CapacityTokens; capacity > 0 {
		// More is an image rather than a text, and would wait for an idle engine.
		t.tokens = min(t.tokens, capacity/2)
	}
	if g.nobodyWaits(t.class) && g.lacks(t) == nothing {
		g.admit(t, now)
		return none
	}
	q, wait := g.queues[t.class], g.limits.QueueWait[t.class]
	finish := g.finish[t.class][t.tenant]
	switch {
	case !q.Room(t.bytes):
		return g.refuse(t, queueFull, 0)
	case g.fair && !q.Fair(g.flow(t), 0):
		return g.refuse(t, tenantQueue, 0)
	}
	// A bound from below: those at the engine, and its tenant's own before it.
	if g.lacks(t) == prompts {
		if least := g.prefill.takes(g.prefill.pending + int(max(finish-q.Virtual, 0))); least > wait {
			return g.refuse(t, queueWait, least-wait)
		}
	}
	t.phase = waiting
	t.told = make(chan Reason, 1)
	t.waiter = quota.Waiter{Tenant: g.flow(t), Work: float64(t.tokens), Bytes: t.bytes, Arrived: now.UnixNano(), Owner: t}
	if q.Len() == 0 {
		g.turns.begin(t.class)
	}
	g.finish[t.class][t.tenant] = q.Push(&t.waiter, finish, 1)
	return none
}

func (g *gate) refuse(t *ticket, why Reason, after time.Duration) Reason {
	t.phase, t.retryAfter = over, after
	return why
}

// flow is the queue's name for t's tenant. Its long prompts are a flow of their
// own, so that they can step aside for memory while its short ones go on; both are
// charged to the one tenant.
func (g *gate) flow(t *ticket) uint16 {
	flow := t.tenant << 1
	if t.tokens >= g.limits.LongPromptTokens {
		flow |= 1
	}
	return flow
}

// nobodyWaits tells whether a request of this class overtakes nobody who could be
// let in.
func (g *gate) nobodyWaits(class uint8) bool {
	for c := range g.queues {
		if (c != p2 || class == p2) && g.queues[c].Len() > 0 && !g.yielding {
			return false
		}
	}
	return true
}

// lacks says what has to come free before t can be let in.
func (g *gate) lacks(t *ticket) need {
	// An idle engine takes anything: nothing could come free there.
	if g.total() == 0 {
		return nothing
	}
	share := 1
	if t.class == p2 {
		share = 2 // of what is a reserve for the others
	}
	switch {
	case !g.engine.room(g.total(), g.limits, share):
		return place
	case !g.prefill.room(t.tokens, share):
		return prompts
	case t.tokens >= g.limits.LongPromptTokens && !g.engine.memoryFor(t.tokens, g.prefill.pending, g.limits):
		return memory
	}
	return nothing
}

func (g *gate) waiting() (n int) {
	for _, q := range g.queues {
		n += q.Len()
	}
	return n
}

func (g *gate) total() int { return g.inFlight[p0] + g.inFlight[p1] + g.inFlight[p2] }

// next lets in who is next, nil when nobody can be.
func (g *gate) next(now time.Time) *ticket {
	defer g.unblock()
	g.prefill.overdue(now)
	g.yielding = true
	for {
		class, t := g.turn()
		if t == nil {
			return nil
		}
		switch g.lacks(t) {
		case nothing:
			g.queues[class].Take(&t.waiter)
			g.settle(t)
			g.turns.took(class, t.waiter.Cost())
			g.admit(t, now)
			t.told <- none
			return t
		case memory:
			g.queues[class].Block(t.waiter.Tenant)
		default:
			g.yielding = false
			return nil
		}
	}
}

// turn is whose turn it is among those who wait and aren't blocked.
func (g *gate) turn() (class uint8, t *ticket) {
	var best [classes]*quota.Waiter
	for c := range g.queues {
		best[c] = g.queues[c].Best()
	}
	class, ok := g.turns.pick(best[p0] != nil, best[p1] != nil, best[p2] != nil)
	if !ok {
		return 0, nil
	}
	return class, best[class].Owner.(*ticket)
}

func (g *gate) unblock() {
	for c := range g.queues {
		g.queues[c].Unblock()
	}
}

func (g *gate) admit(t *ticket, now time.Time) {
	t.phase = computing
	g.inFlight[t.class]++
	g.engine.now.sent++
	g.prefill.begin(t, g.engine.now.sent, now)
}

// observe takes in what the engine said of itself.
func (g *gate) observe(l Load, asked tally, now time.Time) {
	// An engine may count a moment after its answer: what it served before the
	// reading before must show.
	g.prefill.count(l.PromptTokens, g.engine.read.served > 0, now)
	if l.Waiting == 0 {
		// Who came before the reading before has begun: a request may take a moment to
		// show in the engine's queue.
		g.prefill.begunUntil(g.engine.read.sent)
	}
	g.engine.observe(l, asked, g.limits)
}

// forget is called when the engine doesn't tell its load any more.
func (g *gate) forget() {
	g.engine.forget()
	g.prefill.uncounted = true
}

// answers notes that the answer has begun. Of a stream that shows when the prompt
// was computed.
func (g *gate) answers(t *ticket, stream bool, now time.Time) {
	if t.phase != computing {
		return
	}
	t.phase = answering
	if stream {
		g.prefill.answered(t, g.held(), now)
	}
	g.prefill.end(t)
	g.engine.now.answered++
	g.engine.now.grown += t.tokens
	t.answered = g.engine.now.answered
}

// leave ends t, whatever it was doing. Only the first call does anything.
func (g *gate) leave(t *ticket) {
	was := t.phase
	t.phase = over
	switch was {
	case waiting:
		g.queues[t.class].Remove(&t.waiter)
		g.finish[t.class][t.tenant] -= t.waiter.Cost()
		g.settle(t)
	case computing, answering:
		g.prefill.end(t)
		g.inFlight[t.class]--
		g.engine.now.ended++
		if t.answered > g.engine.read.answered {
			g.engine.now.grown -= t.tokens // no page shows it yet
		}
		if t.served {
			g.engine.now.served++
		}
	}
}

// giveUp ends t if it still waits.
func (g *gate) giveUp(t *ticket) bool {
	if t.phase != waiting {
		return false
	}
	g.leave(t)
	return true
}

// settle forgets the accounts of a class of which nobody waits: nobody saves up by
// being idle, nor owes anything.
func (g *gate) settle(t *ticket) {
	if g.queues[t.class].Len() == 0 {
		clear(g.finish[t.class])
	}
}

// held tells whether somebody waits for prompts to be computed.
func (g *gate) held() bool {
	_, t := g.turn()
	return t != nil && g.lacks(t) == prompts
}

// drain refuses who comes from now on and who waits. Nothing of theirs has reached
// the engine, so another worker can serve them.
func (g *gate) drain() {
	g.draining = true
	for _, q := range g.queues {
		for w := q.Oldest(); w != nil; w = q.Oldest() {
			t := w.Owner.(*ticket)
			q.Remove(w)
			g.settle(t)
			t.told <- g.refuse(t, draining, 0)
		}
	}
}
