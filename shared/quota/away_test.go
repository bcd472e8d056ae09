package quota

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestWhoTurnsRequestsAwayIsNotContentWhenNobodyWaits: P0 has most of the pool, refuses for want of
// room, and nobody of it waits when the report is written. What is left is its own, not P2's, until a
// while after the last refusal.
func TestWhoTurnsRequestsAwayIsNotContentWhenNobodyWaits(t *testing.T) {
	b := newBench(t, `{}`, 100)
	refused := uint32(5000) // since the process began, long before the ledger
	p0 := func(waiting uint32, more uint32) *Lease {
		b.now += 90 * millis
		refused += more
		return b.renew(1, wire.Used{Tenant: wire.WholeClass, Class: 0, InUse: 80, Waiting: waiting, Refused: refused}, ofClass(2, 0, 50))
	}
	p2 := func(l *Lease) uint32 {
		g, ok := l.Pool(0, b.now)
		if !ok {
			t.Fatal("no lease")
		}
		return g.Class[2].Slots
	}
	for range 3 {
		if got := p2(p0(0, 0)); got != 20 {
			t.Errorf("P2 has %d of 20 that P0 doesn't ask for: what was refused before the ledger began counts", got)
		}
	}
	for i := range 20 { // 30 a second
		got := p2(p0(0, 3))
		if i >= 15 && got != 0 {
			t.Errorf("P2 has %d while P0 turns away 30 a second", got)
		}
	}
	if s := b.ledger.Pools(b.now)[0].Class[0]; s.Refused != 60 {
		t.Errorf("%d refused, want 60", s.Refused)
	}
	b.now += int64(4 * time.Second)
	if got := p2(p0(0, 0)); got != 19 && got != 20 {
		t.Errorf("P2 has %d of 20, four seconds after the last refusal", got)
	}
	refused = 3 // the gateway's cell was made anew
	if p0(0, 0); b.ledger.Pools(b.now)[0].Class[0].Refused != 60 {
		t.Error("a count that begins again counts")
	}
}

// TestRoundingIsNobodysShare: eight gateways and a hundred slots, and all classes ask for more than
// there is. What is lost by rounding in each gateway is not P2's: it would have a tenth of the pool.
func TestRoundingIsNobodysShare(t *testing.T) {
	b := newBench(t, `{"classes": {"p0": {"share": 0.55}, "p1": {"share": 0.45}}}`, 100)
	ask := func(g uint64) Grant {
		grant, ok := b.renew(g, ofClass(0, 0, 50), ofClass(1, 0, 50), ofClass(2, 0, 50)).Pool(0, b.now)
		if !ok {
			t.Fatal("no lease")
		}
		return grant
	}
	total := [3]uint32{}
	for range 4 {
		total = [3]uint32{}
		for g := range uint64(8) {
			grant := ask(g + 1)
			for c := range total {
				total[c] += grant.Class[c].Slots
			}
		}
	}
	if total[2] != 0 || total[0] < 52 || total[1] < 36 {
		t.Errorf("P0 to P2 have %v of 100", total)
	}
}

// TestRoundingStarvesNoClass: of a small pool each gateway's part is one slot and a half, which is one
// or two. Over all gateways the classes have their shares all the same, and no slot is lost.
func TestRoundingStarvesNoClass(t *testing.T) {
	b := newBench(t, `{"classes": {"p0": {"share": 0.6}, "p1": {"share": 0.4}}}`, 12)
	total := [3]uint32{}
	for range 4 {
		total = [3]uint32{}
		for g := range uint64(8) {
			grant, ok := b.renew(g+1, ofClass(0, 0, 50), ofClass(1, 0, 50)).Pool(0, b.now)
			if !ok {
				t.Fatal("no lease")
			}
			for c := range total {
				total[c] += grant.Class[c].Slots
			}
		}
	}
	if total[0] < 6 || total[1] < 4 || total[0]+total[1] != 12 || total[2] != 0 {
		t.Errorf("P0 to P2 have %v of 12", total)
	}
}

// TestRoundingLosesNoSlots: whatever the pool and however many gateways ask for all of it, it is
// given out to the last slot, and never more.
func TestRoundingLosesNoSlots(t *testing.T) {
	for _, gateways := range []uint64{1, 2, 3, 5, 8, 13, 64} {
		for _, slots := range []uint32{1, 2, 7, 12, 31, 64, 100, 129} {
			b := newBench(t, `{}`, slots)
			total := uint32(0)
			for range 4 {
				total = 0
				for g := range gateways {
					grant, ok := b.renew(g+1, ofClass(0, 0, 200), ofClass(1, 0, 200)).Pool(0, b.now)
					if !ok {
						t.Fatal("no lease")
					}
					total += grant.Total.Slots
				}
			}
			if total != slots {
				t.Errorf("%d gateways have %d of %d slots", gateways, total, slots)
			}
		}
	}
}
