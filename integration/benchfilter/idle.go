package main

import (
	"context"
	"fmt"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// IdleCost is the share of one core that an Envoy without requests takes.
type IdleCost struct {
	Threads int     `json:"threads"`
	Without float64 `json:"without_percent"`
	With    float64 `json:"with_percent"`
	Budget  float64 `json:"budget_percent,omitempty"`
	Verdict string  `json:"verdict"`
}

// idleBudget is for 16 threads, in percent of a core.
const idleBudget = 2

func measureIdle(ctx context.Context, o options, b *backend, binary, module string, report *Report) error {
	wait := 15 * time.Second
	if o.quick {
		wait = 5 * time.Second
	}
	for _, threads := range []int{2, 16} {
		cost := IdleCost{Threads: threads, Verdict: bench.Reported}
		for _, m := range []string{"", module} {
			p, err := b.envoy(ctx, binary, m, threads)
			if err != nil {
				return err
			}
			share, err := idleShare(ctx, p, wait, m != "")
			p.Stop()
			if err != nil {
				return err
			}
			if m == "" {
				cost.Without = share
			} else {
				cost.With = share
			}
		}
		if threads == 16 {
			cost.Budget, cost.Verdict = idleBudget, bench.Verdict(cost.With-cost.Without, idleBudget)
		}
		report.Idle = append(report.Idle, cost)
		fmt.Fprintf(o.log, "  idle, %d threads: %.2f %% of a core without, %.2f %% with\n", threads, cost.Without, cost.With)
	}
	return nil
}

func idleShare(ctx context.Context, p *envoyrun.Proxy, wait time.Duration, steered bool) (float64, error) {
	if steered {
		if err := waitSteered(ctx, bench.NewClient(4), p); err != nil {
			return 0, err
		}
	}
	select { // what the last requests left to do
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	before, err := envoyrun.CPU(p.PID())
	if err != nil {
		return 0, err
	}
	began := time.Now()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := envoyrun.CPU(p.PID())
	if err != nil {
		return 0, err
	}
	return 100 * float64(after-before) / float64(time.Since(began)), nil
}
