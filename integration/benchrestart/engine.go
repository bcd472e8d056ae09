package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

const (
	blockTokens = 16
	promptLen   = 30 // blocks that a batch stores while the cache fills
	churnLen    = 4  // afterwards, and as many removals
	// replayKept batches can be asked for again, as in vLLM's default.
	replayKept = 10_000
	topic      = "kv-events"
)

// engine publishes KV events as vLLM does, of a cache that never serves anybody:
// its first batch stores a prefix that stays, the following ones fill the cache,
// and from then on each batch stores a prompt and removes the oldest.
type engine struct {
	seed   uint64
	blocks int
	server *httptest.Server

	mu      sync.Mutex
	joined  *sync.Cond
	clients []*zmq4.Conn
	replay  [][]byte // the last payloads
	next    uint64   // sequence number

	prompts  [][]uint64 // block names, oldest first; the prefix isn't among them
	resident int
	random   uint64

	truth held
	truly *kvevents.Map // the same events applied, for truth
	batch kvevents.Batch

	listeners []net.Listener
	wg        sync.WaitGroup
}

// held are the checkpoints that the engine holds.
type held struct {
	now   map[uint64]bool
	first []uint64 // of the prefix
}

func (h *held) Hold(path []fingerprint.Checkpoint) {
	for _, c := range path {
		h.now[c.Fingerprint] = true
	}
}
func (h *held) Drop(fp uint64) { delete(h.now, fp) }

// Slow is nothing here: all of it is on the GPU.
func (h *held) Slow(uint64, bool) {}

func (h *held) Clear() { clear(h.now) }

// cacheConfig is what fingerprints begin with, here as in the control service.
var cacheConfig = kvevents.Config{Pool: "default"}

func newEngine(n, blocks int) (*engine, error) {
	e := &engine{seed: uint64(n + 1), random: uint64(n+1) * 0x9e3779b97f4a7c15, blocks: blocks, truth: held{now: map[uint64]bool{}}}
	e.joined = sync.NewCond(&e.mu)
	e.truly = kvevents.NewMap(cacheConfig, &e.truth)
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			e.close()
			return nil, fmt.Errorf("listen for events: %w", err)
		}
		e.listeners = append(e.listeners, l)
	}
	e.wg.Go(func() { e.accept(e.listeners[0], zmq4.Pub, e.subscribe) })
	e.wg.Go(func() { e.accept(e.listeners[1], zmq4.Router, e.answer) })
	e.server = httptest.NewServer(http.HandlerFunc(e.http))
	return e, nil
}

func (e *engine) address() string { return e.server.Listener.Addr().String() }

func (e *engine) close() {
	for _, l := range e.listeners {
		_ = l.Close()
	}
	if e.server != nil {
		e.server.Close()
	}
	e.mu.Lock()
	for _, c := range e.clients {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *engine) http(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
	case "/metrics":
		fmt.Fprintf(w, "process_start_time_seconds %d\nvllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n", 1000+e.seed)
	case "/kv_event_sources":
		fmt.Fprintf(w, `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://%s","replay_endpoint":"tcp://%s","topic":%q}}`,
			e.listeners[0].Addr(), e.listeners[1].Addr(), topic)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (e *engine) accept(l net.Listener, kind zmq4.SocketType, serve func(*zmq4.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.wg.Go(func() {
			defer c.Close()
			if z, err := zmq4.Open(c, null.Security(), kind, nil, true, nil); err == nil {
				serve(z)
			}
		})
	}
}

func (e *engine) subscribe(z *zmq4.Conn) {
	if _, err := z.RecvMsg(); err != nil {
		return
	}
	e.mu.Lock()
	e.clients = append(e.clients, z)
	e.mu.Unlock()
	e.joined.Broadcast()
	_, _ = z.RecvMsg() // until it is closed
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, c := range e.clients {
		if c == z {
			e.clients = append(e.clients[:i], e.clients[i+1:]...)
			break
		}
	}
}

// waitForClient returns when somebody listens.
func (e *engine) waitForClient() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.clients) == 0 {
		e.joined.Wait()
	}
}

func (e *engine) answer(z *zmq4.Conn) {
	msg, err := z.RecvMsg()
	if err != nil || len(msg.Frames) < 2 || len(msg.Frames[len(msg.Frames)-1]) != 8 {
		return
	}
	from := binary.BigEndian.Uint64(msg.Frames[len(msg.Frames)-1])
	e.mu.Lock()
	first := e.next - uint64(len(e.replay))
	kept := e.replay
	if from > first {
		kept = kept[min(from-first, uint64(len(kept))):]
		first = max(first, from)
	}
	e.mu.Unlock()
	for i, payload := range kept {
		if z.SendMsg(zmq4.NewMsgFrom(nil, []byte(topic), number(first+uint64(i)), payload)) != nil {
			return
		}
	}
	_ = z.SendMsg(zmq4.NewMsgFrom(nil, nil, number(^uint64(0)), nil))
	_, _ = z.RecvMsg()
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (e *engine) draw() uint64 {
	e.random ^= e.random << 13
	e.random ^= e.random >> 7
	e.random ^= e.random << 17
	return e.random
}

// step publishes the next batch.
func (e *engine) step() error {
	payload := e.nextBatch()
	if err := kvevents.Decode(payload, &e.batch); err != nil {
		return err
	}
	e.truly.Apply(&e.batch)
	if e.next == 0 {
		for fp := range e.truth.now {
			e.truth.first = append(e.truth.first, fp)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	seq := e.next
	e.next++
	if e.replay = append(e.replay, payload); len(e.replay) > replayKept {
		e.replay = e.replay[1:]
	}
	for _, c := range e.clients {
		_ = c.SendMsg(zmq4.NewMsgFrom([]byte(topic), number(seq), payload)) // who has left gets nothing
	}
	return nil
}

func (e *engine) nextBatch() []byte {
	n := promptLen
	var removed []uint64
	if e.resident+promptLen > e.blocks {
		n = churnLen
		for len(removed) < churnLen {
			oldest := e.prompts[0]
			take := min(churnLen-len(removed), len(oldest))
			for i := range take { // leaf first
				removed = append(removed, oldest[len(oldest)-1-i])
			}
			if e.prompts[0] = oldest[:len(oldest)-take]; len(e.prompts[0]) == 0 {
				e.prompts = e.prompts[1:]
			}
		}
		e.resident -= churnLen
	}
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, float64(e.next))
	b = msgp.AppendArrayHeader(b, uint32(1+len(removed)))
	for _, h := range removed {
		b = msgp.AppendMapHeader(b, 2)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockRemoved")
		b = msgp.AppendString(b, "block_hashes")
		b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), h)
	}
	hashes := make([]uint64, n)
	b = msgp.AppendMapHeader(b, 5)
	b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockStored")
	b = msgp.AppendString(b, "block_hashes")
	b = msgp.AppendArrayHeader(b, uint32(n))
	for i := range hashes {
		hashes[i] = e.draw()
		b = msgp.AppendUint64(b, hashes[i])
	}
	b = msgp.AppendNil(msgp.AppendString(b, "parent_block_hash"))
	b = msgp.AppendString(b, "token_ids")
	b = msgp.AppendArrayHeader(b, uint32(n*blockTokens))
	for range n * blockTokens {
		b = msgp.AppendUint32(b, uint32(e.draw()%8000))
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), blockTokens)
	e.resident += n
	if e.next > 0 {
		e.prompts = append(e.prompts, hashes)
	}
	return msgp.AppendInt(b, 0)
}
