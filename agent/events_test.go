package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/control/kvevents"
)

// publisher is an engine's event socket for one subscriber.
type publisher struct {
	net.Listener
	send chan []any
	wg   sync.WaitGroup
}

func newPublisher(t *testing.T) *publisher {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{Listener: l, send: make(chan []any)}
	p.wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		z, err := zmq4.Open(c, null.Security(), zmq4.Pub, nil, true, nil)
		if err != nil {
			return
		}
		if _, err := z.RecvMsg(); err != nil { // what is subscribed to
			return
		}
		seq := uint64(0)
		for event := range p.send {
			payload, err := msgp.AppendIntf(nil, []any{float64(seq), []any{event}, 0})
			if err != nil {
				t.Error(err)
			}
			_ = z.SendMsg(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, seq), payload))
			seq++
		}
	})
	t.Cleanup(func() { close(p.send); l.Close(); p.wg.Wait() })
	return p
}

// vLLM counts no removals in its metrics. A real clock: sockets have no other.
func TestRemovalsAreCountedByEvents(t *testing.T) {
	const blocks, size = 500, 16
	p := newPublisher(t)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, idlePage+`vllm:cache_config_info{block_size="16",num_gpu_blocks="500"} 1`+"\n")
	}))
	defer engine.Close()
	type notice struct {
		Share  float64 `json:"share"`
		Reason string  `json:"reason"`
	}
	notices := make(chan notice, 100)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var h struct {
			Eviction *notice `json:"eviction"`
		}
		if err := json.NewDecoder(r.Body).Decode(&h); err == nil && h.Eviction != nil {
			notices <- *h.Eviction
		}
		_, _ = io.WriteString(w, `{"applied":true}`)
	}))
	defer control.Close()
	a, err := New(Config{Engine: engine.URL, Control: []string{control.URL}, Interval: 100 * time.Millisecond, DrainFor: time.Millisecond, Events: kvevents.Endpoint{Events: "tcp://" + p.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, nil) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var hashes, tokens []any
	for i := range blocks {
		hashes = append(hashes, i+1)
		for range size {
			tokens = append(tokens, i)
		}
	}
	p.send <- []any{"BlockStored", hashes, nil, tokens, size, nil, "GPU"}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i+20 <= blocks; i += 20 { // 200 blocks a second of 500
		select {
		case n := <-notices:
			if n.Share < 0.4 || n.Reason == "" {
				t.Errorf("%+v", n)
			}
			return
		case <-tick.C:
			p.send <- []any{"BlockRemoved", hashes[i : i+20], "GPU"}
		}
	}
	t.Error("no notice of 200 blocks a second")
}
