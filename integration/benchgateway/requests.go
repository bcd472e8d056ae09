package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/warmpath/warmpath/integration/bench"
)

// sizes are body sizes with their budgets in us, 0 for none.
var sizes = []struct {
	bytes, requests int
	budget          float64
}{
	{1_000, 1000, 250},
	{16_000, 600, 600},
	{100_000, 250, 2000},
	{1_000_000, 30, 0},
}

// measureRequests compares the two proxies round by round.
func (r *rig) measureRequests(ctx context.Context, o options, report *Report) error {
	for _, size := range sizes {
		cost := bench.Cost{BodyBytes: size.bytes, Requests: size.requests, Budget: size.budget}
		if o.quick {
			cost.Requests /= 5
		}
		bodies := bench.NewBodies(size.bytes)
		var off, on, added []float64
		for round := -1; round < o.rounds; round++ { // the first one warms up
			batch := make([][]byte, cost.Requests)
			for i := range batch {
				batch[i] = bodies.Next()
			}
			// Who goes first changes, so that neither always finds warm caches.
			var us [2]float64
			for turn := range us {
				who := (turn + round + 2) % 2
				var err error
				if us[who], err = r.perRequest(ctx, []*process{r.plain, r.steered}[who], batch); err != nil {
					return fmt.Errorf("measure %d bytes: %w", size.bytes, err)
				}
			}
			if round >= 0 {
				off, on, added = append(off, us[0]), append(on, us[1]), append(added, us[1]-us[0])
			}
		}
		cost.Sum(off, on, added)
		report.Requests = append(report.Requests, cost)
		fmt.Fprintf(o.log, "  %7d bytes: %6.0f us without, %6.0f with, %+6.0f added\n", size.bytes, cost.Without, cost.With, cost.Added)
	}
	return nil
}

// perRequest sends a batch and returns the proxy's CPU time per request in us.
func (r *rig) perRequest(ctx context.Context, p *process, batch [][]byte) (float64, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	if err := r.client.All(ctx, len(batch), func(i int) (*http.Request, error) { return p.post(batch[i]) }); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	if err != nil {
		return 0, err
	}
	return bench.Micros(after-before) / float64(len(batch)), nil
}
