package control

import (
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/eviction"
)

// watchEvictions gives notice of mass evictions that show in what workers tell
// anyway: removals by KV events or counters, and the growth of what running
// requests hold. It is called about once a second, by the publish loop alone.
func (s *Service) watchEvictions(now time.Time) {
	live := map[uint16]bool{}
	for _, w := range s.fleet.Workers() {
		if w.Ref == 0 || w.State == discovery.Down {
			continue
		}
		live[w.Ref] = true
		d := s.evictions[w.Ref]
		if d == nil {
			d = &eviction.Detector{}
			s.evictions[w.Ref] = d
		}
		removed, capacity := s.removals(&w)
		d.Observe(removed, capacity, w.Load.KVShare, now)
		if n := d.Notice(now); n.Active() {
			s.fleet.Evicting(w.Ref, discovery.Eviction{In: n.In, For: n.For, Share: n.Share, Why: n.Why}, now)
		}
	}
	for ref := range s.evictions {
		if !live[ref] {
			delete(s.evictions, ref)
		}
	}
}

// removals are the cached tokens that a worker's process has removed, and the
// size of its cache; 0, 0 where one of them isn't known.
func (s *Service) removals(w *discovery.Worker) (removed, capacity float64) {
	if w.CapacityAssumed {
		return 0, 0
	}
	s.feeds.mu.Lock()
	f := s.feeds.byRef[w.Ref]
	s.feeds.mu.Unlock()
	switch {
	case f != nil:
		f.mu.Lock()
		sources := f.sources
		f.mu.Unlock()
		for _, source := range sources {
			// What a replay told is of any time; it would look like all of it at once.
			// What lies in slower memory too isn't lost, and what goes from there makes
			// room for what the GPU gives up: a large host cache turns over all the time.
			st := source.Status()
			removed += float64(st.Map.Evicted-st.EvictedLate) * float64(st.Map.BlockTokens)
		}
	case w.Load.RemovalsKnown:
		removed = w.Load.RemovedTokens
	default:
		return 0, 0
	}
	return removed, float64(w.CapacityTokens)
}
