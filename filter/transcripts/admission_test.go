package transcripts

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/wire"
)

// admissions plays requests against limits with several VMs inside their
// callbacks at once.
type admissions struct {
	*interleaved
	limit   int
	tenant  int // limit of tenant 1
	streams []*exchange
	owners  []bool // whether a stream is tenant 1's
	most    int
	mostOf  int
	waited  int
}

const limited = `{"enforce": ["default"], "identity": {"tenant_header": "x-tenant"},
	"tenants": {"small": {"concurrency": 2, "index": 1}},
	"classes": {"p1": {"queue": {"requests": 6, "bytes": 1000000, "deadline_ms": 1500}}}}`

func admit(t *testing.T, seed uint64, workers, stalls int, longest time.Duration) *admissions {
	a := &admissions{interleaved: interleave(t, seed, workers, stalls, longest), limit: 3, tenant: 2}
	c := a.control
	c.leases.settings = limited
	c.leases.slots(uint32(a.limit), 3, 3, 3)
	c.leases.tenants[1] = wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: uint32(a.tenant), Requests: wire.NoCredit, Tokens: wire.NoCredit}
	stall, stalled := a.x.Stall, map[string]time.Time{}
	a.x.Stall = nil
	c.changed()
	a.advance(time.Second)
	// A VM that is silent for longer than its row lives is taken for dead, so
	// none stands still again before it had time to tick.
	a.x.Stall = func(s hostsim.Step) time.Duration {
		now := a.host.Now()
		if now.Sub(stalled[s.VM]) < 2*longest {
			return 0
		}
		d := stall(s)
		if d > 0 {
			stalled[s.VM] = now
		}
		return d
	}
	inner := a.x.Invariant
	a.x.Invariant = func() error {
		if err := inner(); err != nil {
			return err
		}
		return a.within()
	}
	return a
}

// within counts what is on its way to the workers, whatever the cells say.
func (a *admissions) within() error {
	all, small := 0, 0
	for i, x := range a.streams {
		if x.out.Request != nil && !x.Done() && x.out.Replied == nil {
			all++
			if a.owners[i] {
				small++
			}
		}
	}
	a.most, a.mostOf = max(a.most, all), max(a.mostOf, small)
	if all > a.limit || small > a.tenant {
		return fmt.Errorf("%d requests at the workers with a limit of %d, %d of the tenant's with %d", all, a.limit, small, a.tenant)
	}
	return nil
}

// play sends a request to any VM, ends it at any time in any way.
func (a *admissions) play() {
	vm := a.rng.IntN(len(a.fleet.Workers))
	tenant, small := "", a.rng.IntN(2) == 0
	if small {
		tenant = "small"
	}
	x := &exchange{}
	body := chat("m", 200+a.rng.IntN(2000), fmt.Sprint(a.sent))
	a.sent++
	abortAtHeaders, whole := a.rng.IntN(10) == 0, a.rng.IntN(8) > 0
	wait, abort := time.Duration(10+a.rng.IntN(700))*time.Millisecond, a.rng.IntN(3) == 0
	a.x.Go(a.fleet.Workers[vm], func() {
		x.Stream = a.fleet.Plugins[vm][0].NewStream(&x.out)
		a.streams, a.owners = append(a.streams, x), append(a.owners, small)
		x.RequestHeaders(post("/v1/chat/completions", "x-tenant", tenant), false)
		switch {
		case abortAtHeaders:
			x.Close()
			return
		case x.Done():
			return
		}
		if !whole { // the client leaves in the middle of its body
			x.RequestData(body[:len(body)/2], false)
			return
		}
		x.body(body, 0)
		if held, _ := x.RequestHeld(); held {
			a.waited++
		}
	})
	a.clock.(hostsim.Clock).AfterFunc(wait, func() { a.end(vm, x, abort || !whole) })
}

// end answers a request that has got to a worker, or lets its client leave; one
// that still waits is looked at again.
func (a *admissions) end(vm int, x *exchange, abort bool) {
	a.x.Go(a.fleet.Workers[vm], func() {
		switch {
		case x.Stream == nil || x.Done():
		case abort:
			x.Close()
		case x.out.Request != nil:
			x.answer("10.0.0.1:9000", 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
		default:
			a.clock.(hostsim.Clock).AfterFunc(200*time.Millisecond, func() { a.end(vm, x, abort) })
		}
	})
}

// empty says what the gate still has when nothing is under way.
func (p *proxy) empty() error {
	keys := wire.NewKeys("default")
	value, _, found := p.host.SharedData(vmID, keys.PoolSlots(0))
	if !found {
		return nil
	}
	u, ok := admission.InspectPool(value)
	if !ok || u.InUse != [3]int{} || u.Waiting != [3]int{} || u.Prefill != [3]uint64{} {
		return fmt.Errorf("the pool's cell says %+v", u)
	}
	for tenant := range uint16(4) {
		value, _, _ := p.host.SharedData(vmID, keys.TenantSlots(tenant))
		if u, ok := admission.InspectTenant(value); !ok || u.InUse != 0 || u.Waiting != 0 {
			return fmt.Errorf("tenant %d's cell says %+v", tenant, u)
		}
	}
	for _, gauge := range []string{"slots_in_use.p1", "queue_waiting.p1"} {
		if n := p.counter(gauge); n != 0 {
			return fmt.Errorf("%s is %d", gauge, n)
		}
	}
	return nil
}

// TestNoInterleavingGoesOverALimitAndNothingLeaks: requests of two tenants come
// to all VMs at once, wait, are handed slots, are answered and given up, while
// VMs stand still anywhere for up to as long as their rows live.
func TestNoInterleavingGoesOverALimitAndNothingLeaks(t *testing.T) {
	const longest = 700 * time.Millisecond // a VM that is silent for longer is taken for dead
	for seed := range uint64(*interleavings) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			a := admit(t, seed, 3, 200, longest)
			for range 40 {
				for range a.rng.IntN(4) {
					a.play()
				}
				a.advance(time.Duration(1+a.rng.IntN(300)) * time.Millisecond)
				if err := a.x.Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.finish(longest); err != nil {
				t.Fatal(err)
			}
			if err := a.empty(); err != nil {
				t.Fatal(err)
			}
			for i, x := range a.streams {
				if !x.Done() {
					t.Fatalf("request %d has no end: %v", i, x.out.Lines)
				}
			}
			if a.most < a.limit || a.mostOf < a.tenant || a.waited == 0 {
				t.Fatalf("at most %d and %d at once, %d waited: the test tests nothing", a.most, a.mostOf, a.waited)
			}
		})
	}
}

// TestVMsThatTrapAnywhereGiveBackWhatTheyHeld lets one VM after the other die in
// any of its host calls, with requests waiting and running in it.
func TestVMsThatTrapAnywhereGiveBackWhatTheyHeld(t *testing.T) {
	var orphaned atomic.Uint64
	t.Cleanup(func() {
		if orphaned.Load() == 0 {
			t.Error("no VM died with a slot: the test tests nothing")
		}
	})
	for seed := range uint64(*interleavings) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			a := &admissions{limit: 3, tenant: 2}
			a.interleaved = &interleaved{proxy: start(t, modules.full, `{}`, 3), rng: rand.New(rand.NewPCG(seed, 3))}
			c := a.control
			c.leases.settings = limited
			c.leases.slots(3, 3, 3, 3)
			c.leases.tenants[1] = wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 2, Requests: wire.NoCredit, Tokens: wire.NoCredit}
			c.changed()
			a.advance(time.Second)
			for range 6 {
				call := []string{"proxy_set_shared_data", "proxy_get_shared_data", "proxy_continue_stream", "proxy_send_local_response", "proxy_enqueue_shared_queue", "proxy_on_done", "proxy_on_queue_ready"}[a.rng.IntN(7)]
				if err := a.host.Inject(hostsim.Fault{Call: call, From: 1 + a.rng.IntN(40), Do: hostsim.FaultKind(a.rng.IntN(2))}); err != nil {
					t.Fatal(err)
				}
				for range 12 {
					a.playAlone()
					a.advance(time.Duration(1+a.rng.IntN(100)) * time.Millisecond)
					if err := a.within(); err != nil {
						t.Fatal(err)
					}
				}
			}
			a.host.ClearFaults()
			a.advance(5 * time.Second)
			for _, x := range a.streams {
				x.Close()
			}
			a.advance(5 * time.Second)
			if err := a.empty(); err != nil {
				t.Fatal(err)
			}
			orphaned.Add(a.counter("slots_orphaned"))
		})
	}
}

// TestBatchesComeSoonerWhileControlAsksForIt: somebody waits for a lease, and
// control wants to know at once what has become free.
func TestBatchesComeSoonerWhileControlAsksForIt(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.control.leases.settings = limited
	p.control.changed()
	p.advance(2 * time.Second)
	second := func() int {
		before := p.control.requests["/v1/batch"]
		p.advance(time.Second)
		return p.control.requests["/v1/batch"] - before
	}
	if n := second(); n > 3 {
		t.Fatalf("%d batches in a second in which nothing happens", n)
	}
	p.control.hurry = 100
	p.advance(time.Second)
	if n := second(); n < 8 {
		t.Fatalf("%d batches in a second, asked for ten", n)
	}
	p.control.hurry = 1 // not more than twenty
	p.advance(time.Second)
	if n := second(); n > 21 {
		t.Fatalf("%d batches in a second", n)
	}
	p.control.hurry = 0
	p.advance(time.Second)
	if n := second(); n > 3 {
		t.Fatalf("%d batches in a second when nobody asks any more", n)
	}
}

// TestControlHearsAtOnceOfTheFirstWhoWaits: a tenant's first request waits for
// its lease. The courier is in another VM, which doesn't wait for its tick.
func TestControlHearsAtOnceOfTheFirstWhoWaits(t *testing.T) {
	p := start(t, modules.full, `{}`, 2)
	c := p.control
	c.leases.settings = limited
	c.leases.slots(3, 3, 3, 3)
	c.leases.tenants[1] = wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 2, Requests: wire.NoCredit, Tokens: wire.NoCredit}
	c.changed()
	p.advance(2 * time.Second)
	for vm := range 2 {
		delete(c.leases.tenants, 1)
		p.advance(time.Second) // the tenant has no lease any more
		c.leases.tenants[1] = wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 2, Requests: wire.NoCredit, Tokens: wire.NoCredit}
		x := p.send(vm, post("/v1/chat/completions", "x-tenant", "small"), chat("m", 500, "first"), 0)
		if x.out.Request != nil {
			t.Fatal("it has not waited: the test tests nothing")
		}
		p.advance(70 * time.Millisecond) // 50 at least are between two batches
		if x.out.Request == nil {
			t.Errorf("in VM %d the request waits still", vm)
		}
		x.Close()
		p.advance(12 * time.Second) // the tenant is idle
	}
}

// TestAdmissionThatIsSwitchedOffLeavesNoGauge: with requests in use and waiting
// at that moment.
func TestAdmissionThatIsSwitchedOffLeavesNoGauge(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.control.leases.settings = limited
	p.control.leases.slots(1, 1, 1, 1)
	p.control.changed()
	p.advance(time.Second)
	var open []*exchange
	for range 2 {
		open = append(open, p.send(0, post("/v1/chat/completions"), chat("m", 500, "off"), 0))
	}
	p.advance(time.Second)
	if used, waiting := p.counter("slots_in_use.p1"), p.counter("queue_waiting.p1"); used != 1 || waiting != 1 {
		t.Fatalf("%d in use, %d waiting", used, waiting)
	}
	p.control.leases.settings = ""
	p.control.changed()
	p.advance(3 * time.Second)
	if used, waiting := p.counter("slots_in_use.p1"), p.counter("queue_waiting.p1"); used != 0 || waiting != 0 {
		t.Errorf("%d in use, %d waiting after admission was switched off", used, waiting)
	}
	if open[1].out.Request == nil {
		t.Error("who waited then waits for ever")
	}
	for _, x := range open {
		x.Close()
	}
}

// playAlone is play without an explorer.
func (a *admissions) playAlone() {
	vm := a.rng.IntN(len(a.fleet.Workers))
	tenant, small := "", a.rng.IntN(2) == 0
	if small {
		tenant = "small"
	}
	x := a.send(vm, post("/v1/chat/completions", "x-tenant", tenant), chat("m", 200+a.rng.IntN(2000), fmt.Sprint(len(a.streams))), 0)
	a.streams, a.owners = append(a.streams, x), append(a.owners, small)
	abort := a.rng.IntN(3) == 0
	a.clock.(hostsim.Clock).AfterFunc(time.Duration(10+a.rng.IntN(500))*time.Millisecond, func() {
		switch {
		case x.Done():
		case abort || x.out.Request == nil:
			x.Close()
		default:
			x.answer("10.0.0.1:9000", 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
		}
	})
}

// TestWithoutAdmissionARequestTouchesNoCell: who has no settings for admission
// doesn't pay for it. The writes that are left tell where the request went: the
// other VMs, and the courier, which is woken.
func TestWithoutAdmissionARequestTouchesNoCell(t *testing.T) {
	for _, s := range setUps[:2] {
		f := startFaultyAs(t, s)
		n := 0
		for _, callback := range callbacks {
			for _, call := range []string{"proxy_set_shared_data", "proxy_enqueue_shared_queue"} {
				n += f.made[callback][call]
			}
		}
		if (n > 4) != s.admits {
			t.Errorf("%s: a request makes %d calls that write: %v", s.name, n, f.made)
		}
	}
}
