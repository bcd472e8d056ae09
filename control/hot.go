package control

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/homes"
	"github.com/warmpath/warmpath/shared/wire"
)

// planEvery is how often the homes of hot prefixes are planned: what gateways tell and are told
// takes some 50 ms beside it, so a prefix that gets hot has homes within two seconds.
const planEvery = 500 * time.Millisecond

// hotBook counts what is hot and plans its homes, pool by pool.
type hotBook struct {
	began time.Time

	mu    sync.Mutex
	pools map[uint8]*homes.Planner
}

func newHotBook(now time.Time) *hotBook {
	return &hotBook{began: now, pools: map[uint8]*homes.Planner{}}
}

// dispatched counts a request.
func (b *hotBook) dispatched(pool uint8, path []index.Checkpoint, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[pool]
	if p == nil {
		p = homes.NewPlanner()
		b.pools[pool] = p
	}
	p.Heat.Add(path, now.Sub(b.began))
}

// plan brings all plans to now and returns the HOMES section.
func (b *hotBook) plan(now time.Time, workers map[uint8][]homes.Worker, x *index.Index) (section []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pool := range 256 {
		p := b.pools[uint8(pool)]
		if p == nil {
			continue
		}
		underWay := func(each func(homes.Begins)) { showUnderWay(x, workers[uint8(pool)], each) }
		for _, h := range p.Plan(now.Sub(b.began), workers[uint8(pool)], nil, underWay, x.Holds) {
			section = wire.AppendHome(section, &wire.Home{Fingerprint: h.Fingerprint, Units: h.Units, Pool: uint8(pool), Bitmap: bitmapOf(h.Homes)})
		}
	}
	return section
}

// showUnderWay shows what every request begins with that was dispatched to one of the workers and
// isn't done.
func showUnderWay(x *index.Index, workers []homes.Worker, each func(homes.Begins)) {
	among := make(map[uint16]bool, len(workers))
	for _, w := range workers {
		among[w.Ref] = true
	}
	var path []index.Checkpoint
	begins := func(fingerprint uint64, units uint32) bool {
		i, ok := slices.BinarySearchFunc(path, units, func(at index.Checkpoint, units uint32) int { return cmp.Compare(at.End, units) })
		return ok && path[i].Fingerprint == fingerprint
	}
	x.UnderWay(func(chosen uint16, p []index.Checkpoint) {
		if among[chosen] {
			path = p
			each(begins)
		}
	})
}

// bitmapOf is a set of refs, ascending, as the wire has it.
func bitmapOf(refs []uint16) []byte {
	bitmap := make([]byte, int(refs[len(refs)-1])/8+1)
	for _, ref := range refs {
		bitmap[ref/8] |= 1 << (ref % 8)
	}
	return bitmap
}

// planHomes publishes the homes of hot prefixes.
func (s *Service) planHomes(now time.Time) {
	workers, totals := map[uint8][]homes.Worker{}, s.gateways.Totals(now)
	for _, w := range s.published() {
		if w.State == discovery.Healthy || w.State == discovery.Unknown {
			pool, _ := s.policy.Load().poolIndex(w.Pool)
			workers[pool] = append(workers[pool], homes.Worker{Ref: w.Ref, InFlight: int(totals[w.Ref].Requests)})
		}
	}
	s.table.SetHomes(s.hot.plan(now, workers, s.index))
}

// hotStatus shows the hot prefixes and their homes.
func (s *Service) hotStatus() []api.HotPrefix {
	addresses := addressesOf(s.published())
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	out := []api.HotPrefix{}
	pools := s.policy.Load().parsed.Pools
	for i := range pools {
		p := s.hot.pools[pools[i].Index]
		if p == nil {
			continue
		}
		for _, x := range p.Prefixes() {
			h := api.HotPrefix{
				Pool: pools[i].Name, Fingerprint: strconv.FormatUint(x.Fingerprint, 16), Tokens: int(x.Units) * fingerprint.UnitTokens,
				Share: x.Share, Homes: []string{},
			}
			for _, ref := range x.Homes {
				h.Homes = append(h.Homes, addresses[ref])
			}
			out = append(out, h)
		}
	}
	return out
}

type hotCount struct{ prefixes, homes int }

// hotCounts sums by pool.
func hotCounts(hot []api.HotPrefix) map[string]hotCount {
	out := map[string]hotCount{}
	for i := range hot {
		n := out[hot[i].Pool]
		out[hot[i].Pool] = hotCount{n.prefixes + 1, n.homes + len(hot[i].Homes)}
	}
	return out
}
