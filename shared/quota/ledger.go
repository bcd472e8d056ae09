package quota

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// maxGateways bounds the gateways of a ledger.
	maxGateways = 1024
	// A process whose lease has been over for so long, and of which a younger one of the same name
	// has reported so many times since, has ended. Engines notice a client that is gone within 2.5 s.
	successorGrace   = 3_000_000_000
	successorReports = 10
	// clockMargin is the part of a duration by which clocks may differ in rate. Gateways take it off
	// too.
	clockMargin = 50
)

// Capacity is what a pool's workers can carry.
type Capacity struct {
	// Slots are requests at once, NoLimit when that is not known.
	Slots uint32
	// TokensPerSecond is the rate of prefill of all workers, 0 when it is not known.
	TokensPerSecond float64
	// PrefillTokens bounds the prefill work under way, NoLimit for no bound.
	PrefillTokens uint32
}

// Pool names a pool of the policy.
type Pool struct {
	Index uint8
	Name  string
}

// Ledger is what all gateways may admit. It is told the time, which never goes back, and is not
// safe for concurrent use.
type Ledger struct {
	term      uint64
	born      uint64 // gateways so far
	started   int64
	admission *policy.Admission
	pools     []*pool
	gateways  map[uint64]*gateway
	accounts  map[uint16]*account
	// anonymous: this ledger follows one that it knows nothing of.
	anonymous  bool
	floorsOver bool  // of those before
	follows    bool  // there are signs of one: a lease of another term, or work that nobody reports
	inherits   bool  // the first of them
	observed   bool  // workers' counts are known
	heard      int64 // the first report
	scratch    []wire.Used
	live       []*holding
}

// pool is what a ledger knows of one pool.
type pool struct {
	Pool
	capacity Capacity
	shares   Shares
	ghosts   ghosts
	slots    resource
	prefill  resource
	// prefillHeld is that of all gateways.
	prefillHeld uint64
	refused     [policy.Classes]uint64
}

// resource is the split of slots or of tokens, computed for all gateways and divided among them.
type resource struct {
	demand [policy.Classes]float64
	split  Split
	level  [policy.Classes]float64 // of what a gateway gets by its weight; -1: all get what they ask for
}

// gateway is one process of a gateway.
type gateway struct {
	nonce      uint64
	name       string
	usage      uint64 // sequence of its last report
	lease      uint64 // sequence of its last lease
	heard      int64
	expires    int64 // the last lease is over at the gateway
	floorEnd   int64 // its floor is, too
	floorsOver bool
	// unknown: it was a gateway of the ledger before this one, and has not reported yet.
	unknown   bool
	born      uint64
	succeeded int // reports of a younger process of the same name while this one was silent
	pools     []holding
	tenants   map[uint16]*tenancy
	listed    []uint16 // tenants of its last report, in its order
}

// holding is what a gateway has in a pool.
type holding struct {
	granted, floor uint32 // by the last lease
	held           uint32 // by any lease that it may have
	heldFloor      uint32
	// prefillHeld is the tokens to prefill of the last lease, and what is still in use of a larger
	// one before. Requests that went beyond a lease as its last are not in it.
	prefillHeld uint32
	inUse       uint32
	class       [policy.Classes]classUse
	refused     [policy.Classes]turnedAway
	// demand and prefill are what it asks for, weight is that of the tenants that wait, at least 1.
	demand, prefill, weight [policy.Classes]float64
	least                   uint32 // in use in all reports of the window of its pool's ghosts
	reports                 int
	covered                 bool // its pool's ghosts bound what it has
}

type classUse struct {
	inUse, waiting, prefill, waitingTokens, oldestMillis, weight uint32
}

// turnedAway is what a gateway has refused of a class for want of room.
type turnedAway struct {
	requests uint32 // as last reported: since the process began, or its cell was made
	tokens   uint64
	known    bool
	// lately and latelyTokens are those of the last second: a second's refusals, when they come evenly.
	lately, latelyTokens float64
}

// latelyFades is the time in nanoseconds in which what was turned away fades to 1/e.
const latelyFades = 1e9

// report takes over a report that comes so long after the one before, and tells how many were
// refused meanwhile. The first one has the past of the process, and one with less than before that
// of another cell: neither is of now.
func (t *turnedAway) report(requests uint32, tokens uint64, since int64) (n uint32) {
	fade := math.Exp(-float64(max(since, 0)) / latelyFades)
	t.lately *= fade
	t.latelyTokens *= fade
	if n = requests - t.requests; t.known && n < 1<<31 {
		t.lately += float64(n)
		t.latelyTokens += float64(sub(tokens, t.tokens))
	} else {
		n = 0
	}
	t.requests, t.tokens, t.known = requests, tokens, true
	return n
}

// debit is the most that the gateway has in use, or can have before it reports again.
func (h *holding) debit() uint64 { return uint64(max(h.held, h.heldFloor, h.inUse)) }

// New starts a ledger. Its term must be above that of any ledger before it. With anonymous it may
// follow one that it knows nothing of, and gives nobody more than it has until all that was
// before is over.
func New(term uint64, anonymous bool, now int64) *Ledger {
	return &Ledger{
		term: term, started: now, anonymous: anonymous,
		gateways: map[uint64]*gateway{}, accounts: map[uint16]*account{},
	}
}

// Remember says that a process was a gateway of the ledger before this one, and may hold whatever
// that one granted. It is for a ledger that is not anonymous, before the first report.
func (l *Ledger) Remember(name string, nonce uint64) {
	g := l.gateway(name, nonce)
	if g == nil || l.admission == nil {
		return
	}
	g.unknown = true
	g.expires, g.floorEnd = l.started+withMargin(l.admission.Lease), l.started+withMargin(l.admission.MaxPartition)
}

// Term is the ledger's term.
func (l *Ledger) Term() uint64 { return l.term }

// Configure takes over settings and the pools of the policy. Pools keep what they have by name;
// tenants by number.
func (l *Ledger) Configure(a *policy.Admission, pools []Pool, now int64) {
	l.admission = a
	before := l.pools
	l.pools = nil
	from := make([]int, len(pools)) // index in before, or -1
	for i, p := range pools {
		from[i] = slices.IndexFunc(before, func(b *pool) bool { return b.Name == p.Name })
		n := &pool{capacity: Capacity{Slots: NoLimit, PrefillTokens: NoLimit}}
		if from[i] >= 0 {
			n = before[from[i]]
		} else {
			controller := NewController()
			n.shares = controller.Shares(&a.Classes)
		}
		n.Pool = p
		l.pools = append(l.pools, n)
	}
	for _, g := range l.gateways {
		holdings := make([]holding, len(pools))
		for i, at := range from {
			if at >= 0 && at < len(g.pools) {
				holdings[i] = g.pools[at]
			}
		}
		g.pools = holdings
	}
	for index, acc := range l.accounts {
		if int(index) >= len(a.Tenants) || !a.Tenants[index].Limited() {
			l.closeAccount(index)
			continue
		}
		acc.configure(&a.Tenants[index], now)
	}
}

// SetCapacity says what a pool can carry from now on.
func (l *Ledger) SetCapacity(index uint8, c Capacity) {
	if p := l.pool(index); p != nil {
		p.capacity = c
	}
}

// SetShares says how a pool is split among its classes from now on.
func (l *Ledger) SetShares(index uint8, s Shares) {
	if p := l.pool(index); p != nil {
		p.shares = s
	}
}

func (l *Ledger) pool(index uint8) *pool {
	if i := l.poolAt(index); i >= 0 {
		return l.pools[i]
	}
	return nil
}

func (l *Ledger) poolAt(index uint8) int {
	return slices.IndexFunc(l.pools, func(p *pool) bool { return p.Index == index })
}

// Renew takes in the USAGE payload of a batch of the gateway of that name and appends the LEASES
// payload of its answer. It appends nothing for a report that is older than another one of the
// same process: whoever sent it isn't waiting for the answer any more.
func (l *Ledger) Renew(name string, usage []byte, now int64, out []byte) ([]byte, error) {
	u, records, err := wire.DecodeUsage(usage)
	if err != nil {
		return out, err
	}
	l.scratch = l.scratch[:0]
	if err := wire.ForEachUsed(records, func(r *wire.Used) error { l.scratch = append(l.scratch, *r); return nil }); err != nil {
		return out, err
	}
	g := l.gateway(name, u.Nonce)
	if g == nil || u.Sequence <= g.usage {
		return out, nil
	}
	l.report(g, &u, l.scratch, now)
	l.inherits = l.inherits || u.Term != 0 && u.Term != l.term
	l.follows = l.follows || l.inherits
	if l.heard == 0 {
		l.heard = now
	}
	if l.admission == nil {
		return out, nil
	}
	g.expires = max(g.expires, now+withMargin(l.admission.Lease))
	if u.Term == 0 && l.Learning() {
		// Who has nothing yet goes on without: a lease of nothing would be worse.
		return out, nil
	}
	return l.grant(g, &u, now, out), nil
}

// gateway returns the gateway of a nonce, a new one for an unknown one, nil when there are too
// many.
func (l *Ledger) gateway(name string, nonce uint64) *gateway {
	if g := l.gateways[nonce]; g != nil {
		return g
	}
	if len(l.gateways) >= maxGateways {
		return nil
	}
	l.born++
	g := &gateway{nonce: nonce, name: name, born: l.born, pools: make([]holding, len(l.pools)), tenants: map[uint16]*tenancy{}}
	l.gateways[nonce] = g
	return g
}

// report takes over what a gateway has in use.
func (l *Ledger) report(g *gateway, u *wire.Usage, records []wire.Used, now int64) {
	floorsOver, since := g.floorsOver, now-g.heard
	g.usage, g.heard, g.unknown, g.floorsOver, g.succeeded = u.Sequence, now, false, false, 0
	for _, other := range l.gateways {
		if other.name == g.name && other.born < g.born && now > other.expires+successorGrace {
			other.succeeded++
		}
	}
	// Of all leases that were sent, the gateway obeys the one that it names: older ones it has
	// given up, and an answer to an earlier batch it takes no more.
	current := u.Term == l.term && u.Lease == g.lease
	if u.Term == l.term {
		g.lease = max(g.lease, u.Lease) // of a gateway that was thought to be gone
	}
	for i := range g.pools {
		h := &g.pools[i]
		h.class = [policy.Classes]classUse{}
		h.inUse = 0
		if current {
			h.held, h.heldFloor = h.granted, h.floor
		}
		if floorsOver {
			h.heldFloor = 0 // of a gateway that comes back: what it had of them is in use, or free
		}
		h.covered = false
	}
	sameTenants := l.admission != nil && u.Tenants == l.admission.TenantsHash
	g.listed = g.listed[:0]
	if sameTenants {
		for _, t := range g.tenants {
			t.seen = false
		}
	}
	for i := range records {
		r := &records[i]
		switch {
		case r.Pool == wire.AnyPool:
			if sameTenants {
				l.reportTenant(g, r, current, now)
			}
		default:
			at := l.poolAt(r.Pool)
			if at < 0 {
				continue
			}
			g.pools[at].report(r, u.Term == l.term)
			if r.Tenant == wire.WholeClass && r.Class < policy.Classes {
				l.pools[at].refused[r.Class] += uint64(g.pools[at].refused[r.Class].report(r.Refused, r.Tokens, since))
			}
		}
	}
	if sameTenants {
		l.quietTenants(g, current, now)
	}
	for i := range g.pools {
		h := &g.pools[i]
		h.least, h.reports = min(h.least, h.inUse), h.reports+1
		h.ask()
	}
}

// report takes one record over.
func (h *holding) report(r *wire.Used, ours bool) {
	switch {
	case r.Tenant != wire.WholeClass:
	case r.Class == wire.AnyClass:
		h.inUse = max(h.inUse, r.InUse)
		// Whatever was sent, this is what it goes by, and what a ledger that has just started
		// takes over.
		h.held = r.Slots
		if !ours {
			h.heldFloor = max(h.heldFloor, r.Slots)
		}
	case r.Class < policy.Classes:
		h.class[r.Class] = classUse{r.InUse, r.Waiting, r.PrefillTokens, r.WaitingTokens, r.OldestWaitMillis, r.Slots}
		total := uint32(0)
		for c := range h.class {
			total += h.class[c].inUse
		}
		h.inUse = max(h.inUse, total)
	}
}

// ask computes what a gateway asks for: what it has, what waits, and what it turned away a moment
// ago. Without that a class that turns away a third would seem content whenever nobody waits just
// then, and its place would be lent to those below it.
func (h *holding) ask() {
	for c := range h.class {
		u, away := &h.class[c], &h.refused[c]
		h.demand[c] = float64(u.inUse) + float64(u.waiting) + away.lately
		h.prefill[c] = float64(u.prefill) + float64(u.waitingTokens) + away.latelyTokens
		h.weight[c] = max(float64(u.weight)/wire.WeightOne, 1)
	}
}

// grant renews a gateway's lease.
func (l *Ledger) grant(g *gateway, u *wire.Usage, now int64, out []byte) []byte {
	g.lease++
	g.floorEnd = max(g.floorEnd, now+withMargin(l.admission.MaxPartition))
	header := wire.Leases{
		Nonce: g.nonce, Term: l.term, Sequence: g.lease, Answers: u.Sequence,
		DurationMillis: uint32(l.admission.Lease.Milliseconds()), FloorMillis: uint32(l.admission.MaxPartition.Milliseconds()),
		Tenants: l.admission.TenantsHash,
	}
	if l.Learning() {
		header.Flags = wire.LeasesLearning
	}
	out = wire.AppendLeases(out, &header)
	live, before := 0, 0
	for _, other := range l.gateways {
		if other.live(now) {
			live++
			if other.born < g.born {
				before++
			}
		}
	}
	place := (float64(before) + 0.5) / float64(max(live, 1))
	for i, p := range l.pools {
		h := &g.pools[i]
		grant, rate := l.divide(p, i, h, live, place, now)
		h.granted, h.floor = grant.Total.Slots, grant.Floor
		if p.capacity.Slots != NoLimit {
			h.held, h.heldFloor = max(h.held, h.granted), max(h.heldFloor, h.floor)
		}
		out = appendGrant(out, p.Index, &grant, rate)
	}
	if u.Tenants == l.admission.TenantsHash {
		out = l.grantTenants(g, now, out)
	}
	return out
}

func appendGrant(out []byte, pool uint8, g *Grant, rate uint32) []byte {
	out = wire.AppendLease(out, &wire.Lease{
		Tenant: wire.WholeClass, Pool: pool, Class: wire.AnyClass, Slots: g.Total.Slots, Floor: g.Floor,
		PrefillTokens: g.Total.Prefill, TokensPerSecond: rate,
	})
	for c := range g.Class {
		out = wire.AppendLease(out, &wire.Lease{
			Tenant: wire.WholeClass, Pool: pool, Class: uint8(c), Slots: g.Class[c].Slots, Floor: g.ClassFloor[c],
			PrefillTokens: g.Class[c].Prefill,
		})
	}
	return out
}

// withMargin is a duration at the slowest clock.
func withMargin(d time.Duration) int64 { return d.Nanoseconds() + d.Nanoseconds()/clockMargin }

// live tells whether the gateway may hold a lease.
func (g *gateway) live(now int64) bool { return !g.unknown && now <= g.expires }

// Learning tells whether there may be gateways of a ledger before this one that hold nobody knows
// what. Nobody gets more than it has then.
func (l *Ledger) Learning() bool {
	for i, p := range l.pools {
		if l.anonymous && !p.ghosts.anonymous {
			return true
		}
		for _, g := range l.gateways {
			if g.unknown && !g.pools[i].covered {
				return true
			}
		}
	}
	return false
}

// Tick does what time brings: gateways that are gone are forgotten. A tenth of a second between
// two is often enough.
func (l *Ledger) Tick(now int64) {
	if l.admission == nil {
		return
	}
	l.anonymous = l.anonymous && !l.beforeIsOver(now)
	if l.anonymous && !l.floorsOver && now > l.started+withMargin(max(l.admission.Lease, l.admission.MaxPartition)) {
		l.floorsOver = true
		for _, p := range l.pools {
			p.ghosts.grow(p.floors(l.admission))
		}
	}
	for nonce, g := range l.gateways {
		if !g.live(now) && now > g.floorEnd && !g.floorsOver {
			l.endFloors(g)
		}
		if l.gone(g, now) {
			l.forget(nonce)
		}
	}
}

// beforeIsOver tells whether nothing can be left of what ledgers before this one granted.
func (l *Ledger) beforeIsOver(now int64) bool {
	partition := withMargin(max(l.admission.Lease, l.admission.MaxPartition))
	switch since := now - l.started; {
	case since > l.admission.MaxStream.Nanoseconds():
		return true
	case !l.follows:
		// Gateways report, and there is no sign that there was one.
		return l.heard > 0 && now-l.heard > withMargin(l.admission.Lease)
	case since <= partition:
		return false
	}
	for _, p := range l.pools {
		if l.observed && (!p.ghosts.anonymous || p.ghosts.bound > 0) {
			return false
		}
	}
	return true
}

// gone tells whether nothing of a gateway can be left.
func (l *Ledger) gone(g *gateway, now int64) bool {
	if g.live(now) {
		return false
	}
	if g.succeeded >= successorReports {
		return true
	}
	if now <= g.floorEnd {
		return false
	}
	for i := range g.pools {
		if h := &g.pools[i]; h.covered && l.pools[i].ghosts.bound == 0 {
			continue
		}
		if g.unknown || g.pools[i].debit() > 0 {
			return now > g.expires+l.admission.MaxStream.Nanoseconds()
		}
	}
	return true
}

// endFloors makes what was admitted within a silent gateway's floors a part of what it may have in
// use: it outlives them.
func (l *Ledger) endFloors(g *gateway) {
	g.floorsOver = true
	for i, p := range l.pools {
		h := &g.pools[i]
		if g.unknown {
			h.heldFloor = p.floors(l.admission)
		}
		if h.covered {
			p.ghosts.grow(h.heldFloor)
		} else {
			h.inUse = max(h.inUse, h.heldFloor)
		}
		h.heldFloor = 0
	}
}

// floors is what all floors of a pool are together.
func (p *pool) floors(a *policy.Admission) uint32 {
	if p.capacity.Slots == NoLimit {
		return 0
	}
	return uint32(a.FloorShare * float64(p.capacity.Slots))
}

func (l *Ledger) forget(nonce uint64) {
	g := l.gateways[nonce]
	for index, t := range g.tenants {
		l.release(index, t)
	}
	delete(l.gateways, nonce)
}

// names returns the gateways in the order of their names, for what people see.
func (l *Ledger) names() []*gateway {
	out := make([]*gateway, 0, len(l.gateways))
	for _, g := range l.gateways {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *gateway) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.nonce, b.nonce)) })
	return out
}
