package guard

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	headerTimeout  = 10 * time.Second
	maxHeaderBytes = 64 << 10
	// idleTimeout is longer than Envoy keeps an idle connection by default: who
	// sends ends it, and finds none closed under its request.
	idleTimeout = 75 * time.Minute
	// engineIdle is shorter than engines keep one (uvicorn 5 s): the same, on the
	// other side.
	engineIdle = 3 * time.Second
	// maxStreams of one HTTP/2 connection: those that wait are streams too.
	maxStreams = 4096
	closing    = 5 * time.Second // for what was cut to end
)

// errEnding is why streams are cut that outlive the drain.
var errEnding = errors.New("the worker ends")

// Guard stands before one engine.
type Guard struct {
	cfg     Config
	engine  *url.URL
	proxy   httputil.ReverseProxy
	idle    func()
	seed    maphash.Seed
	metrics *metrics
	server  *http.Server
	cut     context.CancelCauseFunc

	mu   sync.Mutex
	gate *gate
	// observed is when the engine's load was told last; zero never.
	observed time.Time
}

// New checks cfg. Nothing is served before Serve.
func New(cfg Config) (*Guard, error) {
	cfg, engine, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Guard{
		cfg: cfg, engine: engine, idle: func() {}, seed: maphash.MakeSeed(), metrics: newMetrics(),
		gate: newGate(cfg.Limits, cfg.TenantHeader != ""),
	}
	transport := cfg.Transport
	if transport == nil {
		t := &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 1024, IdleConnTimeout: engineIdle, DisableCompression: true,
		}
		transport, g.idle = t, t.CloseIdleConnections
	}
	quiet := slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug)
	g.proxy = httputil.ReverseProxy{
		Rewrite: g.rewrite, ModifyResponse: g.modifyResponse, ErrorHandler: g.failed,
		Transport: transport, FlushInterval: -1, BufferPool: &buffers{}, ErrorLog: quiet,
	}
	base, cut := context.WithCancelCause(context.Background())
	g.cut = cut
	g.server = &http.Server{
		Handler: g, Protocols: new(http.Protocols), BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams}, ErrorLog: quiet,
	}
	g.server.Protocols.SetHTTP1(true)
	g.server.Protocols.SetUnencryptedHTTP2(true)
	return g, nil
}

// Serve takes requests from ln, HTTP/1.1 and h2c, until Close.
func (g *Guard) Serve(ln net.Listener) error {
	if err := g.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Drain refuses new requests and those that wait; running ones go on.
func (g *Guard) Drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.drain()
}

// Draining tells whether Drain was called.
func (g *Guard) Draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gate.draining
}

// Close cuts what is in flight, streams with a word to their clients, and stops
// serving. It returns how many requests were cut.
func (g *Guard) Close() (left int) {
	left = g.InFlight()
	g.cut(errEnding)
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if g.server.Shutdown(ctx) != nil {
		_ = g.server.Close()
	}
	g.idle()
	return left
}

// InFlight is how many requests are at the engine.
func (g *Guard) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gate.total()
}

// Waiting is how many requests wait for a place there.
func (g *Guard) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gate.waiting()
}

// QueueLimit is how many requests of one class may wait, in the engine and here.
func (g *Guard) QueueLimit() int { return g.cfg.Limits.EngineQueue + g.cfg.Limits.QueueRequests }

// Asked is a moment at which the engine was asked for its load.
type Asked struct{ tally }

// Ask is called before the engine is asked for its load.
func (g *Guard) Ask() Asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Asked{g.gate.engine.now}
}

// Observe takes in what the engine answered.
func (g *Guard) Observe(l Load, asked Asked) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.observe(l, asked.tally, now)
	g.observed = now
	g.pump(now)
}

// staleAfter is how long the engine's last word on its load is believed. A page that
// comes late is a sign of load, not of the lack of it.
const staleAfter = 2 * time.Second

// Unobserved is called when the engine doesn't tell its load.
func (g *Guard) Unobserved() {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.observed) >= staleAfter {
		g.gate.forget()
	}
	g.pump(now)
}

// pump lets in whoever can be. Requires mu.
func (g *Guard) pump(now time.Time) {
	for g.gate.next(now) != nil {
	}
}

// identify is whose a request is, by the headers that the configuration trusts.
func (g *Guard) identify(h http.Header) (class uint8, tenant uint16) {
	class = p1
	if name := g.cfg.ClassHeader; name != "" {
		switch strings.TrimPrefix(strings.ToLower(h.Get(name)), "p") {
		case "0":
			class = p0
		case "2":
			class = p2
		}
	}
	if name := g.cfg.TenantHeader; name != "" {
		if value := h.Get(name); value != "" {
			tenant = uint16(maphash.String(g.seed, value) >> 49)
		}
	}
	return class, tenant
}

const (
	bytesPerToken = 4
	// unknownBytes stands for a body whose length isn't told.
	unknownBytes = 64 << 10
)

// weigh estimates a prompt by its body's length.
func weigh(r *http.Request) (tokens, bytes int) {
	n := int(r.ContentLength)
	if n < 0 {
		n = unknownBytes
	}
	return max(1, n/bytesPerToken), n
}

// buffers are for the copying of answers.
type buffers struct{ pool sync.Pool }

const bufferBytes = 16 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return p[:]
	}
	return make([]byte, bufferBytes)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferBytes]byte)(p)) }
