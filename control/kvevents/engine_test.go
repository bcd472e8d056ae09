package kvevents

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// engine is the publisher and the replay socket of one engine.
type engine struct {
	t           testing.TB
	events      net.Listener
	replay      net.Listener
	withTopic   bool // replay replies carry it
	mu          sync.Mutex
	subscribers []*zmq4.Conn
	conns       []net.Conn
	buffer      [][]byte // payloads by sequence number; nil: out of reach
	asked       []uint64
	topic       string
	joined      chan struct{}
	wg          sync.WaitGroup
	// queue is what a subscriber hasn't taken yet, as long as libzmq lets it get
	// (its high-water mark): what doesn't fit is dropped. Nil: publish waits.
	queue   chan func()
	dropped uint64
}

func newEngine(t testing.TB) *engine {
	e := &engine{t: t, withTopic: true, topic: "kv@here@tiny", joined: make(chan struct{}, 16)}
	var err error
	for _, l := range []*net.Listener{&e.events, &e.replay} {
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	e.wg.Go(func() { e.accept(e.events, zmq4.Pub, e.subscribe) })
	e.wg.Go(func() { e.accept(e.replay, zmq4.Router, e.answer) })
	t.Cleanup(func() {
		_ = e.events.Close()
		_ = e.replay.Close()
		e.disconnect()
		e.wg.Wait()
	})
	return e
}

func (e *engine) endpoint() Endpoint {
	return Endpoint{Events: "tcp://" + e.events.Addr().String(), Replay: "tcp://" + e.replay.Addr().String(), Topic: "kv@"}
}

func (e *engine) accept(l net.Listener, kind zmq4.SocketType, serve func(*zmq4.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.conns = append(e.conns, c)
		e.mu.Unlock()
		e.wg.Go(func() {
			defer c.Close()
			if z, err := zmq4.Open(c, null.Security(), kind, nil, true, nil); err == nil {
				serve(z)
			}
		})
	}
}

func (e *engine) subscribe(z *zmq4.Conn) {
	msg, err := z.RecvMsg()
	if err != nil || msg.Frames[0][0] != 1 || !strings.HasPrefix(e.topic, string(msg.Frames[0][1:])) {
		return
	}
	e.mu.Lock()
	e.subscribers = append(e.subscribers, z)
	e.mu.Unlock()
	e.joined <- struct{}{}
	_, _ = z.RecvMsg() // until it is closed
}

func (e *engine) answer(z *zmq4.Conn) {
	msg, err := z.RecvMsg()
	if err != nil || len(msg.Frames) != 2 || len(msg.Frames[0]) != 0 {
		return
	}
	from := binary.BigEndian.Uint64(msg.Frames[1])
	e.mu.Lock()
	buffer := e.buffer
	e.asked = append(e.asked, from)
	e.mu.Unlock()
	send := func(topic string, seq int64, payload []byte) {
		frames := [][]byte{{}, []byte(topic), number(seq), payload}
		if !e.withTopic {
			frames = append(frames[:1], frames[2:]...)
		}
		_ = z.SendMsg(zmq4.NewMsgFrom(frames...))
	}
	for seq := from; seq < uint64(len(buffer)); seq++ {
		if buffer[seq] != nil {
			send(e.topic, int64(seq), buffer[seq])
		}
	}
	send("", -1, nil)
	_, _ = z.RecvMsg()
}

func number(seq int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(seq)) }

// publish sends a batch, or only keeps it for the replay.
func (e *engine) publish(payload []byte, lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seq := int64(len(e.buffer))
	e.buffer = append(e.buffer, payload)
	if lost {
		return
	}
	subscribers := slices.Clone(e.subscribers)
	send := func() {
		for _, z := range subscribers {
			_ = z.SendMsg(zmq4.NewMsgFrom([]byte(e.topic), number(seq), payload))
		}
	}
	if e.queue == nil {
		send()
		return
	}
	select {
	case e.queue <- send:
	default:
		e.dropped++
	}
}

// bound has the engine queue at most n messages.
func (e *engine) bound(n int) {
	e.queue = make(chan func(), n)
	e.wg.Go(func() {
		for send := range e.queue {
			send()
		}
	})
	e.t.Cleanup(func() { close(e.queue) })
}

// disconnect breaks every connection.
func (e *engine) disconnect() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		_ = c.Close()
	}
	e.conns, e.subscribers = nil, nil
}

// restart begins with an empty buffer.
func (e *engine) restart() {
	e.mu.Lock()
	e.buffer = nil
	e.mu.Unlock()
}

// follow runs a source until the test ends and returns it subscribed.
func follow(t testing.TB, e *engine, endpoint Endpoint, sink Sink) (*Source, chan struct{}) {
	told := make(chan struct{}, 1)
	s := NewSource(endpoint, Config{Pool: "pool"}, sink, func() {
		select {
		case told <- struct{}{}:
		default:
		}
	}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	run(t, s)
	<-e.joined
	return s, told
}

func run(t testing.TB, s *Source) {
	var wg sync.WaitGroup
	ctx := t.Context()
	wg.Go(func() { s.Run(ctx) })
	t.Cleanup(wg.Wait)
}

// until waits for something that the source will have done.
func until(t testing.TB, s *Source, told chan struct{}, what string, ok func(SourceStatus) bool) SourceStatus {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		if st := s.Status(); ok(st) {
			return st
		}
		select {
		case <-told:
		case <-deadline:
			t.Fatalf("not within 10 s: %s; %+v", what, s.Status())
		}
	}
}
