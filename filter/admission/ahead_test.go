//go:build !wasm

package admission

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// changes are the pool's and the small tenant's cells' versions: every request
// that looks at one also changes it.
func (g *gateway) changes() [2]uint32 {
	keys := wire.NewKeys("default")
	return [2]uint32{g.host.Shared[keys.PoolSlots(0)].CAS, g.host.Shared[keys.TenantSlots(1)].CAS}
}

// TestWherePlentyIsRequestsLookAtNoCell: the first books ahead for those that
// follow, of the pool and of the tenant.
func TestWherePlentyIsRequestsLookAtNoCell(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.lease(t, 100, 40)
	v := g.vms[0]
	for _, tenant := range []uint16{0, 1} {
		g.end(g.arrive(v, tenant, 1, 4000))
		before := g.changes()
		for range 3 {
			r := g.arrive(v, tenant, 1, 4000)
			if !r.running {
				t.Fatal("it waits")
			}
			v.gate.FirstToken(&r.ticket, 5, true, g.host.Clock)
			g.end(r)
		}
		if after := g.changes(); after != before {
			t.Errorf("requests of tenant %d changed the cells: %v, then %v", tenant, before, after)
		}
	}
	for range 3 {
		g.advance(100 * time.Millisecond)
	}
	if u := g.cell(); u.Booked != [3]int{} {
		t.Errorf("nobody came for three ticks, and %v are booked", u.Booked)
	}
}

// TestWhatIsBookedAheadIsOthersWhenItsVMWasTakenForDead: it stood still, and the
// other has taken all slots meanwhile. Going on, it takes none of those it had.
func TestWhatIsBookedAheadIsOthersWhenItsVMWasTakenForDead(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.lease(t, 16, 2)
	g.arrive(g.vms[0], 0, 0, 400)
	if u := g.cell(); u.Booked[0] < 2 {
		t.Fatalf("%v are booked, the test tests nothing", u.Booked)
	}
	g.stall(t, g.vms[0])
	taken := 0
	for range 16 {
		if g.arrive(g.vms[1], 0, 0, 400).running {
			taken++
		}
	}
	if taken != 16 {
		t.Fatalf("the other has taken %d of 16", taken)
	}
	if r := g.arrive(g.vms[0], 0, 0, 400); r.running || r.refused != quota.None {
		t.Fatal("a slot that was another's was taken")
	}
}
