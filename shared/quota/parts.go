package quota

import (
	"math"

	"github.com/warmpath/warmpath/shared/policy"
)

// divide computes what one gateway gets of a pool, and its part of the rate in tokens/s.
//
// Of what a class has, the gateway's part is as its demand to all demand; of what nobody asks for,
// half by demand and half the same for everybody, so that a request that comes where none was
// before finds a slot. All of it stays within what the others leave.
func (l *Ledger) divide(p *pool, at int, h *holding, live int, now int64) (g Grant, rate uint32) {
	g.Total = Part{NoLimit, NoLimit}
	for c := range g.Class {
		g.Class[c] = Part{NoLimit, NoLimit}
	}
	l.sum(p, at, now)
	if p.capacity.PrefillTokens != NoLimit {
		total, class := p.prefill.part(&h.prefill, live, p.shares.Lend)
		g.Total.Prefill = max(whole(total), 1)
		for c := range class {
			g.Class[c].Prefill = whole(class[c])
		}
		if p.capacity.PrefillTokens > 0 {
			rate = whole(p.capacity.TokensPerSecond * total / float64(p.capacity.PrefillTokens))
		}
	}
	if p.capacity.Slots == NoLimit {
		return g, rate
	}
	total, class := p.slots.part(&h.demand, live, p.shares.Lend)
	floor := p.floors(l.admission) / uint32(max(live, 1))
	target := max(whole(total), floor)
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
	// What rounding left is nobody's in particular.
	if p.shares.Lend > 0 {
		g.Class[len(class)-1].Slots += left
	}
	g.ClassFloor = floors(g.Floor, &p.shares)
	return g, rate
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

// part is one gateway's part of a resource: of what each class has, and of what is spare. As much
// of that as is lent is the lowest class's, whose part those above may use.
func (r *resource) part(demand *[policy.Classes]float64, live int, lend float64) (total float64, class [policy.Classes]float64) {
	own, all := 0.0, 0.0
	for c := range demand {
		if r.demand[c] > 0 {
			class[c] = r.split.Class[c] * demand[c] / r.demand[c]
		}
		total += class[c]
		own += demand[c]
		all += r.demand[c]
	}
	portion := 1 / float64(max(live, 1))
	if all > 0 {
		portion = (portion + own/all) / 2
	}
	spare := r.split.Spare * portion
	class[len(class)-1] += spare * lend
	return total + spare, class
}

// sum adds up what is asked for and splits the pool.
func (l *Ledger) sum(p *pool, at int, now int64) {
	p.slots.demand, p.prefill.demand = [policy.Classes]float64{}, [policy.Classes]float64{}
	for _, g := range l.gateways {
		if !g.live(now) {
			continue
		}
		h := &g.pools[at]
		for c := range h.demand {
			p.slots.demand[c] += h.demand[c]
			p.prefill.demand[c] += h.prefill[c]
		}
	}
	p.slots.split = Divide(float64(p.capacity.Slots), p.slots.demand, &p.shares)
	p.prefill.split = Divide(float64(p.capacity.PrefillTokens), p.prefill.demand, &p.shares)
}

// free is what no gateway has or may have.
func (l *Ledger) free(p *pool, at int, now int64) uint64 {
	used, known := l.debits(p, at, now)
	if !known {
		return 0
	}
	return sub(uint64(p.capacity.Slots), used)
}
