package admit

import (
	"math"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	batchEvery  = 250 * time.Millisecond
	batchLeast  = 50 * time.Millisecond
	reportEvery = 100 * time.Millisecond
)

// gateway is one proxy.
type gateway struct {
	fleet *fleet
	name  string
	nonce uint64

	lease       quota.Lease
	sequence    uint64
	outstanding bool
	sent        time.Duration
	batches     int // so that a batch asked for sooner takes the place of the next

	use     quota.Use
	queues  [policy.Classes]*quota.Queue
	waiting map[*quota.Waiter]*request
	finish  [policy.Classes]map[uint16]float64
	waits   quota.Use // of those that could use a slot
	away    [policy.Classes]struct {
		requests uint32
		tokens   uint64
	} // refused for want of room
	ttft    [policy.Classes][wire.TTFTBuckets]uint32
	tenants map[uint16]*tenant

	// seen is the prefill work of each worker as last reported, and since then sent by itself.
	seen []int
	// home is where ties are broken from, another place in each gateway: those that see the same
	// don't choose the same.
	home int
}

// tenant is what a gateway has of a tenant. Those that wait do so for the tenant's own limits.
type tenant struct {
	inUse, waiting, waitingTokens uint32
	requests, tokens              uint64
	refused                       uint32
}

func newGateway(f *fleet, i int) *gateway {
	g := &gateway{
		fleet: f, name: "gateway-" + strconv.Itoa(i), nonce: uint64(i + 1), seen: make([]int, len(f.workers)), home: i * len(f.workers) / f.cfg.Gateways,
		waiting: map[*quota.Waiter]*request{}, tenants: map[uint16]*tenant{},
	}
	for c := range g.queues {
		g.queues[c] = quota.NewQueue(0, 0)
		g.finish[c] = map[uint16]float64{}
		if f.settings != nil {
			q := f.settings.Classes[c].Queue
			g.queues[c].Bound(q.Requests, q.Bytes)
		}
	}
	phase := time.Duration(i) * batchEvery / time.Duration(f.cfg.Gateways)
	f.after(phase*2/5, func() { g.look(); f.every(reportEvery, g.look) })
	if f.control != nil {
		f.after(phase, g.batch)
		f.every(10*time.Millisecond, g.expire)
	}
	return g
}

// look takes the workers' reports.
func (g *gateway) look() {
	for i, w := range g.fleet.workers {
		g.seen[i] = w.prefill
		if w.dead {
			g.seen[i] = math.MaxInt
		}
	}
}

func (g *gateway) tenant(index uint16) *tenant {
	t := g.tenants[index]
	if t == nil {
		t = &tenant{}
		g.tenants[index] = t
	}
	return t
}

// arrive decides about a request.
func (g *gateway) arrive(r *request) {
	r.gateway = g
	if g.fleet.settings == nil {
		g.forward(r)
		return
	}
	r.tenant, _ = g.fleet.settings.TenantIndex([]byte(r.flow.Tenant))
	pending, wait := g.takeTenant(r)
	if pending != quota.None && !wait {
		g.refuse(r, pending, time.Second)
		return
	}
	q := g.queues[r.class]
	if !q.Room(0) || !q.Fair(r.tenant, 0) {
		g.refuse(r, quota.QueueFull, g.wait(r))
		return
	}
	deadline := g.fleet.settings.Classes[r.class].Queue.Deadline
	if wait := g.wait(r); wait > deadline {
		g.refuse(r, quota.QueueWait, wait)
		return
	}
	// Through the queue even when there is a slot: whose turn it is, is decided in one place.
	r.waiter = quota.Waiter{Tenant: r.tenant, Work: float64(r.prompt), Arrived: int64(g.fleet.now), Deadline: int64(g.fleet.now + deadline)}
	settings := &g.fleet.settings.Tenants[r.tenant]
	g.finish[r.class][r.tenant] = q.Push(&r.waiter, g.finish[r.class][r.tenant], settings.Weight)
	g.waiting[&r.waiter] = r
	g.waits.Class[r.class].Slots++
	g.waits.Class[r.class].Prefill += uint32(r.prompt)
	g.setPending(r, pending)
	g.admit()
	if r.waiter.Waits() {
		g.sooner(batchLeast)
	}
}

// takeTenant takes what the tenant's limits give a request, as the path does (filter/admission).
// wait tells that control may grant more when it hears that somebody waits.
func (g *gateway) takeTenant(r *request) (why quota.Reason, wait bool) {
	limits := &g.fleet.settings.Tenants[r.tenant]
	if !limits.Limited() || r.charged {
		return quota.None, false
	}
	c, _ := g.lease.Tenant(r.tenant, int64(g.fleet.now))
	t := g.tenant(r.tenant)
	switch {
	case limits.Concurrency != policy.NoLimit && t.inUse >= c.Slots:
		return quota.TenantConcurrency, c.Flags&wire.NoSlots == 0
	case limits.RequestsPerMinute != policy.NoLimit && t.requests >= c.Requests:
		return quota.TenantRequests, c.Flags&wire.NoRequests == 0
	case limits.UncachedTokensPerMinute != policy.NoLimit && t.tokens >= c.Tokens:
		return quota.TenantTokens, c.Flags&wire.NoTokens == 0
	}
	r.charged = true
	t.inUse++
	t.requests++
	return quota.None, false
}

// reserve takes the tokens of a request that has its slot. The last prompt of a piece may overdraw
// it, unless there is no more.
func (g *gateway) reserve(r *request) bool {
	if g.fleet.settings.Tenants[r.tenant].UncachedTokensPerMinute == policy.NoLimit {
		return true
	}
	c, _ := g.lease.Tenant(r.tenant, int64(g.fleet.now))
	t := g.tenant(r.tenant)
	left := int64(c.Tokens - t.tokens)
	if left <= 0 || left < int64(r.prompt) && c.Flags&wire.NoTokens != 0 {
		return false
	}
	t.tokens += uint64(r.prompt)
	return true
}

// giveTenant gives back what a request has of its tenant's limits. What nobody served costs nothing.
func (g *gateway) giveTenant(r *request, served bool) {
	if !r.charged {
		return
	}
	r.charged = false
	t := g.tenant(r.tenant)
	t.inUse--
	if !served {
		t.requests--
	}
}

// setPending books for which of its tenant's limits a request waits, None for none.
func (g *gateway) setPending(r *request, why quota.Reason) {
	if (why == quota.None) == (r.pending == quota.None) {
		r.pending = why
		return
	}
	n := uint32(1)
	if r.pending = why; why == quota.None {
		n = math.MaxUint32 // two's complement
	}
	t, waits := g.tenant(r.tenant), &g.waits.Class[r.class]
	t.waiting += n
	t.waitingTokens += n * uint32(r.prompt)
	waits.Slots -= n
	waits.Prefill -= n * uint32(r.prompt)
}

// wait is how long a request would wait behind those that have their turn before it.
func (g *gateway) wait(r *request) time.Duration {
	rate := g.lease.Rate(0)
	if rate == 0 {
		return 0
	}
	ahead := g.queues[r.class].Ahead(g.finish[r.class][r.tenant])
	for c := range r.class {
		ahead += float64(g.waits.Class[c].Prefill)
	}
	return time.Duration(ahead / float64(rate) * float64(time.Second))
}

// admit gives slots to whoever has its turn.
func (g *gateway) admit() {
	now := int64(g.fleet.now)
	grant, ok := g.lease.Pool(0, now)
	if !ok {
		return
	}
	for c := range g.queues {
		g.queues[c].Unblock()
	}
	for {
		need := [policy.Classes]uint32{quota.Nobody, quota.Nobody, quota.Nobody}
		for c, q := range g.queues {
			w := q.Best()
			for w != nil && !g.mayGo(q, w) {
				w = q.Best()
			}
			if w != nil {
				need[c] = uint32(g.waiting[w].prompt)
			}
		}
		c := grant.Turn(&g.use, &need)
		if c < 0 {
			return
		}
		w := g.queues[c].Best()
		r := g.waiting[w]
		g.queues[c].Take(w)
		g.leave(r)
		if !g.reserve(r) {
			g.refuse(r, quota.TenantTokens, time.Second)
			continue
		}
		g.use.Class[r.class].Slots++
		g.use.Class[r.class].Prefill += uint32(r.prompt)
		g.forward(r)
	}
}

// mayGo tells whether a request that waits has what its tenant's limits have to give. If not it
// steps aside, or is turned away.
func (g *gateway) mayGo(q *quota.Queue, w *quota.Waiter) bool {
	r := g.waiting[w]
	if r.pending == quota.None {
		return true
	}
	switch why, wait := g.takeTenant(r); {
	case why == quota.None:
		g.setPending(r, quota.None)
		return true
	case wait:
		g.setPending(r, why)
		q.Block(w.Tenant)
	default:
		q.Remove(w)
		g.giveUp(r, why)
	}
	return false
}

// giveUp turns away a request that has left its queue without a slot.
func (g *gateway) giveUp(r *request, why quota.Reason) {
	g.leave(r)
	g.finish[r.class][r.tenant] -= r.waiter.Cost()
	g.refuse(r, why, time.Second)
}

// leave takes a request out of the books of those that wait.
func (g *gateway) leave(r *request) {
	delete(g.waiting, &r.waiter)
	g.setPending(r, quota.None)
	g.waits.Class[r.class].Slots--
	g.waits.Class[r.class].Prefill -= uint32(r.prompt)
}

func (g *gateway) refuse(r *request, why quota.Reason, after time.Duration) {
	r.record.Refused, r.record.RetryAfter, r.record.Ended = why, max(after, time.Second), g.fleet.now
	if why.ForRoom() {
		g.away[r.class].requests++
		g.away[r.class].tokens += uint64(r.prompt)
	}
	g.tenant(r.tenant).refused++
	g.giveTenant(r, false)
}

func (g *gateway) expire() {
	for _, q := range g.queues {
		q.Expire(int64(g.fleet.now), func(w *quota.Waiter) bool {
			r, why := g.waiting[w], quota.QueueTimeout
			if r.pending != quota.None {
				why = r.pending
			}
			g.giveUp(r, why)
			return true
		})
	}
	g.admit()
}

// forward sends a request to the worker with the least prefill work of a random half of them, which
// keeps gateways that see the same from all choosing the same, as in route.Choose.
func (g *gateway) forward(r *request) {
	n := len(g.seen)
	best, wanted := -1, (n+1)/2
	for i := range n {
		if g.fleet.rng.IntN(n-i) >= wanted {
			continue
		}
		wanted--
		if w := (g.home + i) % n; best < 0 || g.seen[w] < g.seen[best] {
			best = w
		}
	}
	if g.seen[best] != math.MaxInt {
		g.seen[best] += r.prompt
	}
	g.fleet.send(g.fleet.workers[best], r)
}

// answered: the first token is out.
func (g *gateway) answered(r *request) {
	ttft, _ := r.record.TTFT()
	g.ttft[r.class][wire.TTFTBucket(uint32(ttft.Milliseconds()))]++
	if g.fleet.settings == nil {
		return
	}
	g.use.Class[r.class].Prefill -= uint32(r.prompt)
	g.admit()
}

// done: the request has ended.
func (g *gateway) done(r *request) {
	if g.fleet.settings == nil {
		return
	}
	g.use.Class[r.class].Slots--
	g.giveTenant(r, true)
	if !r.first {
		g.use.Class[r.class].Prefill -= uint32(r.prompt)
	}
	g.admit()
}

// sooner has the next batch sent earlier, but not within d of the last one.
func (g *gateway) sooner(d time.Duration) {
	if g.outstanding {
		return
	}
	g.batches++
	n := g.batches
	g.fleet.at(g.sent+d, func() {
		if g.batches == n {
			g.batch()
		}
	})
}

// batch reports to control.
func (g *gateway) batch() {
	g.sequence++
	g.outstanding, g.sent = true, g.fleet.now
	usage, latency := g.usage(), g.latency()
	g.fleet.after(hop, func() {
		leases, hurry, err := g.fleet.control.batch(g.name, usage, latency)
		if err != nil {
			panic(err) // the run's own bytes
		}
		g.fleet.after(hop, func() { g.answer(leases, hurry) })
	})
}

func (g *gateway) answer(leases []byte, hurry time.Duration) {
	g.outstanding = false
	if len(leases) > 0 {
		if _, err := g.lease.Install(leases, g.nonce, g.sequence, int64(g.sent)); err != nil {
			panic(err)
		}
		g.admit()
	}
	next := batchEvery
	if hurry > 0 {
		next = hurry
	}
	g.sooner(next)
}

func (g *gateway) usage() []byte {
	now := int64(g.fleet.now)
	b := wire.AppendUsage(nil, &wire.Usage{
		Nonce: g.nonce, Sequence: g.sequence, Term: g.lease.Term, Lease: g.lease.Sequence, Tenants: g.fleet.settings.TenantsHash,
	})
	total := uint32(0)
	for c, u := range g.use.Class {
		total += u.Slots
		used := wire.Used{
			Tenant: wire.WholeClass, Class: uint8(c), InUse: u.Slots, Waiting: g.waits.Class[c].Slots, PrefillTokens: u.Prefill,
			WaitingTokens: g.waits.Class[c].Prefill, Refused: g.away[c].requests, Tokens: g.away[c].tokens, Slots: uint32(wire.WeightOne * g.queues[c].Weight()),
		}
		if w := g.queues[c].Oldest(); w != nil {
			used.OldestWaitMillis = uint32((now - w.Arrived) / int64(time.Millisecond))
		}
		b = wire.AppendUsed(b, &used)
	}
	b = wire.AppendUsed(b, &wire.Used{Tenant: wire.WholeClass, Class: wire.AnyClass, InUse: total, Slots: g.lease.Held(0, now)})
	for _, index := range sorted(g.tenants) {
		if !g.fleet.settings.Tenants[index].Limited() {
			continue
		}
		t := g.tenants[index]
		c, known := g.lease.Tenant(index, now)
		if known || t.inUse > 0 || t.waiting > 0 {
			b = wire.AppendUsed(b, &wire.Used{
				Tenant: index, Pool: wire.AnyPool, Class: wire.AnyClass, InUse: t.inUse, Waiting: t.waiting, WaitingTokens: t.waitingTokens,
				Requests: t.requests, Tokens: t.tokens, Refused: t.refused, Slots: c.Slots,
			})
		}
	}
	return b
}

func (g *gateway) latency() []byte {
	var b []byte
	for c := range g.ttft {
		b = wire.AppendLatency(b, &wire.Latency{Class: uint8(c), Nonce: g.nonce, Counts: &g.ttft[c]})
	}
	return b
}
