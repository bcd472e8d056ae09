package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/replicas"
)

// Gateway is a running proxy. Create it with New, serve with Run.
type Gateway struct {
	cfg      Config
	host     *hostsim.Host
	fleet    *hostsim.Fleet
	proxy    *httputil.ReverseProxy
	upstream *http.Transport
	clusters []*replicas.Set // that the module calls
	metrics  *metrics
	access   *accessLog
	listener net.Listener
	admin    net.Listener
	tls      *certificate // nil without TLS
	lanes    []*lane
	next     atomic.Uint64
	held     atomic.Int64 // bytes of request bodies that wait for the module
	open     tally        // exchanges
	draining atomic.Bool
}

// New compiles the module, starts its VMs and binds the listeners. A module that
// rejects its configuration is an error that wraps hostsim.ErrRejected.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, metrics: newMetrics(), access: newAccessLog(cfg.AccessLog)}
	if g.upstream, err = newTransport(cfg); err != nil {
		return nil, err
	}
	if cfg.CertFile != "" {
		if g.tls, err = newCertificate(cfg.CertFile, cfg.KeyFile, cfg.Logger); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	if err := g.startModule(ctx); err != nil {
		return nil, err
	}
	if err := g.listen(); err != nil {
		g.closeModule()
		return nil, err
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      &attempts{endpoints: cfg.Endpoints, transport: g.upstream, metrics: g.metrics, firstByte: cfg.FirstByteTimeout},
		ModifyResponse: g.modifyResponse,
		ErrorHandler:   g.proxyError,
		FlushInterval:  5 * time.Millisecond, // of sized bodies: streams are flushed with each piece
		BufferPool:     bufferPool{},
		ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return g, nil
}

func (g *Gateway) startModule(ctx context.Context) error {
	calls, err := g.reachClusters()
	if err != nil {
		return err
	}
	g.host, err = hostsim.NewHost(ctx, hostsim.Options{Calls: calls, CacheDir: g.cfg.CacheDir, Log: g.moduleLog, LogLevel: hostsim.LogInfo})
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	module, err := g.host.Compile(ctx, "warmpath", g.cfg.Module)
	if err == nil {
		g.fleet, err = g.host.Deploy(ctx, hostsim.FleetConfig{
			VM: hostsim.VMConfig{
				Module: module, VMID: "warmpath", FailurePolicy: hostsim.FailReload,
				ReloadBackoff: 50 * time.Millisecond, PassStreamsOnTrap: true,
			},
			Plugins: []hostsim.PluginConfig{{
				Name: "warmpath", Configuration: g.cfg.Plugin,
				AllowOnHeadersStopIteration: true, BufferLimitBytes: g.cfg.BodyLimitBytes,
			}},
			Workers: g.cfg.VMs,
			NoMain:  true, // every VM of ours serves; none is needed for ticks alone
		})
	}
	if err != nil {
		_ = g.host.Close(ctx)
		return fmt.Errorf("gateway: start the module: %w", err)
	}
	for _, plugins := range g.fleet.Plugins {
		g.lanes = append(g.lanes, &lane{plugin: plugins[0]})
	}
	g.metrics.watch(g)
	return nil
}

// reachClusters is how the module's calls are made.
func (g *Gateway) reachClusters() (*calls, error) {
	reach, err := hostsim.NewHTTPDispatcher(nil, nil)
	for name, urls := range g.cfg.Clusters {
		var set *replicas.Set
		if err == nil {
			set, err = replicas.New(urls, nil)
		}
		if err == nil {
			g.clusters = append(g.clusters, set)
			err = reach.SetClusterTransport(name, set.URL(), set)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("gateway: clusters: %w", err)
	}
	return &calls{HTTPDispatcher: reach, endpoints: g.cfg.Endpoints, transport: g.upstream}, nil
}

func (g *Gateway) closeModule() {
	g.fleet.Close()
	_ = g.host.Close(context.Background())
	for _, set := range g.clusters {
		set.Close()
	}
}

func (g *Gateway) listen() (err error) {
	if g.listener, err = net.Listen("tcp", g.cfg.Listen); err != nil {
		return fmt.Errorf("gateway: listen for requests: %w (--listen names another address)", err)
	}
	if g.cfg.AdminListen == "" {
		return nil
	}
	if g.admin, err = net.Listen("tcp", g.cfg.AdminListen); err != nil {
		g.listener.Close()
		return fmt.Errorf("gateway: listen for admin: %w (--admin names another address)", err)
	}
	return nil
}

// Addr is the data plane's bound address, URL the same as a base URL.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }

// URL is http://Addr, or https://Addr with a certificate.
func (g *Gateway) URL() string { return pick(g.tls != nil, "https://", "http://") + g.Addr() }

// AdminAddr is the admin listener's bound address, "" without one.
func (g *Gateway) AdminAddr() string {
	if g.admin == nil {
		return ""
	}
	return g.admin.Addr().String()
}

// ReloadCertificate reads the certificate's files now rather than at the next
// handshake, and says what is wrong with them. Without TLS it does nothing.
func (g *Gateway) ReloadCertificate() error {
	if g.tls == nil {
		return nil
	}
	return g.tls.reload()
}

// Host is the proxy-wasm host, for its metrics and shared data.
func (g *Gateway) Host() *hostsim.Host { return g.host }

// ServeHTTP handles one request of the data plane.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.open.add(1)
	defer g.open.add(-1)
	if g.draining.Load() {
		w.Header().Set("Connection", "close") // in HTTP/2 a GOAWAY
	}
	if r.Method == http.MethodConnect {
		http.Error(w, "this is no forward proxy", http.StatusMethodNotAllowed)
		return
	}
	if !r.ProtoAtLeast(1, 1) {
		w = finalOnly{w}
	}
	x := &exchange{g: g, w: w, in: r, lane: g.shortest(), start: time.Now(), reqWake: make(chan struct{}, 1), respWake: make(chan struct{}, 1)}
	ctx := context.WithValue(r.Context(), exchangeKey{}, x)
	if g.cfg.RequestTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.cfg.RequestTimeout)
		defer cancel()
	}
	x.r = r.WithContext(ctx)
	x.lane.do(func() {
		x.stream = x.lane.plugin.NewStream(x)
		info := &x.stream.Info
		info.SourceAddress, info.Protocol, info.StartTime = r.RemoteAddr, r.Proto, x.start
	})
	g.metrics.active.Inc()
	defer x.close()
	// An answer need not wait for the end of a body: a refusal, or a worker that
	// has read enough.
	_ = http.NewResponseController(w).EnableFullDuplex()
	if x.admit() {
		g.proxy.ServeHTTP(w, x.r)
	}
}

// close runs exactly once, whatever ended the exchange: a client that left, an
// answer that is out, or a cut.
func (x *exchange) close() {
	x.endBody()
	x.lane.do(x.stream.Close)
	x.drop()
	x.g.metrics.observe(x)
	x.g.access.write(x)
	x.g.metrics.active.Dec()
}

// finalOnly is a client that knows no informational answers: HTTP/1.0.
type finalOnly struct{ http.ResponseWriter }

func (w finalOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w finalOnly) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (g *Gateway) moduleLog(e hostsim.LogEntry) {
	level := slog.LevelInfo
	switch {
	case e.Level >= hostsim.LogError:
		level = slog.LevelError
	case e.Level == hostsim.LogWarn:
		level = slog.LevelWarn
	case e.Level < hostsim.LogInfo:
		level = slog.LevelDebug
	}
	g.cfg.Logger.Log(context.Background(), level, e.Message, "vm", e.VM)
}

type bufferPool struct{}

func (bufferPool) Get() []byte  { return *chunkPool.Get().(*[]byte) }
func (bufferPool) Put(b []byte) { chunkPool.Put(&b) }
