package admission

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// sliceTime bounds how long one callback lets waiting requests in: each of them
// is read and routed on the way. The rest follow in the next, for which this VM wakes
// itself.
const sliceTime = 2 * time.Millisecond

// wait puts a request into the queue of its class, or tells why it may not wait.
func (g *Gate) wait(t *Ticket, bytes int, now int64) quota.Reason {
	p, limit := t.pool, &g.settings.Classes[t.Class].Queue
	if limit.Requests == 0 || limit.Deadline == 0 {
		return quota.QueueFull
	}
	q := p.queues[t.Class]
	if q == nil {
		q = quota.NewQueue(limit.Requests, limit.Bytes)
		p.queues[t.Class] = q
	}
	// The cell at hand is the one that the slot was asked of.
	requests, held := g.waitElsewhere(t.Class)
	q.Bound(limit.Requests-requests, limit.Bytes-held)
	if !q.Room(bytes) || !q.Fair(t.Tenant, 0) {
		return quota.QueueFull
	}
	q.Virtual = max(q.Virtual, g.cell.Virtual[t.Class])
	own := g.tenant(t.Tenant)
	t.waiter = quota.Waiter{
		Tenant: t.Tenant, Work: float64(t.need) * own.cost, Bytes: bytes,
		Arrived: now, Deadline: now + int64(limit.Deadline), Owner: t,
	}
	weight := g.limitsOf(t.Tenant).Weight
	// The finish time is the gateway's: a tenant gets no more by having its
	// connections in many VMs.
	why := quota.None
	own.held[t.Class]++
	done := g.change(own, now, func(c *tenantCell) bool {
		q.Remove(&t.waiter) // of a try before
		if !q.Fair(t.Tenant, g.heldElsewhere(t.Class, now)) {
			why = quota.QueueFull
			return false
		}
		if late := g.ahead(t, q.Ahead(c.finishOf(p.index, t.Class)), now); late > limit.Deadline {
			t.RetryAfter = clampSeconds(int64(late / time.Second))
			why = quota.QueueWait
			return false
		}
		c.setFinish(p.index, t.Class, q.Push(&t.waiter, c.finishOf(p.index, t.Class), weight))
		return true
	})
	if why != quota.None {
		own.held[t.Class]--
		return why
	}
	if !done {
		q.Remove(&t.waiter)
		q.Push(&t.waiter, 0, weight)
	}
	p.waiting++
	return quota.None
}

// waitElsewhere is how many requests of a class wait in the other VMs, be it for a slot or
// for their tenants' limits, and the bytes that are held for them.
func (g *Gate) waitElsewhere(class uint8) (requests int, bytes int64) {
	slot, _ := g.fleet.Slot()
	for i := range g.cell.Queues {
		if q := &g.cell.Queues[i]; q.Class == class && q.Slot != slot {
			requests += int(q.Held)
			bytes += int64(q.HeldTokens) * bytesPerToken
		}
	}
	return requests, bytes
}

// heldElsewhere is how many requests of a class wait in the other VMs of the tenant
// whose cell is at hand.
func (g *Gate) heldElsewhere(class uint8, now int64) (n int) {
	for i := range g.tenancy.Shares {
		if s := &g.tenancy.Shares[i]; s.Held[class] > 0 && s.Nonce != g.fleet.Nonce && g.counts(s.Slot, s.Nonce, s.Until, now) {
			n += int(s.Held[class])
		}
	}
	return n
}

// unqueued notes that a request is in its queue no more.
func (g *Gate) unqueued(t *Ticket) {
	own := g.tenant(t.Tenant)
	own.held[t.Class]--
	own.dirty = true
	t.pool.waiting--
}

// ahead is how long a request would wait at the pool's prefill rate, with so much
// work before it in this VM's queue, 0 where the rate isn't known. The other VMs'
// queues of the class take their turns with this one, those of the classes above
// come first.
func (g *Gate) ahead(t *Ticket, work float64, now int64) time.Duration {
	c := &g.cell
	rate := c.Limits[whole].TokensPerSecond
	if rate == 0 || g.level(now) != quota.Leased {
		return 0
	}
	tokens := work
	slot, _ := g.fleet.Slot()
	for i := range c.Queues {
		switch q := &c.Queues[i]; {
		case q.Class < t.Class:
			tokens += float64(q.Tokens)
		case q.Class == t.Class && q.Slot != slot:
			tokens += min(work, float64(q.Tokens))
		}
	}
	return time.Duration((tokens + float64(t.need)) / float64(rate) * float64(time.Second))
}

// leave takes a request out of its queue.
func (g *Gate) leave(t *Ticket, now int64) {
	t.pool.queues[t.Class].Remove(&t.waiter)
	g.left(t, now)
}

// left does what follows when a request has left its queue without a slot: what
// was not served is not charged.
func (g *Gate) left(t *Ticket, now int64) {
	p := t.pool
	g.unqueued(t)
	g.change(g.tenant(t.Tenant), now, func(c *tenantCell) bool {
		at := c.finishOf(p.index, t.Class)
		if at > 0 {
			c.setFinish(p.index, t.Class, max(at-t.waiter.Cost(), 0))
		}
		return at > 0
	})
	g.waitedForTenant(t, now)
}

// letIn lets the waiting requests of a pool in while there are slots and it is
// their turn. Who frees something while another is let in, because that one is
// turned away at its route, leaves what follows to the call under way: owners are
// called one after the other and not within each other, however many wait.
func (g *Gate) letIn(p *pool, now int64) {
	p.owed = p.waiting > 0
	if !p.owed || g.letting {
		return
	}
	g.letting = true
	defer func() { g.letting = false }()
	until := abi.Now() + int64(sliceTime)
	for p != nil {
		p.owed = false
		over := false
		for !over && g.letOne(p, now) {
			over = abi.Now() > until
		}
		g.publish(p, p.empty(), now)
		if over {
			g.send(g.queue)
			return
		}
		p = g.nextOwed()
	}
}

// nextOwed is a pool in which somebody may be let in by what others have freed.
func (g *Gate) nextOwed() *pool {
	for _, p := range g.used {
		if p.owed {
			return p
		}
	}
	return nil
}

// letOne lets one request in, or turns one away, and tells whether it did.
func (g *Gate) letOne(p *pool, now int64) bool {
	for class := range uint8(policy.Classes) {
		q := p.queues[class]
		for q != nil {
			w := q.Best()
			if w == nil {
				break
			}
			t := w.Owner.(*Ticket)
			if t.pending != quota.None {
				switch why, wait := g.takeTenant(t, now); {
				case why == quota.None:
					g.waitedForTenant(t, now)
				case wait:
					t.pending = why
					q.Block(w.Tenant)
					continue
				default:
					g.turnAway(t, why, now)
					return true
				}
			}
			switch g.takeSlot(t, w, false, now) {
			case taken, lost:
				q.Take(w)
				g.unqueued(t)
				g.admit(t, now)
				return true
			case behind, full: // perhaps the next class's turn
			}
			break
		}
	}
	return false
}

// letAll lets everybody go who waits: the pool turns nobody away any more.
func (g *Gate) letAll(p *pool, now int64) {
	until := abi.Now() + int64(sliceTime)
	for _, q := range p.queues {
		for q != nil && q.Len() > 0 && abi.Now() <= until {
			t := q.Oldest().Owner.(*Ticket)
			q.Take(&t.waiter)
			g.unqueued(t)
			g.waitedForTenant(t, now)
			if g.on {
				g.takeSlot(t, nil, true, now)
			}
			g.admit(t, now)
		}
	}
	g.publish(p, false, now)
}

// admit lets a request go that has waited.
func (g *Gate) admit(t *Ticket, now int64) {
	t.Waited = max(0, now-t.waiter.Arrived)
	g.metrics.QueueWait(int(t.Class), uint64(t.Waited)/1_000_000)
	g.admitted(t)
	if g.entering != t {
		t.owner.Admitted()
	}
}

// turnAway refuses a request that waits.
func (g *Gate) turnAway(t *Ticket, why quota.Reason, now int64) {
	if t.Waits() {
		g.leave(t, now)
	}
	t.RetryAfter, t.denied = max(t.RetryAfter, 1), why
	g.refused(t, why, now)
	if g.entering != t {
		t.owner.Refused(why)
	}
}

// expire turns away those who have waited for as long as they may, as many as one
// callback has time for.
func (g *Gate) expire(p *pool, now int64) {
	until := abi.Now() + int64(sliceTime)
	p.late = false
	for _, q := range p.queues {
		if q == nil || p.late {
			continue
		}
		q.Expire(now, func(w *quota.Waiter) bool {
			t := w.Owner.(*Ticket)
			why := quota.QueueTimeout
			if t.pending != quota.None {
				why = t.pending
			}
			g.left(t, now)
			g.turnAway(t, why, now)
			p.late = abi.Now() > until
			return !p.late
		})
	}
	if p.late {
		g.send(g.queue)
	}
}

// Tick expires waits and lets in whom no wake-up has reached.
func (g *Gate) Tick(now int64, courier bool) {
	g.Refresh(now)
	g.tickedAt = now
	g.register()
	if !g.on && len(g.used) == 0 {
		return
	}
	g.readActive()
	g.readResets()
	for _, p := range g.used {
		g.tend(p, now)
	}
	g.tendTenants(now)
	if courier {
		g.installMore(now)
	}
}

// tend is a pool's part of a tick.
func (g *Gate) tend(p *pool, now int64) {
	p.forgo()
	if p.waiting > 0 && !g.refuses(p.index) {
		g.letAll(p, now)
	} else if p.waiting > 0 {
		g.expire(p, now)
		p.unblock()
		if p.waiting > 0 {
			g.letIn(p, now)
		} else {
			g.publish(p, true, now)
		}
	} else if p.dirty || sum(p.inUse) > 0 || p.ahead.any() {
		// Should another VM have taken this one for dead, its share is put back.
		g.publish(p, true, now)
	}
	g.flushTTFT(p)
}

// register makes the queue that wakes this VM.
func (g *Gate) register() {
	if g.ready {
		return
	}
	g.ready = true
	if id, status := abi.RegisterQueue(g.fleet.Keys.Wake(g.fleet.Nonce)); status == abi.OK {
		g.queue = id
	}
}

// Rearm makes the next tick register the queue again: the plugin context that
// did it before is going.
func (g *Gate) Rearm() { g.ready = false }

// Queue is the shared queue that wakes this VM, 0 for none.
func (g *Gate) Queue() uint32 { return g.queue }

// Woken is called when this VM's queue has messages. It tells what of them was for
// the courier: that somebody waits, which control should hear, or that VMs have
// dispatched.
func (g *Gate) Woken(queue uint32, now int64) (tell, news bool) {
	if queue != g.queue {
		return false, false
	}
	look := false
	for range 1024 {
		message, status := abi.Dequeue(queue, &g.scratch)
		if status != abi.OK {
			break
		}
		if n, ok := wire.DecodeNews(message); ok {
			news = g.fleet.News(n) || news
			continue
		}
		look = true
		tell = tell || len(message) == len(tellMessage)
	}
	if !look {
		return false, news
	}
	g.metrics.Inc(metrics.QueueWakes, metrics.WakesTaken)
	g.Refresh(now)
	for _, p := range g.used {
		if p.late {
			g.expire(p, now)
		}
		g.freed(p, now)
	}
	return tell, news
}

// tellMessage is what the courier is told when a request has begun to wait. What
// VMs tell each other about slots is longer.
var tellMessage = []byte("wait")

// tellEvery is the most often that a VM tells the courier.
const tellEvery = 20 * time.Millisecond

// tell has the courier tell control soon that a request has begun to wait here.
func (g *Gate) tell(now int64) {
	if g.lease.Queue != 0 && (now-g.toldAt >= int64(tellEvery) || now < g.toldAt) {
		g.toldAt = now
		abi.Enqueue(g.lease.Queue, tellMessage)
	}
}
