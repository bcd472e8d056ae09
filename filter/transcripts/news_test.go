package transcripts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/wire"
)

// tell sends a prompt that nobody knows through a VM, and ends it.
func (p *proxy) tell(vm, n int) {
	p.send(vm, post("/v1/chat/completions"), chat("m", 0, strings.Repeat(fmt.Sprint("prompt ", n, " "), 50)), 0).Close()
}

// told is how many requests control has heard of.
func (p *proxy) told() int { return len(p.control.dispatched) }

// TestADispatchIsToldAtOnce: whichever VM it is in, the courier's own or not, no tick has to come
// for control to hear of it, and for the table to say so.
func TestADispatchIsToldAtOnce(t *testing.T) {
	p := start(t, modules.full, `{}`, 3)
	p.advance(2 * time.Second)
	for n := range 9 {
		p.tell(n%3, n)
		p.settle()
		if p.told() != n+1 {
			t.Fatalf("control knows of %d requests, %d were sent", p.told(), n+1)
		}
		if err := p.sameTable(); err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		p.advance(500 * time.Millisecond)
	}
}

// TestAFloodIsToldInBoundedBatches: however many dispatches there are, and from however many VMs,
// batches are 25 ms apart, and each brings all that has come by then.
func TestAFloodIsToldInBoundedBatches(t *testing.T) {
	p := start(t, modules.full, `{}`, 4)
	p.control.doubts = true // or every batch would be answered by a table that has changed
	p.advance(2 * time.Second)
	rng := rand.New(rand.NewPCG(1, 1))
	const step, gap, length = 5 * time.Millisecond, 25 * time.Millisecond, 2 * time.Second
	batches := p.control.requests["/v1/batch"]
	var sent []int // by step, all until then
	n := 0
	for at := time.Duration(0); at < length; at += step {
		for range 1 + rng.IntN(3) {
			p.tell(rng.IntN(4), n)
			n++
		}
		sent = append(sent, n)
		p.advance(step)
		if i := len(sent) - 1 - int((gap+step)/step); i >= 0 && p.told() < sent[i] {
			t.Fatalf("at %v control knows of %d requests, %d are older than %v", at, p.told(), sent[i], gap+step)
		}
	}
	batches = p.control.requests["/v1/batch"] - batches
	if most, least := int(length/gap)+1, int(length/gap)*3/4; batches > most || batches < least {
		t.Errorf("%d batches in %v, want %d to %d", batches, length, least, most)
	}
	p.advance(time.Second)
	if p.told() != n || p.counter("reports_lost") != 0 {
		t.Errorf("control knows of %d requests of %d, %d reports were lost", p.told(), n, p.counter("reports_lost"))
	}
}

// TestControlAwayIsNotAskedInABusyLoop, however much there is to tell, and what could not be told
// is told when it is back.
func TestControlAwayIsNotAskedInABusyLoop(t *testing.T) {
	for _, how := range []string{"fail", "503", "silent"} {
		t.Run(how, func(t *testing.T) {
			p := start(t, modules.full, `{}`, 4)
			p.control.doubts = true
			p.advance(2 * time.Second)
			batches := p.control.requests["/v1/batch"]
			p.control.dead = how
			n := 0
			for range 60 {
				for vm := range 4 {
					p.tell(vm, n)
					n++
				}
				p.advance(50 * time.Millisecond)
			}
			// 100 ms doubled each time, half to one and a half of it: 0.05, 0.15, 0.35, 0.75, 1.55, 3.15 s at the least.
			if batches = p.control.requests["/v1/batch"] - batches; batches > 7 {
				t.Errorf("%d batches in 3 s to a control service that is away", batches)
			}
			p.control.dead = ""
			p.advance(15 * time.Second)
			if p.told() != n || p.counter("reports_lost") != 0 {
				t.Errorf("control knows of %d requests of %d, %d reports were lost", p.told(), n, p.counter("reports_lost"))
			}
		})
	}
}

// TestWhateverTheInterleavingNoDispatchIsLost: VMs add to chunks while the courier takes them,
// stand still anywhere in between, the courier for longer than its lease too, and another VM takes
// over in the midst.
func TestWhateverTheInterleavingNoDispatchIsLost(t *testing.T) {
	const longest = 4 * time.Second
	for seed := range uint64(*interleavings) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			i := interleave(t, seed, 3, 400, longest)
			stall := i.x.Stall
			i.x.Stall = nil
			i.advance(time.Second) // until the first courier has said that it takes chunks
			i.x.Stall = stall
			for range 20 {
				for range 1 + i.rng.IntN(6) {
					i.request()
					i.advance(time.Duration(i.rng.IntN(20)) * time.Millisecond)
				}
				i.advance(time.Duration(1+i.rng.IntN(200)) * time.Millisecond)
				if err := i.x.Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := i.finish(longest); err != nil {
				t.Fatal(err)
			}
			if lost := i.counter("reports_lost"); lost > 0 || i.told() != i.routed {
				t.Errorf("%d requests were dispatched, control knows of %d; %d reports were lost", i.routed, i.told(), lost)
			}
		})
	}
}

// TestVMsWhoseRowsAreSweptKeepTheirSlots and with them their chunks: both stand still between the
// look at the row and its write, and the courier sweeps the rows. A chunk that one has written before,
// and ended because no courier says what it takes, is in its slot and nowhere else.
func TestVMsWhoseRowsAreSweptKeepTheirSlots(t *testing.T) {
	i := interleave(t, 1, 2, 1, 0)
	i.x.Stall = nil
	i.advance(time.Second)
	var open [2]*exchange // only the row of a VM with something in flight is swept
	for vm := range open {
		i.x.Go(i.fleet.Workers[vm], func() {
			open[vm] = i.send(vm, post("/v1/chat/completions"), chat("m", 2000, fmt.Sprint("open ", vm)), 0)
		})
	}
	i.advance(500 * time.Millisecond)
	keys := wire.NewKeys("default")
	var rows []string
	for slot, lines := range i.rows() {
		if len(lines) > 0 {
			rows = append(rows, keys.Row(slot))
			if err := i.host.SetSharedData(vmID, keys.Taken(slot), []byte("of another version")); err != nil {
				t.Fatal(err)
			}
		}
	}
	still := map[string]bool{}
	i.x.Stall = func(s hostsim.Step) time.Duration {
		if still[s.Key] || s.Call != "proxy_set_shared_data" || !slices.Contains(rows, s.Key) || s.VM == "main" {
			return 0
		}
		still[s.Key] = true
		if s.VM == "worker_1" {
			return 4 * time.Second // goes on first, when slots before its own are free
		}
		return 5 * time.Second
	}
	for vm := range open {
		i.x.Go(i.fleet.Workers[vm], func() { i.tell(vm, vm) })
	}
	before := i.counter("orphaned")
	i.advance(3 * time.Second)
	if lost := i.counter("orphaned") - before; len(still) != 2 || lost != 2 {
		t.Fatalf("%v stood still, %d requests went with them: the test tests nothing", still, lost)
	}
	i.advance(5 * time.Second)
	if len(i.rows()) != 3 || i.told() != 4 {
		t.Errorf("the VMs have slots %v, control knows of %d requests of 4", i.rows(), i.told())
	}
	for vm := range open {
		i.x.Go(i.fleet.Workers[vm], func() { open[vm].Close() })
	}
	if err := i.finish(0); err != nil {
		t.Fatal(err)
	}
}

// TestWhatATenantGivesBackIsToldAtOnceWhereThereIsNoMore: another gateway may get it. While the
// fleet has more it isn't worth a batch.
func TestWhatATenantGivesBackIsToldAtOnceWhereThereIsNoMore(t *testing.T) {
	for _, flags := range []uint8{0, wire.NoSlots} {
		p := start(t, modules.full, `{}`, 2)
		p.control.doubts = true
		p.control.leases.settings = `{"enforce": ["default"], "identity": {"tenant_header": "x-tenant"}, "tenants": {"small": {"concurrency": 3, "index": 1}}}`
		p.control.leases.slots(50, 50, 50, 50)
		p.control.leases.tenants[1] = wire.Lease{
			Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 3, PrefillTokens: wire.NoLimit,
			Requests: wire.NoCredit, Tokens: wire.NoCredit, Flags: flags,
		}
		p.control.changed()
		p.advance(2 * time.Second)
		ask := func(vm int) *exchange {
			return p.send(vm, post("/v1/chat/completions", "x-tenant", "small"), chat("m", 300, "x"), 0)
		}
		inUse := func() uint32 {
			for _, u := range p.control.leases.usage {
				if u.Tenant == 1 {
					return u.InUse
				}
			}
			return 0
		}
		var open []*exchange
		for len(open) < 3 {
			open = append(open, ask(len(open)%2))
			p.advance(time.Second)
		}
		if inUse() != 3 {
			t.Fatalf("control knows of %d in use", inUse())
		}
		for i, x := range open {
			x.answer(string(p.control.workers[0].Address), 200, 1, "application/json", `{"usage":{"prompt_tokens":70,"completion_tokens":1}}`)
			p.advance(55 * time.Millisecond) // the least between two batches of this kind
			if told := inUse() == uint32(2-i); flags != 0 && !told {
				t.Errorf("%d in use, control knows of %d", 2-i, inUse())
			}
		}
		if flags == 0 && inUse() == 0 {
			t.Error("what a batch would have brought anyway was told ahead of it: the test tests nothing")
		}
	}
}
