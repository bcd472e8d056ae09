package doctor

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
)

// dump is what a real Envoy on a shipped example says (make envoy-test with
// -dump doctor/testdata records it).
func dump(t *testing.T, mode string) tree {
	t.Helper()
	text, err := os.ReadFile("testdata/" + mode + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var all tree
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func diagnose(t *testing.T, all tree, pools ...string) []Check {
	t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var told []Pool
	for _, name := range pools {
		told = append(told, Pool{Name: name})
	}
	return Envoy(text, told)
}

func TestTheShippedExamplesAreAsTheModuleNeedsThem(t *testing.T) {
	for _, mode := range []string{"headers", "buffer"} {
		checks := diagnose(t, dump(t, mode), "default", "small")
		seen := map[string]bool{}
		for _, c := range checks {
			seen[c.Name] = true
			if c.Status != OK {
				t.Errorf("%s: %+v", mode, c)
			}
		}
		for _, name := range []string{
			"envoy.module", "envoy.vm_id", "envoy.failure_policy", "envoy.hold", "envoy.client_headers", "envoy.stream_timeout",
			"envoy.hold_timeout", "envoy.retry", "envoy.body_limit", "envoy.override_host", "envoy.circuit_breakers",
			"envoy.worker_cluster",
		} {
			if !seen[name] {
				t.Errorf("%s: nobody looked at %s", mode, name)
			}
		}
	}
}

// set puts a value at a key of every object that has the key, or of those that
// where picks.
func set(all tree, key string, value any, where ...string) {
	every(map[string]any(all), func(t tree) {
		if _, has := t[key]; !has {
			return
		}
		if len(where) == 0 || slices.ContainsFunc(where, func(w string) bool { _, has := t[w]; return has }) {
			if value == nil {
				delete(t, key)
			} else {
				t[key] = value
			}
		}
	})
}

// filters changes the filters of the connection manager.
func filters(all tree, f func([]any) []any) {
	every(map[string]any(all), func(t tree) {
		if t.isType("http_connection_manager.v3.HttpConnectionManager") {
			t["http_filters"] = f(t["http_filters"].([]any))
		}
	})
}

func TestWhatIsWrongInAConfigurationIsFoundAndAnsweredWithARemedy(t *testing.T) {
	for name, c := range map[string]struct {
		mode   string
		damage func(tree)
		check  string
		status Status
	}{
		"module missing":         {"headers", func(a tree) { filters(a, func(f []any) []any { return f[1:] }) }, "envoy.module", Fail},
		"module refused by ECDS": {"headers", func(a tree) { set(a, "ecds_filters", []any{}) }, "envoy.module", Fail},
		"flag missing":           {"headers", func(a tree) { set(a, "allow_on_headers_stop_iteration", nil) }, "envoy.hold", Fail},
		"companions missing":     {"buffer", func(a tree) { filters(a, func(f []any) []any { return []any{f[0], f[3]} }) }, "envoy.hold", Fail},
		"companions swapped":     {"buffer", func(a tree) { filters(a, func(f []any) []any { f[1], f[2] = f[2], f[1]; return f }) }, "envoy.hold", Fail},
		"no vm_id":               {"headers", func(a tree) { set(a, "vm_id", nil) }, "envoy.vm_id", Warn},
		"fails open":             {"headers", func(a tree) { set(a, "failure_policy", "FAIL_OPEN") }, "envoy.failure_policy", Fail},
		"slow reload":            {"headers", func(a tree) { set(a, "reload_config", nil) }, "envoy.failure_policy", Warn},
		"no settings":            {"headers", func(a tree) { set(a, "configuration", nil) }, "envoy.settings", Warn},
		"clients name endpoints": {"headers", func(a tree) { set(a, "early_header_mutation_extensions", nil) }, "envoy.client_headers", Warn},
		"no control cluster":     {"headers", func(a tree) { set(a, "name", "elsewhere", "connect_timeout") }, "envoy.control_cluster", Fail},
		"answers limited":        {"headers", func(a tree) { set(a, "timeout", nil, "cluster") }, "envoy.stream_timeout", Fail},
		"answers short":          {"headers", func(a tree) { set(a, "timeout", "60s", "cluster") }, "envoy.stream_timeout", Fail},
		"prefills cut":           {"headers", func(a tree) { set(a, "idle_timeout", "30s", "cluster") }, "envoy.stream_timeout", Fail},
		"holds too long":         {"headers", func(a tree) { set(a, "idle_timeout", "900s", "cluster") }, "envoy.hold_timeout", Warn},
		"holds by default":       {"headers", func(a tree) { set(a, "idle_timeout", nil); set(a, "stream_idle_timeout", nil) }, "envoy.hold_timeout", Warn},
		"no retries":             {"headers", func(a tree) { set(a, "retry_policy", nil) }, "envoy.retry", Warn},
		"retries of 500":         {"headers", func(a tree) { set(a, "retry_on", "connect-failure,reset,5xx") }, "envoy.retry", Fail},
		"503 not retried":        {"headers", func(a tree) { set(a, "retriable_status_codes", []any{429.0}) }, "envoy.retry", Warn},
		"three attempts":         {"headers", func(a tree) { set(a, "num_retries", 3.0) }, "envoy.retry", Warn},
		"small bodies": {"headers", func(a tree) {
			set(a, "request_body_buffer_limit", nil)
			set(a, "per_connection_buffer_limit_bytes", nil)
		}, "envoy.body_limit", Fail},
		"small bodies in buffer":   {"buffer", func(a tree) { set(a, "max_request_bytes", 1048576.0) }, "envoy.body_limit", Fail},
		"balances by itself":       {"headers", func(a tree) { set(a, "load_balancing_policy", nil) }, "envoy.override_host", Fail},
		"reads another header":     {"headers", func(a tree) { set(a, "override_host_sources", []any{map[string]any{"header": "x-other"}}) }, "envoy.override_host", Fail},
		"no fallback":              {"headers", func(a tree) { set(a, "fallback_policy", nil) }, "envoy.override_host", Fail},
		"few retries at once":      {"headers", func(a tree) { set(a, "circuit_breakers", nil) }, "envoy.circuit_breakers", Warn},
		"no routes of pools":       {"headers", func(a tree) { set(a, "headers", nil, "prefix") }, "envoy.routes", Fail},
		"routes not yet there":     {"headers", func(a tree) { set(a, "route_config", nil) }, "envoy.routes", Warn},
		"clusters not yet there":   {"headers", func(a tree) { set(a, "static_clusters", []any{}) }, "envoy.pool_cluster", Warn},
		"a pool that has no route": {"headers", func(tree) {}, "envoy.pool_route", Fail},
	} {
		t.Run(name, func(t *testing.T) {
			all := dump(t, c.mode)
			c.damage(all)
			checks := diagnose(t, all, "default", "third")
			i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == c.check && k.Status == c.status })
			if i < 0 || checks[i].Remedy == "" || checks[i].Seen == "" {
				t.Errorf("%s is not %s: %+v", c.check, c.status, checks)
			}
		})
	}
}

// settle changes the module's settings.
func settle(t *testing.T, all tree, change func(tree)) {
	t.Helper()
	every(map[string]any(all), func(m tree) {
		if !m.isType("wasm.v3.Wasm") {
			return
		}
		settings := settingsOf(m)
		change(settings)
		text, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		m.tree("config", "configuration")["value"] = string(text)
	})
}

// rename gives a cluster another name, and its routes.
func rename(all tree, from, to string) {
	every(map[string]any(all), func(m tree) {
		for _, key := range []string{"name", "cluster", "cluster_name"} {
			if m[key] == from {
				m[key] = to
			}
		}
	})
}

func TestTheClusterOfTheModulesOwnCallsIsLookedAt(t *testing.T) {
	mesh := func(pool string) string { return "outbound|8000||workers-" + pool + ".llm.svc.cluster.local" }
	called := func(name any) func(tree) {
		return func(s tree) { s["worker_cluster"] = name }
	}
	for name, c := range map[string]struct {
		settings  func(tree)
		damage    func(tree)
		status    Status
		mentioned string
		pool      Pool
	}{
		"the default names the examples' clusters": {settings: func(tree) {}, damage: func(tree) {}, status: OK, mentioned: "pool-default"},
		"left to requests":                         {settings: called(""), damage: func(tree) {}, status: OK, mentioned: "requests"},
		"a mesh names clusters in another way": {
			settings: func(tree) {}, damage: func(a tree) { rename(a, "pool-default", mesh("default")) }, status: Warn, mentioned: "outbound|8000||workers-{pool}.llm.svc.cluster.local",
		},
		"a pool whose prefixes are not copied in slices": {
			settings: func(tree) {}, damage: func(a tree) { rename(a, "pool-default", mesh("default")) }, status: OK, mentioned: "by requests",
			pool: Pool{Requested: true},
		},
		"and the module knows it": {settings: called(mesh("{pool}")), damage: func(a tree) { rename(a, "pool-default", mesh("default")) }, status: OK, mentioned: mesh("default")},
		"a cluster that balances by itself": {
			settings: called("slices-{pool}"), damage: func(a tree) {
				every(map[string]any(a), func(m tree) {
					if m["name"] == "warmpath-control" && m.isType(".Cluster") {
						m["name"] = "slices-default"
					}
				})
			}, status: Warn, mentioned: "load_balancing_policy",
		},
		"one of its own that reads the header": {
			settings: called("{pool}-too"), damage: func(a tree) {
				every(map[string]any(a), func(m tree) {
					if m["name"] == "pool-small" && m.isType(".Cluster") {
						m["name"] = "default-too"
					}
				})
			}, status: OK, mentioned: "default-too",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := dump(t, "headers")
			settle(t, all, c.settings)
			c.damage(all)
			text, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			c.pool.Name = "default"
			checks := Envoy(text, []Pool{c.pool})
			i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == "envoy.worker_cluster" && k.Target == "default" })
			if i < 0 || checks[i].Status != c.status || !strings.Contains(checks[i].Seen+checks[i].Remedy, c.mentioned) {
				t.Errorf("want %v and %q: %+v", c.status, c.mentioned, checks)
			}
		})
	}
}

func TestNothingOfTheModulesTokenIsTold(t *testing.T) {
	text, err := json.Marshal(diagnose(t, dump(t, "headers"), "default"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("change-me")) {
		t.Errorf("%s", text)
	}
}

func FuzzEnvoy(f *testing.F) {
	for _, mode := range []string{"headers", "buffer"} {
		text, err := os.ReadFile("testdata/" + mode + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"configs":[{"@type":".Listener","x":{"@type":"http_connection_manager.v3.HttpConnectionManager","http_filters":[{"name":"w","typed_config":{"@type":"wasm.v3.Wasm","config":{"name":"warmpath"}}}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, c := range Envoy(text, []Pool{{Name: "default"}}) {
			if c.Name == "" || c.Seen == "" || c.Status != OK && c.Remedy == "" {
				t.Errorf("%+v", c)
			}
		}
	})
}

// In a mesh listeners, routes and clusters come by discovery: other sections of
// the dump, and the routes stand apart from their connection manager.
func TestAMeshsConfigurationIsReadAsAFilesIs(t *testing.T) {
	all := dump(t, "headers")
	var routes tree
	every(map[string]any(all), func(m tree) {
		if m.isType("http_connection_manager.v3.HttpConnectionManager") {
			routes = m.tree("route_config")
			delete(m, "route_config")
			m["rds"] = map[string]any{"route_config_name": "http.8080"}
		}
		if listeners := m.list("static_listeners"); listeners != nil {
			delete(m, "static_listeners")
			m["dynamic_listeners"] = []any{map[string]any{"name": "0.0.0.0_8080", "active_state": map[string]any{"listener": listeners[0].at("listener")}}}
		}
		if clusters, ok := m["static_clusters"]; ok {
			delete(m, "static_clusters")
			m["dynamic_active_clusters"] = clusters
		}
	})
	routes["name"], routes["@type"] = "http.8080", "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	all["configs"] = append(all["configs"].([]any), map[string]any{
		"@type":                 "type.googleapis.com/envoy.admin.v3.RoutesConfigDump",
		"dynamic_route_configs": []any{map[string]any{"route_config": map[string]any(routes)}},
	})
	checks := diagnose(t, all, "default", "small")
	for _, c := range checks {
		if c.Status != OK {
			t.Errorf("%+v", c)
		}
	}
	if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == "envoy.override_host" }) {
		t.Errorf("the routes were not found: %+v", checks)
	}
}

// TestThePolicysPoolsAreRead: which of them have copies in slices, too.
func TestThePolicysPoolsAreRead(t *testing.T) {
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"pools":[
			{"name":"exact","policy":{"name":"cost"},"tokenizer":{"template":"chatml"}},
			{"name":"sized","policy":{"copy_slice_tokens":512},"tokenizer":{}},
			{"name":"off","policy":{"copy_slice_tokens":0},"tokenizer":{}},
			{"name":"approximate","mode":"observe"}]}`))
	}))
	defer control.Close()
	d := &diagnosis{o: Options{Control: control.URL}, client: control.Client()}
	got := d.pools(t.Context())
	want := []Pool{{Name: "exact"}, {Name: "sized"}, {Name: "off", Requested: true}, {Name: "approximate", Requested: true}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
