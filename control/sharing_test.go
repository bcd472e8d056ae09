package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// between is the way between the replicas of a test. What it is told to lose is lost.
type between struct {
	mu     sync.Mutex
	subs   map[string]map[int]func([]byte)
	serves map[string]map[int]func([]byte) []byte
	next   int
	lose   func() bool
}

func newBetween() *between {
	return &between{subs: map[string]map[int]func([]byte){}, serves: map[string]map[int]func([]byte) []byte{}}
}

// losing has lose say of each message from now on whether it is lost.
func (l *between) losing(lose func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = lose
}

func (l *between) Publish(subject string, data []byte) error {
	l.mu.Lock()
	lost := l.lose != nil && l.lose()
	var subs []func([]byte)
	for _, f := range l.subs[subject] {
		subs = append(subs, f)
	}
	l.mu.Unlock()
	if !lost {
		for _, f := range subs {
			f(slices.Clone(data))
		}
	}
	return nil
}

func (l *between) Request(_ context.Context, subject string, data []byte) ([]byte, error) {
	l.mu.Lock()
	var first func([]byte) []byte
	for _, f := range l.serves[subject] {
		first = f
	}
	l.mu.Unlock()
	if first == nil {
		return nil, errors.New("nobody")
	}
	return first(data), nil
}

func (l *between) Subscribe(subject string, f func([]byte)) (func(), error) {
	return enter(l, l.subs, subject, f), nil
}

func (l *between) Serve(subject string, f func([]byte) []byte) (func(), error) {
	return enter(l, l.serves, subject, f), nil
}

func enter[F any](l *between, all map[string]map[int]F, subject string, f F) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all[subject] == nil {
		all[subject] = map[int]F{}
	}
	l.next++
	at := l.next
	all[subject][at] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(all[subject], at)
	}
}

// replica runs a service that shares on l.
func replica(t *testing.T, e *engines, l *between, nonce uint64, cfg Config) *bench {
	t.Helper()
	b := startPrepared(t, e, cfg, func(s *Service) { s.startSharing(l, nonce, nonce > 1) })
	<-b.s.Serving()
	return b
}

// traffic is a gateway's requests: prompts that share beginnings.
type traffic struct {
	*gateway
	rng  *rand.Rand
	refs []uint16
	stay bool // requests are served where they were sent
}

// step reports a dispatch or two, and that some are done.
func (g *traffic) step() {
	var records [][]byte
	for range 1 + g.rng.IntN(3) {
		path := prompt(fmt.Sprint("tenant ", g.rng.IntN(5)), fmt.Sprint("chat ", g.rng.IntN(200)), fmt.Sprint("turn ", g.rng.IntN(1000)))
		ref := g.refs[g.rng.IntN(len(g.refs))]
		id, record := g.dispatch(ref, path)
		records = append(records, record)
		if g.rng.IntN(3) > 0 {
			served := ref
			if !g.stay {
				served = g.refs[g.rng.IntN(len(g.refs))]
			}
			records = append(records, done(id, ref, served, nil))
		}
	}
	g.send([]wire.InFlight{{Ref: g.refs[0], Requests: 1}}, records...)
}

// replicated has workers with room for all: of one whose cache is full a request
// that is taken back has pushed something out, and the replicas may guess that
// differently.
func replicated() Config {
	workers := specs("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
	for i := range workers {
		workers[i].CapacityTokens = 2_000_000
	}
	return Config{Workers: workers, Learn: time.Minute}
}

// gatewaysOf are four gateways at each replica.
func gatewaysOf(benches ...*bench) (out []*traffic) {
	for i, b := range benches {
		var refs []uint16
		for _, w := range b.s.fleet.Workers() {
			refs = append(refs, w.Ref)
		}
		for j := range 4 {
			out = append(out, &traffic{b.gateway(fmt.Sprintf("gw-%d-%d", i, j)), rand.New(rand.NewPCG(uint64(i), uint64(j))), refs, false})
		}
	}
	return out
}

// TestReplicasUnderTrafficHaveTheSameTable: each gateway reports to one of two
// replicas, a fifth of what they tell each other is lost.
func TestReplicasUnderTrafficHaveTheSameTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
		l := newBetween()
		a, b := replica(t, e, l, 1, replicated()), replica(t, e, l, 2, replicated())
		time.Sleep(5 * time.Second)
		rng := rand.New(rand.NewPCG(7, 7))
		l.losing(func() bool { return rng.IntN(5) == 0 })
		gateways := gatewaysOf(a, b)
		for range 200 {
			for _, g := range gateways {
				g.step()
			}
			time.Sleep(50 * time.Millisecond)
		}
		l.losing(nil) // the answers that heal the last losses aren't lost again
		time.Sleep(5 * time.Second)
		synctest.Wait()
		entriesA, digestA := a.s.table.Digest()
		entriesB, digestB := b.s.table.Digest()
		if entriesA < 1000 || entriesA != entriesB || digestA != digestB {
			t.Errorf("one has %d entries, %x, the other %d, %x", entriesA, digestA, entriesB, digestB)
		}
		sa, sb := a.s.share.Stats(time.Now()), b.s.share.Stats(time.Now())
		if sa.Again == 0 || sb.Again == 0 || sa.Lost+sb.Lost+sa.Merges+sb.Merges > 0 {
			t.Errorf("the losses were not made good by asking: %+v, %+v", sa, sb)
		}
		ta, tb := a.s.gateways.Totals(time.Now()), b.s.gateways.Totals(time.Now())
		if first := gateways[0].refs[0]; ta[first].Requests != 8 || tb[first].Requests != 8 {
			t.Errorf("in flight at the first worker: %d and %d of 8", ta[first].Requests, tb[first].Requests)
		}

		// A third one begins with what they have, and gateways that come to it from
		// another have nothing to fetch.
		c := replica(t, e, l, 3, replicated())
		if entries, digest := c.s.table.Digest(); entries != entriesA || digest != digestA {
			t.Errorf("the third has %d entries, %x", entries, digest)
		}
		if frame, ok := c.s.table.Update(1, 1, wire.Version, time.Now()); ok {
			if h, err := wire.DecodeHeader(frame); err != nil || h.KeepPages() {
				t.Errorf("gateways are told to keep what the third replica knows as well: %+v, %v", h, err)
			}
		}
	})
}

// TestReplicasThatComeUnderTrafficHaveTheSameTable: they come while gateways report to
// the others and messages are lost, two at a time: one snapshot serves both.
func TestReplicasThatComeUnderTrafficHaveTheSameTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
		l := newBetween()
		a, b := replica(t, e, l, 1, replicated()), replica(t, e, l, 2, replicated())
		time.Sleep(5 * time.Second)
		rng := rand.New(rand.NewPCG(8, 8))
		l.losing(func() bool { return rng.IntN(5) == 0 })
		gateways := gatewaysOf(a, b)
		for _, g := range gateways {
			g.stay = true // what moves while a snapshot is made may stay at both
		}
		come := make(chan *bench, 2)
		for round := range 200 {
			if round == 80 || round == 100 {
				nonce := uint64(round)
				go func() { come <- replica(t, e, l, nonce, replicated()) }()
			}
			for _, g := range gateways {
				g.step()
			}
			time.Sleep(50 * time.Millisecond)
		}
		l.losing(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		entries, digest := a.s.table.Digest()
		for i, other := range []*bench{b, <-come, <-come} {
			if n, d := other.s.table.Digest(); entries < 1000 || n != entries || d != digest {
				t.Errorf("the first has %d entries, %x, replica %d has %d, %x; %+v", entries, digest, i+1, n, d, other.s.share.Stats(time.Now()))
			}
		}
	})
}

// TestAGatewayThatMovesIsNotCountedTwice: its last batch reached one replica, which
// told the other, and the gateway didn't hear that.
func TestAGatewayThatMovesIsNotCountedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
		l := newBetween()
		a, b := replica(t, e, l, 1, replicated()), replica(t, e, l, 2, replicated())
		g := a.gateway("gw")
		ref := a.s.fleet.Workers()[0].Ref
		id, record := g.dispatch(ref, prompt("one", "two"))
		g.sequence = 1
		frame := g.frame([]wire.InFlight{{Ref: ref, Requests: 1, UncachedTokens: 64}}, record, done(id, ref, ref, nil))
		for _, at := range []*bench{a, b} {
			if status, answer := at.do("POST", "/v1/batch", frame, "application/octet-stream"); status != 200 {
				t.Fatalf("%d %s", status, answer)
			}
			synctest.Wait()
		}
		for name, at := range map[string]*bench{"the first": a, "the second": b} {
			if c := at.s.index.Stats().Counters; c.Dispatches != 1 || c.Dones != 1 {
				t.Errorf("%s counts %d dispatches, %d answers", name, c.Dispatches, c.Dones)
			}
			if n := at.s.gateways.Totals(time.Now())[ref].Requests; n != 1 {
				t.Errorf("%s sees %d requests in flight", name, n)
			}
		}
		if list := a.s.gateways.List(time.Now()); len(list) != 1 || !list[0].Elsewhere {
			t.Errorf("%+v: the gateway is at the second replica now", list)
		}
	})
}

// TestAHeartbeatAtOneReplicaCountsAtAll, with what it says of an eviction to come.
func TestAHeartbeatAtOneReplicaCountsAtAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
		l := newBetween()
		a, b := replica(t, e, l, 1, replicated()), replica(t, e, l, 2, replicated())
		beat := `{"worker":"10.0.0.2:8000","sequence":1,"load":{"age_ms":0,"running":7,"waiting":3,"kv_share":0.5},"eviction":{"in_ms":1000,"for_ms":2000,"share":0.4,"reason":"test"}}`
		status, answer := a.do("POST", "/v1/heartbeat", []byte(beat), "application/json")
		if status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		synctest.Wait()
		for name, at := range map[string]*bench{"the first": a, "the second": b} {
			for _, w := range at.s.fleet.Workers() {
				told := w.Address == "10.0.0.2:8000"
				if told != (w.Load.Running == 7 && w.Load.Waiting == 3 && w.EvictShare > 0.3) {
					t.Errorf("%s thinks of %s: %+v", name, w.Address, w.Load)
				}
			}
		}
		if s := b.s.share.Stats(time.Now()); s.Sent != 0 {
			t.Errorf("the second tells it again: %+v", s)
		}
	})
}
