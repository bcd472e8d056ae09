package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// Gateway is a running proxy. Create it with New, serve with Run.
type Gateway struct {
	cfg      Config
	host     *hostsim.Host
	fleet    *hostsim.Fleet
	proxy    *httputil.ReverseProxy
	upstream *http.Transport
	metrics  *metrics
	access   *accessLog
	listener net.Listener
	admin    net.Listener
	next     atomic.Uint64
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
	if err := g.startModule(ctx); err != nil {
		return nil, err
	}
	if err := g.listen(); err != nil {
		g.closeModule()
		return nil, err
	}
	g.upstream = &http.Transport{
		MaxIdleConns:        4096,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // bytes go through as they are
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      &attempts{endpoints: cfg.Endpoints, transport: g.upstream, metrics: g.metrics, firstByte: cfg.FirstByteTimeout},
		ModifyResponse: g.modifyResponse,
		ErrorHandler:   g.proxyError,
		FlushInterval:  -1, // each token at once
		BufferPool:     bufferPool{},
		ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return g, nil
}

func (g *Gateway) startModule(ctx context.Context) error {
	calls, err := hostsim.NewHTTPDispatcher(g.cfg.Clusters, nil)
	if err != nil {
		return fmt.Errorf("gateway: clusters: %w", err)
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
				ReloadBackoff: 50 * time.Millisecond, EndStreamsOnTrap: true,
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
	g.metrics.module = g.host
	return nil
}

func (g *Gateway) closeModule() {
	g.fleet.Close()
	_ = g.host.Close(context.Background())
}

func (g *Gateway) listen() (err error) {
	if g.listener, err = net.Listen("tcp", g.cfg.Listen); err != nil {
		return fmt.Errorf("gateway: listen for requests: %w", err)
	}
	if g.cfg.AdminListen == "" {
		return nil
	}
	if g.admin, err = net.Listen("tcp", g.cfg.AdminListen); err != nil {
		g.listener.Close()
		return fmt.Errorf("gateway: listen for admin: %w", err)
	}
	return nil
}

// Addr is the data plane's bound address, URL the same as a base URL.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }

// URL is http://Addr.
func (g *Gateway) URL() string { return "http://" + g.Addr() }

// AdminAddr is the admin listener's bound address, "" without one.
func (g *Gateway) AdminAddr() string {
	if g.admin == nil {
		return ""
	}
	return g.admin.Addr().String()
}

// Host is the proxy-wasm host, for its metrics and shared data.
func (g *Gateway) Host() *hostsim.Host { return g.host }

// Run serves until ctx ends, then drains: no new connections, open exchanges
// finish within DrainTimeout. It returns nil after a clean end.
func (g *Gateway) Run(ctx context.Context) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	servers := []*http.Server{{
		Handler: g, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug),
	}}
	listeners := []net.Listener{g.listener}
	if g.admin != nil {
		servers = append(servers, &http.Server{Handler: g.adminHandler(), ReadHeaderTimeout: 10 * time.Second})
		listeners = append(listeners, g.admin)
	}
	failed := make(chan error, len(servers))
	var serving sync.WaitGroup
	for i, s := range servers {
		serving.Go(func() {
			if err := s.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("gateway: serve %s: %w", listeners[i].Addr(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.draining.Store(true)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.DrainTimeout)
	defer cancel()
	for _, s := range servers {
		if shutErr := s.Shutdown(drain); shutErr != nil {
			g.cfg.Logger.Warn("drain ran out of time, cutting what is open", "err", shutErr)
			_ = s.Close()
		}
	}
	serving.Wait()
	g.upstream.CloseIdleConnections()
	g.closeModule()
	return err
}

// ServeHTTP handles one request of the data plane.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plugin := g.fleet.Plugins[g.next.Add(1)%uint64(len(g.fleet.Plugins))][0]
	x := &exchange{g: g, w: w, vm: plugin.VM(), start: time.Now(), wake: make(chan struct{}, 1)}
	ctx := context.WithValue(r.Context(), exchangeKey{}, x)
	if g.cfg.RequestTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.cfg.RequestTimeout)
		defer cancel()
	}
	x.r = r.WithContext(ctx)
	x.vm.Do(func() {
		x.stream = plugin.NewStream(x)
		info := &x.stream.Info
		info.SourceAddress, info.Protocol, info.StartTime = r.RemoteAddr, r.Proto, x.start
	})
	g.metrics.active.Inc()
	defer x.close()
	if x.admit() {
		g.proxy.ServeHTTP(w, x.r)
	}
}

// close runs exactly once, whatever ended the exchange: a client that left, an
// answer that is out, or a cut.
func (x *exchange) close() {
	x.vm.Do(x.stream.Close)
	x.g.metrics.active.Dec()
	x.g.metrics.observe(x)
	x.g.access.write(x)
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
