package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/control/tiers"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// feeds follow the KV events of workers whose pool's fingerprints are over
// tokens: one feed for each ref, from its first publishing to its end. A new
// generation of a worker has another ref and so another feed.
type feeds struct {
	mu    sync.Mutex
	byRef map[uint16]*feed
	// begun are the identities of sources that were followed since the start: a
	// saved map is only for the first time.
	begun sync.Map
	// sized is signalled when an engine's blocks have turned out to have a size.
	sized chan struct{}
}

// feed follows all ranks of one worker.
type feed struct {
	key    feedKey
	cancel context.CancelFunc
	done   chan struct{}
	stale  bool // the index has forgotten what it told. Under feeds.mu

	mu      sync.Mutex
	sources []followed
	problem string // of the discovery
}

// followed is the source of one rank. Its identity is all that decides what its
// blocks and fingerprints are.
type followed struct {
	*kvevents.Source
	identity string
}

// feedKey is what a feed depends on; with another key it begins anew.
type feedKey struct {
	ref        uint16
	address    string
	pool       string
	generation uint64
	events     discovery.KVEvents
	vocabulary string
}

const discoverEvery = 5 * time.Second

// endTokens end a turn in the templates that are known.
var endTokens = []string{
	"<|im_end|>", "<|eot_id|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|eom_id|>", "</s>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
}

func turnEnds(v *vocab.Vocab) (ids []uint32) {
	for _, added := range [][]vocab.Added{v.RawAdded, v.NormalAdded} {
		for i := range added {
			if slices.Contains(endTokens, string(v.Content(added[i]))) {
				ids = append(ids, added[i].ID)
			}
		}
	}
	return ids
}

// eventsLoop keeps the feeds as list and policy want them until ctx ends.
func (s *Service) eventsLoop(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-s.feeds.sized:
			s.learnBlocks()
			continue
		}
		s.followEvents(ctx)
	}
}

// list returns the feeds that are so.
func (f *feeds) list(is func(*feed) bool) (out []*feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, feed := range f.byRef {
		if is(feed) {
			out = append(out, feed)
		}
	}
	return out
}

// ranks are the sources as they are now.
func (f *feed) ranks() []followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sources
}

// learnBlocks tells the fleet how large the blocks of its engines are. The fleet calls
// back into the feeds, so no feed tells it by itself.
func (s *Service) learnBlocks() {
	for _, f := range s.feeds.list(func(*feed) bool { return true }) {
		most := 0
		for _, source := range f.ranks() {
			most = max(most, source.BlockTokens())
		}
		if most > 0 {
			s.fleet.EventBlocks(f.key.ref, most)
		}
	}
}

// followEvents starts and ends feeds, as list and policy say now. Once ctx
// is over none is wanted.
func (s *Service) followEvents(ctx context.Context) {
	type wanted struct {
		key         feedKey
		cfg         kvevents.Config
		generations map[string]uint64
	}
	want := map[uint16]wanted{}
	if ctx.Err() == nil {
		s.policyMu.Lock()
		for _, w := range s.published() {
			p := s.exact[w.Pool]
			if !w.KVEvents.On() || p == nil || p.serving == nil {
				continue
			}
			want[w.Ref] = wanted{
				feedKey{w.Ref, w.Address, w.Pool, w.Generation, w.KVEvents, p.serving.vocabulary.Hash.String()},
				kvevents.Config{Pool: w.Pool, TurnEnds: turnEnds(p.serving.vocabulary.Tokens)},
				s.generations(w.Address, w.Generation, w.Pool),
			}
		}
		s.policyMu.Unlock()
	}
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for ref, f := range s.feeds.byRef {
		if f.stale || want[ref].key != f.key {
			f.cancel()
			<-f.done
			if ctx.Err() != nil {
				continue // what it knows is saved at the very end
			}
			delete(s.feeds.byRef, ref)
			s.index.Reporting(ref, false, time.Now())
			s.tiers.Forget(ref)
			kick(s.dirty)
		}
	}
	for ref, w := range want {
		if f := s.feeds.byRef[ref]; f != nil {
			f.setAdapters(w.generations)
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		f := &feed{key: w.key, cancel: cancel, done: make(chan struct{})}
		s.feeds.byRef[ref] = f
		s.index.Reporting(ref, false, time.Now()) // what heartbeats told is a belief from now on
		s.index.Reporting(ref, true, time.Now())
		go func() {
			defer close(f.done)
			f.run(ctx, s, w.cfg)
		}()
	}
}

// restartFeeds makes every feed begin anew: the index has forgotten what they
// told.
func (s *Service) restartFeeds() {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	for _, f := range s.feeds.byRef {
		f.stale = true
	}
}

// restartFeed is restartFeeds for one worker: a ref that is added again (its
// worker was down for long, or slept) has an empty model that nobody reports to.
func (s *Service) restartFeed(ref uint16) {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	if f := s.feeds.byRef[ref]; f != nil {
		f.stale = true
	}
}

// run follows the worker until ctx ends.
func (f *feed) run(ctx context.Context, s *Service, cfg kvevents.Config) {
	endpoints := []kvevents.Endpoint{{Events: f.key.events.Endpoint, Replay: f.key.events.Replay, Topic: f.key.events.Topic}}
	transport := s.cfg.Transport
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true}
	}
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}
	if f.key.events.Auto {
		if endpoints = f.discover(ctx, s, client); endpoints == nil {
			return
		}
	}
	s.askServed(ctx, client, &f.key)
	s.policyMu.Lock()
	generations := s.generations(f.key.address, f.key.generation, f.key.pool)
	s.policyMu.Unlock()
	told := &sink{index: s.index, tiers: s.tiers, ref: f.key.ref}
	var union *kvevents.Union
	if len(endpoints) > 1 {
		union = kvevents.NewUnion(told, len(endpoints))
		s.index.Spread(f.key.ref)
	}
	log := s.log.With("worker", f.key.address)
	f.mu.Lock()
	for _, e := range endpoints {
		var to kvevents.Sink = told
		if union != nil {
			to = union.Rank()
		}
		var source followed
		var block atomic.Int64
		applied := func() {
			if now := int64(source.BlockTokens()); block.Swap(now) != now {
				kick(s.feeds.sized)
			}
			kick(s.dirty)
		}
		source = followed{kvevents.NewSource(e, cfg, to, applied, log), f.key.identity(e)}
		source.OnDoubt(func() { s.index.Doubt(f.key.ref) })
		source.SetAdapters(generations)
		s.restoreEvents(f.key.ref, source, told, log)
		f.sources = append(f.sources, source)
		applied()
	}
	sources := f.sources
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, source := range sources {
		wg.Go(func() { source.Run(ctx) })
	}
	wg.Wait()
}

// setAdapters says which generation of its adapters the worker has now.
func (f *feed) setAdapters(generations map[string]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, source := range f.sources {
		source.SetAdapters(generations)
	}
}

// discover asks the worker where it publishes until it says so.
func (f *feed) discover(ctx context.Context, s *Service, client *http.Client) []kvevents.Endpoint {
	for {
		endpoints, err := kvevents.Discover(ctx, client, discovery.Endpoint(f.key.address), s.cfg.Health.Token)
		if err == nil {
			endpoints, err = ofRank(endpoints, discovery.RankOf(f.key.address))
		}
		if err == nil {
			f.mu.Lock()
			f.problem = ""
			f.mu.Unlock()
			return endpoints
		}
		f.mu.Lock()
		if f.problem != err.Error() && ctx.Err() == nil {
			s.log.Warn("event sources unknown", "worker", f.key.address, "err", err)
		}
		f.problem = err.Error()
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(discoverEvery):
		}
	}
}

// ofRank keeps the endpoint of a rank that is a worker of its own; below 0 all are
// one worker's.
func ofRank(endpoints []kvevents.Endpoint, rank int) ([]kvevents.Endpoint, error) {
	if rank < 0 {
		return endpoints, nil
	}
	for i := range endpoints {
		if endpoints[i].Rank == rank {
			return endpoints[i : i+1], nil
		}
	}
	return nil, fmt.Errorf("the engine has no events of rank %d: set ranks to its --data-parallel-size", rank)
}

// sink carries what a map learns to the index.
type sink struct {
	index     *index.Index
	tiers     *tiers.Book
	ref       uint16
	recalling bool // what is told was saved before a restart. Before the sources run
}

func (k *sink) Hold(path []fingerprint.Checkpoint) {
	if k.recalling {
		k.index.Recall(k.ref, path, time.Now())
		return
	}
	k.index.Report(k.ref, path, time.Now())
}
func (k *sink) Drop(fp uint64)          { k.index.Withdraw(k.ref, fp, time.Now()) }
func (k *sink) Slow(fp uint64, on bool) { k.tiers.Set(k.ref, fp, on) }

func (k *sink) Clear() {
	k.index.WithdrawAll(k.ref)
	k.tiers.Forget(k.ref)
}

// eventStatus is what the status says of a worker's events, nil when they aren't
// followed. Sums are over its ranks.
func (s *Service) eventStatus(w *discovery.Worker, now time.Time) *api.Events {
	if !w.KVEvents.On() {
		return nil
	}
	s.feeds.mu.Lock()
	f := s.feeds.byRef[w.Ref]
	s.feeds.mu.Unlock()
	out := &api.Events{Source: "off", Age: -1}
	if f == nil {
		out.Problem = "events are followed while the pool's fingerprints are over tokens: see tokenizers"
		return out
	}
	f.mu.Lock()
	sources := f.sources
	out.Problem = f.problem
	f.mu.Unlock()
	if len(sources) == 0 {
		out.Source = "looking"
		return out
	}
	connected := 0
	names := make([]string, 0, len(sources))
	for _, source := range sources {
		st := source.Status()
		names = append(names, st.Endpoint.Events)
		if st.Connected {
			connected++
		}
		out.Batches += st.Batches
		out.Events += st.StreamCounts.Events
		out.Gaps += st.Gaps
		out.Lost += st.Lost
		out.Missed += st.Missed
		out.Bad += st.Bad
		out.Restarts += st.Restarts
		out.Reconnects += st.Reconnects
		out.FailedReplays += st.FailedReplays
		out.Blocks += st.Map.Blocks
		out.Held += st.Map.Held
		out.Slow += st.Map.Slow
		out.UnknownParents += st.Map.UnknownParent
		out.Untranslated += st.Map.Untranslated
		out.OtherGroups += st.Map.OtherGroup
		out.BadShape += st.Map.BadShape
		out.Bytes += st.Bytes
		out.BlockTokens = max(out.BlockTokens, st.Map.BlockTokens)
		if a := age(now, st.LastBatch); a >= 0 && (out.Age < 0 || a < out.Age) {
			out.Age = a
		}
		if out.Problem == "" {
			out.Problem = st.Problem
		}
	}
	out.Endpoint = strings.Join(names, ",")
	switch connected {
	case len(sources):
		out.Source = "connected"
	case 0:
		out.Source = "disconnected"
	default:
		out.Source = "partly"
	}
	return out
}
