package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// Endpoint is where one rank of an engine publishes.
type Endpoint struct {
	Events string // tcp://host:port of the PUB socket
	Replay string // of the ROUTER socket, "" for none
	Topic  string // prefix; "" takes all
	Rank   int    // data-parallel, as the engine counts
}

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
	replayTries  = 3
)

// Source follows one publisher for as long as it runs.
type Source struct {
	endpoint Endpoint
	log      *slog.Logger
	applied  func() // after every batch
	doubted  func() // when removals may have been missed

	mu     sync.Mutex
	stream stream
	// savedCounts are those of the last AppendSave or Restore.
	savedCounts StreamCounts
	connected   bool
	connects    uint64
	replays     uint64
	failed      uint64 // replays
	replaying   bool
	evictedLate uint64
	lastAt      time.Time
	problem     string
}

// SourceStatus is what is known about a source.
type SourceStatus struct {
	Endpoint
	StreamCounts
	Map           Counts
	Connected     bool
	Reconnects    uint64
	Replays       uint64
	FailedReplays uint64
	EvictedLate   uint64    // of Map.Evicted: told by a replay, so it may be long ago
	Next          uint64    // sequence number of the next batch
	LastBatch     time.Time // when the last batch arrived; zero never
	Bytes         int64     // of the block map
	// Problem says why what is told of the cache may be wrong, "" when nothing is.
	Problem string
}

// NewSource returns a source that fills a Map of cfg for sink. applied is called
// after every batch, with nothing locked; nil for nobody.
func NewSource(e Endpoint, cfg Config, sink Sink, applied func(), log *slog.Logger) *Source {
	if applied == nil {
		applied = func() {}
	}
	return &Source{endpoint: e, log: log.With("events", e.Events), applied: applied, doubted: func() {}, stream: stream{m: NewMap(cfg, sink)}}
}

// OnDoubt has f called when batches were lost, and with them perhaps removals:
// what is told of the cache then may be too much. Call it before Run.
func (s *Source) OnDoubt(f func()) { s.doubted = f }

// SetAdapters says which generation of each adapter the engine has now, 0 for
// those that aren't named: see Map.SetAdapters.
func (s *Source) SetAdapters(generations map[string]uint64) {
	s.mu.Lock()
	changed := s.stream.m.SetAdapters(generations)
	s.mu.Unlock()
	if changed {
		s.applied()
	}
}

// Run follows the publisher until ctx ends. It connects again after 0.1 s to 5 s,
// with jitter.
func (s *Source) Run(ctx context.Context) {
	wait := backoffFirst
	for ctx.Err() == nil {
		before := s.batches()
		err := s.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if s.batches() != before {
			wait = backoffFirst
		}
		s.mu.Lock()
		if s.connected || s.problem == "" {
			s.log.Warn("event stream interrupted", "err", err)
		}
		s.connected, s.problem = false, err.Error()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		wait = min(2*wait, backoffMost)
	}
	s.mu.Lock()
	s.connected = false
	s.mu.Unlock()
}

func (s *Source) batches() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.counts.Batches
}

// BlockTokens is the size of the engine's blocks, 0 while it has told of none.
func (s *Source) BlockTokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.m.tokens.size
}

// Status returns what is known now.
func (s *Source) Status() SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := SourceStatus{
		Endpoint: s.endpoint, StreamCounts: s.stream.counts, Map: s.stream.m.Counts(), Connected: s.connected, Replays: s.replays, FailedReplays: s.failed, EvictedLate: s.evictedLate,
		Reconnects: max(s.connects, 1) - 1, Next: s.stream.next, LastBatch: s.lastAt, Bytes: s.stream.m.Bytes(), Problem: s.problem,
	}
	switch {
	case st.Problem != "":
	case s.stream.unsure:
		st.Problem = "batches were lost, and removals may be among them"
	case st.Map.Full > 0:
		st.Problem = fmt.Sprintf("%d blocks had no room among the %d that are followed of one engine", st.Map.Full, s.stream.m.cfg.MaxBlocks)
	}
	return st
}

// session is one connection, from the handshake to its end.
func (s *Source) session(ctx context.Context) error {
	c, shut, err := connect(ctx, s.endpoint.Events, zmq4.Sub)
	if err != nil {
		return err
	}
	defer shut()
	if err := c.SendMsg(zmq4.NewMsg(append([]byte{1}, s.endpoint.Topic...))); err != nil {
		return err
	}
	s.mu.Lock()
	s.connected, s.problem = true, ""
	s.connects++
	from, verify := s.stream.next, s.stream.any
	s.mu.Unlock()
	s.log.Info("event stream connected", "next", from)
	// What was published before, and while nobody listened. The batch that was
	// applied last is asked for again: if it is another one now, or gone, the
	// process is another.
	if verify {
		from--
	}
	s.replayFrom(ctx, from, verify)
	for {
		seq, payload, end, err := c.message()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the engine closed the connection")
			}
			return err
		}
		if end {
			continue
		}
		if v := s.take(seq, payload, false); v == gap || v == restarted {
			s.mu.Lock()
			from := s.stream.next
			if v == gap {
				s.stream.counts.Gaps++
			}
			s.mu.Unlock()
			s.replayFrom(ctx, from, false)
			s.take(seq, payload, true)
		}
		s.applied()
	}
}

func (s *Source) take(seq uint64, payload []byte, final bool) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, evicted := s.stream.counts.Lost, s.stream.m.counts.Evicted
	v, err := s.stream.take(seq, payload, final)
	if err != nil {
		s.log.Warn("event batch not understood", "sequence", seq, "err", err)
	}
	if s.stream.counts.Lost != lost && s.stream.unsure {
		s.doubted()
	}
	if s.replaying {
		s.evictedLate += s.stream.m.counts.Evicted - evicted
	}
	if v == applied {
		s.lastAt = time.Now()
	}
	if v == restarted {
		s.log.Info("another engine process publishes", "sequence", seq)
	}
	return v
}

// replayFrom asks for the batches from a number on and applies them. While it
// lasts, what is published waits in the connection. Without an answer the stream
// goes on, and what is missing counts as lost.
func (s *Source) replayFrom(ctx context.Context, from uint64, verify bool) {
	if s.endpoint.Replay == "" {
		return
	}
	s.setReplaying(true)
	defer s.setReplaying(false)
	wait := backoffFirst
	for try := range replayTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait/2 + rand.N(wait/2)):
			}
			wait *= 2
		}
		again, err := s.replay(ctx, from, verify)
		if again {
			// Another process: all it has published.
			from, verify = 0, false
			again, err = s.replay(ctx, 0, false)
		}
		s.mu.Lock()
		s.replays++
		if err == nil && !again {
			s.mu.Unlock()
			s.applied()
			return
		}
		s.failed++
		s.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("replay of events failed", "replay", s.endpoint.Replay, "from", from, "err", err)
	}
}

func (s *Source) setReplaying(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaying = on
}

// replay answers true when the process turned out to be another one, whose
// batches have to be asked for from 0.
func (s *Source) replay(ctx context.Context, from uint64, verify bool) (another bool, err error) {
	c, shut, err := connect(ctx, s.endpoint.Replay, zmq4.Dealer)
	if err != nil {
		return false, err
	}
	defer shut()
	if err := c.SendMsg(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, from))); err != nil {
		return false, err
	}
	seen := false
	for {
		_ = c.net.SetReadDeadline(time.Now().Add(replayTimeout))
		seq, payload, end, err := c.message()
		if err != nil {
			return false, err
		}
		if end {
			if verify && !seen {
				// It hasn't published as many batches as we have applied.
				s.mu.Lock()
				s.stream.restart()
				s.mu.Unlock()
				return true, nil
			}
			return false, nil
		}
		seen = true
		switch s.take(seq, payload, false) {
		case gap:
			s.take(seq, payload, true) // out of the replay's reach
		case restarted:
			return true, nil
		}
	}
}
