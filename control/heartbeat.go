package control

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/heartbeat"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/share"
)

// beats is what heartbeats have told of the workers' caches, by ref: another
// process of a worker has another ref, and tells anew.
type beats struct {
	mu     sync.Mutex // of one heartbeat after the other
	caches map[uint16]*beatCache

	taken, repeated, old, bad, unlisted, ignored atomic.Uint64
}

// beatCache is what is known of one worker's cache by its heartbeats.
type beatCache struct {
	told     bool
	complete time.Time // of the last complete list; zero never
	problem  string    // why the last cache part wasn't taken
}

// completeFor is how long a complete list is the truth. A sender repeats it well
// within that.
const completeFor = 30 * time.Second

// Heartbeat takes the body of POST /v1/heartbeat in, and tells the other replicas.
func (s *Service) Heartbeat(body []byte) (api.HeartbeatAnswer, error) {
	answer, err := s.takeHeartbeat(body)
	if err == nil && answer.Applied && s.share != nil {
		s.share.Tell(share.Heartbeat, body)
	}
	return answer, err
}

// takeHeartbeat takes a heartbeat in, whoever heard it.
func (s *Service) takeHeartbeat(body []byte) (api.HeartbeatAnswer, error) {
	h, err := heartbeat.Decode(body)
	if err != nil {
		s.beats.bad.Add(1)
		return api.HeartbeatAnswer{}, badHeartbeat(err)
	}
	now := time.Now()
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	w, err := s.fleet.Beat(h.Worker, beatOf(h), now)
	switch {
	case errors.Is(err, discovery.ErrNotListed):
		s.beats.unlisted.Add(1)
		return api.HeartbeatAnswer{}, &api.Failure{Status: http.StatusNotFound, Code: "unknown_worker", Message: "worker: " + h.Worker + " is not in the worker list", Remedy: "give ip:port as GET /v1/workers shows it, or list the worker first"}
	case errors.Is(err, discovery.ErrOldGeneration):
		s.beats.old.Add(1)
		return api.HeartbeatAnswer{}, &api.Failure{Status: http.StatusConflict, Code: "old_generation", Message: "started_ms: a later process of " + h.Worker + " is known", Remedy: "tell when the engine's present process started"}
	case errors.Is(err, discovery.ErrStartAhead):
		s.beats.bad.Add(1)
		return api.HeartbeatAnswer{}, badHeartbeat(&heartbeat.Error{Field: "started_ms", What: fmt.Sprintf("%d is over a day ahead of this clock", h.StartedMillis), Remedy: "Unix milliseconds of the engine's start, or leave it out"})
	case errors.Is(err, discovery.ErrRepeated):
		s.beats.repeated.Add(1)
		return api.HeartbeatAnswer{Reason: "heard before: sequence has to rise", Cache: "none"}, nil
	case err != nil:
		return api.HeartbeatAnswer{}, err
	}
	s.beats.taken.Add(1)
	answer := api.HeartbeatAnswer{Applied: true, Cache: "none"}
	c := s.beats.of(w.Ref)
	if h.Cache != nil {
		answer.Cache = "applied"
		if c.problem = s.takeCache(&w, c, h.Cache, now); c.problem != "" {
			s.beats.ignored.Add(1)
			answer.Cache, answer.Reason = "ignored", c.problem
		}
	}
	answer.WantComplete = !c.told
	return answer, nil
}

func (b *beats) of(ref uint16) *beatCache {
	c := b.caches[ref]
	if c == nil {
		c = &beatCache{}
		if ref != 0 {
			b.caches[ref] = c
		}
	}
	return c
}

func badHeartbeat(err error) error {
	f := &api.Failure{Status: http.StatusBadRequest, Code: "bad_heartbeat", Message: err.Error(), Remedy: "see POST /v1/heartbeat in /openapi.yaml"}
	var at *heartbeat.Error
	if errors.As(err, &at) && at.Remedy != "" {
		f.Remedy = at.Remedy
	}
	return f
}

func beatOf(h *heartbeat.Heartbeat) discovery.Beat {
	b := discovery.Beat{
		Sequence: h.Sequence, StartedMillis: h.StartedMillis, Draining: h.Draining,
		Facts: discovery.Facts{
			CapacityTokens: h.Engine.CapacityTokens, BlockTokens: h.Engine.BlockTokens,
			MaxRunning: h.Engine.MaxRunning, QueueLimit: h.Engine.QueueLimit,
		},
	}
	if l := h.Load; l != nil {
		b.Load = &discovery.BeatLoad{Age: l.Age, Running: l.Running, Waiting: l.Waiting, KVShare: l.KVShare, Utilization: l.Utilization}
	}
	if caching := h.Engine.PrefixCaching; caching != nil {
		b.Facts.Caching = discovery.CachingOff
		if *caching {
			b.Facts.Caching = discovery.CachingOn
		}
	}
	if e := h.Eviction; e != nil {
		b.Evict = &discovery.Eviction{In: e.In, For: e.For, Share: e.Share, Why: e.Reason}
	}
	return b
}

// takeCache brings what a heartbeat says of a cache to the index, whole or not
// at all: then the answer says why.
func (s *Service) takeCache(w *discovery.Worker, c *beatCache, cache *heartbeat.Cache, now time.Time) (problem string) {
	switch {
	case w.Ref == 0:
		return "the worker was not probed yet: send the cache part again"
	case s.followed(w.Ref):
		return "the worker's KV events are followed, they are the truth"
	}
	paths := cache.Paths
	if len(cache.Prefixes) > 0 {
		var told [][]index.Checkpoint
		if told, problem = s.tokenPaths(w, cache.Prefixes); problem != "" {
			return problem
		}
		paths = append(paths, told...)
	}
	if cache.Cleared {
		s.index.ToldEmpty(w.Ref)
	}
	if cache.Complete {
		s.index.Reporting(w.Ref, true, now)
		s.index.ToldAll(w.Ref, paths, now)
		if c.complete.IsZero() {
			s.index.RecallDone(w.Ref, now)
		}
		c.complete = now
	} else {
		for _, path := range paths {
			s.index.Told(w.Ref, path, now)
		}
		for _, fp := range cache.Removed {
			s.index.ToldGone(w.Ref, fp)
		}
	}
	c.told = true
	kick(s.dirty)
	return ""
}

// tokenPaths turns token lists into the paths that gateways ask about.
func (s *Service) tokenPaths(w *discovery.Worker, prefixes []heartbeat.Prefix) (paths [][]index.Checkpoint, problem string) {
	s.policyMu.Lock()
	p := s.exact[w.Pool]
	if p == nil || p.serving == nil {
		s.policyMu.Unlock()
		return nil, "pool " + w.Pool + " is not in exact mode, so gateways have no fingerprints over tokens to compare with: see tokenizers in /v1/status"
	}
	ends := turnEnds(p.serving.vocabulary.Tokens)
	pool, generations := s.inForce.ByName(w.Pool), s.generations(w.Address, w.Generation, w.Pool)
	s.policyMu.Unlock()
	for i := range prefixes {
		adapter, generation := prefixes[i].Model, uint64(0)
		if pool != nil {
			adapter, generation = pool.Canonical(adapter)
		}
		if at, ok := generations[adapter]; ok {
			generation = at
		}
		if path := prefixes[i].Checkpoints(w.Pool, adapter, generation, ends, w.BlockTokens); len(path) > 0 {
			paths = append(paths, path)
		}
	}
	return paths, ""
}

// ageBeats ends the rule of complete lists that weren't renewed, and forgets
// what processes told that are gone.
func (s *Service) ageBeats(now time.Time) {
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	for ref, c := range s.beats.caches {
		if _, live := s.index.Worker(ref, now); !live {
			delete(s.beats.caches, ref)
			continue
		}
		if !c.complete.IsZero() && now.Sub(c.complete) >= completeFor {
			c.complete, c.told = time.Time{}, false
			if !s.followed(ref) {
				s.index.Reporting(ref, false, now)
			}
			kick(s.dirty)
		}
	}
}

// heartbeatStatus is what the status says of a worker's heartbeats, nil for one
// that sends none.
func (s *Service) heartbeatStatus(w *discovery.Worker, now time.Time) *api.Heartbeats {
	if w.BeatAt.IsZero() {
		return nil
	}
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	out := &api.Heartbeats{Age: age(now, w.BeatAt), Count: w.Beats, CompleteAge: -1, Draining: w.BeatDraining}
	if c := s.beats.caches[w.Ref]; c != nil {
		out.CompleteAge, out.Problem = age(now, c.complete), c.problem
	}
	return out
}

// followed tells whether a worker's KV events are followed.
func (s *Service) followed(ref uint16) bool {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	return s.feeds.byRef[ref] != nil
}
