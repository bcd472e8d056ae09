package discovery

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// engine answers one worker's probes.
type engine struct {
	status  int    // 0 refuses, -1 hangs
	metrics string // hang: no answer
}

const hang = "hang"

type engines struct {
	mu   sync.Mutex
	byIP map[string]engine
	asks map[string]int
}

func (e *engines) set(address string, x engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byIP == nil {
		e.byIP, e.asks = map[string]engine{}, map[string]int{}
	}
	e.byIP[address] = x
}

func (e *engines) asked(address string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asks[address]
}

func (e *engines) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	x := e.byIP[r.URL.Host]
	e.asks[r.URL.Host]++
	e.mu.Unlock()
	switch x.status {
	case 0:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case -1:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	status, body := x.status, "ok"
	if r.URL.Path == "/metrics" {
		if x.metrics == hang {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		if x.metrics == "" {
			status = 404
		}
		body = x.metrics
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// monitored runs a monitor of addresses in virtual time.
func monitored(t *testing.T, e *engines, f func(l *live, m *Monitor), addresses ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLive()
		m := NewMonitor(l.f, HealthConfig{}, e, quiet)
		var specs []Spec
		for _, a := range addresses {
			specs = append(specs, Spec{Address: a})
		}
		checked, err := Check(specs)
		if err != nil {
			t.Fatal(err)
		}
		m.SetList(checked)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		f(l, m)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestARecoveredWorkerIsBackWithinASecond(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200})
	monitored(t, e, func(l *live, m *Monitor) {
		for i := range 20 {
			e.set(one, engine{})
			for l.worker(one).State != Down {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(time.Duration(i) * 37 * time.Millisecond)
			e.set(one, engine{status: 200})
			began := time.Now()
			for l.worker(one).State != Healthy {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		}
	}, one)
}

func TestAHungWorkerHoldsNobodyUp(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: -1})
	e.set(two, engine{status: 200, metrics: "vllm:num_requests_running 4\n"})
	monitored(t, e, func(l *live, m *Monitor) {
		if w := l.worker(two); w.State != Healthy || w.Load.Running != 4 {
			t.Errorf("%+v", w)
		}
		time.Sleep(1100 * time.Millisecond)
		if w := l.worker(one); w.State != Down || w.Reason != "health: /health didn't answer within 1s (health.timeout)" || w.Ref == 0 {
			t.Errorf("%+v", w)
		}
		if w := l.worker(two); w.Ref == 0 {
			t.Errorf("%+v", w)
		}
	}, one, two)
}

func TestProbesGoOnAsOftenAsSaid(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200, metrics: "vllm:num_requests_running 4\n"})
	e.set(two, engine{})
	monitored(t, e, func(l *live, m *Monitor) {
		time.Sleep(20 * time.Second)
		// Up: 20 health checks and 100 scrapes. Down: one try per 400 to 500 ms.
		if n := e.asked(one); n < 115 || n > 135 {
			t.Errorf("%d requests to the one that is up", n)
		}
		if n := e.asked(two); n < 38 || n > 52 {
			t.Errorf("%d requests to the one that is down", n)
		}
	}, one, two)
}

func TestANudgeProbesNow(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200})
	monitored(t, e, func(l *live, m *Monitor) {
		time.Sleep(700 * time.Millisecond)
		e.set(one, engine{})
		m.Nudge(one)
		m.Nudge("10.9.9.9:1")
		synctest.Wait()
		if w := l.worker(one); w.State != Down || !strings.Contains(w.Reason, "refused") {
			t.Errorf("%+v", w)
		}
	}, one)
}

func TestLoopsOfRemovedWorkersStop(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200})
	e.set(two, engine{status: 200})
	monitored(t, e, func(l *live, m *Monitor) {
		time.Sleep(time.Second)
		before := runtime.NumGoroutine()
		only, _ := Check([]Spec{{Address: two}})
		both, _ := Check([]Spec{{Address: one}, {Address: two}})
		for range 500 {
			m.SetList(only)
			synctest.Wait()
			m.SetList(both)
			synctest.Wait()
		}
		m.SetList(only)
		synctest.Wait()
		asked := e.asked(one)
		time.Sleep(10 * time.Second)
		if e.asked(one) != asked {
			t.Error("a removed worker is still probed")
		}
		if after := runtime.NumGoroutine(); after >= before {
			t.Errorf("%d goroutines before, %d after one worker less", before, after)
		}
	}, one, two)
}

func TestAWorkerWithoutMetricsIsHealthy(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200})
	monitored(t, e, func(l *live, m *Monitor) {
		time.Sleep(3 * time.Second)
		if w := l.worker(one); w.State != Healthy || w.Generation != 1 || w.Reason != "" || w.MetricsProblem != "/metrics answers 404" {
			t.Errorf("%+v", w)
		}
	}, one)
}

func TestAHealthPathThatAsksForATokenIsNoFailure(t *testing.T) {
	for status, want := range map[int]State{200: Healthy, 204: Healthy, 401: Healthy, 403: Healthy, 404: Down, 500: Down, 503: Down, 302: Down} {
		e := &engines{}
		e.set(one, engine{status: status})
		monitored(t, e, func(l *live, m *Monitor) {
			if w := l.worker(one); w.State != want {
				t.Errorf("%d: %v (%s)", status, w.State, w.Reason)
			}
		}, one)
	}
}
