package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// StreamCost is what one chunk of a stream costs in Envoy.
type StreamCost struct {
	ChunksPerSecond int     `json:"chunks_per_second"`
	Variant         string  `json:"variant"` // full, or without the response-body export
	Without         float64 `json:"without_us"`
	With            float64 `json:"with_us"`
	Added           float64 `json:"added_us"`
	Background      float64 `json:"background_us"` // of the added: what the module would cost without any chunk
	Budget          float64 `json:"budget_us,omitempty"`
	Verdict         string  `json:"verdict"`
}

// pace of one stream: 100 chunks a second; more chunks are more streams.
const pace = 10 * time.Millisecond

// chunkBudget is the whole process's CPU per chunk at 4,000 chunks a second.
const chunkBudget = 13

func measureStreams(ctx context.Context, o options, b *backend, binary, full, lean string, report *Report) error {
	variants := []struct{ name, module string }{{"", ""}, {"full", full}, {"no response body", lean}}
	var proxies []*envoyrun.Proxy
	var idle []float64 // us of CPU a second
	for _, v := range variants {
		p, err := b.envoy(ctx, binary, v.module, 2)
		if err != nil {
			return err
		}
		defer p.Stop()
		proxies = append(proxies, p)
		if v.module != "" {
			if err := waitSteered(ctx, bench.NewClient(4), p); err != nil {
				return err
			}
		}
	}
	for _, p := range proxies {
		percent, err := idleShare(ctx, p, 4*time.Second, false)
		if err != nil {
			return err
		}
		idle = append(idle, percent*1e4)
	}
	seconds := 4
	if o.quick {
		seconds = 2
	}
	for _, rate := range []int{4000, 500} {
		streams := rate / int(time.Second/pace)
		c := bench.NewClient(streams)
		bodies := bench.NewBodies(4000)
		costs := make([][]float64, len(variants))
		for round := -1; round < max(3, o.rounds/2); round++ {
			for i, p := range proxies {
				us, err := perChunk(ctx, c, p, bodies, streams, seconds*int(time.Second/pace))
				if err != nil {
					return err
				}
				if round >= 0 {
					costs[i] = append(costs[i], us)
				}
			}
		}
		for i := 1; i < len(variants); i++ {
			added := make([]float64, len(costs[i]))
			for j := range added {
				added[j] = costs[i][j] - costs[0][j]
			}
			cost := StreamCost{
				ChunksPerSecond: rate, Variant: variants[i].name, Verdict: bench.Reported,
				Without: bench.Median(costs[0]), With: bench.Median(costs[i]), Added: bench.Median(added),
				Background: max(0, idle[i]-idle[0]) / float64(rate),
			}
			if rate == 4000 && i == 1 {
				cost.Budget, cost.Verdict = chunkBudget, bench.Verdict(cost.Added, chunkBudget)
			}
			report.Streams = append(report.Streams, cost)
			fmt.Fprintf(o.log, "  %d chunks/s, %s: %.1f us without, %.1f with, %+.1f added (%.1f of it background)\n", rate, cost.Variant, cost.Without, cost.With, cost.Added, cost.Background)
		}
	}
	return nil
}

// perChunk lets streams run side by side and returns Envoy's CPU per chunk in us.
func perChunk(ctx context.Context, c *bench.Client, p *envoyrun.Proxy, bodies *bench.Bodies, streams, chunks int) (float64, error) {
	batch := make([][]byte, streams)
	for i := range batch {
		batch[i] = bodies.Next()
	}
	before, err := envoyrun.CPU(p.PID())
	if err != nil {
		return 0, err
	}
	err = c.All(ctx, streams, func(i int) (*http.Request, error) {
		req, err := post(p, batch[i])
		if err == nil {
			req.Header.Set(bench.ChunksHeader, strconv.Itoa(chunks))
			req.Header.Set(bench.EveryHeader, strconv.Itoa(int(pace/time.Microsecond)))
		}
		return req, err
	})
	if err != nil {
		return 0, err
	}
	after, err := envoyrun.CPU(p.PID())
	if err != nil {
		return 0, err
	}
	return bench.Micros(after-before) / float64(streams*chunks), nil
}
