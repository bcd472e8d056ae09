package admission

import (
	"math"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// Where there is plenty a VM books ahead: it leaves in the cell what its requests
// gave back, and a few slots more than it needs, and takes from those without a
// look at the cell. What is booked counts as in use for everybody, so no limit
// can be exceeded; it is given back at the next tick in which it was not needed,
// and at once when the VM sees that there is plenty no more. Plenty is when
// nobody waits and what is booked is half of the lease at most, which is no small
// one.

// aheadOf is how many requests a VM books ahead when it has to look at the cell.
const aheadOf = 4

// ahead is what a VM has booked in a pool and not in use.
type ahead struct {
	amount
	plenty bool // there was when the cell was last written
	// Of the lease then, which must still be the one in force.
	term, sequence uint64
}

// amount is what a VM has of a pool, or once had.
type amount struct {
	slots  [policy.Classes]uint16
	tokens [policy.Classes]uint32
}

// raise makes a class' amount at least this.
func (a *amount) raise(class uint8, slots uint16, tokens uint32) {
	a.slots[class], a.tokens[class] = max(a.slots[class], slots), max(a.tokens[class], tokens)
}

// plentiful tells whether what is booked ahead in a pool may be used, and what is
// given back kept.
func (g *Gate) plentiful(p *pool, now int64) bool {
	a := &p.ahead
	if !a.plenty || p.waiting > 0 || g.orphanUntil != 0 {
		return false
	}
	return g.inForce(a.term, a.sequence, now)
}

// ahead is trusted for so long after a tick. Rows live longer: a VM that stood
// still may have been taken for dead, and what it had booked be others'.
const trustTick = time.Second

// inForce tells whether a lease is the one that counts now, and this VM's word.
func (g *Gate) inForce(term, sequence uint64, now int64) bool {
	if now-g.tickedAt > int64(trustTick) || now < g.tickedAt {
		return false
	}
	g.readLease(now)
	return term == g.lease.Term && sequence == g.lease.Sequence && g.lease.level(now) == quota.Leased
}

// takeAhead takes a slot that is booked already.
func (g *Gate) takeAhead(t *Ticket, now int64) bool {
	p, c := t.pool, t.Class
	a := &p.ahead
	if a.slots[c] == 0 || a.tokens[c] < t.need || !g.plentiful(p, now) {
		return false
	}
	a.slots[c]--
	a.tokens[c] -= t.need
	p.inUse[c]++
	p.prefill[c] += t.need
	p.most.raise(c, p.inUse[c], p.prefill[c])
	p.dirty = true
	t.slot, t.level = true, quota.Leased
	return true
}

// keepAhead keeps what a request has given back, and tells whether it may be kept.
func (g *Gate) keepAhead(p *pool, class uint8, slots uint16, tokens uint32, now int64) bool {
	if !g.plentiful(p, now) {
		return false
	}
	p.ahead.slots[class] += slots
	p.ahead.tokens[class] += tokens
	p.dirty = true
	return true
}

// weighed notes that a request has so many tokens to prefill more than it took.
func (p *pool) weighed(class uint8, more int64) {
	p.prefill[class] = uint32(int64(p.prefill[class]) + more)
	p.most.raise(class, 0, p.prefill[class])
	booked := &p.ahead.tokens[class]
	*booked = uint32(max(int64(*booked)-more, 0))
	p.dirty = true
}

// bookAhead decides what this VM leaves booked in the cell at hand, in which its
// share is what it has in use.
func (g *Gate) bookAhead(p *pool, s *share, now int64) (a ahead) {
	c := &g.cell
	if len(c.Queues) > 0 || g.orphanUntil != 0 || g.level(now) != quota.Leased {
		return a
	}
	for class := range a.slots {
		a.slots[class] = max(p.peak.slots[class], p.inUse[class]) - p.inUse[class]
		a.tokens[class] = max(p.peak.tokens[class], p.prefill[class]) - p.prefill[class]
	}
	before := *s
	s.book(&a)
	booked, grant := c.booked(), c.grant()
	var slots, tokens uint64
	for class := range booked.Class {
		slots += uint64(booked.Class[class].Slots)
		tokens += uint64(booked.Class[class].Prefill)
		if a.slots[class] > 0 && !grant.May(&booked, class, 1) {
			slots = math.MaxUint32
		}
	}
	a.plenty = half(slots, grant.Total.Slots) && half(tokens, grant.Total.Prefill)
	if !a.plenty {
		*s = before
		return ahead{}
	}
	a.term, a.sequence = c.Term, c.Lease
	return a
}

// leastPlenty is the smallest limit that there can be plenty of: what is left of
// a small one goes from hand to hand, and may not lie about for a tick.
const leastPlenty = 16

// half tells whether n is half of a limit at most, and the limit no small one.
func half(n uint64, limit uint32) bool {
	return limit == wire.NoLimit || limit >= leastPlenty && 2*n <= uint64(limit)
}

// book adds what is booked ahead to a share.
func (s *share) book(a *ahead) {
	for class := range a.slots {
		s.Booked[class] += a.slots[class]
		s.Tokens[class] += a.tokens[class]
	}
}

// forgo ends a tick's time: what was not needed in it is not booked ahead in the
// next. Prompts differ, so there is something on top of their tokens.
func (p *pool) forgo() {
	p.peak = p.most
	for class, n := range p.most.tokens {
		p.peak.tokens[class] = n + n/2
	}
	p.most = amount{p.inUse, p.prefill}
}

// any tells whether something is booked.
func (a *ahead) any() bool {
	return a.amount != amount{}
}
