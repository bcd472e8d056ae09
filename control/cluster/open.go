package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// connectTimeout bounds the first try to connect; later ones go on in the background.
	connectTimeout = 2 * time.Second
	reconnectWait  = 250 * time.Millisecond
	// pendingMessages and pendingBytes bound what waits for a subscriber.
	pendingMessages = 16 << 10
	pendingBytes    = 64 << 20
	// apiTimeout bounds one call of JetStream's API that has no other bound.
	apiTimeout = time.Second
	// wantedCopies of the documents, on an external cluster with so many servers.
	wantedCopies = 3
	maxDocument  = 1 << 20
	maxBucket    = 256 << 20
)

// Open connects to the external NATS cluster, or starts the server inside. It doesn't wait for a
// majority of servers, nor for an external cluster that can't be reached now: Problem says so until
// it is. Close it in any case.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &natsTransport{cfg: cfg, done: make(chan struct{})}
	if err := t.open(ctx); err != nil {
		t.Close()
		return nil, err
	}
	c := New(cfg, t)
	c.seat.alone = cfg.alone()
	return c, nil
}

// natsTransport is the Transport on NATS.
type natsTransport struct {
	cfg    Config
	server *inside // nil for an external cluster
	conn   *nats.Conn
	js     jetstream.JetStream

	kv      atomic.Pointer[bucket] // nil until it exists
	problem atomic.Pointer[string] // why not
	dropped atomic.Uint64
	done    chan struct{}
	closing sync.Once
	group   sync.WaitGroup
}

// bucket is the KV bucket of the documents.
type bucket struct{ jetstream.KeyValue }

func (t *natsTransport) open(ctx context.Context) error {
	options := []nats.Option{
		nats.Name("warmpath control " + t.cfg.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.Timeout(connectTimeout),
		nats.ErrorHandler(t.failed),
		nats.ReconnectHandler(func(*nats.Conn) { t.cfg.Log.Info("connected to NATS again") }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				t.cfg.Log.Warn("connection to NATS lost", "err", err)
			}
		}),
	}
	var urls string
	if len(t.cfg.URLs) == 0 {
		server, err := startServer(&t.cfg)
		if err != nil {
			return err
		}
		t.server = server
		options = append(options, nats.InProcessServer(server), nats.Token(server.word))
	} else {
		more, err := t.external()
		if err != nil {
			return err
		}
		options = append(options, more...)
		urls = joined(t.cfg.URLs)
	}
	conn, err := nats.Connect(urls, options...)
	if err != nil && len(t.cfg.URLs) > 0 && !refused(err) {
		t.cfg.Log.Warn("NATS cluster not reached, trying on", "urls", redacted(t.cfg.URLs), "err", err)
		conn, err = nats.Connect(urls, append(options, nats.RetryOnFailedConnect(true))...)
	}
	if err != nil {
		return connectProblem(&t.cfg, err)
	}
	t.conn = conn
	if t.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(apiTimeout)); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	why := "looking for a majority of NATS servers"
	t.problem.Store(&why)
	if t.cfg.Servers() == 1 {
		// Nobody else is needed, so what is wrong is wrong for good.
		return t.take(ctx)
	}
	t.group.Go(func() { t.prepare(context.WithoutCancel(ctx)) })
	return nil
}

// take takes the bucket into use.
func (t *natsTransport) take(ctx context.Context) error {
	kv, err := t.bucket(ctx)
	if err == nil && t.server != nil {
		err = t.server.made()
	}
	if err != nil {
		return err
	}
	t.kv.Store(&bucket{kv})
	t.problem.Store(nil)
	return nil
}

// external are the options of a client of an external cluster.
func (t *natsTransport) external() ([]nats.Option, error) {
	var out []nats.Option
	secured, err := t.cfg.TLS.load()
	if err != nil {
		return nil, err
	}
	if secured != nil {
		out = append(out, nats.Secure(secured))
	}
	if t.cfg.Credentials != "" {
		if _, err := os.ReadFile(t.cfg.Credentials); err != nil {
			return nil, fmt.Errorf("read nats.credentials: %w", err)
		}
		out = append(out, nats.UserCredentials(t.cfg.Credentials))
	}
	return out, nil
}

// prepare finds or makes the bucket, however long it takes.
func (t *natsTransport) prepare(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.group.Go(func() {
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	})
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := t.take(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		why := bucketProblem(err)
		if before := t.problem.Load(); before == nil || *before != why {
			t.cfg.Log.Info("documents not available yet", "err", why)
		}
		t.problem.Store(&why)
		pause(ctx, wait)
	}
}

// bucket returns the bucket with as many copies as there can be.
func (t *natsTransport) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if t.conn.Status() != nats.CONNECTED {
		return nil, fmt.Errorf("not connected to NATS: %w", t.conn.LastError())
	}
	cfg := jetstream.KeyValueConfig{
		Bucket: t.cfg.Prefix, Description: "what the control services of a warmpath deployment agree on",
		MaxValueSize: maxDocument, MaxBytes: maxBucket, History: 1, Storage: jetstream.FileStorage, Replicas: wantedCopies,
	}
	if n := t.cfg.Servers(); n > 0 {
		cfg.Replicas = min(n, wantedCopies)
	}
	if t.server != nil && t.server.forgets {
		cfg.Storage = jetstream.MemoryStorage
	}
	kv, err := t.js.KeyValue(ctx, cfg.Bucket)
	if err == nil {
		return kv, t.widen(ctx, kv, cfg)
	}
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, err
	}
	if t.server != nil && !t.server.forgets && t.server.mark.Documents {
		return nil, Problem{"embedded.store_dir", t.server.store + " had documents, and the server can't read them", "restore it from a copy, or move it away to begin anew: nothing was changed in it"}
	}
	kv, err = t.js.CreateKeyValue(ctx, cfg)
	if tooFewServers(err) && t.server == nil {
		cfg.Replicas = 1
		t.cfg.Log.Warn("one copy of the documents, the NATS cluster has not three servers with JetStream: losing that one loses policy and ledger")
		kv, err = t.js.CreateKeyValue(ctx, cfg)
	}
	if errors.Is(err, jetstream.ErrBucketExists) {
		return t.js.KeyValue(ctx, cfg.Bucket) // another replica made it
	}
	return kv, err
}

// widen gives an older bucket more copies where there are more servers now.
func (t *natsTransport) widen(ctx context.Context, kv jetstream.KeyValue, cfg jetstream.KeyValueConfig) error {
	status, err := kv.Status(ctx)
	if err != nil {
		return err
	}
	if status.Config().Replicas >= cfg.Replicas {
		return nil
	}
	switch _, err := t.js.UpdateKeyValue(ctx, cfg); {
	case err == nil:
		t.cfg.Log.Info("more copies of the documents", "copies", cfg.Replicas)
	case !tooFewServers(err):
		t.cfg.Log.Warn("documents stay with fewer copies than they could have", "copies", status.Config().Replicas, "err", err)
	}
	return nil
}

// Close implements Transport.
func (t *natsTransport) Close() {
	t.closing.Do(func() {
		close(t.done)
		if t.conn != nil {
			t.conn.Close()
		}
		t.group.Wait()
		if t.server != nil {
			t.server.stop()
		}
	})
}
