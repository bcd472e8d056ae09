package control

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/eviction"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/control/tiers"
)

func TestAMassEvictionSinksTheWorthOfACacheUntilItIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		spec   discovery.Spec
		second func(i int) string // lines of the metrics page
		notice bool
	}{
		"removals": {
			discovery.Spec{Address: alpha, CapacityTokens: 100_000},
			func(i int) string { return fmt.Sprintf("sglang:evicted_tokens_total %d\n", i*40_000) }, true,
		},
		"a capacity that the engine tells": {
			discovery.Spec{Address: alpha},
			func(i int) string {
				return fmt.Sprintf("sglang:max_total_num_tokens 100000\nsglang:evicted_tokens_total %d\n", i*40_000)
			}, true,
		},
		"growth": {
			discovery.Spec{Address: alpha, CapacityTokens: 100_000},
			func(i int) string { return fmt.Sprintf("sglang:token_usage %g\n", min(0.9, 0.3+0.15*float64(i))) }, true,
		},
		"a steady one": {
			discovery.Spec{Address: alpha, CapacityTokens: 100_000},
			func(i int) string {
				return fmt.Sprintf("sglang:evicted_tokens_total %d\nsglang:token_usage 0.6\n", i*10_000)
			}, false,
		},
		"of a size that nobody knows": {
			discovery.Spec{Address: alpha},
			func(i int) string { return fmt.Sprintf("sglang:evicted_tokens_total %d\n", i*200_000) }, false,
		},
	} {
		bubble(t, func(t *testing.T) {
			e := newEngines(alpha)
			b := start(t, e, Config{Workers: []discovery.Spec{c.spec}})
			<-b.s.Ready()
			g := b.gateway("g")
			var most float32
			for i := range 7 {
				e.measure(alpha, c.second(i))
				time.Sleep(time.Second)
				g.catchUp()
				most = max(most, g.loads[g.refOf(alpha)].EvictShare)
			}
			if (most > 0.5) != c.notice {
				t.Errorf("%s: at most %v announced", name, most)
			}
			if said := slices.ContainsFunc(b.worker(alpha).Degraded, func(s string) bool { return strings.Contains(s, "of its cache goes") }); c.notice && !said {
				t.Errorf("%s: %q", name, b.worker(alpha).Degraded)
			}
			e.measure(alpha, c.second(6))
			time.Sleep(12 * time.Second)
			g.catchUp()
			if l := g.loads[g.refOf(alpha)]; l.EvictShare != 0 {
				t.Errorf("%s: a notice that doesn't end: %+v", name, l)
			}
		})
	}
}

// replaying is an engine's replay socket, which has these batches for whoever
// asks first.
func replaying(t *testing.T, batches [][]byte) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		z, err := zmq4.Open(c, null.Security(), zmq4.Router, nil, true, nil)
		if err != nil {
			return
		}
		if _, err := z.RecvMsg(); err != nil {
			return
		}
		send := func(seq int, payload []byte) {
			_ = z.SendMsg(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, uint64(seq)), payload))
		}
		for seq, b := range batches {
			send(seq, b)
		}
		send(-1, nil)
		_, _ = z.RecvMsg() // until it is closed
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

// A full cache has removed as much as it has stored, over hours. A replay tells
// all of that in a moment.
func TestOldRemovalsInAReplayAreNoMassEviction(t *testing.T) {
	const turns, blocks, size = 50, 8, 16
	var batches [][]byte
	add := func(event []any) { batches = append(batches, eventBatch(float64(len(batches)+1), event)) }
	for turn := range turns + 1 {
		var hashes, tokens []any
		for i := range blocks {
			hashes = append(hashes, turn*blocks+i+1)
		}
		for i := range blocks * size {
			tokens = append(tokens, turn*blocks*size+i)
		}
		add([]any{"BlockStored", hashes, nil, tokens, size, nil, "GPU"})
		add([]any{"BlockRemoved", hashes, "GPU"})
	}
	old, live := batches[:2*turns], batches[2*turns:]

	p := newPublisher(t)
	x := index.New(index.Config{})
	x.AddWorker(index.WorkerSpec{Ref: 1, Pool: "default", CapacityTokens: 1000})
	told := make(chan struct{}, 16)
	source := kvevents.NewSource(
		kvevents.Endpoint{Events: "tcp://" + p.listener.Addr().String(), Replay: "tcp://" + replaying(t, old), Topic: "kv"},
		kvevents.Config{Pool: "default"}, &sink{index: x, tiers: tiers.New(), ref: 1}, func() { told <- struct{}{} }, slog.New(slog.DiscardHandler))
	s := &Service{feeds: feeds{byRef: map[uint16]*feed{1: {sources: []followed{{source, "one"}}}}}}
	w := discovery.Worker{Spec: discovery.Spec{CapacityTokens: 1000}, Ref: 1}
	var d eviction.Detector
	now := time.Unix(1_700_000_000, 0)
	notice := func() eviction.Notice {
		removed, capacity := s.removals(&w)
		d.Observe(removed, capacity, 0, now)
		n := d.Notice(now)
		now = now.Add(time.Second)
		return n
	}
	if n := notice(); n.Active() {
		t.Fatalf("before anything: %+v", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { source.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	<-told
	if st := source.Status(); st.Next != 2*turns || st.Map.Removed != turns*blocks {
		t.Fatalf("after the replay: %+v", st)
	}
	if n := notice(); n.Active() {
		t.Errorf("a replay of %d removals: %+v", turns*blocks, n)
	}
	// A cache on CPU that turns over is no eviction, nor is what moves there.
	seq := 2 * turns
	tell := func(batches ...[]byte) {
		for _, b := range batches {
			p.send(zmq4.NewMsgFrom([]byte("kv@x"), binary.BigEndian.AppendUint64(nil, uint64(seq)), b))
			seq++
			<-told
		}
	}
	w.CapacityTokens = 256
	<-p.joined
	for i := range 8 {
		hashes, tokens := make([]any, blocks), make([]any, blocks*size)
		for k := range hashes {
			hashes[k] = 100_000 + i*blocks + k
		}
		for k := range tokens {
			tokens[k] = i*len(tokens) + k
		}
		tell(eventBatch(1000+float64(i), []any{"BlockStored", hashes, nil, tokens, size, nil, "CPU"}),
			eventBatch(1000+float64(i), []any{"BlockStored", hashes, nil, tokens, size, nil, "GPU"}),
			eventBatch(1000+float64(i), []any{"BlockRemoved", hashes, "GPU"}),
			eventBatch(1000+float64(i), []any{"BlockRemoved", hashes, "CPU"}))
		if n := notice(); n.Active() {
			t.Fatalf("after %d of 8 prompts that went by way of the CPU: %+v", i, n)
		}
	}
	// What goes now is noticed: 128 tokens in a second of a cache of 256.
	tell(live...)
	if n := notice(); !n.Active() {
		t.Error("removals that are told as they happen are not noticed")
	}
}
