//go:build !wasm

package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/wire"
)

const ratedTenant = 3

const ratedSettings = `{"enforce": ["default"], "tenants": {"rated": {"concurrency": 1000, "requests_per_minute": 100000, "uncached_tokens_per_minute": 100000000, "index": 3}},
	"classes": {"p0": {"queue": {"requests": 3, "deadline_ms": 200}}, "p1": {"queue": {"requests": 3, "deadline_ms": 200}}, "p2": {"queue": {"requests": 3, "deadline_ms": 200}}}}`

// grants is what a lease gives.
type grants struct {
	slots, prefill, tenant uint32
	requests, tokens       uint64
}

func (g *gateway) grant(t interface{ Fatal(...any) }, l *grants) {
	c := g.control.gate
	u, _, err := wire.DecodeUsage(c.AppendUsage(nil, g.host.Clock))
	if err != nil {
		t.Fatal(err)
	}
	g.sequence++
	b := wire.AppendLeases(nil, &wire.Leases{
		Nonce: u.Nonce, Term: 1, Sequence: g.sequence, Answers: u.Sequence, DurationMillis: 3_600_000, FloorMillis: 3_600_000, Tenants: u.Tenants,
	})
	for _, class := range []uint8{wire.AnyClass, 0, 1, 2} {
		b = wire.AppendLease(b, &wire.Lease{Tenant: wire.WholeClass, Class: class, Slots: l.slots, PrefillTokens: l.prefill})
	}
	b = wire.AppendLease(b, &wire.Lease{
		Tenant: ratedTenant, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: l.tenant, Requests: l.requests, Tokens: l.tokens,
	})
	if err := c.Install(b, g.host.Clock, g.host.Clock); err != nil {
		t.Fatal(err)
	}
	for _, v := range g.vms {
		v.gate.leaseAt = 0
	}
}

// TestWhatIsBookedAheadIsWithinAllLimits plays bursts in four VMs of which each books ahead, with
// leases large enough for that, which shrink and grow: slots, a tenant's slots, and its rates.
func TestWhatIsBookedAheadIsWithinAllLimits(t *testing.T) {
	const promptBytes, promptTokens = 400, 100
	booked := 0 // takes without a look at the cell, of all runs
	rapid.Check(t, func(t *rapid.T) {
		g, stop := newGatewayOf(nil, 4, ratedSettings)
		defer stop()
		limit := grants{slots: 40, prefill: wire.NoLimit, tenant: 30, requests: 30, tokens: 100 * promptTokens}
		if rapid.Bool().Draw(t, "rates don't bind") {
			limit.requests, limit.tokens = 100_000, 100_000*promptTokens
		}
		g.grant(t, &limit)
		var all, rated int       // under way
		var requests, tokens int // spent by the tenant
		before, ratedBefore := 0, 0
		check := func() {
			if all > max(int(limit.slots), before) || rated > max(int(limit.tenant), ratedBefore) {
				t.Fatalf("%d run with a limit of %d and %d before; %d of the tenant's with %d and %d before", all, limit.slots, before, rated, limit.tenant, ratedBefore)
			}
			if requests > int(limit.requests) {
				t.Fatalf("%d requests of the tenant, granted are %d", requests, limit.requests)
			}
			// The last prompt may overdraw the tokens.
			if tokens > int(limit.tokens)+promptTokens {
				t.Fatalf("%d tokens of the tenant, granted are %d", tokens, limit.tokens)
			}
			before, ratedBefore = all, rated
		}
		arrive := func(v *vm, tenant uint16, class uint8) {
			cells := g.changes()
			r := g.arrive(v, tenant, class, promptBytes)
			if !r.running {
				r.over = true
				v.gate.Done(&r.ticket, -1, g.host.Clock)
				return
			}
			if cells == g.changes() {
				booked++
			}
			all++
			if tenant == ratedTenant {
				if rated, requests = rated+1, requests+1; v.gate.Reserve(&r.ticket, 0, promptTokens, g.host.Clock) == 0 {
					tokens += promptTokens
				} else { // it has given back all it had
					r.over = true
					all, rated, requests = all-1, rated-1, requests-1
				}
			}
			if !r.over {
				v.gate.Dispatched(&r.ticket)
			}
			check()
		}
		t.Repeat(map[string]func(*rapid.T){
			"burst": func(t *rapid.T) {
				v, tenant := rapid.SampledFrom(g.vms).Draw(t, "vm"), rapid.SampledFrom([]uint16{0, ratedTenant}).Draw(t, "tenant")
				class := rapid.Uint8Range(0, 2).Draw(t, "class")
				for range rapid.IntRange(1, 12).Draw(t, "requests") {
					arrive(v, tenant, class)
				}
			},
			"ends": func(t *rapid.T) {
				n := rapid.IntRange(1, 12).Draw(t, "requests")
				v := rapid.SampledFrom(g.vms).Draw(t, "vm")
				for _, r := range g.requests {
					if r.running && !r.over && r.vm == v && n > 0 {
						n--
						all--
						if r.ticket.Tenant == ratedTenant {
							rated--
						}
						r.vm.gate.FirstToken(&r.ticket, 5, true, g.host.Clock)
						r.over = true
						r.vm.gate.Done(&r.ticket, promptTokens, g.host.Clock)
					}
				}
				check()
			},
			"time": func(t *rapid.T) {
				g.advance(time.Duration(rapid.IntRange(1, 150).Draw(t, "ms")) * time.Millisecond)
			},
			"lease": func(t *rapid.T) {
				limit.slots, limit.tenant = rapid.Uint32Range(16, 60).Draw(t, "slots"), rapid.Uint32Range(16, 60).Draw(t, "tenant")
				limit.requests += rapid.Uint64Range(0, 30).Draw(t, "requests")
				limit.tokens += promptTokens * rapid.Uint64Range(0, 30).Draw(t, "prompts")
				g.grant(t, &limit)
				before, ratedBefore = all, rated
			},
		})
	})
	if booked == 0 {
		t.Error("nothing was booked ahead, the test tests nothing")
	}
}

// TestWhatCouldNotBeBookedIsNotGivenBack: a request whose tokens the cell never heard
// of takes none out of it at its end, which are those of others.
func TestWhatCouldNotBeBookedIsNotGivenBack(t *testing.T) {
	g, stop := newGatewayOf(t, 1, ratedSettings)
	defer stop()
	g.grant(t, &grants{slots: 40, prefill: wire.NoLimit, tenant: 8, requests: 100, tokens: 100_000})
	v := g.vms[0]
	spend := func(refuse bool) *request {
		r := g.arrive(v, ratedTenant, 1, 400)
		if refuse {
			g.host.Refuse["proxy_set_shared_data"] = abi.InternalFailure
			defer delete(g.host.Refuse, "proxy_set_shared_data")
		}
		v.gate.Reserve(&r.ticket, 0, 5000, g.host.Clock)
		v.gate.Dispatched(&r.ticket)
		return r
	}
	first, second := spend(false), spend(true)
	second.over = true
	v.gate.Done(&second.ticket, 100, g.host.Clock)
	g.end(first) // settled by what was reserved
	g.pass(time.Second)
	u, ok := InspectTenant(g.host.Shared[wire.NewKeys("default").TenantSlots(ratedTenant)].Value)
	if !ok || u.Tokens != 5100 || u.Requests != 2 {
		t.Errorf("%+v", u)
	}
}
