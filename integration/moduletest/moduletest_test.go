package moduletest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim/hosttest"
	"github.com/warmpath/warmpath/shared/route"
)

var prompt = strings.Repeat("once upon a time ", 600)

// The module of this repository has no score: the rule custom is threshold there, told and counted.
func TestWithoutAScoreTheModuleDecidesByThreshold(t *testing.T) {
	module := hosttest.BuildGo(t, "github.com/warmpath/warmpath/filter")
	workers := []route.Worker{{Address: "10.0.0.1:8000"}, {Address: "10.0.0.2:8000"}, {Address: "10.0.0.3:8000"}}
	g := Load(t, module, `{"name": "threshold"}`, workers...)
	first := g.Ask(prompt)
	if first.Why != "ring" || first.MatchedTokens != 0 || g.Metric("warmpath.no_score") != 0 {
		t.Fatalf("%+v, %d policies without a score", first, g.Metric("warmpath.no_score"))
	}
	g.SetPolicy(`{"name": "custom", "watermark": 0.9}`)
	again := g.Ask(prompt)
	if again.Best != first.Best || again.Why != "holder" || again.MatchedTokens < 2500 || again.MatchedTokens > again.PromptTokens {
		t.Errorf("%+v, want the holder %s", again, first.Best)
	}
	if g.Metric("warmpath.no_score") != 1 || g.Metric("warmpath.bad_data.policy") != 0 {
		t.Errorf("%d policies without a score counted, %d refused", g.Metric("warmpath.no_score"), g.Metric("warmpath.bad_data.policy"))
	}
	g.Logged("pool test has the rule custom and this module has no score of its own")
}

// What a test says of the workers is what the module knows of them.
func TestWorkersAreAsTheTestSays(t *testing.T) {
	module := hosttest.BuildGo(t, "github.com/warmpath/warmpath/filter")
	idle := route.Worker{Address: "10.0.0.2:8000", PrefillRate: 1000, MaxRunning: 64}
	for name, other := range map[string]route.Worker{
		"down":     {State: route.Down},
		"draining": {State: route.Draining},
		"busy":     {Running: 60},
		"waiting":  {UncachedTokens: 30_000},
		"full":     {Watermark: 0.99, Running: 1, DecodeSeconds: 0.002}, // 0.5 s until there is room
		"slow":     {PrefillRate: 10},
		"avoided":  {AvoidFor: 10 * time.Second},
		"silent":   {Age: time.Minute},
	} {
		other.Address, other.MaxRunning = "10.0.0.1:8000", 64
		if other.PrefillRate == 0 {
			other.PrefillRate = 1000
		}
		g := Load(t, module, `{"name": "cost", "sample": 1}`, other, idle)
		for i := range 6 {
			if a := g.Ask(strconv.Itoa(i) + prompt); a.Best != idle.Address {
				t.Errorf("%s: went to %s%s", name, a.Best, a.Exchange.Transcript())
			}
		}
	}
}

// A prefix with a queue at its only holder stays there, for the price of a copy, until it has homes.
func TestAHotPrefixIsCopiedToItsHomes(t *testing.T) {
	workers := []route.Worker{{Address: "10.0.0.1:8000", PrefillRate: 10_000}, {Address: "10.0.0.2:8000", PrefillRate: 10_000}}
	g := Load(t, hosttest.BuildGo(t, "github.com/warmpath/warmpath/filter"), `{"name": "cost", "sample": 1}`, workers...)
	first := g.Ask(prompt)
	for i := range workers {
		if workers[i].Address == first.Best {
			workers[i].UncachedTokens = 4000
		}
	}
	g.SetWorkers(workers...)
	if a := g.Ask(prompt + "what then?"); a.Best != first.Best || a.Why != "cost" {
		t.Fatalf("%+v, want the holder %s", a, first.Best)
	}
	g.SetHomes(0, 1)
	if a := g.Ask(prompt + "and after that?"); a.Best == first.Best || a.Why != "cost_miss" {
		t.Errorf("%+v, want the home that has no copy", a)
	}
	if n := g.Metric("warmpath.bad_data.homes"); n != 0 {
		t.Errorf("%d sections refused", n)
	}
}

// A worker with an empty cache gets what it answers soon, also from a worker that holds the prompt.
func TestAYoungWorkerIsPricedAnew(t *testing.T) {
	module := hosttest.BuildGo(t, "github.com/warmpath/warmpath/filter")
	for _, age := range []time.Duration{0, 2 * time.Second} {
		workers := []route.Worker{{Address: "10.0.0.1:8000", PrefillRate: 10_000}, {Address: "10.0.0.2:8000", PrefillRate: 10_000}}
		g := Load(t, module, `{"name": "cost", "sample": 1}`, workers...)
		first := g.Ask(prompt[:2800])
		if other := g.Ask("not " + prompt[:2800]); other.Best == first.Best {
			t.Fatalf("both went to %s, and recent work would decide", first.Best)
		}
		for i := range workers {
			if workers[i].Address == first.Best {
				workers[i].Running = 3
			} else {
				workers[i].CacheAge = age
			}
		}
		g.SetWorkers(workers...)
		if a := g.Ask(prompt[:2800]); a.Best == first.Best == (age > 0) {
			t.Errorf("age %v: %s, and %s holds the prompt%s", age, a.Best, first.Best, a.Exchange.Transcript())
		}
	}
}

func TestAScoreThatPanicsLetsItsRequestPass(t *testing.T) {
	g := Load(t, hosttest.BuildGo(t, "./testdata/panics"), `{"name": "custom"}`, route.Worker{Address: "10.0.0.1:8000"}, route.Worker{Address: "10.0.0.2:8000"})
	for range 3 {
		x := g.Post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+prompt+`"}]}`, "content-type", "application/json")
		x.Status(200).NoUpstreamHeader("x-gateway-destination-endpoint")
		if a := g.Ask("short"); a.Best != "10.0.0.2:8000" || a.Why != "custom" {
			t.Errorf("after a panic: %+v", a)
		}
	}
	if p, f := g.Metric("warmpath.panics"), g.Metric("warmpath.fallback.panic"); p != 3 || f != 3 {
		t.Errorf("%d panics and %d requests that passed for them, of 3", p, f)
	}
	if a, b := g.Metric("warmpath.dispatched"), g.Metric("warmpath.released"); a != 3 || b != 3 {
		t.Errorf("%d claims opened, %d returned, of 3", a, b)
	}
}
