package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/sim/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// find returns the check of a name about a target, which may be a part of it.
func find(t *testing.T, checks []Check, name, target string) Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == name && strings.Contains(c.Target, target) {
			return c
		}
	}
	t.Errorf("nobody looked at %s of %q: %+v", name, target, checks)
	return Check{}
}

func want(t *testing.T, checks []Check, name, target string, status Status, seen string) {
	t.Helper()
	if c := find(t, checks, name, target); c.Status != status || !strings.Contains(c.Seen, seen) || status != OK && c.Remedy == "" {
		t.Errorf("%s: %+v, want %s and %q", name, c, status, seen)
	}
}

// simulated is a live worker of the simulator.
func simulated(t *testing.T) *live.Worker {
	t.Helper()
	w, err := live.Start(live.Config{TimeScale: 50, Models: []string{"tiny"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// runControl runs a control service until the test ends.
func runControl(t *testing.T, cfg control.Config) *control.Service {
	t.Helper()
	cfg.Listen, cfg.Logger, cfg.Learn = "127.0.0.1:0", slog.New(slog.DiscardHandler), -1
	s, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s
}

func TestAnEngineThatWorksIsFoundWellAndWhatItLacksIsNamed(t *testing.T) {
	w := simulated(t)
	checks := Run(t.Context(), Options{Engines: []string{w.URL()}, Probe: true})
	address := strings.TrimPrefix(w.URL(), "http://")
	want(t, checks, "engine.reachable", address, OK, "200")
	want(t, checks, "engine.models", address, OK, "tiny")
	want(t, checks, "engine.metrics", address, OK, "running")
	want(t, checks, "engine.kv_events", address, Warn, "kv_event_sources")
	want(t, checks, "engine.completion", address, OK, "tiny")
	want(t, checks, "engine.cached_tokens", address, OK, "when asked again")
	want(t, checks, "engine.stream_usage", address, OK, "cached_tokens")
	if Failed(checks) {
		t.Errorf("%+v", checks)
	}
}

// fake answers as an engine whose settings are wrong in many ways.
func fake(t *testing.T, answers map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestAPromptMeetsTheSameOfSeveralRanksSometime: engines pass requests on in turn,
// and each rank has a cache of its own.
func TestAPromptMeetsTheSameOfSeveralRanksSometime(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			fmt.Fprint(w, oneModel)
		case "/kv_event_sources":
			fmt.Fprint(w, `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"},"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:6558"}}`)
		case "/v1/chat/completions":
			asked++
			fmt.Fprintf(w, `{"usage":{"prompt_tokens":600,"prompt_tokens_details":{"cached_tokens":%d}}}`, max(0, asked-2)*592)
		}
	}))
	t.Cleanup(s.Close)
	checks := Run(t.Context(), Options{Engines: []string{s.URL}, Probe: true})
	want(t, checks, "engine.cached_tokens", "", OK, "592 of 600")
	want(t, checks, "engine.completion", "", OK, "3 completions")
	want(t, checks, "engine.kv_events", "", OK, ":5557 and tcp://127.0.0.1:5558, with replay")
}

const oneModel = `{"data":[{"id":"tiny"}]}`

func TestAnEnginesWrongSettingsAreTold(t *testing.T) {
	url := fake(t, map[string]string{
		"/health": "", "/v1/models": oneModel,
		"/metrics":             "vllm:cache_config_info{enable_prefix_caching=\"False\",block_size=\"512\"} 1\n",
		"/kv_event_sources":    `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"},"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558"}}`,
		"/v1/chat/completions": `{"usage":{"prompt_tokens":600}}`,
	})
	checks := Run(t.Context(), Options{Engines: []string{url}, Probe: true, Model: "other"})
	want(t, checks, "engine.models", "", Warn, "not other")
	want(t, checks, "engine.metrics", "", Warn, "no load")
	want(t, checks, "engine.prefix_caching", "", Fail, "False")
	want(t, checks, "engine.block_size", "", Warn, "512")
	want(t, checks, "engine.kv_events", "", Warn, "without a replay socket")
	want(t, checks, "engine.data_parallel", "", Warn, "2 data-parallel ranks")
	if c := find(t, checks, "engine.data_parallel", ""); !strings.Contains(c.Remedy, "port of its own") {
		t.Errorf("%+v", c)
	}
	want(t, checks, "engine.cached_tokens", "", Warn, "no cached_tokens")
	want(t, checks, "engine.stream_usage", "", Warn, "no usage")

	for name, c := range map[string]struct {
		answer, check string
		status        Status
	}{
		"no usage":   {`{}`, "engine.usage", Warn},
		"never hits": {`{"usage":{"prompt_tokens":600,"prompt_tokens_details":{"cached_tokens":0}}}`, "engine.cached_tokens", Fail},
		"no JSON":    {`<html>`, "engine.completion", Fail},
	} {
		url := fake(t, map[string]string{"/health": "", "/v1/models": oneModel, "/v1/chat/completions": c.answer})
		checks := Run(t.Context(), Options{Engines: []string{url}, Probe: true})
		if k := find(t, checks, c.check, ""); k.Status != c.status {
			t.Errorf("%s: %+v", name, k)
		}
	}
	want(t, Run(t.Context(), Options{Engines: []string{"http://127.0.0.1:1"}}), "engine.reachable", "", Fail, "refused")
}

func TestTheControlServiceNamesItsEnginesAndWhatItMisses(t *testing.T) {
	w := simulated(t)
	address := strings.TrimPrefix(w.URL(), "http://")
	s := runControl(t, control.Config{Token: "secret", Workers: []discovery.Spec{{Address: address, BlockTokens: 48}, {Address: "127.0.0.1:1", Pool: "other"}}})
	if err := s.SetOff(true); err != nil {
		t.Fatal(err)
	}
	checks := Run(t.Context(), Options{Control: s.URL(), Token: "secret"})
	want(t, checks, "control.reachable", "", OK, "2 workers")
	want(t, checks, "control.ready", "", OK, "1 of 2")
	want(t, checks, "control.mode", "http", Warn, "switched off")
	want(t, checks, "control.state", "http", Warn, "no state file")
	want(t, checks, "control.gateways", "", Fail, "no gateway")
	want(t, checks, "control.workers", "127.0.0.1:1", Fail, "down")
	want(t, checks, "control.workers", address, OK, "healthy")
	if !slices.ContainsFunc(checks, func(c Check) bool { return c.Target == address && strings.Contains(c.Remedy, "set max_running") }) {
		t.Errorf("the batch limit is not asked for: %+v", checks)
	}
	want(t, checks, "engine.reachable", address, OK, "200")
	want(t, checks, "engine.reachable", "127.0.0.1:1", Fail, "refused")
	if !Failed(checks) {
		t.Error("nothing failed")
	}
	want(t, Run(t.Context(), Options{Control: s.URL(), Token: "other"}), "control.reachable", "", Fail, "refuses the token")
	want(t, Run(t.Context(), Options{Control: "http://127.0.0.1:1"}), "control.reachable", "", Fail, "refused")
}

func TestARequestThroughAProxyLeavesTracesOrIsMissed(t *testing.T) {
	w := simulated(t)
	counters := "wasmcustom.warmpath.requests.chat: 4\nwasmcustom.warmpath.fallback.no_table: 1\n"
	later := "wasmcustom.warmpath.requests.chat: 5\nwasmcustom.warmpath.fallback.no_table: 2\n"
	asked := 0
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/config_dump" {
			fmt.Fprint(w, "{}")
			return
		}
		if asked++; asked > 2 {
			fmt.Fprint(w, later)
			return
		}
		fmt.Fprint(w, counters)
	}))
	defer admin.Close()
	checks := Run(t.Context(), Options{Proxy: w.URL(), EnvoyAdmin: admin.URL})
	want(t, checks, "envoy.module", "", Fail, "none of 0")
	want(t, checks, "proxy.answer", "", OK, "tiny")
	want(t, checks, "proxy.module", "", OK, "reported")
	want(t, checks, "proxy.steering", "", Warn, "no_table")

	// Past the module: nothing tells of the request.
	s := runControl(t, control.Config{Workers: []discovery.Spec{{Address: strings.TrimPrefix(w.URL(), "http://")}}})
	checks = Run(t.Context(), Options{Control: s.URL(), Proxy: w.URL(), Settle: time.Millisecond})
	want(t, checks, "proxy.module", "", Fail, "nobody reported")
	want(t, Run(t.Context(), Options{Proxy: w.URL()}), "proxy.module", "", Warn, "nothing shows")
	want(t, Run(t.Context(), Options{Proxy: w.URL(), Model: "unknown"}), "proxy.answer", "", Fail, "404")
	want(t, Run(t.Context(), Options{Proxy: "http://127.0.0.1:1"}), "proxy.reachable", "", Fail, "refused")
	if !slices.ContainsFunc(Run(t.Context(), Options{EnvoyAdmin: "http://127.0.0.1:1"}), func(c Check) bool { return c.Name == "envoy.admin" && c.Status == Fail }) {
		t.Error("an admin interface that isn't there is not told")
	}
}

// Ranks behind one port are one engine, which is asked once, and must be as many
// as the list says.
func TestListedRanksAreComparedWithTheEngines(t *testing.T) {
	engine := fake(t, map[string]string{
		"/health": "", "/v1/models": oneModel, "/metrics": "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"1\"} 0\n",
		"/kv_event_sources": `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"},"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:6558"}}`,
	})
	address := strings.TrimPrefix(engine, "http://")
	for ranks, status := range map[int]Status{0: Warn, 2: OK, 3: Fail} {
		s := runControl(t, control.Config{Workers: []discovery.Spec{{Address: address, Ranks: ranks}}})
		checks := Run(t.Context(), Options{Control: s.URL()})
		if c := find(t, checks, "engine.data_parallel", address); c.Status != status {
			t.Errorf("ranks: %d: %+v", ranks, c)
		}
		asked := 0
		for _, c := range checks {
			if c.Name == "engine.reachable" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("ranks: %d: %d engines", ranks, asked)
		}
	}
}
