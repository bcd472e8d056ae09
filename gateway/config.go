package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/warmpath/warmpath/replicas"
)

// Config configures a Gateway. Only Module and Endpoints have no default.
type Config struct {
	// Listen is the data plane's address. HTTP/1.1 and HTTP/2 are served, by ALPN
	// with a certificate, by prior knowledge (h2c) without. Default 127.0.0.1:8080.
	Listen string
	// CertFile and KeyFile (PEM) make Listen speak TLS 1.2 and later. They are read
	// again when they change. Empty: no TLS.
	CertFile, KeyFile string
	// AdminListen serves /metrics, /healthz, /readyz. Empty: none.
	AdminListen string
	// Module is the wasm binary.
	Module []byte
	// Plugin is the module's configuration (JSON, docs/formats.md).
	Plugin []byte
	// Clusters maps the names that the module may call to base URLs, such as
	// "warmpath-control" to "http://127.0.0.1:8780". Several are replicas of one
	// service: calls go to one of them until it fails (package replicas).
	Clusters map[string][]string
	// Endpoints are the workers that may be sent to: what the module names but
	// the gateway doesn't know is skipped, as in Envoy.
	Endpoints *Endpoints
	// UpstreamCAFile (PEM) is who may vouch for workers that speak TLS (https
	// endpoints). Empty: the system's roots.
	UpstreamCAFile string
	// UpstreamServerName is the name that their certificates must bear. Empty: the
	// worker's IP address.
	UpstreamServerName string
	// VMs is the number of module instances, each served by one goroutine at a
	// time. Default: GOMAXPROCS.
	VMs int
	// CacheDir keeps the compiled module between starts. Empty: in memory.
	CacheDir string
	// BodyLimitBytes bounds a request body that the module holds (413 above).
	// It should be the module's body_cap_bytes or more. Default 8 MiB.
	BodyLimitBytes int
	// HeldLimitBytes bounds the request bodies that wait for the module or for a
	// worker's answer, all clients together (503 above). Buffers take up to three
	// times that. Default 256 MiB.
	HeldLimitBytes int
	// HeldTimeout ends a request that the module holds and never releases (504).
	// Default 30 s.
	HeldTimeout time.Duration
	// ClientTimeout bounds the silence of a client that has more of its body to
	// send (408), or that doesn't take what was sent to it (cut). Default 1 min.
	ClientTimeout time.Duration
	// BodyTimeout bounds the arrival of a body that the module waits for (408),
	// however steadily it drips. Default 5 min.
	BodyTimeout time.Duration
	// FirstByteTimeout bounds the wait for one attempt's response headers, and
	// then for the first piece of its body: engines may send the headers of a
	// stream at once and prefill for long. Default 10 min.
	FirstByteTimeout time.Duration
	// TokenTimeout bounds the silence between two pieces of a response body; an
	// engine that dies mid-stream may leave its socket open and silent. Default
	// 60 s.
	TokenTimeout time.Duration
	// RequestTimeout bounds the whole exchange: 504 before response headers, a cut
	// after. 0: no bound, as streams are long.
	RequestTimeout time.Duration
	// DrainDelay is how long Run, told to end, goes on taking requests while
	// /readyz says 503: the time that a load balancer needs to notice. Default 0.
	DrainDelay time.Duration
	// DrainTimeout is how long after that it lets open exchanges finish before it
	// cuts them. Default 30 s.
	DrainTimeout time.Duration
	// AccessLog gets one JSON line per exchange. Nil: none.
	AccessLog io.Writer
	// Logger receives the gateway's and the module's lines. Nil: slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Module) == 0 {
		return c, errors.New("gateway: Module is empty: give it the bytes of warmpath.wasm (make wasm builds it)")
	}
	if c.Endpoints == nil {
		return c, errors.New("gateway: Endpoints is nil: list the workers, or let Endpoints.Follow read them from the control service")
	}
	for name, urls := range c.Clusters {
		if _, err := replicas.New(urls, nil); err != nil {
			return c, fmt.Errorf("gateway: cluster %q: %w", name, err)
		}
	}
	setDefault(&c.Listen, "127.0.0.1:8080")
	setDefault(&c.VMs, runtime.GOMAXPROCS(0))
	setDefault(&c.BodyLimitBytes, 8<<20)
	setDefault(&c.HeldLimitBytes, 256<<20)
	setDefault(&c.HeldTimeout, 30*time.Second)
	setDefault(&c.ClientTimeout, time.Minute)
	setDefault(&c.BodyTimeout, 5*time.Minute)
	setDefault(&c.FirstByteTimeout, 10*time.Minute)
	setDefault(&c.TokenTimeout, time.Minute)
	setDefault(&c.DrainTimeout, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if slices.Min([]int{c.VMs, c.BodyLimitBytes, c.HeldLimitBytes}) < 0 || slices.Min([]time.Duration{
		c.HeldTimeout, c.ClientTimeout, c.BodyTimeout, c.FirstByteTimeout, c.TokenTimeout, c.RequestTimeout, c.DrainDelay, c.DrainTimeout,
	}) < 0 {
		return c, errors.New("gateway: VMs, limits and timeouts must not be negative")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return c, errors.New("gateway: a certificate and its key belong together: give both (--tls-cert, --tls-key) or neither")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return c, fmt.Errorf("gateway: Listen %q is not host:port: %w", c.Listen, err)
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
