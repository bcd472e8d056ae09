package control

import (
	"context"
	"math"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/publish"
	"github.com/warmpath/warmpath/shared/wire"
)

// loadsAnyway is how often loads are looked at when nothing says that they may
// have changed: marks end, and ages are told once a second.
const loadsAnyway = 100 * time.Millisecond

// fewLoads is how many workers' loads weigh nothing beside the answer that they
// are part of.
const fewLoads = 64

// publishLoop carries changes from index and fleet to the table: entries at
// most every CoalesceInterval, loads at most every LoadsInterval, either at once
// after a pause, states and marks always. What a batch changes of few workers'
// loads goes out after half of that, along with its entries: gateways then ask
// once, not twice. It is the only writer of entries, roster and loads.
func (s *Service) publishLoop(ctx context.Context) {
	plans := time.NewTicker(planEvery)
	defer plans.Stop()
	slow := time.NewTicker(time.Second)
	defer slow.Stop()
	entries := paced{every: s.cfg.CoalesceInterval, timer: time.NewTimer(0), soon: true}
	defer entries.timer.Stop()
	loads := paced{every: s.cfg.LoadsInterval, timer: time.NewTimer(loadsAnyway)}
	defer loads.timer.Stop()
	var batch publish.Batch
	along := loads.every // after which loads go along with a batch's entries
	publishLoads := func(now time.Time) {
		loads.done(now)
		loads.timer.Reset(max(loads.every, loadsAnyway))
		along = loads.every
		if s.publishLoads(now) <= fewLoads {
			along /= 2
		}
	}
	publishEntries := func(now time.Time) {
		entries.done(now)
		entries.timer.Stop()
		s.publishEntries(&batch, now)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
			entries.want(entries.every)
		case <-s.loaded:
			loads.want(loads.every)
		case <-s.batched:
			entries.want(entries.every)
			loads.want(along)
		case <-entries.timer.C:
			now := time.Now()
			s.table.Together(func() {
				if loads.due(now, along) {
					publishLoads(now)
				}
				publishEntries(now)
			})
		case <-s.urgent:
			s.publishFleet(&batch, time.Now())
		case now := <-plans.C:
			s.planHomes(now)
		case <-s.plans.heard:
			s.planHomes(time.Now())
		case <-loads.timer.C:
			now := time.Now()
			s.table.Together(func() {
				publishLoads(now)
				if entries.due(now, entries.every) {
					publishEntries(now)
				}
			})
		case now := <-slow.C:
			s.housekeeping(now)
			s.releaseRefs(&batch, now)
		}
	}
}

// paced is something that is done when it is wanted, but at most once in a time.
type paced struct {
	every time.Duration
	timer *time.Timer
	last  time.Time
	soon  bool // the timer runs for it
}

// want has it done, so long after the last time or as said before.
func (p *paced) want(every time.Duration) {
	if !p.soon || every < p.every {
		p.soon = true
		p.timer.Reset(max(0, every-time.Since(p.last)))
	}
}

// due tells whether it is wanted, and was done so long ago.
func (p *paced) due(now time.Time, every time.Duration) bool {
	return p.soon && now.Sub(p.last) >= every
}

func (p *paced) done(now time.Time) { p.soon, p.last = false, now }

func (s *Service) publishEntries(batch *publish.Batch, now time.Time) {
	batch.Reset()
	s.index.Drain(func(c index.Change) { batch.Add(c.Fingerprint, c.Holders, c.PoolSize) })
	s.tiers.Drain(func(key uint64, holders []uint16) { batch.Add(key, holders, math.MaxInt) })
	if s.table.Apply(batch, now) {
		t := s.table.Stats()
		s.log.Info("table grew", "bits", t.Bits, "entries", t.Entries, "epoch", t.Epoch)
	}
}

// publishFleet publishes roster and loads, and opens the table for the first
// time once every worker was probed: then entries of a restored index are in
// it, so that a gateway that comes back compares with what it has.
func (s *Service) publishFleet(batch *publish.Batch, now time.Time) {
	ready, _ := s.fleet.Ready()
	s.table.SetRoster(s.rosterPayload())
	s.publishLoads(now)
	if !ready || !s.alone() && !s.agreed.Load() || !s.caughtUp() {
		return
	}
	select {
	case <-s.serving:
	default:
		s.publishEntries(batch, now)
		close(s.serving)
		close(s.ready)
		s.log.Info("control service is ready", "workers", len(s.fleet.Workers()), "entries", s.table.Stats().Entries, "learning", s.learning.Load())
	}
}

func (s *Service) rosterPayload() []byte {
	var b []byte
	for _, w := range s.published() {
		pool, _ := s.policy.Load().poolIndex(w.Pool)
		b = wire.AppendWorker(b, &wire.Worker{
			Ref: w.Ref, Pool: pool, Generation: w.Generation, BlockTokens: uint16(w.BlockTokens),
			MaxRunning: uint16(w.MaxRunning), QueueLimit: uint16(w.QueueLimit), Address: []byte(discovery.Endpoint(w.Address)), Rank: uint8(discovery.RankOf(w.Address) + 1),
		})
	}
	return b
}

// published are the workers that gateways know: those with a ref, in a pool of
// the policy.
func (s *Service) published() []discovery.Worker {
	all := s.fleet.Workers()
	out := all[:0]
	for _, w := range all {
		if _, ok := s.policy.Load().poolIndex(w.Pool); ok && w.Ref != 0 {
			out = append(out, w)
		}
	}
	return out
}

// publishLoads tells the loads, and answers how many there are.
func (s *Service) publishLoads(now time.Time) int {
	workers := s.published()
	totals := s.gateways.Totals(now)
	records := make([]publish.Load, 0, len(workers))
	for _, w := range workers {
		r := publish.Load{
			Load: wire.Load{
				Ref: w.Ref, State: uint8(w.State), Running: uint16(w.Load.Running), Waiting: uint16(w.Load.Waiting),
				KVShare: float32(w.Load.KVShare), Trust: 1,
				FleetInFlight: totals[w.Ref].Requests, FleetUncachedTokens: totals[w.Ref].UncachedTokens,
			},
			At: s.reportedAt(&w), EmptyAt: s.young.at(&w, now),
		}
		if w.AvoidUntil.After(now) {
			r.AvoidUntil = w.AvoidUntil
		}
		if w.EvictUntil.After(now) {
			r.EvictUntil, r.EvictShare = w.EvictUntil, float32(w.EvictShare)
		}
		if st, ok := s.index.Worker(w.Ref, now); ok {
			r.TailAt = st.TailAt
			r.Cache = wire.Cache{FreeTokens: uint32(min(st.FreeTokens, math.MaxUint32)), RecentTokens: uint32(min(st.RecentTokens, math.MaxUint32))}
			r.Trust, r.PrefillRate, r.DecodeSecondsPerToken = float32(st.Trust), float32(st.PrefillRate), float32(st.DecodeSeconds)
		}
		records = append(records, r)
	}
	s.table.SetLoads(records, now)
	return len(records)
}

// reportedAt is when a worker told its load. One that answers is not silent, even
// if its load is old: then it counts as just so old that the load is nothing but
// the fleet's mean. Where nobody exports a load, that it answered is all there is
// to know.
func (s *Service) reportedAt(w *discovery.Worker) time.Time {
	if w.LoadAt.IsZero() {
		return w.LastSeen
	}
	at := w.LoadAt
	if pool := s.policy.Load().parsed.ByName(w.Pool); pool != nil {
		known := w.LastSeen.Add(-min(pool.Policy.LoadDecay, pool.Policy.Lease*3/4))
		if known.After(at) {
			at = known
		}
	}
	return at
}

// housekeeping runs once a second.
func (s *Service) housekeeping(now time.Time) {
	s.index.Tick(now)
	s.gateways.List(now)
	s.ageBeats(now)
	s.watchEvictions(now)
	if s.learning.Load() && !now.Before(s.learnUntil) {
		s.learning.Store(false)
		s.log.Info("learning is over", "entries", s.table.Stats().Entries)
	}
	s.heal(now)
	s.housekeepExact(now)
	s.housekeepTiers()
	units := map[string]int{}
	for i := range s.policy.Load().parsed.Pools {
		name := s.policy.Load().parsed.Pools[i].Name
		if u, ok := s.index.RingUnits(name); ok {
			units[name] = u
		}
	}
	if err := s.editPolicy(func(d *document) (*document, error) { return d.withRing(units) }); err != nil {
		s.log.Error("discriminating position not published", "err", err)
	}
}

// releaseRefs lets retired refs be used again once no gateway can mistake them.
func (s *Service) releaseRefs(batch *publish.Batch, now time.Time) {
	select {
	case <-s.serving:
	default:
		return // nobody has a table yet
	}
	// The count first: what is retired after it may be in what is published here.
	if n := s.fleet.Retirements(); n != s.unnamed {
		s.publishEntries(batch, now)
		s.table.SetRoster(s.rosterPayload())
		_, version, _ := s.table.Position()
		s.fleet.Published(n, version)
		s.unnamed = n
	}
	epoch, _, _ := s.table.Position()
	totals := s.gateways.Totals(now)
	busy := func(ref uint16) bool { return totals[ref].Requests > 0 }
	passed := s.gateways.Passed(epoch, now)
	if !s.alone() {
		s.releaseAgreed(passed, busy, now)
		return
	}
	s.resting.Store(int64(s.fleet.Release(passed, busy, now)))
}

// heal starts a new epoch once, some time after a start without state: what
// gateways kept from before and nobody confirmed goes then. Snapshots that no
// worker claimed go too.
func (s *Service) heal(now time.Time) {
	if now.Sub(s.started) < s.cfg.HealAfter || s.healed {
		return
	}
	s.healed = true
	s.index.DropRestored()
	if !s.learnUntil.IsZero() {
		s.table.NewEpoch(now)
	}
}
