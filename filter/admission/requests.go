package admission

import (
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/quota"
)

// Verdict is what becomes of a request whose body is complete.
type Verdict uint8

const (
	// Admitted: it goes on.
	Admitted Verdict = iota
	// Waiting: it is held until its owner is told.
	Waiting
	// Refused: it is turned away.
	Refused
)

// Arrive takes what the tenant's limits give a request whose headers have come.
// A reason other than None turns it away at once. Where only some pools refuse,
// the refusal waits for the body, which names the pool.
func (g *Gate) Arrive(t *Ticket, who Identity, now int64) quota.Reason {
	*t = Ticket{Tenant: who.Tenant, Class: who.Class, Bypass: who.Bypass, asked: true, known: true, level: quota.Alone}
	g.Retries.Request(g.settings.RetryBudget)
	if t.Bypass {
		return g.arriveBypass(t, now)
	}
	why, wait := g.takeTenant(t, now)
	if why != quota.None && !wait && g.all && !g.fleet.Off() {
		g.refused(t, why, now)
		return why
	}
	t.denied = why
	return quota.None
}

// arriveBypass counts a request with the bypass's secret, whose only limit is
// how many of them there are in the gateway.
func (g *Gate) arriveBypass(t *Ticket, now int64) quota.Reason {
	if g.bypass == nil {
		g.bypass = &tenant{index: noTenant, key: g.fleet.Keys.Bypass()}
	}
	own, why := g.bypass, quota.None
	t.tenant = g.change(own, now, func(c *tenantCell) bool {
		most := uint32(g.settings.BypassConcurrency)
		if c.booked() >= most && (!g.dropDeadTenants(now) || c.booked() >= most) {
			why = quota.BypassConcurrency
			return false
		}
		own.inUse++
		return true
	})
	if why != quota.None {
		t.RetryAfter = 1
		g.refused(t, why, now)
		return why
	}
	g.metrics.Inc(metrics.Bypassed, 0)
	return quota.None
}

// Enter takes a slot of the pool for a request whose body has so many bytes, or
// lets it wait, unless its owner can't be held (mayWait).
func (g *Gate) Enter(t *Ticket, owner Held, index uint8, bytes int, mayWait bool, now int64) (Verdict, quota.Reason) {
	if !t.known || t.Bypass || t.pool != nil {
		return Admitted, quota.None
	}
	p := g.pool(index)
	t.pool, t.owner, t.bytes = p, owner, bytes
	t.need = uint32(min(bytes/bytesPerToken, 1<<30))
	enforced := g.refuses(index)
	pending, waits := t.denied, false
	t.denied = quota.None
	if pending != quota.None {
		// It may have been granted meanwhile.
		why, wait := g.takeTenant(t, now)
		switch {
		case why == quota.None:
			pending = quota.None
		case !enforced && wait && mayWait:
			// It would wait for its tenant's lease and then be served; control must hear of it.
			g.would(t, quota.QueueWait)
			g.forceTenant(t, now)
			waits, pending = true, quota.None
		case !enforced:
			g.would(t, why)
			g.refusedTenant(t, now)
			return Admitted, quota.None
		case !wait || !mayWait:
			g.refused(t, why, now)
			return Refused, why
		default:
			pending = why
		}
	}
	result := full
	if !enforced {
		if result = g.takeSlot(t, nil, false, now); result == full || result == behind {
			if !waits {
				g.would(t, quota.QueueWait)
			}
			result = g.takeSlot(t, nil, true, now)
		}
	} else if pending == quota.None && p.nobody(t.Class) {
		result = g.takeSlot(t, nil, false, now)
	} else if _, ok := g.readPool(p, now); !ok {
		result = lost
	}
	if result == taken || result == lost {
		g.admitted(t)
		return Admitted, quota.None
	}
	why := quota.QueueFull
	if mayWait {
		why = g.wait(t, bytes, now)
	}
	if why != quota.None {
		t.RetryAfter = max(t.RetryAfter, 1)
		g.refused(t, why, now)
		return Refused, why
	}
	if pending != quota.None {
		g.waitForTenant(t, pending, now)
	}
	// A slot may have become free since it was asked for, before anybody could
	// know of this one.
	g.letInEntering(t, now)
	switch {
	case t.Waits():
		g.tell(now) // the cells have it by now
		return Waiting, quota.None
	case t.known:
		return Admitted, quota.None
	}
	return Refused, t.denied
}

// letInEntering lets waiting requests in, of which one learns of its end by Enter.
func (g *Gate) letInEntering(t *Ticket, now int64) {
	g.entering = t
	defer func() { g.entering = nil }()
	g.letIn(t.pool, now)
}

// nobody tells whether no request of a class waits in this VM that could use a
// slot.
func (p *pool) nobody(class uint8) bool {
	q := p.queues[class]
	return q == nil || q.Best() == nil
}

// empty tells the same of all classes.
func (p *pool) empty() bool { return p.nobody(0) && p.nobody(1) && p.nobody(2) }

// unblock lets those have another try who wait for their tenants' leases.
func (p *pool) unblock() {
	for _, q := range p.queues {
		if q != nil {
			q.Unblock()
		}
	}
}

// admitted counts a request that goes on.
func (g *Gate) admitted(t *Ticket) {
	g.metrics.Inc(metrics.Admitted, int(t.Class))
	g.metrics.Inc(metrics.AdmittedAt, int(t.level))
}

// refused counts a request that is turned away, and gives back what it had.
func (g *Gate) refused(t *Ticket, why quota.Reason, now int64) {
	g.metrics.Inc(metrics.AdmissionRefused, metrics.Refusal(t.Class, why))
	if !t.Bypass {
		g.refusedTenant(t, now)
	}
	if t.pool != nil && why.ForRoom() {
		a := &t.pool.away[t.Class]
		a.requests++
		a.tokens += uint64(t.need)
		t.pool.dirty = true
	}
	g.Done(t, -1, now)
}

// would counts a request that a pool which refuses would turn away, or let wait.
func (g *Gate) would(t *Ticket, why quota.Reason) {
	g.metrics.Inc(metrics.WouldRefuse, metrics.Refusal(t.Class, why))
}

// Dispatched notes that the request was sent to a worker.
func (g *Gate) Dispatched(t *Ticket) { t.served = t.known }

// Unserved notes that no worker served the request: it costs nothing.
func (g *Gate) Unserved(t *Ticket) { t.served = false }

// FirstToken gives back what was to be prefilled for the request, and counts its
// time to the first token if that was measured.
func (g *Gate) FirstToken(t *Ticket, millis uint64, measured bool, now int64) {
	if !t.slot {
		return
	}
	p := t.pool
	if measured {
		g.countTTFT(p, t.Class, millis)
	}
	p.prefill[t.Class] -= t.need
	had := t.need
	t.need = 0
	if had > 0 && !g.keepAhead(p, t.Class, 0, had, now) && (p.others || p.waiting > 0) {
		g.freed(p, now)
	}
}

// Done gives back all that a request has, whatever ended it; once is enough.
// tokens is what its worker had to prefill, below 0 for not known.
func (g *Gate) Done(t *Ticket, tokens int64, now int64) {
	if !t.known {
		return
	}
	if t.Waits() {
		g.metrics.Inc(metrics.QueueAborted, int(t.Class))
		g.leave(t, now)
		g.publish(t.pool, true, now) // a slot may have been meant for it
	}
	if t.served && tokens >= 0 {
		g.learnCost(t, tokens)
	}
	hadTenant := t.tenant && !t.Bypass
	g.giveTenant(t, tokens, now)
	if t.slot {
		t.slot = false
		p := t.pool
		p.inUse[t.Class]--
		p.prefill[t.Class] -= t.need
		if !g.keepAhead(p, t.Class, 1, t.need, now) {
			g.freed(p, now)
		}
		t.need = 0
	} else if hadTenant && t.pool != nil && t.pool.waiting > 0 {
		g.letIn(t.pool, now)
	}
	if hadTenant && g.tenant(t.Tenant).waiting > 0 {
		g.freedTenant(now)
	}
	t.known = false
}

// freedTenant has those try again who wait in this VM for their tenants' limits,
// in whatever pool: a request that never came to one may have had a tenant's slot.
func (g *Gate) freedTenant(now int64) {
	for _, p := range g.used {
		if sum(p.pending) > 0 {
			p.unblock()
			g.letIn(p, now)
		}
	}
}

// freed hands over what has become free in a pool: to the best who waits in the
// whole gateway.
func (g *Gate) freed(p *pool, now int64) {
	p.unblock()
	g.publish(p, p.empty(), now)
	g.letIn(p, now)
}

// learnCost notes which share of a tenant's tokens was not cached, so that in
// the queue a cached request is cheap before it is read.
func (g *Gate) learnCost(t *Ticket, tokens int64) {
	own := g.tenant(t.Tenant)
	expected := float64(t.bytes / bytesPerToken)
	if expected < 1 {
		return
	}
	own.cost += (min(float64(tokens)/expected, 1) - own.cost) / 8
	own.cost = max(own.cost, 1.0/64)
}
