// Package agent stands beside an engine that has no KV events, and tells the
// control service about once a second how it is.
//
// A beat's way through the package: the engine's metrics page is read, its
// numbers become a heartbeat (load, start of the process, sizes of the cache),
// the eviction detector adds a notice when much of the cache goes or is about
// to, and the heartbeat is posted to the control service. When the agent is told
// to end, its heartbeats ask for a drain until the engine has nothing left to do
// or the time for that is over.
//
// What is cached isn't told: no engine's metrics say it. Control follows the
// engine's KV events itself where there are some.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/agent/guard"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/eviction"
	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/replicas"
)

// Config of an Agent. Zero values take the defaults; Engine and Control are
// required.
type Config struct {
	Engine string // http://127.0.0.1:8000
	// Control is the control service, http://control:8780; several are its replicas,
	// of which one is told.
	Control []string
	// Worker is the engine's ip:port in the worker list. Empty: that of Engine, or
	// if that is loopback and Control isn't, the address from which Control is
	// reached, with Engine's port.
	Worker string
	// Token returns the bearer token of the control service. It is asked before
	// each heartbeat, so that a renewed one counts. Nil: none.
	Token func() (string, error)
	// EngineToken is the engine's, where it guards its metrics.
	EngineToken string
	MetricsPath string        // "/metrics"
	Interval    time.Duration // between heartbeats, less up to a tenth of jitter; 1 s
	Timeout     time.Duration // of one request; the interval
	// MaxRunning and QueueLimit are the engine's limits, which its metrics don't
	// tell; 0 not known.
	MaxRunning, QueueLimit int
	Eviction               eviction.Config
	// Events are the engine's KV events, by which removals are counted where its
	// metrics don't (vLLM). Empty: the metrics alone.
	Events kvevents.Endpoint
	// DrainFor bounds the wait at the end; 30 s.
	DrainFor time.Duration
	// Guard stands in front of the engine, and takes requests at GuardListener: that
	// is the address of the worker then. Nil: the agent stands beside the engine.
	Guard         *guard.Guard
	GuardListener net.Listener
	Transport     http.RoundTripper // nil: one of its own, without proxy
	Logger        *slog.Logger
}

// Agent sends the heartbeats of one engine.
type Agent struct {
	cfg      Config
	worker   string
	client   *http.Client // for the engine
	control  *http.Client
	tell     string // where heartbeats go
	idle     func()
	log      *slog.Logger
	sequence uint64
	noticed  bool // the last heartbeat had a notice
	asleep   bool // the engine, as of the last scrape
	watch    watch
	events   *kvevents.Source // nil: none

	mu     sync.Mutex
	health Health
}

// Health is what /healthz says.
type Health struct {
	Worker string `json:"worker"`
	// Engine and Control are "ok", "unknown", or what is wrong.
	Engine  string `json:"engine"`
	Control string `json:"control"`
	// Heartbeats were taken by the control service, the last one Age seconds ago;
	// -1 none yet.
	Heartbeats uint64  `json:"heartbeats"`
	Age        float64 `json:"last_heartbeat_seconds"`
	Draining   bool    `json:"draining"`

	last time.Time
}

const (
	ok      = "ok"
	unknown = "unknown"
)

// New checks cfg. Nothing is sent before Run.
func New(cfg Config) (*Agent, error) {
	engine, err := base("engine", cfg.Engine, "the engine's URL, for example http://127.0.0.1:8000")
	if err != nil {
		return nil, err
	}
	cfg.Engine = strings.TrimSuffix(engine.String(), "/")
	cfg.MetricsPath = cmp.Or(cfg.MetricsPath, "/metrics")
	if !strings.HasPrefix(cfg.MetricsPath, "/") {
		return nil, fmt.Errorf("metrics path %q is not a path: begin it with /", cfg.MetricsPath)
	}
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	if cfg.Interval < 100*time.Millisecond || cfg.Interval > time.Minute {
		return nil, fmt.Errorf("an interval of %v is outside 100 ms to 1 min", cfg.Interval)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, cfg.Interval)
	cfg.DrainFor = cmp.Or(cfg.DrainFor, 30*time.Second)
	for name, n := range map[string]int{"max running": cfg.MaxRunning, "queue limit": cfg.QueueLimit} {
		if n < 0 || n > 65535 {
			return nil, fmt.Errorf("%s %d is outside 0 to 65535", name, n)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{cfg: cfg, log: cfg.Logger, idle: func() {}, watch: newWatch(cfg.Eviction)}
	transport := cfg.Transport
	if transport == nil {
		t := &http.Transport{DialContext: (&net.Dialer{Timeout: cfg.Timeout}).DialContext, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second, DisableCompression: true}
		transport, a.idle = t, t.CloseIdleConnections
	}
	control, err := replicas.New(cfg.Control, transport)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	a.tell = control.URL() + "/v1/heartbeat"
	a.client, a.control = a.newClient(transport), a.newClient(control)
	at := engine
	if cfg.Guard != nil {
		at = &url.URL{Scheme: "http", Host: cfg.GuardListener.Addr().String()}
	}
	first, _ := url.Parse(control.URL()) // it was read before
	if a.worker, err = workerAddress(cfg.Worker, at, first); err != nil {
		return nil, err
	}
	a.health = Health{Worker: a.worker, Engine: unknown, Control: unknown}
	return a, nil
}

func (a *Agent) newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: a.cfg.Timeout,
		// A redirect is somebody else's answer, and would take the token along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Worker is the address that the heartbeats name.
func (a *Agent) Worker() string { return a.worker }

func base(name, text, want string) (*url.URL, error) {
	u, err := url.Parse(text)
	if text == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s %q is not a URL: give %s", name, text, want)
	}
	return u, nil
}

// workerAddress finds how the worker list calls the engine.
func workerAddress(given string, engine, control *url.URL) (string, error) {
	if given != "" {
		at, err := netip.ParseAddrPort(discovery.Endpoint(given))
		if err != nil || at.Port() == 0 {
			return "", fmt.Errorf("worker %q is not ip:port: give it as the worker list has it", given)
		}
		return given, nil
	}
	port := cmp.Or(engine.Port(), map[string]string{"http": "80", "https": "443"}[engine.Scheme])
	own, err := netip.ParseAddr(engine.Hostname())
	if err == nil && !own.IsLoopback() && !own.IsUnspecified() {
		return net.JoinHostPort(own.String(), port), nil
	}
	if err == nil && own.IsLoopback() && onLoopback(control.Hostname()) {
		return net.JoinHostPort(own.String(), port), nil
	}
	// Nothing is sent: a UDP socket knows the way.
	way, err := net.Dial("udp", net.JoinHostPort(control.Hostname(), "9"))
	if err != nil {
		return "", fmt.Errorf("find this machine's address on the way to %s: %w (give the engine's ip:port of the worker list with --worker)", control.Host, err)
	}
	defer way.Close()
	at, err := netip.ParseAddrPort(way.LocalAddr().String())
	if err != nil {
		return "", fmt.Errorf("this machine's address %s is none: %w (give --worker)", way.LocalAddr(), err)
	}
	return net.JoinHostPort(at.Addr().String(), port), nil
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Run sends heartbeats until ctx ends, drains, and returns nil. health serves
// /healthz, nil for nobody; Run closes it.
func (a *Agent) Run(ctx context.Context, health net.Listener) error {
	defer a.idle()
	defer a.serve(health)()
	defer a.follow()()
	defer a.guard()()
	a.log.Info("agent sends heartbeats", "worker", a.worker, "engine", a.cfg.Engine, "control", a.cfg.Control, "interval", a.cfg.Interval)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.watch.urgent:
		}
		if ctx.Err() == nil {
			a.beat(ctx, false)
			timer.Reset(a.cfg.Interval - rand.N(a.cfg.Interval/10+1))
		}
	}
	a.drain(context.WithoutCancel(ctx))
	return nil
}

// drain asks for no more requests until the engine has none.
func (a *Agent) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.DrainFor)
	defer cancel()
	a.mu.Lock()
	a.health.Draining = true
	a.mu.Unlock()
	if a.cfg.Guard != nil {
		a.cfg.Guard.Drain()
	}
	a.log.Info("draining", "worker", a.worker, "for_at_most", a.cfg.DrainFor)
	timer := time.NewTimer(0)
	defer timer.Stop()
	// Requests that were on their way when the first word was heard show up
	// within an interval.
	told, left := false, 0
	for idle := 0; idle < 2; {
		select {
		case <-ctx.Done():
			a.log.Warn("the time for the drain is over", "worker", a.worker, "requests_left", left, "control_told", told)
			return
		case <-timer.C:
			// A guard refuses what comes, whoever has heard of the drain.
			if told, left = a.beat(ctx, true); (told || a.cfg.Guard != nil) && left == 0 {
				idle++
			} else {
				idle = 0
			}
			timer.Reset(a.cfg.Interval)
		}
	}
	a.log.Info("drained", "worker", a.worker)
}

// serve answers /healthz until stop.
func (a *Agent) serve(ln net.Listener) (stop func()) {
	if ln == nil {
		return func() {}
	}
	server := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("health endpoint ended", "err", err)
		}
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

func (a *Agent) get(ctx context.Context, at string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return 0, nil, err
	}
	if a.cfg.EngineToken != "" {
		req.Header.Set("Authorization", "Bearer "+a.cfg.EngineToken)
	}
	return do(a.client, req, maxPage)
}

func do(client *http.Client, req *http.Request, limit int64) (status int, body []byte, err error) {
	req.Header.Set("User-Agent", "warmpath-agent")
	resp, err := client.Do(req)
	if err != nil {
		// The error of net/http names method and URL again.
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	return resp.StatusCode, body, err
}
