package homes

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// spread is how many times its share of the pool a prefix gets as homes: its requests then
	// are a third of what a home does, and the rest keeps the sessions that live there. A copy is
	// cheap beside a conversation that has to leave its cache.
	spread = 3
	// perHome is how many of its requests are on their way at once for each home that a prefix
	// gets: in a quiet fleet few workers carry it as well as many, and compute it less often; and a
	// prefix whose answers are short needs few, however many requests begin with it.
	perHome = 4
	// leastRequests is the number of a prefix's recent requests below which its share is chance.
	leastRequests = 8
	// cooled is the part of a worker's share below which a prefix loses its homes: lower than
	// where it gets them, so that none comes and goes.
	cooled = 0.5
	// MaxPrefixes bounds a pool's plan; the hottest stay.
	MaxPrefixes = 64
	// leastUnits: a shorter prefix (256 tokens) is computed anew in the time of a decoding step.
	leastUnits = 16
)

// Worker is one that can be a home.
type Worker struct {
	Ref      uint16
	InFlight int // requests, of the whole fleet
	// Spread: it has several caches, and which one a request meets is chance. A slice would not find
	// the one before it, so requests make its copies.
	Spread bool
}

// Begins tells whether a request's prompt begins with a prefix that is so many units long.
type Begins func(fingerprint uint64, units uint32) bool

// Prefix is a hot one and its homes.
type Prefix struct {
	Fingerprint uint64
	Units       uint32
	// Share of the pool's recent requests that begin with it and not with a hot prefix beyond it.
	Share float64
	// Homes are refs, ascending: of the workers that have a copy, and of those that shall get it by
	// the first request that is sent to them. There may be none while all copies are being made.
	Homes []uint16
	// Copies are those being made in slices, ascending by Ref. Their workers are no homes yet.
	Copies []Copy
}

// Planner keeps a pool's plan. Not safe for concurrent use.
type Planner struct {
	// Heat of the pool.
	Heat *Heat

	prefixes []Prefix
	copies   copyBook
}

// NewPlanner returns a planner without a plan.
func NewPlanner() *Planner { return &Planner{Heat: NewHeat(), copies: newCopyBook()} }

// Prefixes is the plan as of the last call of Plan.
func (p *Planner) Prefixes() []Prefix { return p.prefixes }

// Adopt makes a plan that another planner made of the same requests this one's: the next Plan goes on
// from it. Copies of one's own that were being made are not counted any more, and whether slices are
// left alone is the other's to say.
func (p *Planner) Adopt(prefixes []Prefix) {
	p.prefixes = prefixes
	clear(p.copies.entries)
	p.copies.alone, p.copies.streak = false, 0
}

// Plan brings the plan to now, for workers that take requests, and returns it, hottest first; it
// is valid until the next call. holds tells whether a worker has a copy: those are homes first.
// underWay shows every request that was dispatched and isn't done, by what it begins with. It need
// not know all of them: Worker.InFlight tells how many there are, underWay which part is whose.
//
// makers are the gateways that make copies in slices, each once; without any, or while slices are
// left alone, a home's first request makes its copy.
func (p *Planner) Plan(now time.Duration, workers []Worker, makers []uint64, underWay func(each func(Begins)), holds func(fingerprint uint64, ref uint16) bool) []Prefix {
	total, n := p.Heat.Requests(now), float64(len(workers))
	inFlight := 0
	for _, w := range workers {
		inFlight += w.InFlight
	}
	before := p.prefixes
	p.prefixes = nil
	p.copies.begin(now, workers, makers)
	defer p.copies.end()
	if len(workers) < 2 {
		return nil
	}
	own := max(total/n, leastRequests) // a worker's share
	load := map[uint16]float64{}
	list := p.deepest(before, own, now)
	parts := partsOf(list, total, underWay)
	for i, x := range list {
		share := x.requests / total
		want := min(spread*share*n, parts[i]*float64(inFlight)/perHome, n)
		old := find(before, x.fingerprint)
		if old != nil && old.chosen() > want && old.chosen()*cooled < want {
			want = old.chosen() // no home comes and goes with the noise
		}
		if want <= 1 {
			continue
		}
		held := func(ref uint16) bool { return holds(x.fingerprint, ref) }
		homes := choose(int(math.Ceil(want-0.01)), workers, old, load, held)
		for _, ref := range homes {
			load[ref] += x.requests / float64(len(homes))
		}
		homes, copies := p.copies.divide(&x, homes, old, held)
		p.prefixes = append(p.prefixes, Prefix{Fingerprint: x.fingerprint, Units: x.units, Share: share, Homes: homes, Copies: copies})
	}
	return p.prefixes
}

// deepest lists the prefixes that more requests begin with than a worker's share, counting only
// those that no deeper one of the list has; one that has homes stays until it has cooled.
func (p *Planner) deepest(before []Prefix, own float64, now time.Duration) (list []hot) {
	all := p.Heat.above(max(own*cooled, 1), now)
	taken := map[uint64]float64{} // requests of the listed prefixes beyond a checkpoint
	for i := range all {
		x := &all[i]
		beyond := taken[x.fingerprint]
		rest := x.requests - beyond
		least := own
		if find(before, x.fingerprint) != nil {
			least *= cooled
		}
		if rest > least && x.units >= leastUnits {
			beyond = x.requests
			list = append(list, *x)
			list[len(list)-1].requests = rest
		}
		taken[x.parent] += beyond
	}
	slices.SortFunc(list, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.fingerprint, b.fingerprint))
	})
	return list[:min(len(list), MaxPrefixes)]
}

// partsOf is the part of the requests under way that each prefix has. A request counts for the
// deepest that it begins with. Where none is known, it is the prefix's share of those that came.
func partsOf(list []hot, total float64, underWay func(each func(Begins))) []float64 {
	parts := make([]float64, len(list))
	if len(list) == 0 {
		return parts
	}
	deepest := make([]int, len(list))
	for i := range deepest {
		deepest[i] = i
	}
	slices.SortFunc(deepest, func(i, j int) int { return cmp.Compare(list[j].units, list[i].units) })
	all := 0.0
	underWay(func(begins Begins) {
		all++
		for _, i := range deepest {
			if begins(list[i].fingerprint, list[i].units) {
				parts[i]++
				return
			}
		}
	})
	for i := range parts {
		if all > 0 {
			parts[i] /= all
		} else {
			parts[i] = list[i].requests / total
		}
	}
	return parts
}

// chosen is how many workers are its homes or get copies.
func (x *Prefix) chosen() float64 { return float64(len(x.Homes) + len(x.Copies)) }

// choose picks n homes: those it has, then those whose copies are being made, then those with a copy,
// then those that other hot prefixes load least, then those with the fewest requests.
func choose(n int, workers []Worker, old *Prefix, load map[uint16]float64, holds func(ref uint16) bool) []uint16 {
	type candidate struct {
		Worker
		rank int
	}
	all := make([]candidate, len(workers))
	for i, w := range workers {
		all[i] = candidate{w, 3}
		switch {
		case old != nil && slices.Contains(old.Homes, w.Ref):
			all[i].rank = 0
		case old != nil && slices.ContainsFunc(old.Copies, func(c Copy) bool { return c.Ref == w.Ref }):
			all[i].rank = 1
		case holds(w.Ref):
			all[i].rank = 2
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(load[a.Ref], load[b.Ref]), cmp.Compare(a.InFlight, b.InFlight), cmp.Compare(a.Ref, b.Ref))
	})
	homes := make([]uint16, min(n, len(all)))
	for i := range homes {
		homes[i] = all[i].Ref
	}
	slices.Sort(homes)
	return homes
}

func find(list []Prefix, fingerprint uint64) *Prefix {
	for i := range list {
		if list[i].Fingerprint == fingerprint {
			return &list[i]
		}
	}
	return nil
}
