package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// RequestCost is what a request of a size costs with a build of the module.
type RequestCost struct {
	bench.Cost
	Build        string  `json:"build"` // this, or against
	PageGets     float64 `json:"page_gets_per_request"`
	PagesWritten float64 `json:"pages_written_per_request"` // by the courier, as control tells of what was sent
}

// size is that of a body, with its budget in us, 0 for none.
type size struct {
	bytes, requests int
	budget          float64
}

var sizes = []size{
	{1_000, 600, 150},
	{16_000, 400, 250},
	{100_000, 200, 700},
	{400_000, 80, 2200},
	{2 << 20, 24, 0},
}

// sizesOf are the sizes that were asked for, or all of the above.
func sizesOf(o options) []size {
	if o.sizes == nil {
		return sizes
	}
	var asked []size
	for _, bytes := range o.sizes {
		s := size{bytes: bytes, requests: 300}
		if at := slices.IndexFunc(sizes, func(s size) bool { return s.bytes == bytes }); at >= 0 {
			s = sizes[at]
		}
		asked = append(asked, s)
	}
	return asked
}

// measureRequests compares an Envoy without the module and one with each build of
// it, round by round.
func measureRequests(ctx context.Context, o options, b *backend, binary, module string, report *Report) error {
	without, err := b.envoy(ctx, binary, "", 2)
	if err != nil {
		return err
	}
	defer without.Stop()
	c := bench.NewClient(4)
	builds := buildsOf(o, module)
	for i := range builds {
		if builds[i].envoy, err = b.envoy(ctx, binary, builds[i].module, 2); err != nil {
			return err
		}
		defer builds[i].envoy.Stop()
		if err := waitSteered(ctx, c, builds[i].envoy); err != nil {
			return err
		}
	}
	for _, size := range sizesOf(o) {
		cost := bench.Cost{BodyBytes: size.bytes, Requests: size.requests, Budget: size.budget}
		if o.quick {
			cost.Requests /= 4
		}
		costs, err := compareBuilds(ctx, c, o.rounds, cost, without, builds)
		if err != nil {
			return fmt.Errorf("the module and %d bytes: %w", size.bytes, err)
		}
		report.Requests = append(report.Requests, costs...)
		for _, r := range costs {
			fmt.Fprintf(o.log, "  %7d bytes, %s: %6.0f us without, %6.0f with, %+6.0f added; %.1f pages got, %.1f written\n", r.BodyBytes, r.Build, r.Without, r.With, r.Added, r.PageGets, r.PagesWritten)
		}
	}
	return nil
}

// build is a build of the module and an Envoy that runs it.
type build struct {
	name, module string
	envoy        *envoyrun.Proxy
}

func buildsOf(o options, module string) []build {
	builds := []build{{name: "this", module: module}}
	if o.against != "" {
		builds = append(builds, build{name: "against", module: o.against})
	}
	return builds
}

// compareBuilds sends bodies to all in turn, other ones to each: they share a
// control service, and what one has sent is known to the others.
func compareBuilds(ctx context.Context, c *bench.Client, rounds int, cost bench.Cost, without *envoyrun.Proxy, builds []build) ([]RequestCost, error) {
	var off []float64
	bodies := bench.NewBodies(cost.BodyBytes)
	on, added, pages := make([][]float64, len(builds)), make([][]float64, len(builds)), make([][2]float64, len(builds))
	next := func() [][]byte {
		batch := make([][]byte, cost.Requests)
		for i := range batch {
			batch[i] = bodies.Next()
		}
		return batch
	}
	for round := -1; round < rounds; round++ { // the first one warms up
		a, err := perRequest(ctx, c, without, next(), "")
		if err != nil {
			return nil, fmt.Errorf("without: %w", err)
		}
		if round >= 0 {
			off = append(off, a)
		}
		for i := range builds {
			i = (i + round + 1) % len(builds)
			before, err := pagesOf(ctx, builds[i].envoy)
			if err != nil {
				return nil, err
			}
			z, err := perRequest(ctx, c, builds[i].envoy, next(), "")
			if err != nil {
				return nil, fmt.Errorf("with: %w", err)
			}
			<-time.After(150 * time.Millisecond) // a tick hands the counters over
			after, err := pagesOf(ctx, builds[i].envoy)
			if err != nil {
				return nil, err
			}
			if round < 0 {
				continue
			}
			on[i], added[i] = append(on[i], z), append(added[i], z-a)
			for j := range pages[i] {
				pages[i][j] += (after[j] - before[j]) / float64(rounds*cost.Requests)
			}
		}
	}
	costs := make([]RequestCost, len(builds))
	for i := range builds {
		costs[i] = RequestCost{Cost: cost, Build: builds[i].name, PageGets: pages[i][0], PagesWritten: pages[i][1]}
		costs[i].Sum(off, on[i], added[i])
	}
	return costs, nil
}

// pagesOf is how many pages of the table were got, and written, so far.
func pagesOf(ctx context.Context, p *envoyrun.Proxy) (n [2]float64, err error) {
	stats, err := p.Stats(ctx, `^wasmcustom\.warmpath\.page`)
	return [2]float64{float64(stats["wasmcustom.warmpath.page_gets"]), float64(stats["wasmcustom.warmpath.pages_written"])}, err
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
