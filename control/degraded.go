package control

import (
	"fmt"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
)

// truthOf tells where the belief about a worker's cache comes from.
func truthOf(w *api.Worker) string {
	switch {
	case w.Events != nil && (w.Events.Source == "connected" || w.Events.Source == "partly"):
		return "events"
	case w.Heartbeats != nil && w.Heartbeats.CompleteAge >= 0:
		return "heartbeats"
	}
	return "predictions"
}

const (
	// oldLoad is the age, in seconds, at which a load has decayed to the fleet's
	// mean.
	oldLoad = 5.0
	// lowTrust is worth a word: a few misses of the last minute.
	lowTrust = 0.8
	// fewUnnamed answers in a row without usage may be those of one client.
	fewUnnamed = 20
	// fewUnmatched requests without a match may all be new, but not where the engine found
	// more than unexpected tokens of each in its cache, on average: a checkpoint lies before.
	fewUnmatched = 100
	unexpected   = 128
	// lateBeat is when a heartbeat is missed, lostBeat when nobody expects one any
	// more; seconds.
	lateBeat, lostBeat = 5.0, 600.0
)

// degraded lists what keeps a worker from being used as well as it could be.
func degraded(w *discovery.Worker, a *api.Worker) []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if w.MetricsProblem != "" {
		say("no metrics: %s", w.MetricsProblem)
	}
	switch {
	case w.State == discovery.Unknown || w.State == discovery.Down:
	case w.LoadAt.IsZero():
		say("load unknown: nothing tells it (an agent beside the engine, or heartbeats of its own, would)")
	case !w.Load.Known && discovery.RankOf(w.Address) >= 0 && w.Load.Ranks > 0:
		say("load unknown: the engine has %d data-parallel ranks, numbered from 0 (set ranks to its --data-parallel-size)", w.Load.Ranks)
	case !w.Load.Known:
		say("load unknown: the metrics page has no load of a known engine (health.metrics_path names another page; SGLang: --enable-metrics)")
	case a.LoadAge > oldLoad:
		say("load is %.0f s old: the fleet's mean counts instead", a.LoadAge)
	}
	if w.Load.Asleep {
		say("asleep: the engine has put its weights and its cache away")
	}
	if w.CachingOff {
		say("prefix caching is off: the engine keeps nothing, matches there come to nothing")
	}
	if w.CapacityAssumed {
		say("capacity unknown: %d tokens are assumed (set capacity_tokens)", w.CapacityTokens)
	}
	if a.Trust < lowTrust && a.Ref != 0 {
		say("trust %.2f: of %.1f answers of the last minute %.1f had what had been proven", a.Trust, a.Asked, a.Came)
	}
	if a.Hits.Unnamed >= fewUnnamed {
		say("the last %d answers didn't name their cached tokens, so nothing confirms what it holds (vLLM: --enable-prompt-tokens-details; SGLang: --enable-cache-report; streams: include_usage)", a.Hits.Unnamed)
	}
	if h := &a.Hits; h.Matched == 0 && h.Dispatches >= fewUnmatched && h.CachedTokens > unexpected*h.Answers {
		say("none of %d requests was expected to find anything, and %.0f %% of their prompts were in its cache: what it holds is not recognised", h.Dispatches, 100*float64(h.CachedTokens)/float64(max(h.PromptTokens, 1)))
	}
	if e := a.Events; e != nil {
		switch {
		case e.Source != "connected":
			say("events %s: %s", e.Source, e.Problem)
		case e.Problem != "":
			say("events: %s", e.Problem)
		}
		if e.BlockTokens > 0 && w.BlockTokens%e.BlockTokens != 0 {
			say("blocks of %d tokens by its events, of %d by the worker list or its metrics: more is predicted than comes true (leave block_tokens out)", e.BlockTokens, w.BlockTokens)
		}
	}
	if h := a.Heartbeats; h != nil {
		if h.Age > lateBeat && h.Age < lostBeat {
			say("no heartbeat for %.0f s", h.Age)
		}
		if h.Problem != "" {
			say("cache part of the heartbeats ignored: %s", h.Problem)
		}
	}
	if a.EvictSeconds > 0 {
		say("%.0f %% of its cache goes within %.1f s: %s", 100*a.EvictShare, a.EvictSeconds, a.EvictReason)
	}
	return out
}

// hints lists what a setting would make better. Nothing is wrong without it: no
// engine's metrics tell a batch limit, so every worker would be degraded.
func hints(w *discovery.Worker) []string {
	out := []string{}
	if w.Load.Ranks > 1 && discovery.RankOf(w.Address) < 0 {
		out = append(out, fmt.Sprintf("%d data-parallel ranks behind one port: give each rank a port of its own, or with vLLM set ranks: %d in the worker list, and requests meet the rank that holds their prefix", w.Load.Ranks, w.Load.Ranks))
	}
	if w.MaxRunning == 0 {
		out = append(out, "batch limit unknown: its load is the share of the cache in use alone (set max_running in the worker list, or the agent's --max-running)")
	}
	return out
}
