package agent

import (
	"encoding/json"
	"net/http"
	"time"
)

// Handler answers /healthz: 200 with what is known, for as long as the agent
// runs. An engine or a control service that is away is no reason to restart the
// agent.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(a.Health()) // to a prober that may be gone
	})
	return mux
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
