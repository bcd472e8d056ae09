package quota

import (
	"math"

	"github.com/warmpath/warmpath/shared/policy"
)

// divide computes what one gateway gets of a pool, and its part of the rate in tokens/s.
//
// Of what a class has, the gateway gets what it asks for, but no more than its level: that of all
// gateways at which their parts are what the class has, by the tenants that wait in them. Of what
// nobody asks for it gets half by demand and half the same as everybody, so that a request that
// comes where none was before finds a slot. All of it stays within what the others leave.
//
// live is the number of gateways that may hold a lease, and place in (0, 1) where this one is among them.
func (l *Ledger) divide(p *pool, at int, h *holding, live int, place float64, now int64) (g Grant, rate uint32) {
	g.Total = Part{NoLimit, NoLimit}
	for c := range g.Class {
		g.Class[c] = Part{NoLimit, NoLimit}
	}
	l.sum(p, at, now)
	if p.capacity.PrefillTokens != NoLimit {
		total, portion, class := p.prefill.part(&h.prefill, &h.weight, live, p.shares.Lend)
		// What others were granted is not given away before it is used up.
		others := float64(p.prefillHeld - uint64(h.prefillHeld))
		total = min(total, max(float64(p.capacity.PrefillTokens)-others, 0))
		g.Total.Prefill = max(whole(total), 1)
		left := g.Total.Prefill
		for c := range class {
			part := min(whole(class[c]), left)
			left -= part
			// What it leaves of its share is lent to others, and there at once when it comes.
			lent := max(p.shares.Class[c]*float64(p.capacity.PrefillTokens)-p.prefill.demand[c], 0)
			g.Class[c].Prefill = part + whole(lent*portion)
		}
		h.prefillHeld = max(g.Total.Prefill, min(h.prefillHeld, h.prefillUse()))
		if p.capacity.PrefillTokens > 0 {
			rate = whole(p.capacity.TokensPerSecond * total / float64(p.capacity.PrefillTokens))
		}
	}
	if p.capacity.Slots == NoLimit {
		return g, rate
	}
	total, _, class := p.slots.part(&h.demand, &h.weight, live, p.shares.Lend)
	floor := p.floors(l.admission) / uint32(max(live, 1))
	// Rounded down in each, a small pool would lose a part of itself. So some are rounded up, by
	// their places: over gateways whose parts are alike the sum is the pool.
	target := max(whole(total+place), floor)
	// What is in use beyond the part drains; until then it is no one else's.
	free := l.free(p, at, now)
	most := uint32(min(h.debit()+free, math.MaxUint32-1))
	if target > most {
		target = most
	}
	g.Total.Slots, g.Floor = target, min(floor, target)
	left := target
	for c := range class {
		g.Class[c].Slots = min(whole(class[c]), left)
		left -= g.Class[c].Slots
	}
	left = round(&g, &class, left, place)
	// What is left then is nobody's in particular.
	if p.shares.Lend > 0 {
		g.Class[len(class)-1].Slots += left
	}
	g.ClassFloor = floors(g.Floor, &p.shares)
	return g, rate
}

// round gives the slots that rounding left to classes that were rounded down, and returns the rest. A
// class without a part gets none of them: over many gateways they would be a share. Which class it is
// depends on the gateway's place, so that over all gateways each gets as much as it has lost: were it
// the one that lost most, it would be the same everywhere, and in a small pool others had nothing.
func round(g *Grant, class *[policy.Classes]float64, left uint32, place float64) uint32 {
	for ; left > 0; left-- {
		var lost [policy.Classes]float64
		sum, last := 0.0, -1
		for c := range class {
			if n := class[c] - float64(g.Class[c].Slots); n > 0.01 {
				lost[c], last = n, c
				sum += n
			}
		}
		if last < 0 {
			break
		}
		to, at := 0, place*sum
		for ; to < last && at >= lost[to]; to++ {
			at -= lost[to]
		}
		g.Class[to].Slots++
	}
	return left
}

// floors splits a floor: P0 may have all of it, P1 its share, P2 nothing.
func floors(floor uint32, s *Shares) (class [policy.Classes]uint32) {
	class[0] = floor
	if guaranteed := s.Class[0] + s.Class[1]; guaranteed > 0 {
		class[1] = uint32(math.Ceil(float64(floor) * s.Class[1] / guaranteed))
	}
	return class
}

// whole rounds down, against the errors of sums upwards.
func whole(f float64) uint32 { return uint32(min(max(f+1e-6, 0), math.MaxUint32-1)) }

// part is one gateway's part of a resource: of what each class has, and its portion of what is
// spare. As much of that as is lent is the lowest class's, whose part those above may use.
func (r *resource) part(demand, weight *[policy.Classes]float64, live int, lend float64) (total, portion float64, class [policy.Classes]float64) {
	own, all := 0.0, 0.0
	for c := range demand {
		class[c] = demand[c]
		if r.level[c] >= 0 {
			class[c] = min(class[c], r.level[c]*weight[c])
		}
		total += class[c]
		own += demand[c]
		all += r.demand[c]
	}
	portion = 1 / float64(max(live, 1))
	if all > 0 {
		portion = (portion + own/all) / 2
	}
	spare := r.split.Spare * portion
	class[len(class)-1] += spare * lend
	return total + spare, portion, class
}

// prefillUse is what the gateway has to prefill.
func (h *holding) prefillUse() (n uint32) {
	for c := range h.class {
		n += min(h.class[c].prefill, NoLimit-n)
	}
	return n
}

// sum adds up what is asked for and splits the pool.
func (l *Ledger) sum(p *pool, at int, now int64) {
	p.slots.demand, p.prefill.demand = [policy.Classes]float64{}, [policy.Classes]float64{}
	l.live = l.live[:0]
	p.prefillHeld = 0
	for _, g := range l.gateways {
		if !g.live(now) {
			continue
		}
		h := &g.pools[at]
		l.live = append(l.live, h)
		p.prefillHeld += uint64(h.prefillHeld)
		for c := range h.demand {
			p.slots.demand[c] += h.demand[c]
			p.prefill.demand[c] += h.prefill[c]
		}
	}
	p.slots.divide(float64(p.capacity.Slots), &p.shares, l.live, func(h *holding, c int) float64 { return h.demand[c] })
	p.prefill.divide(float64(p.capacity.PrefillTokens), &p.shares, l.live, func(h *holding, c int) float64 { return h.prefill[c] })
}

// divide splits capacity among the classes, and finds the level of each that doesn't get all it
// asks for.
func (r *resource) divide(capacity float64, shares *Shares, gateways []*holding, asks func(h *holding, class int) float64) {
	r.split = Divide(capacity, r.demand, shares)
	for c := range r.level {
		r.level[c] = -1
		if r.split.Class[c] >= r.demand[c] {
			continue
		}
		r.level[c] = level(r.split.Class[c], gateways, func(h *holding) (asked, weight float64) { return asks(h, c), h.weight[c] })
	}
}

// free is what no gateway has or may have.
func (l *Ledger) free(p *pool, at int, now int64) uint64 {
	used, known := l.debits(p, at, now)
	if !known {
		return 0
	}
	return sub(uint64(p.capacity.Slots), used)
}
