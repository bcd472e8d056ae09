package control

import (
	"strconv"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
)

// Status is what GET /v1/status answers.
func (s *Service) Status() api.Status {
	now := time.Now()
	table, stats := s.table.Stats(), s.index.Stats()
	totals := s.gateways.Totals(now)
	out := api.Status{
		Version: s.cfg.Version, Started: s.started.UTC().Format(time.RFC3339), Learning: s.learning.Load(), Off: table.Off,
		RefsResting: int(s.resting.Load()), Adapters: s.adaptersInForce(), Sources: []api.Source{}, Workers: []api.Worker{}, Gateways: []api.Gateway{}, Tokenizers: s.tokenizerStatus(now), Hot: s.hotStatus(now), Saved: s.saveStatus(now), Cluster: s.clusterStatus(now),
		Table: api.Table{Epoch: table.Epoch, Version: table.Version, Entries: table.Entries, Bytes: table.Bytes, Bits: int(table.Bits), Sets: table.Sets, Dropped: table.Dropped},
		Index: api.Index{Fingerprints: stats.Fingerprints, Entries: stats.Nodes, Bytes: stats.Bytes + stats.PendingBytes, Pending: stats.Pending},
		Counters: api.Counters{
			Batches: s.ingest.Counters.Batches.Load(), Chunks: s.ingest.Counters.Chunks.Load(), BadChunks: s.ingest.Counters.BadChunks.Load(),
			Dispatches: stats.Dispatches, Dones: stats.Dones, UnknownRef: stats.UnknownRef, UnknownRequest: stats.UnknownRequest,
			Moved: stats.Moved, Undone: stats.Undone, Shortfalls: stats.Shortfalls, UsageMissing: stats.UsageMissing,
			Evicted: stats.EvictedCapacity, EvictedBytes: stats.EvictedBytes, Marks: s.ingest.Counters.Marks.Load(),
			PredictedTokens: stats.PredictedTokens, CachedTokens: stats.CachedTokens, CameTrueTokens: stats.CameTrueTokens,
			MoreTokens: stats.MoreTokens, Told: stats.Told,
			Heartbeats: s.beats.taken.Load(), BeatsRepeated: s.beats.repeated.Load(), BeatsOld: s.beats.old.Load(),
			BeatsBad: s.beats.bad.Load(), BeatsUnlisted: s.beats.unlisted.Load(), BeatCachesIgnored: s.beats.ignored.Load(),
		},
	}
	for _, w := range s.fleet.Workers() {
		a := api.Worker{
			Address: w.Address, Pool: w.Pool, Source: w.Source, Ref: w.Ref, Generation: w.Generation, State: w.State.String(), Reason: w.Reason,
			StateSeconds: now.Sub(w.Since).Seconds(), LastSeen: age(now, w.LastSeen),
			Running: w.Load.Running, Waiting: w.Load.Waiting, KVShare: w.Load.KVShare, LoadAge: age(now, w.LoadAt),
			InFlight: int(totals[w.Ref].Requests), Uncached: int(totals[w.Ref].UncachedTokens),
			Capacity: w.CapacityTokens, MaxRunning: w.MaxRunning, QueueLimit: w.QueueLimit, BlockTokens: w.BlockTokens, Drain: w.Drain,
		}
		if w.State == discovery.Draining && w.Note != "" {
			a.Reason = w.Note
		}
		if w.AvoidUntil.After(now) {
			a.AvoidSeconds, a.AvoidReason = w.AvoidUntil.Sub(now).Seconds(), w.AvoidWhy
		}
		if _, ok := s.policy.Load().poolIndex(w.Pool); !ok {
			a.Reason = "pool " + w.Pool + " is not in the policy"
		}
		if st, ok := s.index.Worker(w.Ref, now); ok {
			a.Trust, a.Entries, a.CoveredTokens, a.PrefillRate, a.DecodeSeconds = st.Trust, st.Entries, st.CoveredTokens, st.PrefillRate, st.DecodeSeconds
			a.Asked, a.Came, a.Hits = st.Asked, st.Came, api.Hits(st.Hits)
		}
		a.Events = s.eventStatus(&w, now)
		a.Adapters, a.AdaptersProblem = s.adapterStatus(&w)
		a.Heartbeats = s.heartbeatStatus(&w, now)
		if w.EvictUntil.After(now) {
			a.EvictSeconds, a.EvictShare, a.EvictReason = w.EvictUntil.Sub(now).Seconds(), w.EvictShare, w.EvictWhy
		}
		a.Truth, a.Degraded, a.Hints = truthOf(&a), degraded(&w, &a), hints(&w)
		out.Workers = append(out.Workers, a)
	}
	for _, l := range s.lists.Status() {
		out.Sources = append(out.Sources, sourceStatus(&l, now))
	}
	for _, g := range s.gateways.List(now) {
		out.Gateways = append(out.Gateways, api.Gateway{
			Name: g.Name, Nonce: strconv.FormatUint(g.Nonce, 16), Age: age(now, g.LastSeen), TableEpoch: g.Epoch, TableVersion: g.Version,
			InFlight: g.InFlight, VMs: g.LiveRows, FailedBatches: g.FailedBatches, Elsewhere: g.Elsewhere,
		})
	}
	return out
}

// maxSkipped bounds what the status says of a source whose list is a mistake.
const maxSkipped = 20

func sourceStatus(l *discovery.SourceStatus, now time.Time) api.Source {
	out := api.Source{
		Name: l.Name, Listed: l.Listed, Workers: l.Workers, Age: age(now, l.At), ChangedAge: age(now, l.Changed),
		Skipped: len(l.Skipped), ErrorAge: age(now, l.ErrAt),
	}
	if l.Err != nil {
		out.Error = l.Err.Error()
	}
	out.Reasons, out.Ignored = texts(l.Skipped), texts(l.Ignored)
	return out
}

func texts(errs []error) (out []string) {
	for _, err := range errs[:min(len(errs), maxSkipped)] {
		out = append(out, err.Error())
	}
	return out
}

// Readiness is what GET /readyz answers. The service is ready as soon as it can
// hand out a true table; workers that are down are named, and don't make it
// unready: gateways must hear of them.
func (s *Service) Readiness() api.Readiness {
	r := api.Readiness{Learning: s.learning.Load()}
	for _, w := range s.fleet.Workers() {
		r.Total++
		switch w.State {
		case discovery.Healthy, discovery.Draining:
			r.Healthy++
		case discovery.Down:
			r.Down = append(r.Down, w.Address)
		}
	}
	select {
	case <-s.stopping:
		r.Reason = "shutting down"
		return r
	default:
	}
	if s.cluster != nil {
		if err := s.cluster.Problem(); err != nil {
			r.Problem = err.Error()
		}
	}
	select {
	case <-s.serving:
		// Without a majority, too: gateways need their tables all the more.
		r.Ready = true
	default:
		_, r.Reason = s.fleet.Ready()
		if err := s.lists.Missing(); err != nil {
			r.Reason = err.Error()
		}
		if s.cluster != nil && !s.agreed.Load() {
			r.Reason = "waiting for what the replicas agree on"
		}
		if r.Reason == "" {
			r.Reason = "starting"
		}
	}
	return r
}

func age(now, t time.Time) float64 {
	if t.IsZero() {
		return -1
	}
	return now.Sub(t).Seconds()
}
