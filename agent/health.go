package agent

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler answers /healthz: 200 with what is known, for as long as the agent
// runs. An engine or a control service that is away is no reason to restart the
// agent. Of a guard there are /readyz too, 200 while requests should come, and
// /metrics.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		a.writeHealth(w, http.StatusOK)
	})
	if a.cfg.Guard == nil {
		return mux
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.cfg.Guard)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h := a.Health(); h.Draining || h.Engine != ok {
			a.writeHealth(w, http.StatusServiceUnavailable)
			return
		}
		a.writeHealth(w, http.StatusOK)
	})
	return mux
}

func (a *Agent) writeHealth(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(a.Health()) // to a prober that may be gone
}

// Health is what is known now.
func (a *Agent) Health() Health {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.health
	h.Age = -1
	if !h.last.IsZero() {
		h.Age = time.Since(h.last).Seconds()
	}
	return h
}

// engineIs keeps what came of a scrape, and tells when it is news.
func (a *Agent) engineIs(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news("engine", &a.health.Engine, err)
}

func (a *Agent) controlIs(err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news("control service", &a.health.Control, err)
	if err == nil {
		a.health.Heartbeats++
		a.health.last = now
	}
}

// news logs a change once, not at every beat. Requires mu.
func (a *Agent) news(who string, was *string, err error) {
	is := ok
	if err != nil {
		is = err.Error()
	}
	switch {
	case is == *was:
	case err != nil:
		a.log.Warn(who+" doesn't serve", "worker", a.worker, "err", err)
	default:
		a.log.Info(who+" serves", "worker", a.worker)
	}
	*was = is
}
