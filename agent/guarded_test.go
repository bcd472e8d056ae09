package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/agent/guard"
)

// quiet is a listener on which nobody comes: requests of these tests are handed to
// the guard itself.
type quiet struct{ closed chan struct{} }

func (l quiet) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l quiet) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8001} }

func (l quiet) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// busy is an engine for the guard's requests: each takes as long as it says.
type busy struct{}

func (busy) RoundTrip(r *http.Request) (*http.Response, error) {
	took, err := time.ParseDuration(r.Header.Get("X-Takes"))
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(took):
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// guarded plays an agent with a guard in virtual time. send gives the status and the
// reason of one request.
func guarded(t *testing.T, w *world, cfg Config, limits guard.Limits, f func(a *Agent, send func(takes string) string, stop func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g, err := guard.New(guard.Config{Engine: "http://127.0.0.1:8000", Transport: busy{}, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Engine, cfg.Control, cfg.Transport = "http://127.0.0.1:8000", []string{"http://127.0.0.1:8780"}, w
		cfg.Guard, cfg.GuardListener = g, quiet{make(chan struct{})}
		a, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, nil) }()
		synctest.Wait()
		send := func(takes string) string {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader("{}"))
			r.Header.Set("X-Takes", takes)
			rec := httptest.NewRecorder()
			g.ServeHTTP(rec, r)
			return strings.TrimSpace(fmt.Sprint(rec.Code, " ", rec.Header().Get(guard.RefusedHeader)))
		}
		f(a, send, func() error { cancel(); return <-ended })
		for _, err := range w.mistakes {
			t.Error(err)
		}
	})
}

func TestAGuardsHeartbeatsCountWhoWaitsInFront(t *testing.T) {
	w := &world{status: 200, page: "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"}
	guarded(t, w, Config{}, guard.Limits{MaxRunning: 2, EngineQueue: 2}, func(_ *Agent, send func(string) string, stop func() error) {
		ends := make(chan string, 5)
		for range 5 {
			go func() { ends <- send("4s") }()
		}
		time.Sleep(3 * time.Second)
		if h := w.last(t); h.Worker != "127.0.0.1:8001" || h.Load.Running != 2 || h.Load.Waiting != 1+1 || h.Engine.QueueLimit != 2+256 {
			t.Errorf("%+v %+v", h, h.Load)
		}
		got := map[string]int{}
		for range 5 {
			got[<-ends]++
		}
		if got["200"] != 5 {
			t.Errorf("%v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAGuardGivesNoticeOfAnEvictionAtOnce(t *testing.T) {
	page := func(removed int) string {
		return fmt.Sprintf("sglang:num_running_reqs 4\nsglang:max_total_num_tokens 100000\nsglang:evicted_tokens_total %d\n", removed)
	}
	w := &world{status: 200, page: page(0)}
	guarded(t, w, Config{Interval: 10 * time.Second}, guard.Limits{}, func(_ *Agent, _ func(string) string, stop func() error) {
		time.Sleep(15 * time.Second)
		before := len(w.heard())
		began := time.Now()
		for removed := 0; len(w.heard()) == before; removed += 10_000 {
			w.set(func() { w.page = page(removed) })
			if time.Sleep(100 * time.Millisecond); time.Since(began) > 4*time.Second {
				t.Fatal("no notice before the next heartbeat was due")
			}
		}
		if e := w.last(t).Eviction; e == nil || e.Share < 0.2 {
			t.Errorf("after %v: %+v", time.Since(began), e)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAGuardDrainsSmoothlyAndNoLongerThanSaid(t *testing.T) {
	for name, c := range map[string]struct {
		takes string
		away  bool // control
		low   time.Duration
		high  time.Duration
	}{
		"runs out":     {takes: "6s", low: 5 * time.Second, high: 8 * time.Second},
		"control away": {takes: "6s", away: true, low: 5 * time.Second, high: 8 * time.Second},
		"too long":     {takes: "60s", low: 20 * time.Second, high: 21 * time.Second},
	} {
		w := &world{status: 200, page: idlePage}
		guarded(t, w, Config{DrainFor: 20 * time.Second}, guard.Limits{MaxRunning: 1, EngineQueue: 1}, func(a *Agent, send func(string) string, stop func() error) {
			runs, waits := make(chan string, 2), make(chan string, 1)
			for range 2 {
				go func() { runs <- send(c.takes) }()
			}
			time.Sleep(time.Second)
			go func() { waits <- send("1s") }()
			time.Sleep(time.Millisecond)
			if c.away {
				w.set(func() { w.status = 0 })
			}
			began := time.Now()
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			if got := <-waits; got != "503 draining" || time.Since(began) > time.Millisecond {
				t.Errorf("%s: who waits: %s after %v", name, got, time.Since(began))
			}
			time.Sleep(time.Second)
			if got := send("1s"); got != "503 draining" {
				t.Errorf("%s: who comes: %s", name, got)
			}
			if h := w.last(t); !h.Draining && !c.away {
				t.Errorf("%s: %+v", name, h)
			}
			if rec := httptest.NewRecorder(); !c.away {
				if a.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil)); rec.Code != 503 {
					t.Errorf("%s: ready while it drains", name)
				}
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took < c.low || took > c.high {
				t.Errorf("%s: took %v", name, took)
			}
			for range 2 { // cuts are for who came over a connection: see package guard
				if got := <-runs; got != "200" {
					t.Errorf("%s: who ran: %s", name, got)
				}
			}
		})
	}
}

func TestReadyIsWhoseEngineServes(t *testing.T) {
	w := &world{status: 200, page: idlePage}
	guarded(t, w, Config{}, guard.Limits{}, func(a *Agent, _ func(string) string, stop func() error) {
		get := func(path string) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			a.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
			return rec
		}
		time.Sleep(2 * time.Second)
		if get("/readyz").Code != 200 || !strings.Contains(get("/metrics").Body.String(), "\nwarmpath_guard_load_known 1\n") {
			t.Errorf("%s", get("/readyz").Body)
		}
		w.set(func() { w.page = "" })
		time.Sleep(4 * time.Second)
		if get("/readyz").Code != 503 || get("/healthz").Code != 200 || !strings.Contains(get("/metrics").Body.String(), "\nwarmpath_guard_load_known 0\n") {
			t.Errorf("%s", get("/readyz").Body)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
