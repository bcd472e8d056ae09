package control

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
)

// told is a control service that follows one engine's events, and a gateway.
type told struct {
	*bench
	*gateway
	p    *publisher
	hash policy.Hash
	seq  uint64
}

func listening(t *testing.T, l *loaded) *told {
	t.Helper()
	path, hash := wpv(t, t.TempDir(), "a.wpv", "Hello", "lo")
	p := newPublisher(t)
	list := specs(alpha)
	list[0].KVEvents = discovery.KVEvents{Endpoint: "tcp://" + p.listener.Addr().String(), Topic: "kv"}
	e := newEngines(alpha)
	e.models = l.answer
	b := serveOn(t, announcing{e, ""}, Config{
		Workers: list, Learn: -1, Discovery: Discovery{AdaptersInterval: time.Second},
		Policy: fmt.Appendf(nil, "pools:\n- {name: default, models: [base], tokenizer: {file: %q, template: chatml, engine: sglang, parity: off}}\n", path),
	})
	<-b.s.Ready()
	x := &told{bench: b, gateway: b.gateway("g"), p: p, hash: hash}
	x.catchUp()
	x.until("a connection", func() bool {
		x.report(hash, 1)
		w := x.worker(alpha)
		return w.Events != nil && w.Events.Source == "connected"
	})
	<-p.joined
	return x
}

func (x *told) publish(event map[string]any) {
	x.p.send(zmq4.NewMsgFrom([]byte("kv@x"), binary.BigEndian.AppendUint64(nil, x.seq), eventBatch(float64(x.seq+1), event)))
	x.seq++
}

func (x *told) until(what string, ok func() bool) {
	x.bench.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); x.poll(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.bench.t.Fatalf("not within 20 s: %s; %+v", what, x.worker(alpha).Events)
		}
	}
}

// stored is the event of a prompt of 64 tokens in blocks of 16.
func stored(adapter, medium string) map[string]any {
	tokens := make([]any, 64)
	for i := range tokens {
		tokens[i] = i
	}
	return map[string]any{"type": "BlockStored", "block_hashes": []any{1, 2, 3, 4}, "token_ids": tokens, "block_size": 16, "lora_name": adapter, "medium": medium}
}

// checkpoint is what gateways ask for by that prompt.
func checkpoint(adapter string, generation uint64) uint64 {
	tokens := make([]uint32, 64)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	var chain fingerprint.Chain
	chain.Reset(fingerprint.Salt("default", adapter, generation, "", fingerprint.Exact))
	chain.WriteTokens(tokens)
	return chain.Finish()[0].Fingerprint
}

func TestWhatAnEngineKeepsInSlowerMemoryHasAKeyOfItsOwn(t *testing.T) {
	x := listening(t, &loaded{names: map[string][]string{}})
	slow, fast := fingerprint.Slow(checkpoint("", 0)), checkpoint("", 0)
	in := func(keys ...uint64) func() bool {
		return func() bool {
			held := 0
			for _, key := range []uint64{slow, fast} {
				held += len(x.holders(key))
			}
			for _, key := range keys {
				held += 10 * len(x.holders(key))
			}
			return held == 11*len(keys)
		}
	}
	if x.poolFor("base").SlowCredit != 0 {
		t.Error("a pool without slower memory is asked for some")
	}
	x.publish(stored("", "GPU"))
	x.until("on the GPU", in(fast))
	x.publish(stored("", "CPU"))
	x.publish(map[string]any{"type": "BlockRemoved", "block_hashes": []any{1, 2}, "medium": "GPU"})
	x.until("the beginning on CPU alone", in(slow))
	if e := x.worker(alpha).Events; e.Slow != 4 || e.Held != 0 {
		t.Errorf("%+v", e)
	}
	x.until("credit", func() bool { return x.poolFor("base").SlowCredit == slowCredit })
	x.publish(stored("", "GPU"))
	x.until("loaded back", in(fast))
	x.publish(map[string]any{"type": "AllBlocksCleared"})
	x.until("a reset", in())
	x.publish(stored("", "CPU"))
	x.until("on CPU again", in(slow))
	if _, page := x.do("GET", "/metrics", nil, ""); !strings.Contains(string(page), `warmpath_control_kv_event_slow_blocks{worker="`+alpha+`"} 4`) {
		t.Error("no metric says so")
	}
	if err := x.s.SetWorkers(specs(alpha)); err != nil {
		t.Fatal(err)
	}
	x.until("its events aren't followed any more", in())
}

func TestAnAdaptersEntriesGoWithItsWeightsAndComeBackWithThem(t *testing.T) {
	l := &loaded{names: map[string][]string{alpha: {"sql from /v1"}}}
	x := listening(t, l)
	x.until("the adapter's generation", func() bool { return x.canonical("sql").Generation != 0 })
	generation := x.canonical("sql").Generation
	is := func(generation uint64, there bool) func() bool {
		return func() bool { return len(x.holders(checkpoint("sql", generation))) == 1 == there }
	}
	x.publish(stored("sql", "GPU"))
	x.until("the adapter's prompt", is(generation, true))
	l.set(alpha, "sql from /v2")
	x.until("other weights", is(generation, false))
	x.until("another generation", func() bool { return x.canonical("sql").Generation != generation })
	l.set(alpha, "sql from /v1")
	x.until("the old weights", is(generation, true))
	x.until("their generation", func() bool { return x.canonical("sql").Generation == generation })
	if err := x.s.SetPolicy([]byte(strings.Replace(string(x.bench.s.Policy()), `"name":"default"`, `"name":"default","adapters":{"sql":9}`, 1))); err != nil {
		t.Fatal(err)
	}
	x.until("a generation by the policy", is(generation, false))
	w := x.worker(alpha)
	if w.AdaptersProblem != "" || x.canonical("sql").Generation != 9 {
		t.Errorf("%q, %+v", w.AdaptersProblem, x.canonical("sql"))
	}
}
