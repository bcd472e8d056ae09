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
	work    [policy.Classes]float64 // of those that wait
	refused [policy.Classes]uint32
	ttft    [policy.Classes][wire.TTFTBuckets]uint32
	tenants map[uint16]*tenant

	// seen is the prefill work of each worker as last reported, and since then sent by itself.
	seen []int
	// home is where ties are broken from, another place in each gateway: those that see the same
	// don't choose the same.
	home int
}

// tenant is what a gateway has of a tenant.
type tenant struct {
	inUse, waiting   [policy.Classes]uint32
	requests, tokens uint64
	waitingTokens    uint32
	refused          uint32
}

func (t *tenant) total() (inUse, waiting uint32) {
	for c := range t.inUse {
		inUse += t.inUse[c]
		waiting += t.waiting[c]
	}
	return inUse, waiting
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
	if why := g.limits(r); why != quota.None {
		g.refuse(r, why, time.Second)
		return
	}
	q := g.queues[r.class]
	if !q.Room(0) || !q.Fair(r.tenant) {
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
	g.work[r.class] += float64(r.prompt)
	t := g.tenant(r.tenant)
	t.waiting[r.class]++
	t.waitingTokens += uint32(r.prompt)
	g.admit()
	if r.waiter.Waits() {
		g.sooner(batchLeast)
	}
}

// limits tells whether a tenant's limits refuse a request at once.
func (g *gateway) limits(r *request) quota.Reason {
	if !g.fleet.settings.Tenants[r.tenant].Limited() {
		return quota.None
	}
	c, known := g.lease.Tenant(r.tenant, int64(g.fleet.now))
	t := g.tenant(r.tenant)
	inUse, _ := t.total()
	switch {
	case !known:
		return quota.None // it waits for the next lease
	case c.Flags&wire.NoSlots != 0 && inUse >= c.Slots:
		return quota.TenantConcurrency
	case c.Flags&wire.NoRequests != 0 && t.requests >= c.Requests:
		return quota.TenantRequests
	case c.Flags&wire.NoTokens != 0 && t.tokens >= c.Tokens:
		return quota.TenantTokens
	}
	return quota.None
}

// wait is how long a request would wait behind those that have their turn before it.
func (g *gateway) wait(r *request) time.Duration {
	rate := g.lease.Rate(0)
	if rate == 0 {
		return 0
	}
	ahead := g.queues[r.class].Ahead(g.finish[r.class][r.tenant])
	for c := range r.class {
		ahead += g.work[c]
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
			for w != nil && !g.credit(g.waiting[w]) {
				if why := g.limits(g.waiting[w]); why != quota.None {
					q.Remove(w)
					g.giveUp(g.waiting[w], why)
				} else {
					q.Block(w.Tenant)
				}
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
		g.take(r)
		g.forward(r)
	}
}

// credit tells whether a tenant's limits let a request through.
func (g *gateway) credit(r *request) bool {
	if !g.fleet.settings.Tenants[r.tenant].Limited() {
		return true
	}
	c, known := g.lease.Tenant(r.tenant, int64(g.fleet.now))
	t := g.tenant(r.tenant)
	inUse, _ := t.total()
	return known && inUse < c.Slots && t.requests < c.Requests && (c.Tokens == wire.NoCredit || t.tokens+uint64(r.prompt) <= c.Tokens)
}

// giveUp turns away a request that has left its queue without a slot.
func (g *gateway) giveUp(r *request, why quota.Reason) {
	g.leave(r)
	g.finish[r.class][r.tenant] -= r.waiter.Cost()
	g.refuse(r, why, time.Second)
}

// take books what a request has.
func (g *gateway) take(r *request) {
	g.use.Class[r.class].Slots++
	g.use.Class[r.class].Prefill += uint32(r.prompt)
	t := g.tenant(r.tenant)
	t.inUse[r.class]++
	t.requests++
	t.tokens += uint64(r.prompt)
}

// leave takes a request out of the books of those that wait.
func (g *gateway) leave(r *request) {
	delete(g.waiting, &r.waiter)
	g.work[r.class] -= float64(r.prompt)
	t := g.tenant(r.tenant)
	t.waiting[r.class]--
	t.waitingTokens -= uint32(r.prompt)
}

func (g *gateway) refuse(r *request, why quota.Reason, after time.Duration) {
	r.record.Refused, r.record.RetryAfter, r.record.Ended = why, max(after, time.Second), g.fleet.now
	g.refused[r.class]++
	g.tenant(r.tenant).refused++
}

func (g *gateway) expire() {
	for _, q := range g.queues {
		q.Expire(int64(g.fleet.now), func(w *quota.Waiter) {
			r := g.waiting[w]
			g.giveUp(r, quota.QueueTimeout)
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
	g.tenant(r.tenant).inUse[r.class]--
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
			Tenant: wire.WholeClass, Class: uint8(c), InUse: u.Slots, Waiting: uint32(g.queues[c].Len()), PrefillTokens: u.Prefill,
			WaitingTokens: uint32(g.work[c]), Refused: g.refused[c],
		}
		if w := g.queues[c].Oldest(); w != nil {
			used.OldestWaitMillis = uint32((now - w.Arrived) / int64(time.Millisecond))
		}
		b = wire.AppendUsed(b, &used)
	}
	b = wire.AppendUsed(b, &wire.Used{Tenant: wire.WholeClass, Class: wire.AnyClass, InUse: total, Slots: g.lease.Held(0, now)})
	for _, index := range sorted(g.tenants) {
		t := g.tenants[index]
		for c := range t.inUse {
			if t.inUse[c] > 0 || t.waiting[c] > 0 {
				b = wire.AppendUsed(b, &wire.Used{Tenant: index, Class: uint8(c), InUse: t.inUse[c], Waiting: t.waiting[c]})
			}
		}
		if !g.fleet.settings.Tenants[index].Limited() {
			continue
		}
		inUse, waiting := t.total()
		c, known := g.lease.Tenant(index, now)
		if known || inUse > 0 || waiting > 0 {
			b = wire.AppendUsed(b, &wire.Used{
				Tenant: index, Pool: wire.AnyPool, Class: wire.AnyClass, InUse: inUse, Waiting: waiting, WaitingTokens: t.waitingTokens,
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
