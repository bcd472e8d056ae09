// Package share carries what one replica of the control service hears to the
// others: gateways report to one replica, agents beat at one, and all of them
// serve tables.
//
// A message's way through the package: [Share.Tell] numbers it, keeps it for a
// while (log.go) and publishes it on the bus, which may lose it. Every other
// replica takes the messages of one replica in the order of their numbers; what
// is missing between two, or before the position that each replica tells once a
// second, it asks for again. What its sender no longer has, or never sent before
// it ended, is lost: it is counted, and the index of a replica that knows more is
// fetched and merged (heal.go). A replica that starts begins with that.
package share

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Bus is how replicas reach each other; *cluster.Cluster is one.
type Bus interface {
	// Publish sends to all replicas, this one among them. It doesn't wait.
	Publish(subject string, data []byte) error
	Subscribe(subject string, f func(data []byte)) (stop func(), err error)
	// Request returns an error at once when nobody serves the subject.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	Serve(subject string, f func(data []byte) []byte) (stop func(), err error)
}

// Config of a Share. All but the times is required.
type Config struct {
	Bus  Bus
	Self uint64 // this replica's nonce, another one with every start
	// Apply takes in what another replica heard, one message after the other. The
	// payload is valid during the call.
	Apply func(kind Kind, payload []byte)
	// Snapshot is the index of this replica, Merge takes another's in.
	Snapshot func() []byte
	Merge    func(snapshot []byte) (added int, err error)
	// Table is the size and the digest of the published table.
	Table func() (entries int, digest uint64)
	Log   *slog.Logger
	// FindFor is how long a replica that starts looks for another that knows
	// something, when nobody answers at once. 0: it doesn't wait.
	FindFor time.Duration
	// Every is the time between two positions. 1 s.
	Every time.Duration
}

const (
	everybody   = "share.all"
	inboxLength = 4096
	inboxBytes  = 64 << 20
	// askTime bounds one request to another replica.
	askTime = time.Second
	// healEvery is the least time between two merges.
	healEvery = 10 * time.Second
	// silentFor is how long after its last word a replica is forgotten.
	silentFor = 10 * time.Second
	maxPeers  = 64
)

// Share is safe for concurrent use.
type Share struct {
	cfg Config
	log sentLog

	inbox      chan []byte
	inboxBytes atomic.Int64
	found      chan struct{} // closed when the beginning is over

	mu    sync.Mutex // of peers; they are changed by Run alone, which needs it for changes only
	peers map[uint64]*peer

	healed time.Time // when the last merge began. Of Run
	// known is what the first index that was merged had heard: the number to come, by
	// replica. Of Run
	known map[uint64]uint64
	// covered: until then who is met was there before the first merge, which an
	// earlier version gave, without known. Of Run
	covered time.Time
	counter counters
}

// peer is another replica.
type peer struct {
	next    uint64 // number of the message to come
	entries int
	digest  uint64
	same    bool      // as this one's, when it said so
	at      time.Time // of its last word
	heal    bool      // something of it was lost
}

type counters struct {
	sent, unsent, received, repeated, dropped, again, lost, bad, merges, merged atomic.Uint64
}

// Stats is what happened since the start.
type Stats struct {
	Sent     uint64 // messages
	Unsent   uint64 // messages that the bus refused; others ask for them again
	Received uint64 // messages that were applied
	Repeated uint64 // messages that were known
	Dropped  uint64 // messages that found the inbox full; they are asked for again
	Again    uint64 // messages that came on a second request
	Lost     uint64 // messages that nobody has any more
	Bad      uint64 // messages that can't be read
	Merges   uint64 // indexes of others that were fetched
	Merged   uint64 // checkpoints that they brought
	Peers    []Peer
}

// Peer is what is known of another replica.
type Peer struct {
	Nonce   uint64
	Entries int
	// Same: its table had the same digest as this one had then, or has now.
	Same bool
	Age  time.Duration
}

// New returns a Share that does nothing before Run.
func New(cfg Config) *Share {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	return &Share{cfg: cfg, inbox: make(chan []byte, inboxLength), found: make(chan struct{}), peers: map[uint64]*peer{}}
}

// Found is closed when the index of another replica has been merged, or none has
// one.
func (s *Share) Found() <-chan struct{} { return s.found }

// Tell sends a message to the others. It doesn't wait.
func (s *Share) Tell(kind Kind, payload []byte) {
	if len(payload) > MaxPayload {
		s.counter.unsent.Add(1)
		s.cfg.Log.Error("too large to be told to the other replicas", "bytes", len(payload))
		return
	}
	s.counter.sent.Add(1)
	err := s.log.add(kind, s.cfg.Self, payload, func(message []byte) error { return s.cfg.Bus.Publish(everybody, message) })
	if err != nil {
		s.counter.unsent.Add(1)
		s.cfg.Log.Debug("not told to the other replicas, they will ask", "err", err)
	}
}

// Run tells and hears until ctx ends.
func (s *Share) Run(ctx context.Context) error {
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	keep := func(stop func(), err error) error {
		if err == nil {
			stops = append(stops, stop)
		}
		return err
	}
	own := fmt.Sprintf(".%016x", s.cfg.Self)
	if err := keep(s.cfg.Bus.Subscribe(everybody, s.take)); err != nil {
		return fmt.Errorf("hear the other replicas: %w", err)
	}
	if err := keep(s.cfg.Bus.Serve(againSubject+own, s.serveAgain)); err != nil {
		return fmt.Errorf("answer the other replicas: %w", err)
	}
	s.find(ctx)
	close(s.found)
	var last lastSnapshot
	if err := keep(s.cfg.Bus.Serve(modelsSubject+own, func(req []byte) []byte { return last.serve(req, s.heard, s.cfg.Snapshot) })); err != nil {
		return fmt.Errorf("give the index to other replicas: %w", err)
	}
	if err := keep(s.cfg.Bus.Serve(heardSubject+own, last.serveHeard)); err != nil {
		return fmt.Errorf("say what the index has heard: %w", err)
	}
	if err := keep(s.cfg.Bus.Serve(whoSubject, func([]byte) []byte { return s.position() })); err != nil {
		return fmt.Errorf("be found by other replicas: %w", err)
	}
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case message := <-s.inbox:
			s.inboxBytes.Add(-int64(len(message)))
			s.hear(ctx, message, time.Now())
		case now := <-tick.C:
			last.drop(now)
			if err := s.cfg.Bus.Publish(everybody, s.position()); err != nil {
				s.cfg.Log.Debug("position not told to the other replicas", "err", err)
			}
			s.heal(ctx, now)
		}
	}
}

// take queues a message of the bus. One that finds no room is asked for later.
func (s *Share) take(message []byte) {
	if s.inboxBytes.Add(int64(len(message))) <= inboxBytes {
		select {
		case s.inbox <- message:
			return
		default:
		}
	}
	s.inboxBytes.Add(-int64(len(message)))
	s.counter.dropped.Add(1)
}

// position is the message that tells how far this replica is.
func (s *Share) position() []byte {
	entries, digest := s.cfg.Table()
	return appendPosition(nil, s.cfg.Self, s.log.last(), entries, digest)
}

// hear takes a message in, after those that should have come before it.
func (s *Share) hear(ctx context.Context, message []byte, now time.Time) {
	h, payload, err := decode(message)
	if err != nil {
		s.counter.bad.Add(1)
		s.cfg.Log.Warn("message of another replica not understood", "err", err)
		return
	}
	if h.origin == s.cfg.Self {
		return
	}
	p := s.peer(&h, now)
	if p == nil {
		return
	}
	before := h.sequence // the number up to which all must be known before
	if h.kind == position {
		before++
	}
	if p.next < before {
		s.askAgain(ctx, h.origin, p, before)
	}
	if h.kind == position {
		entries, digest := decodePosition(payload)
		own, ownDigest := s.cfg.Table()
		s.mu.Lock()
		p.entries, p.digest, p.same = entries, digest, entries == own && digest == ownDigest
		s.mu.Unlock()
		return
	}
	if h.sequence < p.next {
		s.counter.repeated.Add(1)
		return
	}
	s.apply(p, &h, payload)
}

func (s *Share) apply(p *peer, h *header, payload []byte) {
	s.counter.received.Add(1)
	s.cfg.Apply(h.kind, payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.next = h.sequence + 1 // it is in the index by now
}

// peer finds who sent a message. One that is met for the first time is heard from
// where the index that was merged at the beginning had heard it, or from its first
// message. What it said so long ago that it has not kept it is in nobody's inbox:
// its index is merged.
func (s *Share) peer(h *header, now time.Time) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[h.origin]
	if p == nil {
		for nonce, other := range s.peers {
			if now.Sub(other.at) > silentFor && !other.heal {
				delete(s.peers, nonce)
			}
		}
		if len(s.peers) == maxPeers {
			s.counter.dropped.Add(1)
			return nil
		}
		next, known := s.known[h.origin]
		p = &peer{next: max(1, next)}
		if covered := !known && now.Before(s.covered); covered || h.sequence > p.next+keptMessages {
			p.next, p.heal = h.sequence, !covered
			if h.kind == position {
				p.next++
			}
		}
		s.peers[h.origin] = p
	}
	p.at = now
	return p
}

// Stats returns the counters and what is known of the others.
func (s *Share) Stats(now time.Time) Stats {
	c := &s.counter
	out := Stats{
		Sent: c.sent.Load(), Unsent: c.unsent.Load(), Received: c.received.Load(), Repeated: c.repeated.Load(),
		Dropped: c.dropped.Load(), Again: c.again.Load(), Lost: c.lost.Load(), Bad: c.bad.Load(),
		Merges: c.merges.Load(), Merged: c.merged.Load(),
	}
	entries, digest := s.cfg.Table()
	s.mu.Lock()
	defer s.mu.Unlock()
	for nonce, p := range s.peers {
		if now.Sub(p.at) <= silentFor {
			out.Peers = append(out.Peers, Peer{nonce, p.entries, p.same || p.entries == entries && p.digest == digest, now.Sub(p.at)})
		}
	}
	return out
}
