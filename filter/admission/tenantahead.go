package admission

import "github.com/warmpath/warmpath/shared/wire"

// A tenant's limits are booked ahead as a pool's slots are (ahead.go): its slots,
// and requests and tokens of its rates. What is booked of the rates is spent in
// the cell until it is given back, at a tick in which it was not needed.

// credit is what a VM has booked of a tenant's limits and not used.
type credit struct {
	want
	// Of the lease then, which must still be the one in force.
	term, sequence uint64
}

func (a *credit) any() bool { return a.want != want{} }

// want is an amount of them: what a VM has, needed, or expects to.
type want struct {
	slots            uint16
	requests, tokens uint64
}

// takes notes that a request of the tenant had to look at the cell; more are
// expected to come.
func (own *tenant) takes(inUse uint16, requests uint64) {
	own.most.slots = max(own.most.slots, inUse)
	own.most.requests += requests
	own.peak.slots = max(own.peak.slots, inUse+aheadOf-1)
	own.peak.requests = max(own.peak.requests, aheadOf-1)
}

// spends does the same for its tokens.
func (own *tenant) spends(tokens uint64) {
	own.most.tokens += tokens
	own.peak.tokens = max(own.peak.tokens, (aheadOf-1)*tokens)
}

// forgo ends a tick's time, as for a pool.
func (own *tenant) forgo() {
	own.peak, own.most = own.most, want{slots: own.inUse}
	own.peak.requests += own.peak.requests / 4
	own.peak.tokens += own.peak.tokens / 4
}

// creditGood tells whether what is booked ahead of a tenant's may be used.
func (g *Gate) creditGood(own *tenant, now int64) bool {
	a := &own.ahead
	return a.term != 0 && own.waiting == 0 && g.orphanUntil == 0 && g.inForce(a.term, a.sequence, now)
}

// takeTenantAhead takes a slot and a request that are booked already.
func (g *Gate) takeTenantAhead(own *tenant, now int64) bool {
	a := &own.ahead
	if a.slots == 0 || a.requests == 0 || !g.creditGood(own, now) {
		return false
	}
	a.slots--
	a.requests--
	own.inUse++
	own.most.slots = max(own.most.slots, own.inUse)
	own.most.requests++
	own.dirty = true
	return true
}

// spendAhead spends tokens that are booked already.
func (g *Gate) spendAhead(own *tenant, tokens uint64, now int64) bool {
	a := &own.ahead
	if a.tokens < tokens || !g.creditGood(own, now) {
		return false
	}
	a.tokens -= tokens
	own.most.tokens += tokens
	own.dirty = true
	return true
}

// keepTenantAhead keeps what a request gives back, its slot and, if nobody served
// it, its place in the rates; tokens is what it has used of them, below 0 for
// what it had reserved. It answers false where the cell must hear of it now.
func (g *Gate) keepTenantAhead(own *tenant, t *Ticket, served bool, tokens, now int64) bool {
	a := &own.ahead
	if tokens < 0 {
		tokens = int64(t.reserved)
	}
	if a.tokens+t.reserved < uint64(tokens) || !g.creditGood(own, now) {
		return false
	}
	a.slots++
	a.tokens += t.reserved - uint64(tokens)
	if t.reserved == 0 {
		own.most.tokens += uint64(tokens)
	}
	if !served {
		a.requests++
	}
	t.reserved = 0
	own.dirty = true
	return true
}

// bookTenant decides what this VM leaves booked of a tenant's limits in the cell
// at hand, in which its share is what it has in use, and books it.
func (g *Gate) bookTenant(own *tenant, s *tenantOf, now int64) credit {
	c := &g.tenancy
	if waiting, _ := c.waiting(); waiting > 0 || c.Term == 0 || c.Flags != 0 || g.orphanUntil != 0 || !g.inForce(c.Term, c.Lease, now) {
		return credit{}
	}
	a := credit{
		want: want{max(own.peak.slots, own.inUse) - own.inUse, own.peak.requests, own.peak.tokens},
		term: c.Term, sequence: c.Lease,
	}
	if !half(uint64(c.booked())+uint64(a.slots), c.Slots) ||
		!halfOf(a.requests, c.GrantedRequests, c.SpentRequests) || !halfOf(a.tokens, c.GrantedTokens, c.SpentTokens) {
		return credit{}
	}
	s.Booked += a.slots
	c.SpentRequests += a.requests
	c.SpentTokens += a.tokens
	return a
}

// halfOf tells whether n is half of what is left at most.
func halfOf(n, granted, spent uint64) bool {
	return granted == wire.NoCredit || spent < granted && 2*n <= granted-spent
}

// unbook takes what this VM has booked ahead of the rates out of the cell.
func (c *tenantCell) unbook(a *credit) {
	c.SpentRequests -= min(c.SpentRequests, a.requests)
	c.SpentTokens -= min(c.SpentTokens, a.tokens)
}
