package config

import (
	"strings"
	"testing"
	"time"
)

func TestEmptyConfigurationIsTheDefault(t *testing.T) {
	for _, raw := range []string{"", " \n\t", "{}"} {
		got, err := Parse([]byte(raw))
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if *got != *Default() {
			t.Errorf("%q: %+v", raw, got)
		}
	}
}

func TestEveryKeyTakesEffect(t *testing.T) {
	got, err := Parse([]byte(`{
		"deployment": "blue", "gateway": "gw 7", "hold": "buffer", "body_cap_bytes": 1048576,
		"tick_ms": 50, "session_header": "X-User", "expose_worker": true, "worker_cluster": "outbound|{pool}",
		"control": {"cluster": "c", "authority": "a:1", "token": "t", "batch_interval_ms": 100, "news_interval_ms": 10, "poll_wait_ms": 2000, "timeout_ms": 3000},
		"static": {"pools": [{"name": "p", "models": ["*"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Static.Pools) != 1 || got.Static.Pools[0].Name != "p" {
		t.Errorf("static: %+v", got.Static)
	}
	got.Static = nil
	want := Config{
		Deployment: "blue", Gateway: "gw 7", Hold: HoldBuffer, BodyCapBytes: 1 << 20, Tick: 50 * time.Millisecond,
		SessionHeader: "x-user", ExposeWorker: true, WorkerCluster: "outbound|{pool}",
		Control: Control{
			Cluster: "c", Authority: "a:1", Token: "t",
			BatchInterval: 100 * time.Millisecond, NewsInterval: 10 * time.Millisecond, PollWait: 2 * time.Second, Timeout: 3 * time.Second,
		},
	}
	if *got != want {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

func TestWhatIsWrongIsNamedWithItsPlace(t *testing.T) {
	for raw, want := range map[string]string{
		`[]`:                                    "must be a JSON object",
		`{"hold":"headers"`:                     "not valid JSON",
		`{"tikc_ms":1}`:                         "tikc_ms: unknown key",
		`{"control":{"host":"x"}}`:              "control.host: unknown key",
		`{"control":"x"}`:                       "control: must be an object",
		`{"hold":"body"}`:                       `hold: must be "headers" or "buffer", not "body"`,
		`{"hold":1}`:                            "hold: must be",
		`{"tick_ms":9}`:                         "tick_ms: 9 is outside 10..1000",
		`{"tick_ms":"100"}`:                     `tick_ms: must be a whole number, not "100"`,
		`{"tick_ms":1.5}`:                       "tick_ms: must be a whole number, not 1.5",
		`{"tick_ms":1e99}`:                      "tick_ms: must be a whole number",
		`{"body_cap_bytes":1}`:                  "body_cap_bytes: 1 is outside",
		`{"deployment":""}`:                     "deployment: must not be empty",
		`{"deployment":"a.b"}`:                  `deployment: use only a-z, 0-9 and '-', not "."`,
		`{"session_header":"x y"}`:              "session_header: is not a header name",
		`{"gateway":"a\nb"}`:                    "gateway: holds a control character at byte 1",
		`{"worker_cluster":7}`:                  "worker_cluster: must be a string, not 7",
		`{"expose_worker":"yes"}`:               "expose_worker: must be true or false",
		`{"control":{"cluster":""}}`:            "control.cluster: must not be empty",
		`{"control":{"timeout_ms":5}}`:          "control.timeout_ms: 5 is outside",
		`{"control":{"timeout_ms":10000}}`:      "control.timeout_ms: must be longer than control.poll_wait_ms (10000)",
		`{"static":{"pools":[{"name":"A B"}]}}`: "static: pools[0].name",
		strings.Repeat("[", 200_000):            "nested deeper than 32 at byte 32",
		`{"gateway":"` + strings.Repeat("x", MaxBytes) + `"}`: "bytes are more than 262144",
	} {
		cfg, err := Parse([]byte(raw))
		if err == nil {
			t.Errorf("%.60s: accepted as %+v", raw, cfg)
			continue
		}
		if !strings.HasPrefix(err.Error(), "plugin configuration: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %q does not say %q", raw, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"hold":"buffer","control":{"token":"x"}}`, `{"static":{"pools":[{"name":"p","models":["*"]}]}}`,
		`{"tick_ms":-0}`, `{"a":"\ud800"}`, "[[[[[[", `{"deployment":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg, err := Parse(raw)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("%v, %v", cfg, err)
		}
		if err == nil && (cfg.Control.Timeout <= cfg.Control.PollWait || cfg.Tick < 10*time.Millisecond || cfg.Deployment == "") {
			t.Fatalf("out of bounds: %+v", cfg)
		}
	})
}
