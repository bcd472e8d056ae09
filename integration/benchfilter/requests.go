package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// sizes are body sizes with their budgets in us, 0 for none.
var sizes = []struct {
	bytes, requests int
	budget          float64
}{
	{1_000, 600, 150},
	{16_000, 400, 250},
	{100_000, 200, 700},
	{400_000, 80, 2200},
	{2 << 20, 24, 0},
}

// measureRequests compares two Envoys round by round.
func measureRequests(ctx context.Context, o options, b *backend, binary, module string, report *Report) error {
	without, err := b.envoy(ctx, binary, "", 2)
	if err != nil {
		return err
	}
	defer without.Stop()
	with, err := b.envoy(ctx, binary, module, 2)
	if err != nil {
		return err
	}
	defer with.Stop()
	c := bench.NewClient(4)
	if err := waitSteered(ctx, c, with); err != nil {
		return err
	}
	for _, size := range sizes {
		cost := bench.Cost{BodyBytes: size.bytes, Requests: size.requests, Budget: size.budget}
		if o.quick {
			cost.Requests /= 4
		}
		x := comparison{client: c, without: without, with: with, body: bench.NewBodies(size.bytes).Next, rounds: o.rounds}
		if err := x.run(ctx, &cost); err != nil {
			return fmt.Errorf("the module and %d bytes: %w", size.bytes, err)
		}
		report.Requests = append(report.Requests, cost)
		fmt.Fprintf(o.log, "  %7d bytes: %6.0f us without, %6.0f with, %+6.0f added\n", size.bytes, cost.Without, cost.With, cost.Added)
	}
	return nil
}

// comparison sends the same bodies to two Envoys, one of which does more.
type comparison struct {
	client        *bench.Client
	without, with *envoyrun.Proxy
	body          func() []byte
	limits        string // of the requests to the second, as in postOf
	rounds        int
}

// run fills in what the second costs more, round by round.
func (x *comparison) run(ctx context.Context, cost *bench.Cost) error {
	var off, on, added []float64
	for round := -1; round < x.rounds; round++ { // the first one warms up
		batch := make([][]byte, cost.Requests)
		for i := range batch {
			batch[i] = x.body()
		}
		a, err := perRequest(ctx, x.client, x.without, batch, "")
		if err != nil {
			return fmt.Errorf("without: %w", err)
		}
		z, err := perRequest(ctx, x.client, x.with, batch, x.limits)
		if err != nil {
			return fmt.Errorf("with: %w", err)
		}
		if round >= 0 {
			off, on, added = append(off, a), append(on, z), append(added, z-a)
		}
	}
	cost.Sum(off, on, added)
	return nil
}

// perRequest sends a batch of requests as postOf makes them and returns Envoy's
// CPU time per request in us.
func perRequest(ctx context.Context, c *bench.Client, p *envoyrun.Proxy, batch [][]byte, limits string) (float64, error) {
	before, err := envoyrun.CPU(p.PID())
	if err != nil {
		return 0, err
	}
	if err := c.All(ctx, len(batch), func(i int) (*http.Request, error) { return postOf(p, batch[i], limits) }); err != nil {
		return 0, err
	}
	after, err := envoyrun.CPU(p.PID())
	if err != nil {
		return 0, err
	}
	return bench.Micros(after-before) / float64(len(batch)), nil
}

func post(p *envoyrun.Proxy, body []byte) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodPost, p.ClientURL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// waitSteered returns once the module steers: a measurement of requests that
// pass unread would be a lie.
func waitSteered(ctx context.Context, c *bench.Client, p *envoyrun.Proxy) error {
	bodies := bench.NewBodies(4000)
	var last string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if err := c.All(ctx, 16, func(int) (*http.Request, error) { return post(p, bodies.Next()) }); err != nil {
			return err
		}
		before, err := p.Stats(ctx, `^wasmcustom\.warmpath\.`)
		if err != nil {
			return err
		}
		if err := c.All(ctx, 16, func(int) (*http.Request, error) { return post(p, bodies.Next()) }); err != nil {
			return err
		}
		<-time.After(300 * time.Millisecond) // a tick hands the counters over
		after, err := p.Stats(ctx, `^wasmcustom\.warmpath\.`)
		if err != nil {
			return err
		}
		looked := after.Sum("wasmcustom.warmpath.lookups.") - before.Sum("wasmcustom.warmpath.lookups.")
		fell := after.Sum("wasmcustom.warmpath.fallback.") - before.Sum("wasmcustom.warmpath.fallback.")
		if looked >= 16 && fell == 0 {
			return nil
		}
		last = fmt.Sprintf("%d of 16 looked up, %d fell back", looked, fell)
	}
	return fmt.Errorf("the module does not steer after 30 s (%s)", last)
}
