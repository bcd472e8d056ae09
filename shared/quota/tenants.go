package quota

import (
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// idleAfter is how long a gateway that has had nothing of a tenant keeps a part of its limits.
	idleAfter = 5_000_000_000
	minute    = 60e9
)

// account is the limits of one tenant, and what all gateways have of them.
type account struct {
	slots            uint32 // NoLimit for none
	requests, tokens bucket

	debit  uint64 // slots that gateways have or may have
	inUse  uint64
	asked  uint64 // in use and waiting
	active int    // gateways that have something of the tenant
	hungry int    // those that wait and have nothing

	// Since the account was opened.
	requestsUsed, tokensUsed int64
	refused                  uint64
}

// bucket is credit that comes in at a rate, up to a burst's worth. Gateways draw from it ahead of
// their use.
type bucket struct {
	rate    float64 // a minute; 0 no limit
	most    float64
	level   float64
	at      int64
	drawn   float64 // drawn and not spent yet, by all gateways
	started bool
}

func (b *bucket) configure(perMinute int, burst time.Duration, now int64) {
	b.refill(now)
	b.rate = float64(perMinute)
	b.most = max(b.rate*burst.Minutes(), min(b.rate, 1))
	if !b.started || b.level > b.most {
		b.level = b.most
	}
	b.started = true
}

func (b *bucket) refill(now int64) {
	b.level = min(b.level+b.rate*float64(now-b.at)/minute, b.most)
	b.at = now
}

// empty tells whether there is nothing left but what comes in: neither here nor, more than a
// second's worth, with the gateways besides the one of d.
func (b *bucket) empty(d *draw) bool {
	return b.rate > 0 && b.level < 1 && b.drawn-d.open() <= max(b.rate/60, 1)
}

func (a *account) configure(t *policy.Tenant, now int64) {
	a.slots = NoLimit
	if t.Concurrency != policy.NoLimit {
		a.slots = uint32(t.Concurrency)
	}
	a.requests.configure(t.RequestsPerMinute, t.Burst, now)
	a.tokens.configure(t.UncachedTokensPerMinute, t.Burst, now)
}

// tenancy is what one gateway has of one tenant's limits.
type tenancy struct {
	granted, held, inUse, waiting uint32
	waitingTokens                 uint32
	requests, tokens              draw
	activeAt                      int64
	active                        bool
	seen                          bool // in the last report
	sent                          bool // in the last lease
	refused                       uint32
}

func (t *tenancy) debit() uint64 { return uint64(max(t.held, t.inUse)) }
func (t *tenancy) hungry() bool  { return t.waiting > 0 && t.debit() == 0 }

// draw is what a gateway has drawn from a bucket since it began, and spent. What it may spend is
// granted; held is the most that it may think it is granted.
type draw struct{ granted, held, spent uint64 }

// open is what it has drawn and not spent.
func (d *draw) open() float64 { return float64(sub(max(d.granted, d.held), d.spent)) }

// report takes over what was spent; what was granted once and is not any more goes back.
func (d *draw) report(b *bucket, spent uint64, current, rebase bool) {
	b.drawn -= d.open()
	if rebase {
		b.level += d.open()
		*d = draw{spent, spent, spent}
	}
	before := max(d.held, d.spent)
	d.spent = spent
	if current {
		d.held = d.granted
	}
	after := max(d.held, d.spent)
	// More than was drawn is spent where a reservation fell short, and is owed.
	b.level += float64(before) - float64(after)
	b.drawn += d.open()
}

// grant draws what the gateway will need before it asks again.
func (d *draw) grant(b *bucket, need float64, active int, now int64) uint64 {
	if b.rate == 0 {
		return wire.NoCredit
	}
	b.refill(now)
	b.drawn -= d.open()
	have := float64(sub(d.held, d.spent))
	// Half of what is left is spread over those that have something of the tenant; the other half
	// stays for who asks for more.
	target := min(max(need, (b.level+have)/float64(2*max(active, 1))), have+max(b.level, 0))
	d.granted = d.spent + uint64(max(target, 0))
	before := max(d.held, d.spent)
	d.held = max(d.held, d.granted)
	b.level -= float64(max(d.held, d.spent) - before)
	b.drawn += d.open()
	return d.granted
}

func (a *account) add(t *tenancy, sign int) {
	n := uint64(sign) // two's complement
	a.debit += n * t.debit()
	a.inUse += n * uint64(t.inUse)
	a.asked += n * (uint64(t.inUse) + uint64(t.waiting))
	if t.active {
		a.active += sign
	}
	if t.hungry() {
		a.hungry += sign
	}
}

// account returns the account of a tenant with limits, nil for one without.
func (l *Ledger) account(index uint16, now int64) *account {
	if a := l.accounts[index]; a != nil {
		return a
	}
	if int(index) >= len(l.admission.Tenants) || !l.admission.Tenants[index].Limited() {
		return nil
	}
	a := &account{}
	a.configure(&l.admission.Tenants[index], now)
	l.accounts[index] = a
	return a
}

// reportTenant takes over what a gateway has of a tenant.
func (l *Ledger) reportTenant(g *gateway, r *wire.Used, current bool, now int64) {
	a := l.account(r.Tenant, now)
	if a == nil {
		return
	}
	t := g.tenants[r.Tenant]
	fresh := t == nil
	if fresh {
		t = &tenancy{}
		g.tenants[r.Tenant] = t
	} else {
		a.add(t, -1)
	}
	busy := r.InUse > 0 || r.Waiting > 0 || r.Refused != t.refused || r.Requests != t.requests.spent
	if busy {
		t.activeAt = now
	}
	t.active = now-t.activeAt < idleAfter
	// A gateway that was told nothing of a tenant may have forgotten what it spent.
	rebase := fresh || current && !t.sent
	if !rebase {
		a.requestsUsed += int64(r.Requests - t.requests.spent)
		a.tokensUsed += int64(r.Tokens - t.tokens.spent)
		if n := r.Refused - t.refused; n < 1<<31 {
			a.refused += uint64(n)
		}
	}
	t.inUse, t.waiting, t.waitingTokens, t.refused = r.InUse, r.Waiting, r.WaitingTokens, r.Refused
	if a.slots != NoLimit {
		t.held = r.Slots
	}
	t.requests.report(&a.requests, r.Requests, current, rebase)
	t.tokens.report(&a.tokens, r.Tokens, current, rebase)
	t.seen = true
	g.listed = append(g.listed, r.Tenant)
	a.add(t, 1)
}

// quietTenants does the same for tenants that a report has nothing of.
func (l *Ledger) quietTenants(g *gateway, current bool, now int64) {
	for index, t := range g.tenants {
		if t.seen {
			continue
		}
		a := l.accounts[index]
		a.add(t, -1)
		t.inUse, t.waiting, t.waitingTokens = 0, 0, 0
		if current {
			t.held = t.granted
		}
		t.active = now-t.activeAt < idleAfter
		a.add(t, 1)
		if current && !t.sent {
			l.release(index, t)
			delete(g.tenants, index)
		}
	}
}

// release takes a tenancy out of its account. What it has drawn comes back.
func (l *Ledger) release(index uint16, t *tenancy) {
	a := l.accounts[index]
	if a == nil {
		return
	}
	a.add(t, -1)
	for _, d := range [...]struct {
		*draw
		*bucket
	}{{&t.requests, &a.requests}, {&t.tokens, &a.tokens}} {
		d.level += d.open()
		d.drawn -= d.open()
	}
}

// closeAccount ends the limits of a tenant.
func (l *Ledger) closeAccount(index uint16) {
	delete(l.accounts, index)
	for _, g := range l.gateways {
		delete(g.tenants, index)
	}
}

// Unsettled tells whether gateways of a ledger before this one may have slots of tenants: of
// those the workers' counts say nothing.
func (l *Ledger) Unsettled() bool {
	if l.anonymous {
		return true
	}
	for _, g := range l.gateways {
		if g.unknown {
			return true
		}
	}
	return false
}

// open tells whether tenants' slots are no limit yet. Where only work that nobody reports speaks of
// a ledger before this one (a fleet that served before it had a control service looks the same),
// nothing is known of its leases, and the policy lets requests pass then.
func (l *Ledger) open() bool { return l.anonymous && !l.inherits && l.admission.Level2.Pass }

// grantTenants appends the leases of the tenants that a gateway reported.
func (l *Ledger) grantTenants(g *gateway, now int64, out []byte) []byte {
	unsettled := l.Unsettled()
	for _, t := range g.tenants {
		t.sent = false
		t.granted = 0
	}
	for _, index := range g.listed {
		t, a := g.tenants[index], l.accounts[index]
		if t == nil || a == nil {
			continue
		}
		a.add(t, -1)
		if !t.active && t.inUse == 0 {
			// The gateway has no use for its part. It is free once the gateway says that it goes
			// by this lease.
			a.add(t, 1)
			continue
		}
		lease := wire.Lease{
			Tenant: index, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: wire.NoLimit, PrefillTokens: wire.NoLimit,
		}
		if a.slots != NoLimit {
			t.granted = a.part(t, unsettled)
			if l.open() {
				lease.Flags |= wire.Unsettled
			}
			t.held = max(t.held, t.granted)
			lease.Slots = t.granted
			if t.granted <= t.inUse && a.inUse+uint64(t.inUse) >= uint64(a.slots) {
				lease.Flags |= wire.NoSlots
			}
		}
		need := 2*float64(t.waiting) + 1
		active := a.active
		if t.active {
			active++
		}
		lease.Requests = t.requests.grant(&a.requests, need, active, now)
		if a.requests.empty(&t.requests) {
			lease.Flags |= wire.NoRequests
		}
		lease.Tokens = t.tokens.grant(&a.tokens, float64(t.waitingTokens)+1, active, now)
		if a.tokens.empty(&t.tokens) {
			lease.Flags |= wire.NoTokens
		}
		t.sent = true
		a.add(t, 1)
		out = wire.AppendLease(out, &lease)
	}
	return out
}

// part is a gateway's part of a tenant's slots. The account is without the tenancy. While it is
// not settled what others have, it doesn't grow.
func (a *account) part(t *tenancy, unsettled bool) uint32 {
	asked := uint64(t.inUse) + uint64(t.waiting)
	all, limit := a.asked+asked, uint64(a.slots)
	target := asked
	switch {
	case all <= limit:
		n := uint64(a.active)
		if t.active {
			n++
		}
		target += (limit - all) / max(n, 1)
	default:
		target = asked * limit / all
		// Rounded down for all, a small limit would be nobody's. It goes round: one that has
		// something gives it up after its use while others have nothing.
		if a.hungry == 0 || t.debit() == 0 {
			target = max(target, min(asked, 1))
		}
	}
	free := uint64(0)
	if a.debit < limit && !unsettled {
		free = limit - a.debit
	}
	return uint32(min(target, max(t.debit(), free)))
}
