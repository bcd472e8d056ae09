package transcripts

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// stored is the table as it stands in shared data.
func (p *proxy) stored() (table.Meta, map[uint64]table.Entry) {
	p.t.Helper()
	keys := wire.NewKeys("default")
	value, _, ok := p.host.SharedData(vmID, keys.Meta())
	if !ok {
		return table.Meta{}, nil
	}
	m, err := table.DecodeMeta(value)
	if err != nil {
		p.t.Fatal(err)
	}
	entries := map[uint64]table.Entry{}
	for index := range uint32(1) << m.Bits {
		value, _, _ := p.host.SharedData(vmID, keys.Page(m.Bits, index))
		if len(value) == 0 {
			continue
		}
		page := table.Page(value)
		if err := page.Check(); err != nil {
			p.t.Fatal(err)
		}
		for i := range page.Count() {
			e := page.At(i)
			entries[e.Fingerprint] = e
		}
	}
	return m, entries
}

// sameTable compares shared data with control.
func (p *proxy) sameTable() error {
	m, entries := p.stored()
	c := p.control
	if m.Epoch != c.epoch || m.Version != c.version || m.Bits != c.bits || !m.Ready {
		return fmt.Errorf("meta %+v, control has epoch %d version %d bits %d", m, c.epoch, c.version, c.bits)
	}
	if len(entries) != len(c.entries) {
		return fmt.Errorf("%d entries, control has %d", len(entries), len(c.entries))
	}
	for fp, e := range c.entries {
		if entries[fp] != e {
			return fmt.Errorf("entry %x is %v, control has %v", fp, entries[fp], e)
		}
	}
	return nil
}

// TestTheTableFollowsControlWhateverHappens changes entries, restarts control,
// changes the size class, cuts control off and crashes couriers at random. Once
// control answers again, shared data equals its table.
func TestTheTableFollowsControlWhateverHappens(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			p := start(t, modules.full, `{}`, 3)
			crashed := 0
			for range 10 + rng.IntN(30) {
				switch rng.IntN(10) {
				case 0, 1, 2:
					for range 1 + rng.IntN(40) {
						p.control.put(table.Entry{Fingerprint: rng.Uint64(), Refs: [6]uint16{1, 2}})
					}
				case 3:
					p.control.remove(1 + rng.IntN(30))
				case 4:
					kinds := []string{"503", "fail", "silent", "garbage", "empty", "", "", ""}
					p.control.dead = kinds[rng.IntN(len(kinds))]
				case 5:
					p.control.epoch++
					p.control.entries = map[uint64]table.Entry{}
				case 6:
					p.control.epoch++
					p.control.bits = 6 + 2*uint8(rng.IntN(3))
				case 7:
					if crashed < 3 {
						p.fleet.Workers[crashed].Close()
						crashed++
					}
				case 8:
					p.control.log = p.control.log[:0] // forgets its history
					p.control.epoch++
				default:
					p.advance(time.Duration(1+rng.IntN(3000)) * time.Millisecond)
				}
			}
			p.control.dead = ""
			p.advance(25 * time.Second)
			if err := p.sameTable(); err != nil {
				t.Fatal(err)
			}
			if n := p.counter("panics"); n != 0 {
				t.Fatalf("%d panics: %v", n, p.logs)
			}
		})
	}
}

func (c *control) remove(n int) {
	for fp := range c.entries {
		if n--; n < 0 {
			return
		}
		c.version++
		delete(c.entries, fp)
		c.log = append(c.log, change{version: c.version, entry: table.Entry{Fingerprint: fp}, remove: true})
	}
}

// TestAFormerCourierCannotWrite: a courier stands still while its poll is open,
// another VM takes the lease, and then the answer arrives.
func TestAFormerCourierCannotWrite(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	before, _ := p.stored()

	// Another VM has the lease now, as the former courier would find it.
	keys := wire.NewKeys("default")
	lease := wire.AppendCourier(nil, &wire.Courier{
		Slot: 99, Nonce: 12345, Epoch: 50, ExpiryUnixNanos: p.host.Now().Add(2 * time.Second).UnixNano(),
	})
	if err := p.host.SetSharedData(vmID, keys.Courier(), lease); err != nil {
		t.Fatal(err)
	}
	p.control.put(table.Entry{Fingerprint: 1 << 60, Refs: [6]uint16{1}})
	p.settle() // the open poll is answered; no tick has come between

	after, entries := p.stored()
	if after.Version != before.Version || len(entries) != 0 {
		t.Fatalf("a former courier wrote version %d and %d entries", after.Version, len(entries))
	}
	if value, _, _ := p.host.SharedData(vmID, keys.Courier()); string(value) != string(lease) {
		t.Fatal("a former courier touched the lease")
	}
	p.advance(100 * time.Millisecond)
	if p.counter("courier_lost") != 1 {
		t.Error("the loss was not counted")
	}
	p.advance(5 * time.Second)
	if err := p.sameTable(); err != nil {
		t.Errorf("after the other's lease ended: %v", err)
	}
}

// TestTheCanaryTouchesNothing: the throw-away VM runs everything up to the
// first tick.
func TestTheCanaryTouchesNothing(t *testing.T) {
	p := start(t, modules.full, `{}`, 2)
	if keys := p.host.SharedDataKeys(vmID); len(keys) != 0 {
		t.Fatalf("written before the first tick: %v", keys)
	}
	if calls := p.calls.Pending(); len(calls) != 0 {
		t.Fatalf("%d calls before the first tick", len(calls))
	}
	p.advance(time.Second)
	for _, key := range p.host.SharedDataKeys(vmID) {
		if !strings.HasPrefix(key, "wp.default.1.") {
			t.Errorf("key %q has no deployment and wire version", key)
		}
	}
}

// TestOnlyOneVMCallsControl: sixteen VMs, one courier.
func TestOnlyOneVMCallsControl(t *testing.T) {
	p := start(t, modules.full, `{"control":{"token":"s3cret"}}`, 15)
	p.advance(10 * time.Second)
	if got := p.control.requests["/v1/table"]; got > 3 {
		t.Errorf("%d polls in 10 quiet seconds", got)
	}
	if got := p.control.requests["/v1/batch"]; got < 4 || got > 7 {
		t.Errorf("%d batches in 10 quiet seconds, want a heart-beat each 2 s", got)
	}
	for _, token := range p.control.tokens {
		if token != "Bearer s3cret" {
			t.Fatalf("a call without the token: %q", token)
		}
	}
}

// TestReportsOfAllVMsArriveOnce, also when batches fail on the way, and when
// their acknowledgement is lost.
func TestReportsOfAllVMsArriveOnce(t *testing.T) {
	p := start(t, modules.full, `{}`, 4)
	p.control.doubts = true
	p.advance(time.Second)
	sent := 0
	for round := range 30 {
		switch round % 10 {
		case 3:
			p.control.dead = "fail"
		case 5:
			p.control.dead = ""
		}
		for vm := range 4 {
			p.send(vm, post("/v1/chat/completions"), chat("m", 2000, fmt.Sprint(round)), 0).Close()
			sent++
		}
		p.advance(100 * time.Millisecond)
	}
	p.control.dead = ""
	p.advance(10 * time.Second)
	dispatches, dones := 0, 0
	for _, r := range p.control.reports {
		if strings.HasPrefix(r, "dispatch") {
			dispatches++
		} else {
			dones++
		}
	}
	if dispatches != sent || dones != sent {
		t.Errorf("%d requests, %d dispatches and %d dones arrived", sent, dispatches, dones)
	}
	if lost := p.counter("reports_lost"); lost != 0 {
		t.Errorf("%d reports lost", lost)
	}
}

// TestADrainingVMStillReports: after a module swap the old VM has streams but
// no ticks; their ends must reach control all the same.
func TestADrainingVMStillReports(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	x := p.send(0, post("/v1/chat/completions"), chat("m", 2000, "long answer"), 0)
	best, _, _ := strings.Cut(x.endpoint(), ",")
	p.advance(time.Second)
	old := p.fleet
	fresh, err := p.host.Deploy(t.Context(), hostsim.FleetConfig{
		VM: hostsim.VMConfig{Module: p.module, VMID: vmID}, Plugins: []hostsim.PluginConfig{p.config}, Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	old.Drain()
	p.fleet = fresh
	p.advance(3 * time.Second)
	x.answer(best, 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
	p.advance(4 * time.Second)
	if n := len(p.control.reports); n != 2 {
		t.Fatalf("reports: %v", p.control.reports)
	}
	if err := p.sameTable(); err != nil {
		t.Error(err)
	}
	y := p.send(0, post("/v1/chat/completions"), chat("m", 2000, "long answer, next turn"), 0)
	if where, _, _ := strings.Cut(y.endpoint(), ","); where != best {
		t.Errorf("after the swap the follow-up went to %q: the table did not survive", y.endpoint())
	}
	y.Close()
	p.idle()
}

// TestAConfigChangeDoesNotStopTheCourier: the long-poll of the old context is
// never answered, and the new context asks at once.
func TestAConfigChangeDoesNotStopTheCourier(t *testing.T) {
	p := start(t, modules.full, `{}`, 1)
	p.advance(time.Second)
	next := p.config
	next.Configuration = []byte(`{"tick_ms":50}`)
	if err := p.fleet.Reconfigure(t.Context(), []hostsim.PluginConfig{next}); err != nil {
		t.Fatal(err)
	}
	p.advance(200 * time.Millisecond)
	p.control.waiting = nil // as if the old context's call had gone with it
	p.advance(500 * time.Millisecond)
	p.control.put(table.Entry{Fingerprint: 1 << 61, Refs: [6]uint16{2}})
	p.advance(1500 * time.Millisecond)
	if _, entries := p.stored(); len(entries) > 1 {
		t.Fatalf("%d entries", len(entries))
	}
	p.advance(30 * time.Second)
	if err := p.sameTable(); err != nil {
		t.Fatal(err)
	}
}
