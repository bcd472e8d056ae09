package control

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// announcing answers GET /kv_event_sources in place of the engines.
type announcing struct {
	*engines
	body string
}

func (a announcing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/kv_event_sources" {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(a.body)), Header: http.Header{}, Request: r}, nil
	}
	return a.engines.RoundTrip(r)
}

// publisher is an engine's PUB socket.
type publisher struct {
	listener    net.Listener
	mu          sync.Mutex
	subscribers []*zmq4.Conn
	joined      chan struct{} // by every subscription that has arrived: what is sent before is lost
}

func newPublisher(t *testing.T) *publisher {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{listener: l, joined: make(chan struct{}, 16)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				z, err := zmq4.Open(c, null.Security(), zmq4.Pub, nil, true, nil)
				if err != nil {
					return
				}
				if msg, err := z.RecvMsg(); err != nil || string(msg.Frames[0]) != "\x01kv" {
					t.Errorf("subscribed to %q: %v", msg.Frames, err)
					return
				}
				p.mu.Lock()
				p.subscribers = append(p.subscribers, z)
				p.mu.Unlock()
				select {
				case p.joined <- struct{}{}:
				default: // nobody waits for so many
				}
				_, _ = z.RecvMsg() // until it is closed
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, z := range p.subscribers {
			_ = z.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	return p
}

func (p *publisher) send(msg zmq4.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, z := range p.subscribers {
		_ = z.SendMsg(msg) // those that left get nothing
	}
}

// serveOn is serve with another transport to the engines.
func serveOn(t *testing.T, transport announcing, cfg Config) *bench {
	t.Helper()
	cfg.Transport, cfg.Listen = transport, "127.0.0.1:0"
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := &bench{t: t, s: s, client: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	}}}, cancel: cancel, done: make(chan error, 1), engines: transport.engines}
	go func() { b.done <- s.Run(ctx) }()
	t.Cleanup(b.stop)
	return b
}

// eventBatch is [ts, [event], rank]; an event is an array as SGLang and vLLM up to
// 0.23 write it, or a map.
func eventBatch(ts float64, event any) []byte {
	b, err := msgp.AppendIntf(nil, []any{ts, []any{event}, 0})
	if err != nil {
		panic(err)
	}
	return b
}

func TestWhatAnEngineReportsIsInTheTableAndGoesWithItsRemoval(t *testing.T) {
	path, hash := wpv(t, t.TempDir(), "a.wpv", "Hello", "lo")
	p := newPublisher(t)
	_, port, _ := strings.Cut(p.listener.Addr().String(), ":")

	list := specs(alpha, beta)
	list[0].KVEvents = discovery.KVEvents{Auto: true}
	list[1].KVEvents = discovery.KVEvents{Endpoint: "tcp://127.0.0.1:1"}
	e := newEngines(alpha, beta)
	b := serveOn(t, announcing{e, fmt.Sprintf(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://127.0.0.1:%s","topic":"kv"}}`, port)}, Config{Workers: list, Learn: -1, Policy: fmt.Appendf(nil, "pools:\n- {name: default, models: [tiny], tokenizer: {file: %q, template: chatml, engine: sglang, parity: off}}\n", path)})
	<-b.s.Ready()
	g := b.gateway("g")
	g.catchUp()
	if w := b.worker(alpha); w.Events == nil || w.Events.Source != "off" || w.Events.Problem == "" {
		t.Fatalf("before the pool is exact: %+v", w.Events)
	}
	g.report(hash, 1)

	// A turn ends with token 70, in the fifth unit.
	tokens := make([]uint32, 128)
	var ids []any
	for i := range tokens {
		tokens[i] = uint32(i)
		if i == 69 {
			tokens[i] = 9001 // <|im_end|>
		}
		ids = append(ids, tokens[i])
	}
	var hashes []any
	for i := range 4 {
		hashes = append(hashes, 100+i)
	}
	stored := []any{"BlockStored", hashes, nil, ids, 32, nil, "GPU"}
	var chain fingerprint.Chain
	chain.Reset(fingerprint.Salt("default", "", 0, "", fingerprint.Exact))
	chain.WriteTokens(tokens[:70])
	chain.TurnEnd()
	chain.WriteTokens(tokens[70:])
	// The turn's unit is the schedule's too here: units 4 and 8.
	held := slices.Clone(chain.Finish())

	seq := uint64(0)
	publish := func(event []any) {
		p.send(zmq4.NewMsgFrom([]byte("kv@x"), binary.BigEndian.AppendUint64(nil, seq), eventBatch(float64(seq+1), event)))
		seq++
	}
	wait := func(what string, ok func() bool, meanwhile func()) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(); {
			if time.Now().After(deadline) {
				t.Fatalf("not within 20 s: %s; %+v", what, b.worker(alpha).Events)
			}
			meanwhile()
			g.poll(100 * time.Millisecond)
		}
	}
	ref := func() uint16 { return g.refOf(alpha) }
	all := func() bool {
		for _, c := range held {
			if !slices.Contains(g.holders(c.Fingerprint), ref()) {
				return false
			}
		}
		return true
	}
	wait("a connection", func() bool { return b.worker(alpha).Events.Source == "connected" }, func() { g.report(hash, 1) })
	<-p.joined
	publish(stored)
	wait("every checkpoint in the table", all, func() { g.report(hash, 1) })
	w := b.worker(alpha)
	if w.Events.Source != "connected" || w.Events.Held != 4 || w.Events.BlockTokens != 32 || w.Entries != len(held) {
		t.Errorf("%d entries, %+v", w.Entries, w.Events)
	}
	// Neither the list nor its metrics say, and gateways predict in whole blocks.
	wait("the size of blocks", func() bool { return g.roster[ref()].BlockTokens == 32 }, func() {})
	if w.BlockTokens != 32 || g.roster[g.refOf(beta)].BlockTokens != 16 {
		t.Errorf("blocks of %d and %d tokens", w.BlockTokens, g.roster[g.refOf(beta)].BlockTokens)
	}
	if w := b.worker(beta); w.Events.Source != "disconnected" && w.Events.Problem == "" {
		t.Errorf("nobody publishes there: %+v", w.Events)
	}
	if _, page := b.do("GET", "/metrics", nil, ""); !strings.Contains(string(page), `warmpath_control_kv_event_blocks{worker="`+alpha+`"} 4`) || !strings.Contains(string(page), `warmpath_control_kv_events_connected{worker="`+beta+`"} 0`) {
		t.Error("metrics don't say so")
	}
	// The last block goes, and unit 8 with it; unit 4 stays.
	publish([]any{"BlockRemoved", []any{103}, "GPU"})
	last := held[len(held)-1]
	wait("the removal", func() bool { return len(g.holders(last.Fingerprint)) == 0 }, func() {})
	if !slices.Contains(g.holders(held[0].Fingerprint), ref()) {
		t.Error("the beginning went too")
	}
	// What the index forgets by order is told again.
	b.s.ResetIndex()
	wait("all of it again", all, func() { publish(stored) })
	publish([]any{"AllBlocksCleared"})
	wait("the clear", func() bool { return len(g.holders(held[0].Fingerprint)) == 0 }, func() {})
	// Without the setting the feed ends.
	if err := b.s.SetWorkers(specs(alpha, beta)); err != nil {
		t.Fatal(err)
	}
	if w := b.worker(alpha); w.Events != nil {
		t.Errorf("%+v", w.Events)
	}
}
