package admission

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// played is two minutes of a gateway with a tenant that has limits far away: six requests under way,
// two sent a second of 100 tokens each, and twelve slots of P1 in use.
func played(t *testing.T) *Admission {
	a := ledger(t, Config{}, `{"tenants": {"acme": {"index": 1, "concurrency": 1000}, "bravo": {"index": 2}}}`)
	now := begin
	var lease wire.Leases
	for n := range uint64(120) {
		now = now.Add(time.Second)
		a.SetFleet(0, Fleet{Workers: 2, MaxRunning: 16, Requests: -1}, now)
		b := wire.AppendUsage(nil, &wire.Usage{Nonce: 7, Sequence: n + 1, Term: lease.Term, Lease: lease.Sequence, Tenants: a.settings.TenantsHash})
		b = wire.AppendUsed(b, &wire.Used{Tenant: wire.WholeClass, Class: 1, InUse: 12})
		b = wire.AppendUsed(b, &wire.Used{Tenant: wire.WholeClass, Class: wire.AnyClass, InUse: 12, Slots: 16})
		b = wire.AppendUsed(b, &wire.Used{
			Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, InUse: 6, Slots: 1000, Requests: 2 * n, Tokens: 200 * n,
		})
		ack, err := a.Batch("gw", b, nil, now, wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack}))
		if err != nil {
			t.Fatal(err)
		}
		err = wire.ForEachSection(ack, func(s wire.Section) error {
			if s.Type == wire.SectionLeases {
				lease, _, err = wire.DecodeLeases(s.Payload)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		a.Tick(now)
	}
	return a
}

func TestADryRunSaysWhatOfTheLastMinutesWouldBeRefused(t *testing.T) {
	a := played(t)
	foresee := func(settings string) Effect {
		t.Helper()
		next, err := policy.ParseAdmission([]byte(settings))
		if err != nil {
			t.Fatal(err)
		}
		e, ok := a.Foresee(next)
		if !ok || e.Seconds != 120 {
			t.Fatalf("%v, %d s are known", ok, e.Seconds)
		}
		return e
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= want/20 }

	if e := foresee(`{"tenants": {"acme": {"concurrency": 6, "requests_per_minute": 130}}}`); len(e.Tenants) > 0 || len(e.Classes) > 0 {
		t.Errorf("within its limits: %+v", e)
	}
	// Three of six at once: half of what it sent.
	e := foresee(`{"tenants": {"acme": {"concurrency": 3}}}`)
	if len(e.Tenants) != 1 || e.Tenants[0].Limit != "concurrency" || e.Tenants[0].Asked != 6 || !near(e.Tenants[0].Requests, 236) ||
		!near(e.Tenants[0].Refused, 118) || !near(float64(e.Tenants[0].Over), 120) {
		t.Errorf("%+v", e.Tenants)
	}
	// 120 a minute were sent, of which 60 and a burst of 5 are let in.
	e = foresee(`{"tenants": {"acme": {"requests_per_minute": 60, "burst_s": 5, "uncached_tokens_per_minute": 1000000}}}`)
	if len(e.Tenants) != 1 || e.Tenants[0].Limit != "requests_per_minute" || !near(e.Tenants[0].Asked, 120) || !near(e.Tenants[0].Refused, 236-120-5) {
		t.Errorf("%+v", e.Tenants)
	}
	e = foresee(`{"tenants": {"acme": {"uncached_tokens_per_minute": 3000, "burst_s": 1}}}`)
	if len(e.Tenants) != 1 || e.Tenants[0].Limit != "uncached_tokens_per_minute" || !near(e.Tenants[0].Asked, 12000) || !near(e.Tenants[0].Refused, 236*0.75) {
		t.Errorf("%+v", e.Tenants)
	}
	// Twelve of P1 in a pool of eight, which the workers' sixteen had room for.
	e = foresee(`{"pools": {"chat": {"slots": 8}}}`)
	if len(e.Classes) != 1 || e.Classes[0].Class != 1 || e.Classes[0].Short != 120 || e.Classes[0].WasShort != 0 || !near(e.Classes[0].Missing, 4.0/12) {
		t.Errorf("%+v", e.Classes)
	}
	// Who has no limits now isn't reported; who isn't listed is the default tenant's part.
	e = foresee(`{"tenants": {"bravo": {"concurrency": 5}, "nova": {"concurrency": 1}}, "tenant_defaults": {"concurrency": 2}}`)
	if diff := cmp.Diff([]string{"default", "bravo", "nova"}, e.Unknown); diff != "" || len(e.Tenants) != 1 || e.Tenants[0].Tenant != "default" || !near(e.Tenants[0].Refused, 236*4/6.0) {
		t.Errorf("%s %+v", diff, e.Tenants)
	}
}

func TestOnlyTheLastTenMinutesCount(t *testing.T) {
	a := played(t)
	for range 700 {
		a.demand.take(nil)
	}
	next, err := policy.ParseAdmission([]byte(`{"tenants": {"acme": {"concurrency": 1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := a.Foresee(next); e.Seconds != 600 || len(e.Tenants) > 0 || len(a.demand.tenants) > 0 {
		t.Errorf("%+v, %d tenants are kept", e, len(a.demand.tenants))
	}
}
