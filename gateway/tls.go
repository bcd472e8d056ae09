package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// certificate is a key pair in files that somebody renews under us. A handshake
// looks at the files once a second at most, so there is nothing to watch, and
// folders that are swapped by symlink (Kubernetes secrets) need no care.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu     sync.Mutex
	pair   *tls.Certificate
	stamp  [2]fileStamp
	looked time.Time
}

// fileStamp tells one state of a file from another.
type fileStamp struct {
	modified time.Time
	size     int64
}

// lookEvery is how often the files are looked at, by handshakes.
const lookEvery = time.Second

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.looked = c.now()
	return c, nil
}

// reload looks at the files now.
func (c *certificate) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = c.now()
	return c.load()
}

// get is tls.Config's hook.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		// Certificate and key are two files: between the two writes they don't fit,
		// and the pair in force stays until they do.
		if err := c.load(); err != nil {
			c.log.Warn("the certificate in force stays", "err", err)
		}
	}
	return c.pair, nil
}

// load reads the files if they aren't those of the pair in force.
func (c *certificate) load() error {
	var stamp [2]fileStamp
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
		stamp[i] = fileStamp{info.ModTime(), info.Size()}
	}
	if c.pair != nil && stamp == c.stamp {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	if c.pair != nil {
		c.log.Info("certificate renewed", "file", c.certFile, "until", pair.Leaf.NotAfter)
	}
	c.pair, c.stamp = &pair, stamp
	return nil
}

// newTransport is the way to the workers: HTTP/1.1, and HTTP/2 where a worker
// that speaks TLS offers it.
func newTransport(cfg Config) (*http.Transport, error) {
	t := &http.Transport{
		MaxIdleConns:           4096,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true, // bytes go through as they are
		DialContext:            (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{ServerName: cfg.UpstreamServerName, MinVersion: tls.VersionTLS12},
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: peerTimeout},
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	if cfg.UpstreamCAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(cfg.UpstreamCAFile)
	if err != nil {
		return nil, fmt.Errorf("gateway: read the workers' CA: %w", err)
	}
	t.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("gateway: workers' CA %s: %w", cfg.UpstreamCAFile, errNoPEM)
	}
	return t, nil
}

var errNoPEM = errors.New("there is no certificate in it (PEM is expected)")
