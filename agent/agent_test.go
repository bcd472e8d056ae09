package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/control/heartbeat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an engine and a control service.
type world struct {
	mu       sync.Mutex
	page     string // the engine's metrics; "" refuses the connection
	status   int    // of the control service's answers; 0 refuses, 200 decodes
	answer   string // instead of what a control service says
	beats    []*heartbeat.Heartbeat
	tokens   []string
	at       []time.Time
	mistakes []error
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	reply := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	if r.URL.Host == "127.0.0.1:8000" {
		if w.page == "" {
			return nil, refused
		}
		return reply(200, w.page)
	}
	if w.status == 0 {
		return nil, refused
	}
	if w.status != 200 || w.answer != "" {
		return reply(w.status, w.answer)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	h, err := heartbeat.Decode(body)
	if err != nil || r.URL.Path != "/v1/heartbeat" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		w.mistakes = append(w.mistakes, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
		return reply(400, "")
	}
	w.beats = append(w.beats, h)
	w.tokens = append(w.tokens, r.Header.Get("Authorization"))
	w.at = append(w.at, time.Now())
	return reply(200, `{"applied":true,"cache":"none","want_complete":true}`)
}

// heard are the heartbeats so far.
func (w *world) heard() []*heartbeat.Heartbeat {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.beats)
}

func (w *world) last(t *testing.T) *heartbeat.Heartbeat {
	t.Helper()
	beats := w.heard()
	if len(beats) == 0 {
		t.Fatal("no heartbeat")
	}
	return beats[len(beats)-1]
}

const idlePage = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\nprocess_start_time_seconds 1700000000\n"

// run plays an agent in virtual time; f ends it with stop and then sees what
// Run returned.
func run(t *testing.T, w *world, cfg Config, f func(a *Agent, stop func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Engine, cfg.Control, cfg.Transport = "http://127.0.0.1:8000", []string{"http://127.0.0.1:8780"}, w
		a, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, nil) }()
		stopped := false
		stop := func() error { stopped = true; cancel(); return <-ended }
		synctest.Wait()
		f(a, stop)
		if !stopped {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		for _, err := range w.mistakes {
			t.Error(err)
		}
	})
}

func TestHeartbeatsTellWhatTheEngineTells(t *testing.T) {
	w := &world{status: 200, page: `vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:cache_config_info{block_size="32",num_gpu_blocks="512",enable_prefix_caching="False"} 1
process_start_time_seconds 1.7e+09
`}
	run(t, w, Config{MaxRunning: 64, QueueLimit: 128, Token: func() (string, error) { return "secret", nil }}, func(a *Agent, _ func() error) {
		time.Sleep(20*time.Second + time.Millisecond)
		h := w.last(t)
		if h.Worker != "127.0.0.1:8000" || h.StartedMillis != 1_700_000_000_000 || h.Draining || h.Eviction != nil || h.Cache != nil ||
			*h.Load != (heartbeat.Load{Running: 3, Waiting: 2, KVShare: 0.25}) ||
			!cmp.Equal(h.Engine, heartbeat.Engine{MaxRunning: 64, QueueLimit: 128, CapacityTokens: 16384, BlockTokens: 32, PrefixCaching: new(bool)}) {
			t.Errorf("%+v", h)
		}
		beats := w.heard()
		if n := len(beats); n < 20 || n > 23 {
			t.Errorf("%d heartbeats in 20 s", n)
		}
		w.set(func() {
			for i := 1; i < len(beats); i++ {
				if beats[i].Sequence <= beats[i-1].Sequence {
					t.Errorf("sequence %d after %d", beats[i].Sequence, beats[i-1].Sequence)
				}
				if d := w.at[i].Sub(w.at[i-1]); d < 900*time.Millisecond || d > time.Second {
					t.Errorf("%v between two", d)
				}
			}
			if w.tokens[0] != "Bearer secret" {
				t.Errorf("token %q", w.tokens[0])
			}
		})
		if got := a.Health(); got.Engine != ok || got.Control != ok || got.Age > 1 || got.Heartbeats != uint64(len(beats)) {
			t.Errorf("%+v", got)
		}
	})
}

func TestTheAgentLivesThroughTroubleAndNamesIt(t *testing.T) {
	w := &world{}
	run(t, w, Config{}, func(a *Agent, _ func() error) {
		expect := func(engine, control string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			h := a.Health()
			if !strings.Contains(h.Engine, engine) || !strings.Contains(h.Control, control) {
				t.Errorf("engine %q, control %q", h.Engine, h.Control)
			}
		}
		expect("refused", "refused")
		w.set(func() { w.status = 200 })
		expect("refused", ok)
		if h := w.last(t); h.Load != nil || h.StartedMillis != 0 || h.Draining {
			t.Errorf("of an engine that is away: %+v", h)
		}
		w.set(func() { w.page = "foo 1\n" })
		expect("no load of a known engine", ok)
		w.set(func() { w.page = "vllm:num_requests_running x\n" })
		expect("read metrics page", ok)
		w.set(func() { w.page = idlePage })
		expect(ok, ok)
		for _, c := range []struct {
			status       int
			answer, want string
		}{
			{401, `{"error":{"code":"unauthorized","message":"m","remedy":"r"}}`, "refuses the token"},
			{404, `{"error":{"code":"unknown_worker","message":"worker: 127.0.0.1:8000 is not in the worker list","remedy":"r"}}`, "--worker is how"},
			{404, `<html>`, "answers 404"},
			{409, `{"error":{"code":"old_generation","message":"a later process is known","remedy":"do it"}}`, "a later process is known (do it)"},
			{200, `{"applied":false,"reason":"heard before"}`, "another agent"},
			{200, `{"status":"ok"}`, "not as a control service does"},
			{302, ``, "answers 302"},
		} {
			w.set(func() { w.status, w.answer = c.status, c.answer })
			expect(ok, c.want)
		}
		w.set(func() { w.status, w.answer = 200, "" })
		expect(ok, ok)
	})
}

func TestATokenThatCannotBeReadIsNamedAndTriedAgain(t *testing.T) {
	w := &world{status: 200, page: idlePage}
	var good atomic.Bool
	token := func() (string, error) {
		if good.Load() {
			return "renewed", nil
		}
		return "", errors.New("read token file: gone")
	}
	run(t, w, Config{Token: token}, func(a *Agent, _ func() error) {
		time.Sleep(2 * time.Second)
		if h := a.Health(); h.Control != "read token file: gone" || len(w.heard()) != 0 {
			t.Errorf("%+v", h)
		}
		good.Store(true)
		time.Sleep(2 * time.Second)
		w.last(t)
		w.set(func() {
			if w.tokens[0] != "Bearer renewed" {
				t.Errorf("%q", w.tokens)
			}
		})
	})
}

func TestAMassEvictionIsAnnouncedAndTakenBack(t *testing.T) {
	page := func(removed int, share float64, started int) string {
		return fmt.Sprintf("sglang:num_running_reqs 4\nsglang:max_total_num_tokens 100000\nsglang:evicted_tokens_total %d\nsglang:token_usage %g\nprocess_start_time_seconds %d\n", removed, share, started)
	}
	w := &world{status: 200, page: page(0, 0.1, 1000)}
	run(t, w, Config{}, func(a *Agent, _ func() error) {
		removed := 0
		for range 4 {
			time.Sleep(time.Second)
			removed += 50_000
			w.set(func() { w.page = page(removed, 0.1, 1000) })
		}
		time.Sleep(time.Second)
		if e := w.last(t).Eviction; e == nil || e.Share < 0.8 || e.For < time.Second || !strings.Contains(e.Reason, "cached tokens removed") {
			t.Errorf("%+v", e)
		}
		time.Sleep(6 * time.Second)
		if e := w.last(t).Eviction; e != nil {
			t.Errorf("goes on: %+v", e)
		}
		back := 0
		for _, h := range w.heard() {
			if h.Eviction != nil && h.Eviction.For == 0 {
				back++
			}
		}
		if back != 1 {
			t.Errorf("taken back %d times", back)
		}
		// Running requests grow; then the process is another one, which holds nothing.
		for i := range 4 {
			w.set(func() { w.page = page(removed, 0.3+0.2*float64(i), 1000) })
			time.Sleep(time.Second)
		}
		if e := w.last(t).Eviction; e == nil || e.In == 0 || !strings.Contains(e.Reason, "grow") {
			t.Errorf("%+v", e)
		}
		w.set(func() { w.page = page(0, 0, 2000) })
		time.Sleep(3 * time.Second)
		if h := w.last(t); h.Eviction != nil || h.StartedMillis != 2_000_000 {
			t.Errorf("%+v", h)
		}
	})
}

func TestAnEngineThatSleepsIsDrainedAndEmpty(t *testing.T) {
	w := &world{status: 200, page: idlePage}
	run(t, w, Config{}, func(a *Agent, _ func() error) {
		w.set(func() { w.page = idlePage + `vllm:engine_sleep_state{sleep_state="weights_offloaded"} 1` + "\n" })
		time.Sleep(5 * time.Second)
		cleared := 0
		for _, h := range w.heard() {
			if h.Cache != nil && h.Cache.Cleared {
				cleared++
			}
		}
		if h := w.last(t); !h.Draining || cleared != 1 {
			t.Errorf("%+v, cleared %d times", h, cleared)
		}
	})
}

func TestTheEndAsksForADrainAndWaitsForTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		leaves time.Duration // when the last request does; 0 never
		low    time.Duration
		high   time.Duration
	}{
		"idle":            {time.Nanosecond, 2 * time.Second, 3 * time.Second},
		"busy for 5 s":    {5 * time.Second, 6 * time.Second, 8 * time.Second},
		"busy for longer": {0, 20 * time.Second, 20*time.Second + time.Millisecond},
	} {
		w := &world{status: 200, page: "vllm:num_requests_running 1\n"}
		run(t, w, Config{DrainFor: 20 * time.Second}, func(a *Agent, stop func() error) {
			time.Sleep(3 * time.Second)
			before := len(w.heard())
			if c.leaves > 0 {
				time.AfterFunc(c.leaves, func() { w.set(func() { w.page = "vllm:num_requests_running 0\n" }) })
			}
			began := time.Now()
			if err := stop(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took < c.low || took > c.high {
				t.Errorf("%s: took %v", name, took)
			}
			if len(w.heard()) < before+2 || !a.Health().Draining {
				t.Errorf("%s: %d heartbeats after the signal", name, len(w.heard())-before)
			}
			for i, h := range w.heard() {
				if h.Draining != (i >= before) {
					t.Errorf("%s: heartbeat %d drains: %v", name, i, h.Draining)
				}
			}
		})
	}
}

func TestAnEngineOrControlThatIsAwayDelaysTheEndNoLongerThanSaid(t *testing.T) {
	gone := &world{status: 200}
	run(t, gone, Config{}, func(_ *Agent, stop func() error) {
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("engine away: %v after %v", err, time.Since(began))
		}
	})
	deaf := &world{page: idlePage}
	run(t, deaf, Config{DrainFor: 4 * time.Second}, func(_ *Agent, stop func() error) {
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 4*time.Second+time.Millisecond {
			t.Errorf("control away: %v after %v", err, time.Since(began))
		}
	})
}

func TestHealthzIsJSONAndAlwaysWell(t *testing.T) {
	a, err := New(Config{Engine: "http://127.0.0.1:8000", Control: []string{"http://127.0.0.1:8780"}, Transport: &world{}})
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	a.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	var h Health
	if err := json.Unmarshal(rec.Body.Bytes(), &h); err != nil || rec.Code != 200 || h.Engine != unknown || h.Age != -1 || h.Worker != "127.0.0.1:8000" {
		t.Errorf("%d %s %v", rec.Code, rec.Body, err)
	}
}

func TestWhatCannotWorkIsRefusedWithARemedy(t *testing.T) {
	good := Config{Engine: "http://10.0.0.7:8000", Control: []string{"http://10.0.0.1:8780"}}
	for name, c := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"no engine":         {func(c *Config) { c.Engine = "" }, "http://127.0.0.1:8000"},
		"engine without it": {func(c *Config) { c.Engine = "10.0.0.7:8000" }, "is not a URL"},
		"control":           {func(c *Config) { c.Control = []string{"ftp://x"} }, "is not a base URL"},
		"worker":            {func(c *Config) { c.Worker = "engine:8000" }, "is not ip:port"},
		"path":              {func(c *Config) { c.MetricsPath = "metrics" }, "begin it with /"},
		"interval":          {func(c *Config) { c.Interval = time.Millisecond }, "outside 100 ms"},
		"max running":       {func(c *Config) { c.MaxRunning = -1 }, "max running -1"},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheWorkersAddressIsThatOfTheList(t *testing.T) {
	for _, c := range []struct{ engine, control, worker, want string }{
		{"http://10.0.0.7:8000", "http://10.0.0.1:8780", "", "10.0.0.7:8000"},
		{"http://10.0.0.7", "http://10.0.0.1:8780", "", "10.0.0.7:80"},
		{"https://[fd00::7]", "http://10.0.0.1:8780", "", "[fd00::7]:443"},
		{"http://127.0.0.1:8000", "http://localhost:8780", "", "127.0.0.1:8000"},
		{"http://127.0.0.1:8000", "http://10.0.0.1:8780", "10.0.0.9:8000", "10.0.0.9:8000"},
		{"http://localhost:8000", "http://127.0.0.1:8780", "", "127.0.0.1:8000"}, // the way to control
	} {
		a, err := New(Config{Engine: c.engine, Control: []string{c.control}, Worker: c.worker})
		if err != nil || a.Worker() != c.want {
			t.Errorf("%+v: %v %v", c, a, err)
		}
	}
}
