package admission

import (
	"math"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// maxRetryAfter bounds what a refused client is told, in seconds: a lease that
// moves may serve it earlier than the rate says.
const maxRetryAfter = 60

// change reads a tenant's cell, lets do look at it with this VM's share as it
// really is, and replaces it with the share as it is by then; do may take a slot,
// which it has only if the cell was replaced. A false of do leaves the cell alone.
func (g *Gate) change(own *tenant, now int64, do func(c *tenantCell) bool) bool {
	c, inUse := &g.tenancy, own.inUse
	for range casTries {
		cas, ok := g.read(own.key, c.decode)
		if !ok {
			break
		}
		g.putTenantShare(own, now)
		c.unbook(&own.ahead)
		if !do(c) {
			return false
		}
		next := credit{}
		if s := g.putTenantShare(own, now); s != nil {
			next = g.bookTenant(own, s, now)
		}
		g.out = c.append(g.out[:0])
		status := abi.SetSharedData(own.key, g.out, cas)
		if status == abi.OK {
			own.dirty, own.ahead = false, next
			g.markActive(own.index)
			return true
		}
		own.inUse = inUse
		if status != abi.CASMismatch {
			break
		}
		g.metrics.Inc(metrics.CellRaces, 0)
	}
	own.dirty = true
	return false
}

// publishTenant writes this VM's share into a tenant's cell.
func (g *Gate) publishTenant(own *tenant, now int64) {
	g.change(own, now, func(*tenantCell) bool { return true })
}

// putTenantShare writes this VM's share into the cell at hand, with nothing
// booked ahead. One with nothing in it leaves no trace; the answer is nil then.
func (g *Gate) putTenantShare(own *tenant, now int64) *tenantOf {
	c := &g.tenancy
	at := -1
	for i := range c.Shares {
		if c.Shares[i].Nonce == g.fleet.Nonce {
			at = i
		}
	}
	if own.inUse == 0 && own.waiting == 0 && own.held == [policy.Classes]int{} && own.peak == (want{}) {
		if at >= 0 {
			c.Shares = append(c.Shares[:at], c.Shares[at+1:]...)
		}
		return nil
	}
	if at < 0 {
		if len(c.Shares) == wire.MaxSlots {
			g.dropDeadTenants(now)
		}
		if len(c.Shares) == wire.MaxSlots {
			return nil
		}
		at = len(c.Shares)
		c.Shares = append(c.Shares, tenantOf{Nonce: g.fleet.Nonce})
	}
	slot, ok := g.fleet.EnsureRow(now)
	s := &c.Shares[at]
	s.Slot, s.InUse, s.Waiting, s.Booked = slot, own.inUse, own.waiting, own.inUse
	s.Queue, s.Until, s.Tokens = g.queue, g.until(ok, now), own.tokens
	for class, n := range own.held {
		s.Held[class] = uint8(min(n, math.MaxUint8))
	}
	return s
}

// placeForTenant tells whether the tenant's cell at hand lists this VM, or can: more
// VMs than it lists may have requests of one tenant.
func (g *Gate) placeForTenant(now int64) bool {
	c := &g.tenancy
	if len(c.Shares) < wire.MaxSlots {
		return true
	}
	for i := range c.Shares {
		if c.Shares[i].Nonce == g.fleet.Nonce {
			return true
		}
	}
	return g.dropDeadTenants(now)
}

// dropDeadTenants takes the shares of VMs that are gone out of the cell at hand.
func (g *Gate) dropDeadTenants(now int64) bool {
	c := &g.tenancy
	kept := c.Shares[:0]
	for _, s := range c.Shares {
		if g.counts(s.Slot, s.Nonce, s.Until, now) {
			kept = append(kept, s)
		}
	}
	found := len(kept) < len(c.Shares)
	c.Shares = kept
	return found
}

// takeTenant takes a slot and a request of the tenant's. wait tells that control
// may grant more when it hears that somebody waits.
func (g *Gate) takeTenant(t *Ticket, now int64) (why quota.Reason, wait bool) {
	limits := g.limitsOf(t.Tenant)
	if !limits.Limited() {
		return quota.None, false
	}
	own := g.tenant(t.Tenant)
	if t.tenant = g.takeTenantAhead(own, now); t.tenant {
		return quota.None, false
	}
	level := g.lease.level(now)
	t.tenant = g.change(own, now, func(c *tenantCell) bool {
		why, wait = tenantFits(c, limits, level)
		if why == quota.TenantConcurrency || why == quota.NoLease {
			if g.dropDeadTenants(now) {
				why, wait = tenantFits(c, limits, level)
			}
		}
		if why == quota.None && limits.Concurrency != policy.NoLimit && level != quota.Alone && !g.placeForTenant(now) {
			why, wait = quota.TenantConcurrency, true
		}
		if why != quota.None {
			return false
		}
		own.take(c)
		return true
	})
	switch why {
	case quota.TenantRequests:
		t.RetryAfter = clampSeconds(60 / int64(limits.RequestsPerMinute))
	case quota.TenantTokens: // until there is a balance again
		t.RetryAfter = clampSeconds(int64(g.tenancy.SpentTokens-g.tenancy.GrantedTokens) * 60 / int64(limits.UncachedTokensPerMinute))
	default:
		t.RetryAfter = 1
	}
	return why, wait
}

// forceTenant takes a slot and a request of the tenant's, whatever there is.
func (g *Gate) forceTenant(t *Ticket, now int64) {
	own := g.tenant(t.Tenant)
	t.tenant = g.change(own, now, func(c *tenantCell) bool {
		own.take(c)
		return true
	})
}

// take takes them in the cell at hand.
func (own *tenant) take(c *tenantCell) {
	own.inUse++
	c.SpentRequests++
	own.takes(own.inUse, 1)
}

// tenantFits tells what a tenant's cell has for one more request. Cut off from
// control a tenant's lease counts on for as long as the floors; there will be no
// more of it.
func tenantFits(c *tenantCell, limits *policy.Tenant, level quota.Level) (why quota.Reason, wait bool) {
	switch {
	case level == quota.Alone:
		return quota.None, false
	case limits.Concurrency != policy.NoLimit && c.Flags&wire.Unsettled == 0 && c.booked() >= c.Slots:
		all := uint64(c.Slots) >= uint64(limits.Concurrency)
		why, wait = quota.TenantConcurrency, !all && c.Flags&wire.NoSlots == 0
	case limits.RequestsPerMinute != policy.NoLimit && c.SpentRequests >= c.GrantedRequests:
		why, wait = quota.TenantRequests, c.Flags&wire.NoRequests == 0
	case limits.UncachedTokensPerMinute != policy.NoLimit && c.SpentTokens >= c.GrantedTokens:
		why, wait = quota.TenantTokens, c.Flags&wire.NoTokens == 0
	}
	if wait && level == quota.AtFloor {
		return quota.NoLease, false // what others have is not known
	}
	return why, wait
}

// refusedTenant counts a refusal, or what would be one, where control sees it.
func (g *Gate) refusedTenant(t *Ticket, now int64) {
	if g.limitsOf(t.Tenant).Limited() {
		g.change(g.tenant(t.Tenant), now, func(c *tenantCell) bool { c.Refused++; return true })
	}
}

// Reserve books the tokens that a worker will have to prefill for the request on
// its tenant's balance. A prompt that is larger than what is left of a lease may
// overdraw it once, unless control has said that there is no more: balances
// above nothing are shared in pieces, and a piece may be smaller than a prompt.
func (g *Gate) Reserve(t *Ticket, pool uint8, uncached uint32, now int64) quota.Reason {
	if !t.known || t.Bypass {
		return quota.None
	}
	if t.slot {
		// The estimate becomes what it is; the cell hears of it with the next change.
		t.pool.weighed(t.Class, int64(uncached)-int64(t.need))
		t.need = uncached
	}
	limits := g.limitsOf(t.Tenant)
	if limits.UncachedTokensPerMinute == policy.NoLimit || !t.tenant {
		return quota.None
	}
	own := g.tenant(t.Tenant)
	if g.spendAhead(own, uint64(uncached), now) {
		t.reserved = uint64(uncached)
		return quota.None
	}
	why := quota.None
	leased := g.lease.level(now) == quota.Leased
	spent := g.change(own, now, func(c *tenantCell) bool {
		left := int64(c.GrantedTokens - c.SpentTokens)
		if c.Term == 0 || c.GrantedTokens == wire.NoCredit || !leased || left > 0 && (left >= int64(uncached) || c.Flags&wire.NoTokens == 0) {
			c.SpentTokens += uint64(uncached)
			own.spends(uint64(uncached))
			return true
		}
		why = quota.TenantTokens
		t.RetryAfter = clampSeconds((int64(uncached) - left) * 60 / int64(limits.UncachedTokensPerMinute))
		return false
	})
	if spent { // or else nothing is given back
		t.reserved = uint64(uncached)
	}
	switch {
	case why == quota.None:
	case g.refuses(pool):
		g.refused(t, why, now)
	default:
		g.would(t, why)
		why = quota.None
	}
	return why
}

func clampSeconds(n int64) int { return int(min(max(n, 1), maxRetryAfter)) }

// giveTenant gives back what a request has of its tenant's. What nobody served
// costs nothing. tokens is what the worker had to prefill, below 0 for not known.
func (g *Gate) giveTenant(t *Ticket, tokens int64, now int64) {
	if !t.tenant {
		return
	}
	t.tenant = false
	own, served := g.tenant(t.Tenant), t.served
	if t.Bypass {
		own, served = g.bypass, true
	}
	own.inUse--
	if !served {
		tokens = 0
	}
	if g.keepTenantAhead(own, t, served, tokens, now) {
		return
	}
	wakes, short := uint32(0), false
	g.change(own, now, func(c *tenantCell) bool {
		if !served && c.SpentRequests > 0 {
			c.SpentRequests--
		}
		if tokens >= 0 {
			c.SpentTokens -= min(c.SpentTokens, t.reserved)
			c.SpentTokens += uint64(tokens)
			own.spends(uint64(tokens))
		}
		wakes, short = 0, c.Flags&wire.NoSlots != 0
		for i := range c.Shares {
			if s := &c.Shares[i]; s.Waiting > 0 && s.Nonce != g.fleet.Nonce {
				wakes = s.Queue
			}
		}
		return true
	})
	t.reserved = 0
	g.send(wakes)
	if short && wakes == 0 {
		g.tell(now) // another gateway may want what has become free
	}
}

// tendTenants writes what could not be written when it changed. Should another VM
// have taken this one for dead, its share is put back: a request that waits for
// its tenant's lease gets one only while control is told of it.
func (g *Gate) tendTenants(now int64) {
	for _, t := range g.tenants {
		g.tendTenant(t, now)
	}
	if g.bypass != nil {
		g.tendTenant(g.bypass, now)
	}
}

func (g *Gate) tendTenant(t *tenant, now int64) {
	t.forgo()
	_, ok := g.fleet.Slot()
	if t.dirty || t.ahead.any() || (t.inUse > 0 || t.waiting > 0) && (!ok || !g.listed(t)) {
		g.publishTenant(t, now)
	}
}

// listed tells whether a tenant's cell has this VM's share as it is.
func (g *Gate) listed(t *tenant) bool {
	c := &g.tenancy
	if _, ok := g.read(t.key, c.decode); !ok {
		return true // the next tick can tell
	}
	for i := range c.Shares {
		if s := &c.Shares[i]; s.Nonce == g.fleet.Nonce {
			return s.InUse == t.inUse && s.Waiting == t.waiting
		}
	}
	return false
}

// waitForTenant and its end tell control that a request waits for its tenant's
// lease.
func (g *Gate) waitForTenant(t *Ticket, why quota.Reason, now int64) {
	if t.pending == quota.None {
		own := g.tenant(t.Tenant)
		own.waiting++
		own.tokens += t.need
		t.pool.pending[t.Class]++
		t.pool.pendingTokens[t.Class] += t.need
		g.publishTenant(own, now)
	}
	t.pending = why
}

func (g *Gate) waitedForTenant(t *Ticket, now int64) {
	if t.pending != quota.None {
		t.pending = quota.None
		own := g.tenant(t.Tenant)
		own.waiting--
		own.tokens -= t.need
		t.pool.pending[t.Class]--
		t.pool.pendingTokens[t.Class] -= t.need
		g.publishTenant(own, now)
	}
}
