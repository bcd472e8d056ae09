package admission

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// casTries bounds the tries at a change. Every miss means that another VM got
	// through: each of 128 would have had to twice.
	casTries = 256
	// staleAfter is how long a VM that was woken may take to look before the
	// others pass it by.
	staleAfter = 200 * time.Millisecond
)

// outcome is what became of a try to take a slot.
type outcome uint8

const (
	taken  outcome = iota
	full           // no slot, or too much to prefill already
	behind         // a slot, and somebody else's turn
	lost           // the cell can't be read or written: nobody can tell
)

// read gets a cell. An absent one reads as empty, and is created with one winner.
func (g *Gate) read(key string, decode func([]byte) bool) (cas uint32, ok bool) {
	value, cas, status := abi.SharedData(key, &g.scratch)
	switch status {
	case abi.OK:
	case abi.NotFound:
		value, cas = nil, wire.CreateCAS
	default:
		return 0, false
	}
	if !decode(value) {
		g.metrics.Inc(metrics.BadData, metrics.BadCell)
	}
	return cas, true
}

// readPool gets a pool's cell, with this VM's share as it really is.
func (g *Gate) readPool(p *pool, now int64) (cas uint32, ok bool) {
	cas, ok = g.read(p.key, g.cell.decode)
	g.dropped = 0
	if ok {
		g.putShare(p, now)
	}
	p.others = false
	slot, _ := g.fleet.Slot()
	for i := range g.cell.Queues {
		p.others = p.others || g.cell.Queues[i].Slot != slot
	}
	return cas, ok
}

// writePool replaces the cell, with this VM's share as it is by now and what it
// books ahead.
func (g *Gate) writePool(p *pool, cas uint32, now int64) abi.Status {
	var next ahead
	if s := g.putShare(p, now); s != nil {
		next = g.bookAhead(p, s, now)
	}
	g.cell.count(&p.away)
	g.out = g.cell.append(g.out[:0])
	status := abi.SetSharedData(p.key, g.out, cas)
	switch status {
	case abi.OK:
		p.ahead, p.away = next, [policy.Classes]away{}
		g.metrics.Add(metrics.SlotsOrphaned, 0, g.dropped)
		g.dropped = 0
	case abi.CASMismatch:
		g.metrics.Inc(metrics.CellRaces, 0)
	}
	return status
}

func sum(inUse [policy.Classes]uint16) uint32 {
	n := uint32(0)
	for _, v := range inUse {
		n += uint32(v)
	}
	return n
}

// putShare writes this VM's share and its queues into the cell at hand, with
// nothing booked ahead. It answers nil where the VM has no share.
func (g *Gate) putShare(p *pool, now int64) *share {
	c := &g.cell
	slot, ok := g.fleet.EnsureRow(now)
	s := c.share(g.fleet.Nonce)
	if s == nil {
		if sum(p.inUse) == 0 && p.waiting == 0 || len(c.Shares) == maxShares && !g.dropDead(now) && !c.dropIdle() {
			return nil
		}
		c.Shares = append(c.Shares, share{Nonce: g.fleet.Nonce, Slot: slot})
		s = &c.Shares[len(c.Shares)-1]
	}
	c.dropQueues(slot)
	if s.Slot != slot { // it stood still, and another VM has taken its row
		c.dropQueues(s.Slot)
	}
	s.Slot, s.Until = slot, g.until(ok, now)
	s.Booked, s.InUse, s.Tokens, s.Prefill = p.inUse, p.inUse, p.prefill, p.prefill
	if p.waiting == 0 {
		return s
	}
	for class, q := range p.queues {
		if q == nil || q.Len() == 0 {
			continue
		}
		r := queued{
			Slot: slot, Class: uint8(class), Waiting: uint16(min(q.Len()-int(p.pending[class]), math.MaxUint16)), Queue: g.queue,
			Weight: uint16(min(q.Weight()*wire.WeightOne, math.MaxUint16)), Start: math.Inf(1), Oldest: q.Oldest().Arrived,
			Tokens: uint32(min(max(q.Bytes()/bytesPerToken-int64(p.pendingTokens[class]), 0), math.MaxUint32)),
			Held:   uint16(min(q.Len(), math.MaxUint16)), HeldTokens: uint32(min(q.Bytes()/bytesPerToken, math.MaxUint32)),
		}
		if best := q.Best(); best != nil {
			r.Start = best.Start()
		}
		c.Virtual[class] = max(c.Virtual[class], q.Virtual)
		c.Queues = append(c.Queues, r)
	}
	return s
}

// rowless is how long the share of a VM counts that has found no row: a proxy may
// have more threads than there are. It renews its share at each tick.
const rowless = 3 // s

// until is the time until which this VM's shares count whatever its row says.
func (g *Gate) until(hasRow bool, now int64) uint32 {
	if hasRow || g.orphanUntil != 0 {
		return g.orphanUntil
	}
	return uint32(now/int64(time.Second)) + rowless
}

// dropIdle takes the share of a VM that has nothing out of the cell, and tells
// whether there was one.
func (c *poolCell) dropIdle() bool {
	for i := range c.Shares {
		if s := &c.Shares[i]; s.Booked == [policy.Classes]uint16{} && s.Tokens == [policy.Classes]uint32{} {
			c.Shares = append(c.Shares[:i], c.Shares[i+1:]...)
			return true
		}
	}
	return false
}

func (c *poolCell) dropQueues(slot uint16) {
	kept := c.Queues[:0]
	for _, q := range c.Queues {
		if q.Slot != slot {
			kept = append(kept, q)
		}
	}
	c.Queues = kept
}

// counts tells whether a VM's share in a cell is still its own.
func (g *Gate) counts(slot uint16, nonce uint64, until uint32, now int64) bool {
	return int64(until) > now/int64(time.Second) || g.fleet.Alive(slot, nonce, now)
}

// dropDead takes the shares of VMs that are gone out of the cell at hand, and
// tells whether there were any.
func (g *Gate) dropDead(now int64) bool {
	c := &g.cell
	kept := c.Shares[:0]
	for _, s := range c.Shares {
		if g.counts(s.Slot, s.Nonce, s.Until, now) {
			kept = append(kept, s)
			continue
		}
		g.dropped += uint64(sum(s.InUse))
		c.dropQueues(s.Slot)
	}
	found := len(kept) < len(c.Shares)
	c.Shares = kept
	return found
}

// takeSlot takes a slot of a class for a request: for one that waits, if its
// turn has come in the whole gateway, and for one that has just come (w is nil)
// if nobody waits who comes before it. With force there is no limit.
func (g *Gate) takeSlot(t *Ticket, w *quota.Waiter, force bool, now int64) outcome {
	p := t.pool
	if w == nil && g.takeAhead(t, now) {
		return taken
	}
	for range casTries {
		cas, ok := g.readPool(p, now)
		if !ok {
			return lost
		}
		t.level = g.level(now)
		if !force {
			if !g.fits(t.Class, t.need, now) && (!g.dropDead(now) || !g.fits(t.Class, t.need, now)) {
				return full
			}
			if other, before := g.before(t, w, now); before {
				if other < 0 || g.wake(p, other, cas, now) {
					return behind
				}
				continue
			}
		}
		p.inUse[t.Class]++
		p.prefill[t.Class] += t.need
		p.most.raise(t.Class, p.inUse[t.Class], p.prefill[t.Class])
		p.peak.raise(t.Class, p.inUse[t.Class]+aheadOf-1, p.prefill[t.Class]+(aheadOf-1)*t.need)
		listed := force || len(g.cell.Shares) < maxShares || g.putShare(p, now) != nil
		status := abi.CASMismatch
		if listed {
			status = g.writePool(p, cas, now)
		}
		if status == abi.OK {
			t.slot = true
			return taken
		}
		p.inUse[t.Class]--
		p.prefill[t.Class] -= t.need
		switch {
		case !listed: // more VMs have requests than a cell can list
			return full
		case status != abi.CASMismatch:
			return lost
		}
	}
	return lost
}

// before tells whether somebody who waits comes before a request, and where: the
// position of his queue in the cell at hand, -1 in this VM.
func (g *Gate) before(t *Ticket, w *quota.Waiter, now int64) (other int, before bool) {
	need, at := g.others(now)
	if i := at[t.Class]; i >= 0 && (w == nil || g.cell.Queues[i].Start < w.Start()) {
		return i, true
	}
	for class, q := range t.pool.queues {
		if q != nil && q.Best() != nil {
			need[class] = 0
		}
	}
	need[t.Class] = t.need
	if turn := g.turn(&need, now); turn >= 0 && turn != int(t.Class) {
		return at[turn], true
	}
	return 0, false
}

// turn is the class whose best waiter gets the next slot of the cell at hand, -1
// where that is nobody's or nothing is known.
func (g *Gate) turn(need *[policy.Classes]uint32, now int64) int {
	level := g.level(now)
	if level == quota.Alone {
		return -1
	}
	use, grant := g.cell.booked(), g.cell.grant()
	if level == quota.AtFloor {
		grant = grant.AtFloor()
	}
	return grant.Turn(&use, need)
}

// fits tells whether the cell at hand has a slot for a request with so much to
// prefill.
func (g *Gate) fits(class uint8, need uint32, now int64) bool {
	use, grant := g.cell.booked(), g.cell.grant()
	switch g.level(now) {
	case quota.Alone:
		l := &g.settings.Level2
		return l.Pass || use.Class[0].Slots+use.Class[1].Slots+use.Class[2].Slots < uint32(l.Slots)
	case quota.AtFloor:
		grant = grant.AtFloor()
	}
	return grant.May(&use, int(class), need)
}

// level is how much is known of the pool whose cell is at hand.
func (g *Gate) level(now int64) quota.Level {
	if g.lease.newer(g.cell.Term, g.cell.Lease) {
		return quota.Alone // the lease doesn't speak of it
	}
	return g.lease.level(now)
}

// others finds the best waiter of each class in the other VMs: what he needs, and
// the position of his queue in the cell at hand, quota.Nobody and -1 for none.
// VMs that are gone, or were woken and don't look, are passed by.
func (g *Gate) others(now int64) (need [policy.Classes]uint32, at [policy.Classes]int) {
	c := &g.cell
	slot, _ := g.fleet.Slot()
	for class := range at {
		need[class], at[class] = quota.Nobody, -1
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		best := at[q.Class]
		switch {
		case q.Slot == slot || math.IsInf(q.Start, 1):
		case q.Woken != 0 && uint64(now-q.Woken) > uint64(staleAfter): // or later than now: the clock was set back
		case best >= 0 && c.Queues[best].Start <= q.Start:
		case !g.aliveSlot(q.Slot, now):
		default:
			need[q.Class], at[q.Class] = 0, i
		}
	}
	return need, at
}

func (g *Gate) aliveSlot(slot uint16, now int64) bool {
	for i := range g.cell.Shares {
		if s := &g.cell.Shares[i]; s.Slot == slot && g.fleet.Alive(slot, s.Nonce, now) {
			return true
		}
	}
	return false
}

// wake tells the VM of a queue in the cell at hand to look, unless it was told
// already. It answers false when the cell was changed by another VM meanwhile.
func (g *Gate) wake(p *pool, at int, cas uint32, now int64) bool {
	q := &g.cell.Queues[at]
	if q.Woken != 0 {
		return true
	}
	q.Woken = now
	queue := q.Queue
	if g.writePool(p, cas, now) != abi.OK {
		return false
	}
	g.send(queue)
	return true
}

// send wakes a VM by its shared queue.
func (g *Gate) send(queue uint32) {
	if queue == 0 {
		return
	}
	var message [8]byte
	binary.LittleEndian.PutUint64(message[:], g.fleet.Nonce)
	if abi.Enqueue(queue, message[:]) == abi.OK {
		g.metrics.Inc(metrics.QueueWakes, metrics.WakesSent)
	}
}

// publish writes this VM's share into a pool's cell. With hand the best waiter
// of the other VMs is woken if there is a slot for it and nobody better here.
func (g *Gate) publish(p *pool, hand bool, now int64) {
	p.dirty = true
	for range casTries {
		cas, ok := g.readPool(p, now)
		if !ok {
			return
		}
		queue := uint32(0)
		if hand && p.others {
			queue = g.choose(now)
		}
		switch g.writePool(p, cas, now) {
		case abi.OK:
			p.dirty = false
			g.send(queue)
			return
		case abi.CASMismatch:
		default:
			return
		}
	}
}

// choose marks the VM whose waiter gets the next slot in the cell at hand as
// woken, and answers its shared queue; 0 where there is none to wake.
func (g *Gate) choose(now int64) uint32 {
	need, at := g.others(now)
	turn := g.turn(&need, now)
	if turn < 0 && g.level(now) == quota.Alone { // all slots are alike
		for class := range at {
			if at[class] >= 0 && g.fits(uint8(class), 0, now) {
				turn = class
				break
			}
		}
	}
	if turn < 0 || g.cell.Queues[at[turn]].Woken != 0 {
		return 0
	}
	q := &g.cell.Queues[at[turn]]
	q.Woken = now
	return q.Queue
}
