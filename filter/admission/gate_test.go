//go:build !wasm

package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// gateway is some VMs of one process over one fake host.
type gateway struct {
	host     *abi.Fake
	vms      []*vm
	requests []*request
	control  vm // a VM that takes no requests and talks to control
	sequence uint64
	flags    uint8  // of the small tenant's leases
	rate     uint32 // tokens/s of the leases, 0 not known
}

type vm struct {
	fleet *fleet.Fleet
	gate  *Gate
	dead  bool
}

// request is one in the gate, with what became of it.
type request struct {
	ticket  Ticket
	vm      *vm
	running bool
	waiting bool
	refused quota.Reason
	over    bool
	told    int // how often its wait has ended
}

func (r *request) Admitted() {
	r.told++
	r.running, r.waiting = true, false
}

func (r *request) Refused(why quota.Reason) {
	r.told++
	r.refused, r.waiting, r.over = why, false, true
}

const settings = `{"enforce": ["default"], "tenants": {"small": {"concurrency": 2, "index": 1}, "heavy": {"weight": 4, "index": 2}},
	"classes": {"p0": {"queue": {"requests": 5, "bytes": 1000000, "deadline_ms": 2000}},
		"p1": {"queue": {"requests": 5, "bytes": 1000000, "deadline_ms": 4000}}, "p2": {"queue": {"requests": 5, "bytes": 1000000, "deadline_ms": 8000}}}}`

func newGateway(t testing.TB, vms int) (g *gateway, stop func()) {
	return newGatewayOf(t, vms, settings)
}

func newGatewayOf(t testing.TB, vms int, settings string) (g *gateway, stop func()) {
	g = &gateway{host: abi.NewFake()}
	stop = abi.UseFake(g.host)
	g.host.Clock = 1_700_000_000_000_000_000
	keys := wire.NewKeys("default")
	set := func(key string, value []byte) { g.host.Shared[key] = abi.FakeShared{Value: value, CAS: 1} }
	set(keys.Policy(), []byte(`{"pools":[{"name":"default","models":["*"]}]}`))
	set(keys.Admission(), []byte(settings))
	set(keys.Meta(), table.AppendMeta(nil, &table.Meta{Bits: 6, Ready: true, Epoch: 1, Version: 1, UpdatedUnixNanos: g.host.Clock, PolicyVersion: 1}))
	g.control = *g.boot()
	for range vms {
		g.vms = append(g.vms, g.boot())
	}
	for range 10 { // all have seen each other's rows
		g.advance(100 * time.Millisecond)
	}
	return g, stop
}

func (g *gateway) boot() *vm {
	m := &metrics.Set{}
	m.Define()
	v := &vm{fleet: fleet.New("default", m, route.NewRand(1))}
	v.fleet.Configure(config.Default())
	v.gate = New(v.fleet, m)
	v.tick(g)
	return v
}

func (v *vm) tick(g *gateway) {
	v.fleet.Refresh(g.host.Clock)
	v.fleet.Tick(g.host.Clock, v == &g.control)
	v.gate.Tick(g.host.Clock, v == &g.control)
}

// advance lets time pass, and all VMs tick in it.
func (g *gateway) advance(d time.Duration) {
	g.host.Clock += int64(d)
	for _, v := range append(g.vms, &g.control) {
		if !v.dead {
			v.tick(g)
		}
	}
}

// pass is advance tick by tick.
func (g *gateway) pass(d time.Duration) {
	for ; d > 0; d -= 100 * time.Millisecond {
		g.advance(100 * time.Millisecond)
	}
}

// wake delivers the messages of the VMs' queues, until there are none.
func (g *gateway) wake() {
	for again := true; again; {
		again = false
		for _, v := range g.vms {
			if q := g.host.Queues[v.gate.queue]; !v.dead && q != nil && len(q.Messages) > 0 {
				v.gate.Woken(v.gate.queue, g.host.Clock)
				again = true
			}
		}
	}
}

// lease gives the pool so many slots, for any class.
func (g *gateway) lease(t interface{ Fatal(...any) }, slots, small uint32) {
	g.leaseOf(t, slots, small, [3]uint32{slots, slots, slots})
}

// leaseOf says how the classes share them.
func (g *gateway) leaseOf(t interface{ Fatal(...any) }, slots, small uint32, parts [3]uint32) {
	c := g.control.gate
	usage := c.AppendUsage(nil, g.host.Clock)
	u, _, err := wire.DecodeUsage(usage)
	if err != nil {
		t.Fatal(err)
	}
	g.sequence++
	b := wire.AppendLeases(nil, &wire.Leases{
		Nonce: u.Nonce, Term: 1, Sequence: g.sequence, Answers: u.Sequence, DurationMillis: 3_600_000, FloorMillis: 3_600_000, Tenants: u.Tenants,
	})
	for _, class := range []uint8{wire.AnyClass, 0, 1, 2} {
		n := slots
		if class < wire.BypassClass {
			n = parts[class]
		}
		b = wire.AppendLease(b, &wire.Lease{Tenant: wire.WholeClass, Class: class, Slots: n, PrefillTokens: wire.NoLimit, TokensPerSecond: g.rate})
	}
	b = wire.AppendLease(b, &wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Flags: g.flags, Slots: small, Requests: wire.NoCredit, Tokens: wire.NoCredit})
	if err := c.Install(b, g.host.Clock, g.host.Clock); err != nil {
		t.Fatal(err)
	}
	for _, v := range g.vms {
		v.gate.leaseAt = 0
	}
}

// running counts those that have a slot of their class, and those that have one
// of the small tenant's, with which they may wait.
func (g *gateway) running() (all, small int) {
	for _, r := range g.requests {
		if r.over || r.vm.dead {
			continue
		}
		if r.running {
			all++
		}
		if r.ticket.Tenant == 1 && r.ticket.tenant {
			small++
		}
	}
	return all, small
}

// arrive brings a request with its whole body.
func (g *gateway) arrive(v *vm, tenant uint16, class uint8, bytes int) *request {
	r := &request{vm: v}
	g.requests = append(g.requests, r)
	v.gate.Refresh(g.host.Clock)
	if why := v.gate.Arrive(&r.ticket, Identity{Tenant: tenant, Class: class}, g.host.Clock); why != quota.None {
		r.refused, r.over = why, true
		return r
	}
	verdict, why := v.gate.Enter(&r.ticket, r, 0, bytes, true, g.host.Clock)
	switch verdict {
	case Admitted:
		r.running = true
	case Waiting:
		r.waiting = true
	case Refused:
		r.refused, r.over = why, true
	}
	return r
}

func (g *gateway) end(r *request) {
	r.over, r.waiting = true, false
	r.vm.gate.Done(&r.ticket, -1, g.host.Clock)
}

func (g *gateway) cell() PoolUse {
	u, ok := InspectPool(g.host.Shared[wire.NewKeys("default").PoolSlots(0)].Value)
	if !ok {
		panic("the cell can't be read")
	}
	return u
}

// anyOf draws one of those that are so, nil for none.
func anyOf[T any](t *rapid.T, all []*T, is func(*T) bool) *T {
	var found []*T
	for _, r := range all {
		if is(r) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return rapid.SampledFrom(found).Draw(t, "request")
}

// TestWhateverComesTheLimitsHoldAndTheBestWaiterIsNext plays requests of three
// tenants and classes in four VMs, leases that grow and shrink, and VMs that die.
func TestWhateverComesTheLimitsHoldAndTheBestWaiterIsNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, stop := newGateway(nil, 4)
		defer stop()
		slots, small := uint32(6), uint32(2)
		g.lease(t, slots, small)
		before, smallBefore := 0, 0
		check := func() {
			all, few := g.running()
			if all > max(int(slots), before) || few > max(int(small), smallBefore) {
				t.Fatalf("%d run with a limit of %d and %d before; %d of the tenant's with %d and %d before", all, slots, before, few, small, smallBefore)
			}
			before, smallBefore = all, few
			for _, r := range g.requests {
				if r.told > 1 {
					t.Fatalf("a request of tenant %d was told twice how its wait ends", r.ticket.Tenant)
				}
			}
		}
		some := func(t *rapid.T, is func(*request) bool) *request {
			return anyOf(t, g.requests, func(r *request) bool { return !r.over && !r.vm.dead && is(r) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				v := rapid.SampledFrom(g.vms).Draw(t, "vm")
				if !v.dead {
					g.arrive(v, rapid.Uint16Range(0, 2).Draw(t, "tenant"), rapid.Uint8Range(0, 2).Draw(t, "class"), rapid.IntRange(0, 40_000).Draw(t, "bytes"))
				}
				check()
			},
			"end": func(t *rapid.T) {
				if r := some(t, func(r *request) bool { return r.running }); r != nil {
					g.end(r)
				}
				check()
			},
			"leave": func(t *rapid.T) {
				if r := some(t, func(r *request) bool { return r.waiting }); r != nil {
					g.end(r)
				}
				check()
			},
			"first token": func(t *rapid.T) {
				if r := some(t, func(r *request) bool { return r.running }); r != nil {
					r.vm.gate.FirstToken(&r.ticket, 5, true, g.host.Clock)
				}
				check()
			},
			"wake": func(*rapid.T) {
				g.wake()
				check()
			},
			"time": func(t *rapid.T) {
				g.advance(time.Duration(rapid.IntRange(1, 300).Draw(t, "ms")) * time.Millisecond)
				check()
			},
			"pause": func(t *rapid.T) { // of the whole process, or the clock is set
				g.advance(time.Duration(rapid.IntRange(1, 10).Draw(t, "seconds")) * time.Second)
				check()
			},
			"lease": func(t *rapid.T) {
				slots, small = rapid.SampledFrom([]uint32{0, 1, 4, 9, 20, 60}).Draw(t, "slots"), rapid.Uint32Range(0, 2).Draw(t, "small")
				g.lease(t, slots, small)
				check()
			},
			"death": func(t *rapid.T) {
				if v := g.vms[0]; !v.dead && rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					v.dead = true
					before, smallBefore = g.running()
				}
			},
		})
		// With room for all nobody waits for longer than a tick or two.
		for _, v := range g.vms {
			v.gate.leaseAt = 0
		}
		g.pass(1500 * time.Millisecond)
		slots, small = 500, 2
		g.lease(t, slots, small)
		g.wake()
		g.advance(100 * time.Millisecond)
		g.advance(300 * time.Millisecond)
		g.advance(100 * time.Millisecond)
		for _, r := range g.requests {
			if r.waiting && !r.vm.dead && r.ticket.pending == quota.None {
				t.Fatalf("a request of class %d waits with %v of %d in use", r.ticket.Class, g.cell().InUse, slots)
			}
		}
		for _, r := range g.requests {
			if !r.over && !r.vm.dead {
				g.end(r)
				g.end(r) // once is enough
			}
		}
		g.pass(2100 * time.Millisecond) // nobody needs what is booked ahead
		g.lease(t, slots, small)        // USAGE sweeps
		if u := g.cell(); u.InUse != [3]int{} || u.Booked != [3]int{} || u.Waiting != [3]int{} || u.Prefill != [3]uint64{} {
			t.Fatalf("something is left: %+v", u)
		}
		for _, v := range g.vms {
			for _, own := range v.gate.tenants {
				if !v.dead && own.held != [3]int{} {
					t.Fatalf("of tenant %d %v are in no queue", own.index, own.held)
				}
			}
		}
		if u, ok := InspectTenant(g.host.Shared[wire.NewKeys("default").TenantSlots(1)].Value); ok && (u.InUse != 0 || u.Waiting != 0) {
			t.Fatalf("something is left of the tenant's: %+v", u)
		}
	})
}

// TestWaitersOfAllVMsGoByClassThenByFairShare: three VMs with waiters, one slot
// that becomes free again and again.
func TestWaitersOfAllVMsGoByClassThenByFairShare(t *testing.T) {
	g, stop := newGatewayOf(t, 3, strings.ReplaceAll(settings, `"requests": 5`, `"requests": 8`))
	defer stop()
	g.lease(t, 3, 2)
	var running []*request
	for i := range 3 {
		running = append(running, g.arrive(g.vms[i], 0, 0, 400))
	}
	var waiting []*request
	for i, w := range []struct {
		tenant uint16
		class  uint8
	}{{0, 1}, {0, 1}, {0, 1}, {2, 1}, {2, 1}, {0, 0}} {
		r := g.arrive(g.vms[i%3], w.tenant, w.class, 4000)
		if !r.waiting {
			t.Fatalf("request %d doesn't wait: %+v", i, r)
		}
		waiting = append(waiting, r)
	}
	// P0 first; of P1 the tenant of weight 4 gets four times the work: its two
	// requests start at 0 and 250, the others' at 0, 1,000 and 2,000.
	var order []int
	for range waiting {
		g.end(running[0])
		running = running[1:]
		g.wake()
		for i, r := range waiting {
			if r.running && !r.over && r.ticket.Known() && !contains(order, i) {
				order = append(order, i)
				running = append(running, r)
			}
		}
	}
	if got := fmt.Sprint(order); got != "[5 0 3 4 1 2]" {
		t.Fatalf("the order was %s", got)
	}
}

func contains(list []int, v int) bool {
	for _, have := range list {
		if have == v {
			return true
		}
	}
	return false
}

// TestP1HasItsPartThoughP0Waits: of three slots one is P1's. It gets that before
// P0 gets more than its own two, in whichever VMs they wait or arrive.
func TestP1HasItsPartThoughP0Waits(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.leaseOf(t, 3, 2, [3]uint32{2, 1, 0})
	var running []*request
	for range 3 { // P0 uses what P1 leaves
		running = append(running, g.arrive(g.vms[0], 0, 0, 400))
	}
	p0, p1 := g.arrive(g.vms[0], 0, 0, 400), g.arrive(g.vms[1], 0, 1, 400)
	if !running[2].running || !p0.waiting || !p1.waiting {
		t.Fatal("the slots are not in use")
	}
	g.end(running[0])
	late := g.arrive(g.vms[0], 0, 0, 400) // comes before P1's VM has looked
	g.wake()
	if !p1.running || p0.running || late.running {
		t.Fatalf("P0 got P1's slot: %v %v %v", p1.running, p0.running, late.running)
	}
	g.end(running[1])
	g.wake()
	if !p0.running {
		t.Fatal("P0 has not got its own")
	}
}

// TestAFloodLeavesRoomForOthers: a tenant has as many waiting as there is room
// left; another's request still finds a place.
func TestAFloodLeavesRoomForOthers(t *testing.T) {
	g, stop := newGateway(t, 1)
	defer stop()
	g.lease(t, 1, 2)
	g.arrive(g.vms[0], 0, 1, 400)
	waiting := 0
	for range 7 {
		if r := g.arrive(g.vms[0], 0, 1, 400); r.waiting {
			waiting++
		} else if r.refused != quota.QueueFull {
			t.Fatalf("refused with %v", r.refused)
		}
	}
	other := g.arrive(g.vms[0], 2, 1, 400)
	if waiting == 0 || waiting > 4 || !other.waiting {
		t.Fatalf("%d of the flood wait in a queue of 5; another's does: %v", waiting, other.waiting)
	}
}

// TestACrashedVMsWaiterHoldsNobodyUp: the VM that was woken is dead. The others
// take the slot at the latest when it should have looked.
func TestACrashedVMsWaiterHoldsNobodyUp(t *testing.T) {
	g, stop := newGateway(t, 3)
	defer stop()
	g.lease(t, 1, 2)
	first := g.arrive(g.vms[0], 0, 0, 400)
	dead := g.arrive(g.vms[1], 0, 0, 400)
	next := g.arrive(g.vms[2], 0, 0, 400)
	g.vms[1].dead = true
	g.end(first)
	g.wake()
	if next.running {
		t.Fatal("it was not woken: the test tests nothing")
	}
	for range 3 {
		g.advance(100 * time.Millisecond)
	}
	if !next.running || dead.running {
		t.Fatal("the slot is lost")
	}
}
