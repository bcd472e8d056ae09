package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// AdmissionCost is what admission costs on top of routing: the same bodies of 1
// KB go to two Envoys with the module, one of whose pools enforces limits that
// nobody reaches.
type AdmissionCost struct {
	Limits   string  `json:"limits"` // class: a slot of the class; tenant: and a slot, a request and tokens of the tenant
	Lease    string  `json:"lease"`  // large: VMs book ahead; small: too small for that, so each request changes the cells itself
	Requests int     `json:"requests_per_round"`
	Routed   float64 `json:"routed_us"`
	Admitted float64 `json:"admitted_us"`
	Added    float64 `json:"added_us"` // median of the rounds' differences
	Lowest   float64 `json:"added_lowest_us"`
	Highest  float64 `json:"added_highest_us"`
	Budget   float64 `json:"budget_us,omitempty"`
	Verdict  string  `json:"verdict"`
}

// leaseKind is a kind of lease: what the policy says behind its pools.
type leaseKind struct {
	name, policy string
	budget       float64 // us, for each of the limits; 0 for none
}

var leaseKinds = []leaseKind{
	{"large", `
admission:
  identity: {tenant_header: x-tenant-id}
  tenants:
    limited: {concurrency: 1000, requests_per_minute: 100000000, uncached_tokens_per_minute: 100000000000}
`, 20},
	{"small", `
admission:
  identity: {tenant_header: x-tenant-id}
  pools: {default: {slots: 12}}
  tenants:
    limited: {concurrency: 12, requests_per_minute: 100000000, uncached_tokens_per_minute: 100000000000}
`, 0},
}

func measureAdmission(ctx context.Context, o options, b *backend, binary, module string, report *Report) error {
	plain, err := b.envoy(ctx, binary, module, 2)
	if err != nil {
		return err
	}
	defer plain.Stop()
	c := bench.NewClient(4)
	if err := waitSteered(ctx, c, plain); err != nil {
		return err
	}
	for _, kind := range leaseKinds {
		if err := measureLease(ctx, o, kind, c, plain, binary, module, report); err != nil {
			return fmt.Errorf("a %s lease: %w", kind.name, err)
		}
	}
	return nil
}

// measureLease compares plain with an Envoy that admits by a kind of lease.
func measureLease(ctx context.Context, o options, kind leaseKind, c *bench.Client, plain *envoyrun.Proxy, binary, module string, report *Report) error {
	limited, err := startBackend(ctx, "  mode: enforce", kind.policy)
	if err != nil {
		return err
	}
	defer limited.stop()
	enforced, err := limited.envoy(ctx, binary, module, 2)
	if err != nil {
		return err
	}
	defer enforced.Stop()
	if err := waitSteered(ctx, c, enforced); err != nil {
		return err
	}
	for _, limits := range []string{"class", "tenant"} {
		cost := AdmissionCost{Limits: limits, Lease: kind.name, Requests: 600, Budget: kind.budget}
		if o.quick {
			cost.Requests /= 4
		}
		if err := waitLeased(ctx, c, enforced, cost.Limits); err != nil {
			return err
		}
		sum := bench.Cost{Requests: cost.Requests, Budget: cost.Budget}
		x := comparison{client: c, without: plain, with: enforced, body: bench.NewBodies(1000).Next, limits: cost.Limits, rounds: 2 * o.rounds}
		if err := x.run(ctx, &sum); err != nil {
			return fmt.Errorf("limits of the %s: %w", cost.Limits, err)
		}
		cost.Routed, cost.Admitted, cost.Added = sum.Without, sum.With, sum.Added
		cost.Lowest, cost.Highest, cost.Verdict = sum.Lowest, sum.Highest, sum.Verdict
		report.Admission = append(report.Admission, cost)
		fmt.Fprintf(o.log, "  limits of the %s, a %s lease: %.0f us routed, %.0f admitted, %+.1f added\n", cost.Limits, cost.Lease, cost.Routed, cost.Admitted, cost.Added)
	}
	return nil
}

// postOf is post as a tenant with the limits.
func postOf(p *envoyrun.Proxy, body []byte, limits string) (*http.Request, error) {
	req, err := post(p, body)
	if err == nil && limits == "tenant" {
		req.Header.Set("X-Tenant-Id", "limited")
	}
	return req, err
}

// waitLeased returns once requests are admitted by a lease of control's.
func waitLeased(ctx context.Context, c *bench.Client, p *envoyrun.Proxy, limits string) error {
	const leased = "wasmcustom.warmpath.admission_level.leased"
	bodies := bench.NewBodies(1000)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		before, err := p.Stats(ctx, leased)
		if err != nil {
			return err
		}
		if err := c.All(ctx, 16, func(int) (*http.Request, error) { return postOf(p, bodies.Next(), limits) }); err != nil {
			return err
		}
		<-time.After(300 * time.Millisecond) // a tick hands the counters over
		after, err := p.Stats(ctx, leased)
		if err != nil {
			return err
		}
		if after[leased]-before[leased] >= 16 {
			return nil
		}
	}
	return fmt.Errorf("no lease is in force after 30 s")
}
