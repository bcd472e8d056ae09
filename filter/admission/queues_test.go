//go:build !wasm

package admission

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// TestAQueueIsBoundedInBytes: who waits is held in memory.
func TestAQueueIsBoundedInBytes(t *testing.T) {
	g, stop := newGateway(t, 1)
	defer stop()
	g.lease(t, 1, 2)
	v := g.vms[0]
	g.arrive(v, 0, 1, 400)
	first := g.arrive(v, 0, 1, 600_000)
	if large := g.arrive(v, 2, 1, 400_001); large.refused != quota.QueueFull {
		t.Errorf("1,000,001 bytes wait in a queue for 1,000,000: refused with %v", large.refused)
	}
	if fits := g.arrive(v, 2, 1, 400_000); !fits.waiting {
		t.Errorf("1,000,000 bytes don't fit: refused with %v", fits.refused)
	}
	g.end(first) // what it held is free
	if again := g.arrive(v, 0, 1, 600_000); !again.waiting {
		t.Errorf("600,000 of 1,000,000 are free: refused with %v", again.refused)
	}
}

// TestTheBoundIsOneForAllVMs: what waits in the others counts.
func TestTheBoundIsOneForAllVMs(t *testing.T) {
	g, stop := newGateway(t, 3)
	defer stop()
	g.lease(t, 1, 2)
	g.arrive(g.vms[0], 0, 1, 400)
	waiting := 0
	for i := range 12 { // each of another tenant, to all VMs in turn
		if r := g.arrive(g.vms[i%3], uint16(10+i), 1, 400); r.waiting {
			waiting++
		} else if r.refused != quota.QueueFull {
			t.Fatalf("refused with %v", r.refused)
		}
	}
	if waiting != 5 {
		t.Errorf("%d wait in a gateway that has room for 5", waiting)
	}
	if r := g.arrive(g.vms[0], 0, 2, 999_999); !r.waiting {
		t.Fatalf("999,999 bytes of another class: refused with %v", r.refused)
	}
	if r := g.arrive(g.vms[1], 0, 2, 400); r.refused != quota.QueueFull {
		t.Errorf("and 400 more in another VM: waits %v, refused with %v", r.waiting, r.refused)
	}
}

// TestEachClassHasItsDeadline: nobody is told before it, and all are within a tick.
func TestEachClassHasItsDeadline(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.lease(t, 1, 2)
	g.arrive(g.vms[0], 0, 0, 400)
	var waiting [3]*request
	for class := range waiting {
		waiting[class] = g.arrive(g.vms[class%2], 0, uint8(class), 400)
	}
	for passed := time.Duration(0); passed <= 9*time.Second; passed += 100 * time.Millisecond {
		for class, r := range waiting {
			deadline := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}[class]
			if over := passed >= deadline; over != r.over || over && r.refused != quota.QueueTimeout {
				t.Fatalf("class %d after %v: over %v, refused with %v; it may wait %v", class, passed, r.over, r.refused, deadline)
			}
		}
		g.advance(100 * time.Millisecond)
	}
}

// TestWhoWouldWaitInVainIsToldAtOnce: by the pool's prefill rate, and what waits
// before it in its class and above, in all VMs.
func TestWhoWouldWaitInVainIsToldAtOnce(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.rate = 1000
	g.lease(t, 1, 2)
	g.arrive(g.vms[0], 0, 0, 400)
	if r := g.arrive(g.vms[1], 0, 0, 4*1500); !r.waiting { // of P0, which may wait 2 s
		t.Fatalf("1.5 s of work in an empty queue: refused with %v", r.refused)
	}
	if r := g.arrive(g.vms[1], 0, 0, 4*1000); r.refused != quota.QueueWait || r.ticket.RetryAfter < 2 {
		t.Errorf("2.5 s of work: waits %v, refused with %v, to come again in %d s", r.waiting, r.refused, r.ticket.RetryAfter)
	}
	// P1 may wait 4 s, behind the 1.5 s of P0 in the other VM.
	if r := g.arrive(g.vms[0], 0, 1, 4*2600); r.refused != quota.QueueWait {
		t.Errorf("4.1 s of work: waits %v, refused with %v", r.waiting, r.refused)
	}
	if r := g.arrive(g.vms[0], 0, 1, 4*2400); !r.waiting {
		t.Errorf("3.9 s of work: refused with %v", r.refused)
	}
}

// TestWhatIsMostlyCachedIsCheap: a tenant whose prompts its workers hold has its
// turn more often than one whose prompts are new.
func TestWhatIsMostlyCachedIsCheap(t *testing.T) {
	for _, cached := range []bool{false, true} {
		g, stop := newGateway(t, 1)
		g.lease(t, 1, 2)
		v := g.vms[0]
		for range 40 {
			r := g.arrive(v, 0, 1, 4000)
			v.gate.Dispatched(&r.ticket)
			uncached := int64(1000)
			if cached {
				uncached = 0
			}
			r.over = true
			v.gate.Done(&r.ticket, uncached, g.host.Clock)
		}
		running := g.arrive(v, 2, 1, 400)
		var waiting []*request
		for _, tenant := range []uint16{2, 2, 0, 0} {
			waiting = append(waiting, g.arrive(v, tenant, 1, 4000))
		}
		var order []int
		for range waiting {
			g.end(running)
			i := slices.IndexFunc(waiting, func(r *request) bool { return r.running && !r.over })
			running, order = waiting[i], append(order, i)
		}
		// Tenant 2 has four times the weight: a request takes it 250 of virtual time, and
		// one of tenant 0 1,000, or a sixty-fourth of that.
		want := []int{0, 2, 1, 3}
		if cached {
			want = []int{0, 2, 3, 1}
		}
		if !slices.Equal(order, want) {
			t.Errorf("cached %v: the order was %v, want %v", cached, order, want)
		}
		stop()
	}
}

// TestWhoWaitsForItsTenantIsInTheBound: in all VMs, too; who waits is held in memory, whatever for.
func TestWhoWaitsForItsTenantIsInTheBound(t *testing.T) {
	g, stop := newGateway(t, 3)
	defer stop()
	g.lease(t, 10, 0)
	waiting, held := 0, 0
	for i := range 15 { // of a tenant that has none of its two slots here
		if r := g.arrive(g.vms[i%3], 1, 1, 4000); r.waiting {
			waiting, held = waiting+1, held+4000
		}
	}
	if waiting == 0 || waiting > 5 {
		t.Errorf("%d wait in a gateway that has room for 5", waiting)
	}
	if r := g.arrive(g.vms[1], 1, 2, 600_000); !r.waiting {
		t.Fatalf("600,000 bytes of another class: refused with %v", r.refused)
	}
	if r := g.arrive(g.vms[2], 1, 2, 600_000); r.refused != quota.QueueFull {
		t.Errorf("and as many in another VM: waits %v, refused with %v", r.waiting, r.refused)
	}
}

// TestATenantLeavesRoomInAllVMs: who has as many waiting as there is room left has enough, however
// many VMs its connections are in.
func TestATenantLeavesRoomInAllVMs(t *testing.T) {
	g, stop := newGateway(t, 5)
	defer stop()
	g.lease(t, 1, 2)
	running := g.arrive(g.vms[0], 0, 1, 400)
	var waiting []*request
	flood := func() {
		for i := range 20 {
			if r := g.arrive(g.vms[i%5], 0, 1, 400); r.waiting {
				waiting = append(waiting, r)
			}
		}
	}
	flood()
	if len(waiting) != 3 {
		t.Errorf("%d of one tenant wait where there is room for 5, want 3", len(waiting))
	}
	other := g.arrive(g.vms[4], 2, 1, 400)
	if !other.waiting {
		t.Fatalf("another tenant finds no room: %v", other.refused)
	}
	g.end(other)
	// What has left its queue counts no more, be it served or given up.
	g.end(running)
	for _, r := range waiting {
		if r.waiting && !r.over {
			g.end(r)
			break
		}
	}
	g.advance(100 * time.Millisecond)
	before := len(waiting)
	if flood(); len(waiting) == before {
		t.Error("nobody waits in the place of those who left")
	}
}

// TestWhatADeadVMHeldOfATenantIsForgotten.
func TestWhatADeadVMHeldOfATenantIsForgotten(t *testing.T) {
	g, stop := newGateway(t, 5)
	defer stop()
	g.lease(t, 1, 2)
	g.arrive(g.vms[4], 0, 1, 400)
	flood := func(vms []*vm) (waiting int) {
		for i := range 20 {
			if g.arrive(vms[i%len(vms)], 0, 1, 400).waiting {
				waiting++
			}
		}
		return waiting
	}
	if n := flood(g.vms[:4]); n != 3 {
		t.Fatalf("%d wait", n)
	}
	for _, v := range g.vms[:4] {
		v.dead = true
	}
	g.pass(3 * time.Second)
	g.lease(t, 1, 2) // USAGE sweeps the pool's cell
	if n := flood(g.vms[4:]); n != 3 {
		t.Errorf("%d wait after four VMs have died, want 3", n)
	}
}

// TestWhatWaitsHereCountsOnce in how long a request would wait.
func TestWhatWaitsHereCountsOnce(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.rate = 1000
	g.lease(t, 1, 2)
	g.arrive(g.vms[0], 0, 1, 400)
	for range 2 {
		if r := g.arrive(g.vms[0], 0, 1, 4*1500); !r.waiting { // P1 may wait 4 s
			t.Errorf("3 s of work at most: refused with %v, to come again in %d s", r.refused, r.ticket.RetryAfter)
		}
	}
}

// TestAVMThatLostItsRowWaitsOnce: it stood still for so long that another took its slot.
func TestAVMThatLostItsRowWaitsOnce(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.lease(t, 1, 2)
	running := g.arrive(g.vms[1], 0, 1, 400)
	waits := g.arrive(g.vms[0], 0, 1, 400)
	slot, _ := g.vms[0].fleet.Slot()
	row := wire.EndRow(wire.AppendRow(nil, &wire.Row{Slot: slot, Nonce: 999, TickUnixNanos: g.host.Clock}), 0)
	g.host.Shared[wire.NewKeys("default").Row(slot)] = abi.FakeShared{Value: row, CAS: 1 << 20}
	g.pass(300 * time.Millisecond)
	if now, ok := g.vms[0].fleet.Slot(); !ok || now == slot {
		t.Fatalf("it has slot %d, %v", now, ok)
	}
	if u := g.cell(); u.Waiting[1] != 1 {
		t.Errorf("%d wait in the cell, it is one", u.Waiting[1])
	}
	g.end(running)
	g.wake()
	g.pass(200 * time.Millisecond)
	if u := g.cell(); !waits.running || u.Waiting[1] != 0 {
		t.Errorf("it runs: %v; %d wait in the cell, it is none", waits.running, u.Waiting[1])
	}
}

// TestALateSlotEndsAWaitOnce: two waits end at the same tick. The first one's tenant
// slot, given back, makes the gate look who is next: that one gets the slot, or is
// turned away, and not both.
func TestALateSlotEndsAWaitOnce(t *testing.T) {
	g, stop := newGateway(t, 1)
	defer stop()
	g.lease(t, 0, 1)
	first, second := g.arrive(g.vms[0], 1, 0, 0), g.arrive(g.vms[0], 0, 0, 0)
	if !first.waiting || !second.waiting {
		t.Fatal("with no slots both wait")
	}
	g.lease(t, 1, 0)
	g.advance(2 * time.Second)
	if first.told != 1 || first.refused != quota.QueueTimeout || second.told != 1 || !second.running {
		t.Fatalf("first %+v, second %+v", first, second)
	}
	g.end(second)
	if held := g.vms[0].gate.tenant(0).held; held != [3]int{} {
		t.Fatalf("%v are in no queue", held)
	}
}

// slow is an owner for whom being let in takes its time, and who is turned away then.
type slow struct {
	request
	host          *abi.Fake
	depth, within *int
	refuse        bool
}

func (s *slow) Admitted() {
	*s.depth++
	*s.within = max(*s.within, *s.depth)
	s.request.Admitted()
	s.host.Clock += int64(time.Millisecond)
	if s.refuse {
		s.vm.gate.Done(&s.ticket, -1, s.host.Clock)
		s.over = true
	}
	*s.depth--
}

func (s *slow) Refused(why quota.Reason) {
	s.request.Refused(why)
	s.host.Clock += int64(time.Millisecond)
}

// TestOwnersAreCalledOneAfterTheOther: each of many that wait is turned away when it
// has its slot, which frees it for the next. None is let in within the call of another,
// and a callback ends after its time; the rest follow without a tick.
func TestOwnersAreCalledOneAfterTheOther(t *testing.T) {
	for _, refuse := range []bool{true, false} {
		g, stop := newGatewayOf(t, 1, strings.ReplaceAll(settings, `"requests": 5`, `"requests": 100`))
		g.lease(t, 0, 2)
		depth, within := 0, 0
		all := make([]slow, 40)
		for i := range all {
			s := &all[i]
			*s = slow{request: request{vm: g.vms[0]}, host: g.host, depth: &depth, within: &within, refuse: refuse}
			s.vm.gate.Refresh(g.host.Clock)
			s.vm.gate.Arrive(&s.ticket, Identity{}, g.host.Clock)
			if verdict, _ := s.vm.gate.Enter(&s.ticket, s, 0, 400, true, g.host.Clock); verdict != Waiting {
				t.Fatalf("with no slots request %d doesn't wait", i)
			}
		}
		slots := uint32(len(all))
		if refuse {
			slots = 1
		}
		g.lease(t, slots, 2)
		began, callbacks := g.host.Clock, 0
		for gate := g.vms[0].gate; len(g.host.Queues[gate.queue].Messages) > 0; callbacks++ {
			at := g.host.Clock
			gate.Woken(gate.queue, g.host.Clock)
			if took := time.Duration(g.host.Clock - at); took > 2*sliceTime {
				t.Errorf("a callback took %v", took)
			}
		}
		for i := range all {
			if !all[i].running || all[i].told != 1 {
				t.Fatalf("request %d of %d: %+v after %d callbacks", i, len(all), &all[i].request, callbacks)
			}
		}
		if within != 1 || callbacks < len(all)/4 || time.Duration(g.host.Clock-began) > time.Duration(len(all))*time.Millisecond {
			t.Errorf("%d within each other, %d callbacks in %v", within, callbacks, time.Duration(g.host.Clock-began))
		}
		stop()
	}
}

// TestManyWhoseTimeHasComeAreToldInSlices: a callback ends after its time, and the
// rest follow without a tick.
func TestManyWhoseTimeHasComeAreToldInSlices(t *testing.T) {
	g, stop := newGatewayOf(t, 1, strings.ReplaceAll(settings, `"requests": 5`, `"requests": 100`))
	defer stop()
	g.lease(t, 0, 2)
	v, all := g.vms[0], make([]slow, 40)
	for i := range all {
		s := &all[i]
		*s = slow{request: request{vm: v}, host: g.host}
		v.gate.Refresh(g.host.Clock)
		v.gate.Arrive(&s.ticket, Identity{Class: uint8(i % 2)}, g.host.Clock)
		if verdict, _ := v.gate.Enter(&s.ticket, s, 0, 400, true, g.host.Clock); verdict != Waiting {
			t.Fatalf("with no slots request %d doesn't wait", i)
		}
	}
	g.host.Clock += int64(5 * time.Second)
	callbacks := 0
	for call := func() { v.tick(g) }; ; call = func() { v.gate.Woken(v.gate.queue, g.host.Clock) } {
		at := g.host.Clock
		call()
		if took := time.Duration(g.host.Clock - at); took > 2*sliceTime {
			t.Errorf("a callback took %v", took)
		}
		if callbacks++; len(g.host.Queues[v.gate.queue].Messages) == 0 {
			break
		}
	}
	for i := range all {
		if all[i].told != 1 || all[i].refused != quota.QueueTimeout {
			t.Fatalf("request %d of %d after %d callbacks: %+v", i, len(all), callbacks, &all[i].request)
		}
	}
	if callbacks < 10 {
		t.Errorf("all were told in %d callbacks", callbacks)
	}
}
