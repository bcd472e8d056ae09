package control

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
)

func TestEveryShortcomingIsNamedWithItsReason(t *testing.T) {
	good := func() (discovery.Worker, api.Worker) {
		return discovery.Worker{Spec: discovery.Spec{MaxRunning: 8}, Ref: 1, State: discovery.Healthy, Load: discovery.Load{Known: true}, LoadAt: time.Unix(1, 0)},
			api.Worker{Ref: 1, Trust: 1, LoadAge: 0.3}
	}
	for name, c := range map[string]struct {
		change func(w *discovery.Worker, a *api.Worker)
		want   string // beginning, "" for nothing
	}{
		"nothing":        {func(*discovery.Worker, *api.Worker) {}, ""},
		"metrics":        {func(w *discovery.Worker, _ *api.Worker) { w.MetricsProblem = "timeout" }, "no metrics: timeout"},
		"never":          {func(w *discovery.Worker, _ *api.Worker) { w.LoadAt = time.Time{} }, "load unknown: nothing tells it"},
		"another engine": {func(w *discovery.Worker, _ *api.Worker) { w.Load.Known = false }, "load unknown: the metrics page"},
		"old":            {func(_ *discovery.Worker, a *api.Worker) { a.LoadAge = 12.3 }, "load is 12 s old"},
		"old and down":   {func(w *discovery.Worker, a *api.Worker) { w.State, a.LoadAge = discovery.Down, 12 }, ""},
		"asleep":         {func(w *discovery.Worker, _ *api.Worker) { w.Load.Asleep = true }, "asleep"},
		"caching off":    {func(w *discovery.Worker, _ *api.Worker) { w.CachingOff = true }, "prefix caching is off"},
		"capacity":       {func(w *discovery.Worker, _ *api.Worker) { w.CapacityAssumed, w.CapacityTokens = true, 1000 }, "capacity unknown: 1000 tokens"},
		"batch limit":    {func(w *discovery.Worker, _ *api.Worker) { w.MaxRunning = 0 }, ""}, // a hint
		"trust":          {func(_ *discovery.Worker, a *api.Worker) { a.Trust, a.Asked, a.Came = 0.5, 4.2, 0.6 }, "trust 0.50: of 4.2 answers of the last minute 0.6 had"},
		"no ref yet":     {func(_ *discovery.Worker, a *api.Worker) { a.Ref, a.Trust = 0, 0 }, ""},
		"usage":          {func(_ *discovery.Worker, a *api.Worker) { a.Hits.Unnamed = 20 }, "the last 20 answers didn't name"},
		"usage of a few": {func(_ *discovery.Worker, a *api.Worker) { a.Hits.Unnamed = 19 }, ""},
		"silent misses": {func(_ *discovery.Worker, a *api.Worker) {
			a.Hits = api.Hits{Dispatches: 100, Answers: 90, PromptTokens: 180_000, CachedTokens: 18_000}
		}, "none of 100 requests was expected to find anything, and 10 % of"},
		"few misses": {func(_ *discovery.Worker, a *api.Worker) {
			a.Hits = api.Hits{Dispatches: 99, Answers: 90, PromptTokens: 180_000, CachedTokens: 18_000}
		}, ""},
		"nothing shared": {func(_ *discovery.Worker, a *api.Worker) {
			a.Hits = api.Hits{Dispatches: 100, Answers: 90, PromptTokens: 180_000, CachedTokens: 9000}
		}, ""},
		"a match": {func(_ *discovery.Worker, a *api.Worker) {
			a.Hits = api.Hits{Dispatches: 100, Matched: 1, Answers: 90, PromptTokens: 180_000, CachedTokens: 18_000}
		}, ""},
		"events":           {func(_ *discovery.Worker, a *api.Worker) { a.Events = &api.Events{Source: "looking", Problem: "why"} }, "events looking: why"},
		"events' problem":  {func(_ *discovery.Worker, a *api.Worker) { a.Events = &api.Events{Source: "connected", Problem: "why"} }, "events: why"},
		"events well":      {func(_ *discovery.Worker, a *api.Worker) { a.Events = &api.Events{Source: "connected"} }, ""},
		"late heartbeat":   {func(_ *discovery.Worker, a *api.Worker) { a.Heartbeats = &api.Heartbeats{Age: 7} }, "no heartbeat for 7 s"},
		"heartbeat of old": {func(_ *discovery.Worker, a *api.Worker) { a.Heartbeats = &api.Heartbeats{Age: 7000} }, ""},
		"cache part":       {func(_ *discovery.Worker, a *api.Worker) { a.Heartbeats = &api.Heartbeats{Problem: "why"} }, "cache part of the heartbeats ignored: why"},
		"small blocks": {func(w *discovery.Worker, a *api.Worker) {
			w.BlockTokens, a.Events = 16, &api.Events{Source: "connected", BlockTokens: 32}
		}, "blocks of 32 tokens by its events"},
		"large blocks": {func(w *discovery.Worker, a *api.Worker) {
			w.BlockTokens, a.Events = 64, &api.Events{Source: "connected", BlockTokens: 32}
		}, ""},
		"a rank that is not there": {func(w *discovery.Worker, _ *api.Worker) {
			w.Address, w.Load = "10.0.0.7:8000@2", discovery.Load{Ranks: 2}
		}, "load unknown: the engine has 2 data-parallel ranks"},
		"eviction": {func(_ *discovery.Worker, a *api.Worker) {
			a.EvictSeconds, a.EvictShare, a.EvictReason = 1.5, 0.25, "why"
		}, "25 % of its cache goes within 1.5 s: why"},
	} {
		w, a := good()
		c.change(&w, &a)
		got := degraded(&w, &a)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRanksBehindOnePortAreAHint(t *testing.T) {
	for address, want := range map[string]string{"10.0.0.7:8000": "set ranks: 2", "10.0.0.7:8000@1": ""} {
		w := discovery.Worker{Spec: discovery.Spec{Address: address, MaxRunning: 8}, Load: discovery.Load{Known: true, Ranks: 2}}
		if got := strings.Join(hints(&w), "; "); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q", address, got)
		}
	}
}

func TestAnUnsetBatchLimitIsAHintAndNothingWrong(t *testing.T) {
	for limit, want := range map[int]string{0: "set max_running", 8: ""} {
		w := discovery.Worker{Spec: discovery.Spec{MaxRunning: limit}, State: discovery.Healthy, Load: discovery.Load{Known: true}, LoadAt: time.Unix(1, 0)}
		if got := strings.Join(hints(&w), "; "); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("limit %d: %q", limit, got)
		}
		if got := degraded(&w, &api.Worker{}); len(got) > 0 {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
}

func TestTheTruthIsTheBestSourceThatSpeaks(t *testing.T) {
	beats := func(age float64) *api.Heartbeats { return &api.Heartbeats{CompleteAge: age} }
	for want, ws := range map[string][]api.Worker{
		"events":      {{Events: &api.Events{Source: "connected"}}, {Events: &api.Events{Source: "partly"}, Heartbeats: beats(3)}},
		"heartbeats":  {{Heartbeats: beats(3)}, {Heartbeats: beats(3), Events: &api.Events{Source: "disconnected"}}},
		"predictions": {{}, {Heartbeats: beats(-1)}, {Events: &api.Events{Source: "off"}}},
	} {
		for _, w := range ws {
			if diff := cmp.Diff(want, truthOf(&w)); diff != "" {
				t.Errorf("%+v: %s", w, diff)
			}
		}
	}
}
