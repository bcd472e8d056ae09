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
	// through; 128 of them would all have had to.
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

// writePool replaces the cell, with this VM's share as it is by now.
func (g *Gate) writePool(p *pool, cas uint32, now int64) abi.Status {
	g.putShare(p, now)
	g.out = g.cell.append(g.out[:0])
	status := abi.SetSharedData(p.key, g.out, cas)
	switch status {
	case abi.OK:
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

// putShare writes this VM's share and its queues into the cell at hand.
func (g *Gate) putShare(p *pool, now int64) {
	c := &g.cell
	slot, _ := g.fleet.EnsureRow(now)
	s := c.share(g.fleet.Nonce)
	if s == nil {
		if len(c.Shares) == maxShares {
			g.dropDead(now)
		}
		if len(c.Shares) == maxShares || sum(p.inUse) == 0 && p.waiting == 0 {
			return
		}
		c.Shares = append(c.Shares, share{Nonce: g.fleet.Nonce})
		s = &c.Shares[len(c.Shares)-1]
	}
	s.Slot, s.Until, s.InUse, s.Prefill = slot, g.until(), p.inUse, p.prefill
	c.dropQueues(slot)
	if p.waiting == 0 {
		return
	}
	for class, q := range p.queues {
		if q == nil || q.Len() == 0 {
			continue
		}
		r := queued{
			Slot: slot, Class: uint8(class), Waiting: uint16(min(q.Len(), math.MaxUint16)), Queue: g.queue,
			Start: math.Inf(1), Oldest: q.Oldest().Arrived, Tokens: uint32(min(q.Bytes()/bytesPerToken, math.MaxUint32)),
		}
		if best := q.Best(); best != nil {
			r.Start = best.Start()
		}
		c.Virtual[class] = max(c.Virtual[class], q.Virtual)
		c.Queues = append(c.Queues, r)
	}
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

// until is how long this VM's shares count without its row: a VM that is not
// ticked any more still has its streams.
func (g *Gate) until() uint32 { return g.orphanUntil }

// dropDead takes the shares of VMs that are gone out of the cell at hand, and
// tells whether there were any.
func (g *Gate) dropDead(now int64) bool {
	c := &g.cell
	kept := c.Shares[:0]
	for _, s := range c.Shares {
		if int64(s.Until) > now/int64(time.Second) || g.fleet.Alive(s.Slot, s.Nonce, now) {
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
// if nobody waits. With force there is no limit.
func (g *Gate) takeSlot(t *Ticket, w *quota.Waiter, force bool, now int64) outcome {
	p := t.pool
	for range casTries {
		cas, ok := g.readPool(p, now)
		if !ok {
			return lost
		}
		if !force {
			if !g.fits(t.Class, t.need, now) && (!g.dropDead(now) || !g.fits(t.Class, t.need, now)) {
				return full
			}
			if other := g.better(t.Class, w, now); other >= 0 {
				if g.wake(p, other, cas, now) {
					return behind
				}
				continue
			}
		}
		p.inUse[t.Class]++
		p.prefill[t.Class] += t.need
		status := g.writePool(p, cas, now)
		if status == abi.OK {
			t.slot = true
			return taken
		}
		p.inUse[t.Class]--
		p.prefill[t.Class] -= t.need
		if status != abi.CASMismatch {
			return lost
		}
	}
	return lost
}

// fits tells whether the cell at hand has a slot for a request with so much to
// prefill.
func (g *Gate) fits(class uint8, need uint32, now int64) bool {
	use, grant := g.cell.use(), g.cell.grant()
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

// better is the position in the cell at hand of the queue whose best should have
// a slot before w does, w nil for somebody who has just come; -1 for none. VMs
// that are gone, or were woken and don't look, are passed by.
func (g *Gate) better(class uint8, w *quota.Waiter, now int64) int {
	c := &g.cell
	slot, _ := g.fleet.Slot()
	found := -1
	for i := range c.Queues {
		q := &c.Queues[i]
		switch {
		case q.Slot == slot || q.Class > class || math.IsInf(q.Start, 1):
		case q.Woken != 0 && now-q.Woken > int64(staleAfter):
		case w != nil && q.Class == class && q.Start >= w.Start():
		case found >= 0 && (c.Queues[found].Class < q.Class || c.Queues[found].Class == q.Class && c.Queues[found].Start <= q.Start):
		case !g.aliveSlot(q.Slot, now):
		default:
			found = i
		}
	}
	return found
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
			if at := g.better(policy.Classes-1, nil, now); at >= 0 && g.cell.Queues[at].Woken == 0 && g.fits(g.cell.Queues[at].Class, 0, now) {
				g.cell.Queues[at].Woken = now
				queue = g.cell.Queues[at].Queue
			}
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
