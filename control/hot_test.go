package control

import (
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

// homesIn reads the HOMES section of a whole table.
func homesIn(t *testing.T, frame []byte) (homes []wire.Home, refs [][]uint16) {
	t.Helper()
	err := wire.ForEachSection(frame, func(s wire.Section) error {
		if s.Type != wire.SectionHomes {
			return nil
		}
		return wire.ForEachHome(s.Payload, func(h *wire.Home) error {
			var all []uint16
			h.Refs(func(ref uint16) { all = append(all, ref) })
			homes, refs = append(homes, *h), append(refs, all)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return homes, refs
}

// TestAHotPrefixGetsHomesAndLosesThem: from dispatch reports to the section that gateways read,
// and to the status.
func TestAHotPrefixGetsHomesAndLosesThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		a := g.refOf(alpha)
		shared := prompt("everybody's system prompt")
		hot := shared[len(shared)-1]
		for second := range 4 {
			var reports [][]byte
			for i := range 20 {
				own := slices.Concat(shared, []fingerprint.Checkpoint{{Fingerprint: uint64(second*100 + i + 1), End: hot.End + 40}})
				_, report := g.dispatch(a, own)
				reports = append(reports, report)
			}
			g.send([]wire.InFlight{{Ref: a, Requests: 20, UncachedTokens: 100}}, reports...)
			time.Sleep(500 * time.Millisecond)
		}
		frame, _ := b.s.table.Update(0, 0, wire.Version, time.Now())
		homes, refs := homesIn(t, frame)
		if len(homes) != 1 || homes[0].Fingerprint != hot.Fingerprint || homes[0].Units != hot.End || len(refs[0]) != 2 {
			t.Fatalf("homes %+v for workers %v, want both for the shared prompt", homes, refs)
		}
		st := b.s.Status()
		if len(st.Hot) != 1 || st.Hot[0].Tokens != int(hot.End)*16 || st.Hot[0].Share < 0.95 || !slices.Contains(st.Hot[0].Homes, beta) {
			t.Errorf("status: %+v", st.Hot)
		}
		time.Sleep(20 * time.Second)
		frame, _ = b.s.table.Update(0, 0, wire.Version, time.Now())
		if homes, _ := homesIn(t, frame); len(homes) != 0 || len(b.s.Status().Hot) != 0 {
			t.Errorf("cooled for 20 s: %+v", homes)
		}
	})
}

// TestADrainingWorkerIsNobodysHome: what it holds has its homes elsewhere, from the next plan on.
func TestADrainingWorkerIsNobodysHome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, g := serving(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		shared := prompt("everybody's system prompt")
		hot := shared[len(shared)-1]
		homes := func(seconds int, at uint16) (refs []uint16) {
			for second := range seconds {
				var reports [][]byte
				for i := range 20 {
					own := slices.Concat(shared, []fingerprint.Checkpoint{{Fingerprint: uint64(int(at)*10_000 + second*100 + i + 1), End: hot.End + 40}})
					_, report := g.dispatch(at, own)
					reports = append(reports, report)
				}
				g.send([]wire.InFlight{{Ref: at, Requests: 20, UncachedTokens: 100}}, reports...)
				time.Sleep(500 * time.Millisecond)
			}
			frame, _ := b.s.table.Update(0, 0, wire.Version, time.Now())
			_, of := homesIn(t, frame)
			return slices.Concat(of...)
		}
		a, other := g.refOf(alpha), g.refOf(beta)
		if got := homes(4, a); len(got) != 2 {
			t.Fatalf("homes at %v, want both workers", got)
		}
		if err := b.s.Drain(alpha, true); err != nil {
			t.Fatal(err)
		}
		if got := homes(3, other); slices.Contains(got, a) {
			t.Errorf("homes at %v, of which %d is draining", got, a)
		}
	})
}

// TestHomesAreForThoseUnderWay: a prefix whose requests are soon done needs no second home, however
// many others are on their way.
func TestHomesAreForThoseUnderWay(t *testing.T) {
	for _, c := range []struct {
		what  string
		soon  bool
		homes int
	}{{"hot requests go on", false, 2}, {"hot requests are soon done", true, 0}} {
		bubble(t, func(t *testing.T) {
			b, g := serving(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
			a, sequence := g.refOf(alpha), uint64(0)
			shared := prompt("everybody's system prompt")
			hot := shared[len(shared)-1]
			for range 4 {
				var reports [][]byte
				for i := range 20 {
					sequence++
					id, report := g.dispatch(a, slices.Concat(shared, []fingerprint.Checkpoint{{Fingerprint: sequence, End: hot.End + 40}}))
					reports = append(reports, report)
					if c.soon {
						reports = append(reports, done(id, a, a, nil))
					}
					if i%2 == 0 { // the hot ones are two thirds: clearly more than a worker's share
						_, other := g.dispatch(a, []fingerprint.Checkpoint{{Fingerprint: sequence << 32, End: 40}})
						reports = append(reports, other)
					}
				}
				g.send([]wire.InFlight{{Ref: a, Requests: 20, UncachedTokens: 100}}, reports...)
				time.Sleep(planEvery + 70*time.Millisecond) // never at the moment of a plan
			}
			frame, _ := b.s.table.Update(0, 0, wire.Version, time.Now())
			homes, refs := homesIn(t, frame)
			got := 0
			for i := range homes {
				got += len(refs[i])
			}
			if got != c.homes {
				t.Errorf("%s: homes %v, want %d", c.what, refs, c.homes)
			}
		})
	}
}

// TestAWorkerThatComesIsYoung: who was there at the start isn't, who comes later or has dropped
// all is.
func TestAWorkerThatComesIsYoung(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		b := start(t, e, Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		g := b.gateway("g")
		age := func(address string) uint32 {
			g.catchUp()
			return g.caches[g.refOf(address)].EmptyAgeMillis
		}
		if n, m := age(alpha), age(beta); n != 0 || m != 0 {
			t.Errorf("those that were there are %d and %d ms old", n, m)
		}
		e.set(beta, 5000) // another process
		time.Sleep(8 * time.Second)
		n := age(beta)
		if n < 1000 || n > 8000 {
			t.Errorf("a restarted worker is %d ms old", n)
		}
		time.Sleep(5 * time.Second)
		if later := age(beta); later < n+4000 || later > n+6100 {
			t.Errorf("%d ms old, and %d ms five seconds later", n, later)
		}
		if n := age(alpha); n != 0 {
			t.Errorf("the other one is %d ms old", n)
		}
		time.Sleep(11 * time.Minute)
		if n := age(beta); n != 0 {
			t.Errorf("after 11 minutes it is %d ms old", n)
		}
	})
}
