package control

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/homes"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// planEvery is how often the homes of hot prefixes are planned: what gateways tell and are told
// takes some 50 ms beside it, so a prefix that gets hot has homes within two seconds.
const planEvery = 500 * time.Millisecond

// hotBook counts what is hot, and plans its homes and the copies that gateways make for them, pool by
// pool.
type hotBook struct {
	began time.Time

	mu    sync.Mutex
	pools map[uint8]*homes.Planner
}

func newHotBook(now time.Time) *hotBook {
	return &hotBook{began: now, pools: map[uint8]*homes.Planner{}}
}

// planner is that of a pool. Requires mu.
func (b *hotBook) planner(pool uint8) *homes.Planner {
	p := b.pools[pool]
	if p == nil {
		p = homes.NewPlanner()
		b.pools[pool] = p
	}
	return p
}

// dispatched counts a request of a gateway.
func (b *hotBook) dispatched(gateway string, pool uint8, path []index.Checkpoint, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.planner(pool).Heat.AddOf(wire.MakerOf(gateway), path, now.Sub(b.began))
}

// copied hears that a gateway has made a copy.
func (b *hotBook) copied(gateway string, pool uint8, fingerprint uint64, worker uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.planner(pool).Made(fingerprint, worker, wire.MakerOf(gateway))
}

// plan brings all plans to now. makers are the gateways that make copies, by pool. It returns the
// pools in which copies have just come to be left to requests.
func (b *hotBook) plan(now time.Time, workers map[uint8][]homes.Worker, x *index.Index, makers map[uint8][]uint64) (left []uint8) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pool, p := range b.pools {
		underWay := func(each func(homes.Begins)) { showUnderWay(x, workers[pool], each) }
		_, before := p.LeftAlone()
		p.Plan(now.Sub(b.began), workers[pool], makers[pool], underWay, x.Holds)
		if _, alone := p.LeftAlone(); alone && !before {
			left = append(left, pool)
		}
	}
	slices.Sort(left)
	return left
}

// sections are HOMES and COPIES as of the last plan.
func (b *hotBook) sections() (home, copies []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, pool := range slices.Sorted(maps.Keys(b.pools)) {
		for _, h := range b.pools[pool].Prefixes() {
			if len(h.Homes) > 0 {
				home = wire.AppendHome(home, &wire.Home{Fingerprint: h.Fingerprint, Units: h.Units, Pool: pool, Bitmap: bitmapOf(h.Homes)})
			}
			for _, c := range h.Copies {
				copies = wire.AppendCopy(copies, &wire.Copy{Fingerprint: h.Fingerprint, Units: h.Units, Pool: pool, Ref: c.Ref, Maker: c.Maker})
			}
		}
	}
	return home, copies
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
	if len(refs) == 0 {
		return nil
	}
	bitmap := make([]byte, int(refs[len(refs)-1])/8+1)
	for _, ref := range refs {
		bitmap[ref/8] |= 1 << (ref % 8)
	}
	return bitmap
}

// planHomes publishes the homes of hot prefixes, and who makes which copy for them: by the leader's
// plan where there is one.
func (s *Service) planHomes(now time.Time) {
	if !s.takeLeadersPlan(now) {
		left := s.hot.plan(now, s.plannedWorkers(now), s.index, s.makers(now))
		for _, index := range left {
			if pool := s.policy.Load().parsed.ByIndex(index); pool != nil {
				s.log.Warn("copies of hot prefixes are left to requests for ten minutes: those that gateways should have made were not there in time", "pool", pool.Name,
					"remedy", "engines must accept /v1/completions with token ids, and the module needs the pool's cluster name: worker_cluster; its metrics copies_failed.* tell what ended them, as workers with too much to do; copy_slice_tokens: 0 ends this")
			}
		}
		s.tellPlan()
	}
	s.table.SetHomes(s.hot.sections())
}

// plannedWorkers are those that can be homes, by pool.
func (s *Service) plannedWorkers(now time.Time) map[uint8][]homes.Worker {
	workers, totals := map[uint8][]homes.Worker{}, s.gateways.Totals(now)
	for _, w := range s.published() {
		if w.State == discovery.Healthy || w.State == discovery.Unknown {
			pool, _ := s.policy.Load().poolIndex(w.Pool)
			workers[pool] = append(workers[pool], homes.Worker{Ref: w.Ref, InFlight: int(totals[w.Ref].Requests), Spread: s.index.IsSpread(w.Ref)})
		}
	}
	return workers
}

// makers are the gateways that make copies in slices, by pool: where prompts are tokens, and the rule
// wants it. After a restart that has left nothing of the index nobody knows which are there.
func (s *Service) makers(now time.Time) map[uint8][]uint64 {
	if !s.plansForAll() || s.learning.Load() {
		return nil
	}
	d := s.policy.Load()
	vocabularies := map[uint8]policy.Hash{}
	s.policyMu.Lock()
	for i := range d.parsed.Pools {
		pool := &d.parsed.Pools[i]
		exact := s.exact[pool.Name]
		if exact != nil && exact.serving != nil && pool.Policy.Name == policy.Cost && pool.Policy.CopySlice > 0 && d.parsed.Mode(pool) == policy.Route {
			vocabularies[pool.Index] = exact.serving.vocabulary.Hash
		}
	}
	s.policyMu.Unlock()
	out := map[uint8][]uint64{}
	for pool, vocabulary := range vocabularies {
		for _, name := range s.gateways.Makers(pool, vocabulary, now) {
			out[pool] = append(out[pool], wire.MakerOf(name))
		}
	}
	return out
}

// hotStatus shows the hot prefixes, their homes, and who makes copies for more.
func (s *Service) hotStatus(now time.Time) []api.HotPrefix {
	addresses := addressesOf(s.published())
	names := map[uint64]string{}
	for _, g := range s.gateways.List(now) {
		names[wire.MakerOf(g.Name)] = g.Name
	}
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
				Share: x.Share, Homes: []string{}, Copies: []api.HotCopy{},
			}
			for _, ref := range x.Homes {
				h.Homes = append(h.Homes, addresses[ref])
			}
			for _, c := range x.Copies {
				h.Copies = append(h.Copies, api.HotCopy{Worker: addresses[c.Ref], Gateway: names[c.Maker]})
			}
			out = append(out, h)
		}
	}
	return out
}

// hotCount is what metrics tell of a pool.
type hotCount struct {
	prefixes, homes, copies int
	homes.Counts
	leftAlone bool
}

// hotCounts are those of all pools that requests went to, by name.
func (s *Service) hotCounts() map[string]hotCount {
	out := map[string]hotCount{}
	pools := s.policy.Load().parsed.Pools
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	for i := range pools {
		p := s.hot.pools[pools[i].Index]
		if p == nil {
			continue
		}
		n := hotCount{prefixes: len(p.Prefixes()), Counts: p.Counts()}
		for _, x := range p.Prefixes() {
			n.homes += len(x.Homes)
			n.copies += len(x.Copies)
		}
		_, n.leftAlone = p.LeftAlone()
		out[pools[i].Name] = n
	}
	return out
}
