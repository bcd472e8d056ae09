//go:build !wasm

package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// tenantUse is what the small tenant's cell says.
func (g *gateway) tenantUse(t *testing.T) TenantUse {
	t.Helper()
	u, ok := InspectTenant(g.host.Shared[wire.NewKeys("default").TenantSlots(1)].Value)
	if !ok {
		t.Fatal("the tenant's cell can't be read")
	}
	return u
}

// stall lets the other VMs go on without one, for longer than its row lives, and
// the courier's sweep that follows.
func (g *gateway) stall(t *testing.T, v *vm) {
	t.Helper()
	v.dead = true
	g.pass(2400 * time.Millisecond)
	g.control.gate.AppendUsage(nil, g.host.Clock)
	v.dead = false
}

// TestAVMTakenForDeadTellsOfItsTenantsAgain: its waiter gets its lease only if
// control hears that somebody waits, and what it has in use is not anybody's.
func TestAVMTakenForDeadTellsOfItsTenantsAgain(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.lease(t, 10, 1)
	g.arrive(g.vms[0], 1, 1, 400)
	waiter := g.arrive(g.vms[0], 1, 1, 400)
	if u := g.tenantUse(t); u.InUse != 1 || u.Waiting != 1 {
		t.Fatalf("the cell says %+v", u)
	}
	g.stall(t, g.vms[0])
	if u := g.tenantUse(t); u.InUse != 0 || u.Waiting != 0 {
		t.Fatalf("it was not taken for dead, the test tests nothing: %+v", u)
	}
	g.advance(100 * time.Millisecond)
	if u := g.tenantUse(t); u.InUse != 1 || u.Waiting != 1 {
		t.Fatalf("a tick later the cell says %+v", u)
	}
	g.lease(t, 10, 2)
	g.advance(100 * time.Millisecond) // no message has come
	if !waiter.running {
		t.Fatal("it still waits")
	}
}

// TestATenantWhoseSlotsAreNotKnownYetIsNotHeldUp: control has just started, and
// says that it can't tell what others have of the tenant's.
func TestATenantWhoseSlotsAreNotKnownYetIsNotHeldUp(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.flags = wire.Unsettled
	g.lease(t, 10, 0)
	for i := range 3 {
		if r := g.arrive(g.vms[i%2], 1, 1, 400); !r.running {
			t.Fatalf("request %d: waits %v, refused with %v", i, r.waiting, r.refused)
		}
	}
	g.flags = 0
	g.lease(t, 10, 2) // known now; what is under way counts
	if r := g.arrive(g.vms[0], 1, 1, 400); r.running || r.refused != quota.TenantConcurrency {
		t.Fatalf("a fourth of two: refused with %v", r.refused)
	}
}

// TestATenantsSlotIsUsedAtOnceWhereverItWasHeld: by a request whose body was still
// to come, or that was in another pool.
func TestATenantsSlotIsUsedAtOnceWhereverItWasHeld(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		g, stop := newGatewayOf(t, 1, strings.ReplaceAll(settings, `["default"]`, `["default", "other"]`))
		g.lease(t, 5, 1)
		v := g.vms[0]
		holds := &request{vm: v}
		v.gate.Refresh(g.host.Clock)
		v.gate.Arrive(&holds.ticket, Identity{Tenant: 1, Class: 1}, g.host.Clock)
		if elsewhere {
			v.gate.Enter(&holds.ticket, holds, 1, 100, true, g.host.Clock)
		}
		waits := g.arrive(v, 1, 1, 100)
		if !waits.waiting {
			t.Fatalf("the tenant's slot is in use, and a request doesn't wait for it: %+v", waits)
		}
		g.end(holds)
		if !waits.running {
			t.Errorf("elsewhere %v: the tenant's slot is free, and the request waits for the next tick", elsewhere)
		}
		stop()
	}
}
