package control

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// TestChurnUnderLoadEndsInOneTruth runs gateways that report and poll, while
// workers come, go, restart and drain and modes switch, all at once and over
// real connections. It is meant for the race detector; at the end every gateway
// has what is published, and nobody is named who isn't there.
func TestChurnUnderLoadEndsInOneTruth(t *testing.T) {
	const workers, gateways, rounds = 12, 16, 60
	var addresses []string
	for i := range workers {
		addresses = append(addresses, fmt.Sprintf("10.0.2.%d:8000", i))
	}
	e := newEngines(addresses...)
	b := serve(t, e, Config{Listen: "127.0.0.1:0", Workers: specs(addresses...), CoalesceInterval: 10 * time.Millisecond})
	<-b.s.Ready()

	var clients sync.WaitGroup
	all := make([]*gateway, gateways)
	for i := range all {
		g := b.gateway(fmt.Sprint("g", i))
		all[i] = g
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				g.poll(0)
				var refs []uint16
				for ref := range g.roster {
					refs = append(refs, ref)
				}
				if len(refs) == 0 {
					continue
				}
				ref := refs[rng.IntN(len(refs))]
				id, record := g.dispatch(ref, prompt("system", fmt.Sprint(rng.IntN(50))))
				g.send(nil, record)
				g.send(nil, done(id, ref, ref, nil))
			}
		})
	}
	stop := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		rng := rand.New(rand.NewPCG(9, 9))
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			k := rng.IntN(workers)
			switch n % 5 {
			case 0:
				list := specs(addresses...)
				if err := b.s.SetWorkers(append(list[:k], list[k+1:]...)); err != nil {
					t.Error(err)
				}
			case 1:
				e.set(addresses[k], rng.Uint64N(1<<30))
			case 2:
				b.do("POST", "/v1/mode", fmt.Appendf(nil, `{"off":%v}`, n%10 < 5), "application/json")
			case 3:
				b.do("GET", "/metrics", nil, "")
				b.do("GET", "/v1/status", nil, "")
			case 4:
				_ = b.s.Drain(addresses[k], n%2 == 0)
			}
		}
	})
	clients.Wait()
	close(stop)
	churn.Wait()

	if err := b.s.SetWorkers(specs(addresses...)); err != nil {
		t.Fatal(err)
	}
	last := prompt("the last word")
	g := all[0]
	// The last restarts are seen by the next scrapes.
	settled := func() bool {
		if len(g.roster) != workers {
			return false
		}
		for _, w := range g.roster {
			if w.Generation != e.generation(string(w.Address)) {
				return false
			}
		}
		return true
	}
	for began := time.Now(); !settled(); g.poll(time.Second) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("roster of %d", len(g.roster))
		}
	}
	_, record := g.dispatch(g.refOf(addresses[0]), last)
	if err := b.s.SetOff(false); err != nil {
		t.Fatal(err)
	}
	g.send(nil, record)
	key := last[len(last)-1].Fingerprint
	for i, g := range all {
		for began := time.Now(); ; g.poll(time.Second) {
			if _, ok := g.entries[key]; ok {
				break
			}
			if time.Since(began) > 20*time.Second {
				t.Fatalf("gateway %d never saw the last entry", i)
			}
		}
		g.catchUp()
		for f, entry := range g.entries {
			for _, ref := range entry.Refs {
				if _, ok := g.roster[ref]; ref != 0 && !ok {
					t.Fatalf("gateway %d: %x names ref %d, which nobody has", i, f, ref)
				}
			}
		}
	}
	if n := b.s.Status().Table.Entries; len(all[3].entries) != n {
		t.Errorf("%d entries at a gateway, %d published", len(all[3].entries), n)
	}
}

// TestFiftyGatewaysThatWaitAreAllWokenByOneChange: and none is waited for.
func TestFiftyGatewaysThatWaitAreAllWokenByOneChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha), Config{Workers: specs(alpha)})
		<-b.s.Ready()
		b.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 60
		reporter := b.gateway("reporter")
		reporter.catchUp()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var slowest time.Duration
		for i := range 50 {
			g := b.gateway(fmt.Sprint("g", i))
			g.catchUp()
			wg.Go(func() {
				began := time.Now()
				for len(g.entries) == 0 {
					g.poll(10 * time.Second)
				}
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				mu.Unlock()
			})
		}
		_, record := reporter.dispatch(reporter.refOf(alpha), prompt("system"))
		reporter.send(nil, record)
		wg.Wait()
		if slowest > 60*time.Millisecond {
			t.Errorf("the slowest waited %v", slowest)
		}
	})
}

// BenchmarkBatch is a batch of 1,000 dispatches of 40 checkpoints, half of which
// they share.
func BenchmarkBatch(b *testing.B) {
	e := newEngines(alpha)
	s, err := New(Config{Listen: "127.0.0.1:0", Workers: specs(alpha), Transport: e})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.fleet.Observe(alpha, discovery.Observation{OK: true, Load: &discovery.Load{Known: true, StartedMillis: 1}}, time.Now())
	var ref uint16
	for _, w := range s.fleet.Workers() {
		ref = w.Ref
	}
	g := &gateway{name: "g", nonce: 1}
	rng := rand.New(rand.NewPCG(1, 2))
	var records [][]byte
	for i := range 4000 {
		var path []fingerprint.Checkpoint
		for j := range 40 {
			f := uint64(i%32+1)<<20 | uint64(j)
			if j >= 20 {
				f = rng.Uint64() | 1
			}
			path = append(path, fingerprint.Checkpoint{Fingerprint: f, End: uint32(j+1) * 16})
		}
		_, r := g.dispatch(ref, path)
		records = append(records, r)
	}
	b.ReportAllocs()
	for i := range b.N {
		b.StopTimer()
		frame := g.chunked(records[i%4*1000:][:1000])
		b.StartTimer()
		if _, err := s.Batch(frame); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "us/report")
}

// chunked spreads records over as many chunks as they need.
func (g *gateway) chunked(records [][]byte) []byte {
	frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Batch})
	frame = wire.AppendSection(frame, wire.SectionGateway, wire.AppendGateway(nil, &wire.Gateway{Nonce: g.nonce, LiveRows: 1, Name: g.name}))
	for len(records) > 0 {
		g.sequence++
		chunk := wire.AppendChunk(nil, wire.Chunk{Sequence: g.sequence, Nonce: g.nonce})
		for len(records) > 0 && len(chunk)+len(records[0]) <= wire.MaxChunkBytes {
			chunk = append(chunk, records[0]...)
			records = records[1:]
		}
		frame = wire.AppendReports(frame, 0, chunk)
	}
	return frame
}
