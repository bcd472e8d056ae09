package quota

import "math"

// ghosts is what can be left at the workers of requests whose gateways went silent.
//
// Their requests are still there, or not: nobody says. But the workers' counts do, over a few
// seconds: what they have beyond what the gateways that are heard have in use. The most they had,
// less the least that each gateway reported, is an upper bound for what doesn't grow.
type ghosts struct {
	bound     uint32 // of all covered gateways together
	anonymous bool   // the bound covers those of an unknown ledger before, too

	// The window under way.
	since   int64
	samples int
	most    uint32 // at the workers
	members uint64 // identifies who is heard and who is silent
}

const (
	// A window is three seconds of at least this many looks at the workers and reports of every
	// gateway that is heard. Before it begins, the lease of every silent gateway has been over for as
	// long: engines notice clients that left.
	ghostWindow  = 3_000_000_000
	ghostSamples = 6
)

// Observe says how many requests a pool's workers have, running and waiting. It must be whole
// and fresh: every worker was asked within the last second.
func (l *Ledger) Observe(index uint8, atWorkers uint32, now int64) {
	at := l.poolAt(index)
	if at < 0 || l.admission == nil {
		return
	}
	x := &l.pools[at].ghosts
	inUse, least, members, silent := uint64(0), uint64(0), uint64(0), l.anonymous
	reports := ghostSamples
	begins := l.started + withMargin(l.admission.Lease) + ghostWindow
	for _, g := range l.gateways {
		h := &g.pools[at]
		switch {
		case g.live(now):
			inUse += uint64(h.inUse)
			least += uint64(h.least)
			reports = min(reports, h.reports)
			members += g.nonce * 0x9e3779b97f4a7c15
		case g.unknown || h.debit() > 0:
			silent = true
			begins = max(begins, g.expires+ghostWindow)
			members += ^g.nonce * 0x9e3779b97f4a7c15
		}
	}
	l.observed = true
	l.follows = l.follows || uint64(atWorkers) > inUse
	if !silent {
		*x = ghosts{}
		return
	}
	if x.samples == 0 || x.members != members || now < begins {
		x.since, x.samples, x.members, x.most = now, 0, members, 0
		for _, g := range l.gateways {
			g.pools[at].least, g.pools[at].reports = math.MaxUint32, 0
		}
	}
	if now < begins {
		return
	}
	x.samples++
	x.most = max(x.most, atWorkers)
	if x.samples < ghostSamples || now-x.since < ghostWindow || reports < ghostSamples {
		return
	}
	x.samples = 0
	bound := uint32(sub(uint64(x.most), least))
	if l.cover(at, now) || bound < x.bound {
		x.bound = bound
	}
}

// grow adds to the bound what may have come since the window.
func (x *ghosts) grow(n uint32) {
	x.bound += n
	x.samples = 0
}

// cover makes the bound one of all that are silent now. It tells whether there is one that it
// was not of before.
func (l *Ledger) cover(at int, now int64) (more bool) {
	x := &l.pools[at].ghosts
	more = l.anonymous && !x.anonymous
	x.anonymous = l.anonymous
	for _, g := range l.gateways {
		if h := &g.pools[at]; !g.live(now) && !h.covered && (g.unknown || h.debit() > 0) {
			h.covered, more = true, true
		}
	}
	return more
}

// debits sums what gateways have or may have of a pool. It is not known while there may be
// gateways that nobody has heard of.
func (l *Ledger) debits(p *pool, at int, now int64) (total uint64, known bool) {
	var covered, floors uint64
	var unknown, unknownFloors bool
	if l.anonymous {
		if !p.ghosts.anonymous {
			return 0, false
		}
		unknown, unknownFloors = true, !l.floorsOver
	}
	for _, g := range l.gateways {
		h := &g.pools[at]
		switch {
		case g.unknown && !h.covered:
			return 0, false
		case g.unknown:
			unknown = true
			unknownFloors = unknownFloors || !g.floorsOver
		case h.covered:
			covered += h.debit()
			floors += uint64(h.heldFloor)
		default:
			total += h.debit()
		}
	}
	bound := uint64(p.ghosts.bound) + floors
	if unknownFloors {
		bound += uint64(p.floors(l.admission))
	}
	if !unknown {
		bound = min(bound, covered)
	}
	return total + bound, true
}
