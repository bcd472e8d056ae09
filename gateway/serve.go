package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of a connection, whatever goes over it.
const (
	headerTimeout  = 10 * time.Second      // for a request's headers, and for a TLS handshake
	idleTimeout    = 2 * time.Minute       // between two requests
	maxHeaderBytes = 64 << 10              // 431 above; Envoy's default is 60 KiB
	peerTimeout    = 15 * time.Second      // for an HTTP/2 peer to answer a ping
	cutTimeout     = 5 * time.Second       // for exchanges to end once they have been cut
	lingerTimeout  = time.Second           // for a client to stop sending what was answered already
	skipTimeout    = 50 * time.Millisecond // for the rest of a body that nobody needs
	skipBytes      = 256 << 10             // of it
	// sendBuffer is what the kernel keeps for a client that doesn't take it (twice
	// that, with its own overhead). Left to itself it grows to megabytes, and a
	// client that takes 10 KB/s then looks silent for minutes. So it is about 3 KB/s
	// that ClientTimeout asks for by default.
	sendBuffer = 256 << 10
)

// Run serves until ctx ends, then drains: /readyz turns to 503, new requests are
// still taken for DrainDelay, then none, and open exchanges finish within
// DrainTimeout or are cut. It returns nil after a clean end.
func (g *Gateway) Run(ctx context.Context) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	data := g.dataServer(base)
	admin := &http.Server{Handler: g.adminHandler(), ReadHeaderTimeout: headerTimeout}
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	serving.Go(func() {
		failed <- served(g.listener, pick(g.tls != nil, func() error { return data.ServeTLS(g.listener, "", "") }, func() error { return data.Serve(g.listener) }))
	})
	if g.admin != nil {
		serving.Go(func() { failed <- served(g.admin, func() error { return admin.Serve(g.admin) }) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.drain(data, cut, err == nil)
	_ = admin.Close()
	serving.Wait()
	g.closeModule() // whose calls use them, too
	g.upstream.CloseIdleConnections()
	return err
}

func served(l net.Listener, serve func() error) error {
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gateway: serve %s: %w", l.Addr(), err)
	}
	return nil
}

func (g *Gateway) dataServer(base context.Context) *http.Server {
	s := &http.Server{
		Handler: g, Protocols: new(http.Protocols), BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{SendPingTimeout: idleTimeout, PingTimeout: peerTimeout, WriteByteTimeout: g.cfg.ClientTimeout},
		ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if secure, ok := conn.(*tls.Conn); ok {
				conn = secure.NetConn()
			}
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(sendBuffer)
			}
			return ctx
		},
	}
	s.Protocols.SetHTTP1(true)
	if g.tls == nil {
		s.Protocols.SetUnencryptedHTTP2(true)
		return s
	}
	s.Protocols.SetHTTP2(true)
	s.TLSConfig = &tls.Config{GetCertificate: g.tls.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1", "http/1.0"}}
	return s
}

// drain ends the data plane. cut ends the exchanges that are still open when
// time is up, those that have left HTTP among them: the server doesn't know
// these any more.
func (g *Gateway) drain(data *http.Server, cut context.CancelFunc, wait bool) {
	g.draining.Store(true)
	if wait && g.cfg.DrainDelay > 0 {
		<-time.After(g.cfg.DrainDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.DrainTimeout)
	defer cancel()
	err := data.Shutdown(ctx)
	if g.open.wait(ctx) && err == nil {
		return
	}
	g.cfg.Logger.Warn("drain ran out of time, cutting what is open", "exchanges", g.open.now(), "after", g.cfg.DrainTimeout)
	cut()
	_ = data.Close()
	ctx, cancel = context.WithTimeout(context.Background(), cutTimeout)
	defer cancel()
	g.open.wait(ctx)
}

// tally counts what is open and lets one wait until nothing is. Unlike a
// WaitGroup it may be added to while somebody waits.
type tally struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil while nobody waits
}

func (t *tally) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n += n; t.n == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
}

func (t *tally) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// wait reports whether nothing is open before ctx ends.
func (t *tally) wait(ctx context.Context) bool {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return true
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
		return true
	case <-ctx.Done():
		return false
	}
}
