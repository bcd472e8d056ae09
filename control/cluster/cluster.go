package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Replica is one control service of a cluster.
type Replica struct {
	Name string `json:"name"`
	// Nonce is another one with every start of the process.
	Nonce uint64 `json:"nonce"`
	// URL of its API, as it was told to say.
	URL     string `json:"url,omitempty"`
	Version string `json:"version,omitempty"`
	// Wire is the version of what it tells gateways and replicas; 0: one that doesn't say.
	Wire uint8 `json:"wire,omitempty"`
}

// Cluster is a replica's view of all of them. Safe for concurrent use.
type Cluster struct {
	cfg       Config
	self      Replica
	log       *slog.Logger
	transport Transport

	mu       sync.Mutex
	seat     seat
	led      uint64 // the term that Run's caller was told of
	problem  error  // of the last look at the lease
	lookedAt time.Time
	replicas map[uint64]*heard
	hurry    chan struct{}
}

// New returns a Cluster on a transport, which Close closes. Open is New on NATS.
func New(cfg Config, transport Transport) *Cluster {
	cfg = cfg.WithDefaults()
	c := &Cluster{
		cfg: cfg, log: cfg.Log, transport: transport, replicas: map[uint64]*heard{}, hurry: make(chan struct{}, 1),
		self: Replica{Name: cfg.Name, Nonce: newNonce(), URL: cfg.URL, Version: cfg.Version, Wire: cfg.Wire},
	}
	c.seat = seat{self: c.self, length: cfg.Lease}
	return c
}

func newNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

// Problem says why documents can't be read or written at the moment, nil when they can.
func (c *Cluster) Problem() error {
	if err := c.transport.Problem(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// Dropped counts messages that came faster than their subscriber took them.
func (c *Cluster) Dropped() uint64 { return c.transport.Dropped() }

// Close ends the connection, and the server inside. Call it when Run has returned.
func (c *Cluster) Close() { c.transport.Close() }

// Self is this replica.
func (c *Cluster) Self() Replica { return c.self }

// subject is a subject of this deployment.
func (c *Cluster) subject(name string) string { return c.cfg.Prefix + "." + name }

// Publish sends data to all replicas that subscribe to the subject now, this one among them. It
// doesn't wait; an error means that it was not sent. At most 1 MB, less is better.
func (c *Cluster) Publish(subject string, data []byte) error {
	return c.transport.Publish(c.subject(subject), data)
}

// Subscribe calls f for every message on the subject, one after the other, until stop. f mustn't
// keep data, and must be quick: what comes while a long queue waits for it is lost.
func (c *Cluster) Subscribe(subject string, f func(data []byte)) (stop func(), err error) {
	return c.transport.Subscribe(c.subject(subject), func(data []byte, _ string) { f(data) })
}

// Request asks the replica that serves the subject; see Serve. ErrNobody when none does.
func (c *Cluster) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	return c.transport.Request(ctx, c.subject(subject), data)
}

// Serve answers requests on a subject, one after the other, until stop. An empty answer is one, too.
func (c *Cluster) Serve(subject string, f func(data []byte) []byte) (stop func(), err error) {
	return c.transport.Subscribe(c.subject(subject), func(data []byte, reply string) {
		if reply == "" {
			return
		}
		if err := c.transport.Publish(reply, f(data)); err != nil {
			c.log.Debug("answer not sent", "subject", subject, "err", err)
		}
	})
}

// Get reads a document; ErrNoKey when there is none. It may be a moment old.
func (c *Cluster) Get(ctx context.Context, key string) (Entry, error) {
	return c.transport.Get(ctx, key)
}

// Put replaces the document that has this revision, 0 for none, and returns the new one.
// ErrConflict: it has another by now. After any other error the write may still be carried out
// once there is a majority again: who tries again and meets ErrConflict should read.
func (c *Cluster) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return c.transport.Put(ctx, key, value, revision)
}

// Watch calls f with the document as it is, and with every change, until ctx ends. It starts again
// by itself when the transport breaks it; f may see one entry twice, and never an older one.
func (c *Cluster) Watch(ctx context.Context, key string, f func(Entry)) error {
	last := uint64(0)
	for ctx.Err() == nil {
		err := c.transport.Watch(ctx, key, func(e Entry) {
			if e.Revision >= last {
				last = e.Revision
				f(e)
			}
		})
		if ctx.Err() == nil {
			c.log.Debug("watch ended, starting it again", "key", key, "err", err)
			pause(ctx, watchAgain)
		}
	}
	return nil
}

// watchAgain is how long after its end a watch is started again.
const watchAgain = 500 * time.Millisecond

// pause waits for a time or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Handlers are told of what happens to the leadership, one call after the other. They must return
// soon: the lease is not renewed meanwhile.
type Handlers struct {
	// Lead: this replica leads from now on, under this term.
	Lead func(term uint64)
	// Follow: it doesn't any more. By then Leads has been false for some time, perhaps.
	Follow func()
}

// Run takes part until ctx ends: it says that this replica is there, hears who else is, and holds
// the lease or waits for it. At the end it gives the lease up.
func (c *Cluster) Run(ctx context.Context, h Handlers) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.present(ctx) })
	group.Go(func() error { c.elect(ctx, h); return nil })
	return group.Wait()
}
