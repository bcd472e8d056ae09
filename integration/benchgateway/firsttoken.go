package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
)

// FirstTokenCost is how much later the first token of a stream arrives. Wall
// time, so of a quiet machine only.
type FirstTokenCost struct {
	BodyBytes int     `json:"body_bytes"`
	Pairs     int     `json:"pairs"`
	Without   float64 `json:"without_us"`
	With      float64 `json:"with_us"`
	Added     float64 `json:"added_us"` // median of the pairs' differences
	Budget    float64 `json:"budget_us"`
	Verdict   string  `json:"verdict"`
}

// measureFirstToken asks both proxies in turn, one request at a time, for a stream
// whose first token comes at once.
func (r *rig) measureFirstToken(ctx context.Context, o options, report *Report) error {
	cost := &FirstTokenCost{BodyBytes: 16_000, Pairs: 40 * o.rounds, Budget: 1000}
	bodies := bench.NewBodies(cost.BodyBytes)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	var off, on, added []float64
	for pair := -10; pair < cost.Pairs; pair++ { // the first ones warm up
		var us [2]float64
		body := bodies.Next()
		for turn := range us {
			who := (turn + pair + 10) % 2
			var err error
			if us[who], err = firstToken(ctx, client, []*process{r.plain, r.steered}[who], body); err != nil {
				return fmt.Errorf("measure the first token: %w", err)
			}
		}
		if pair >= 0 {
			off, on, added = append(off, us[0]), append(on, us[1]), append(added, us[1]-us[0])
		}
	}
	cost.Without, cost.With, cost.Added = bench.Median(off), bench.Median(on), bench.Median(added)
	cost.Verdict = bench.Verdict(cost.Added, cost.Budget)
	report.FirstToken = cost
	fmt.Fprintf(o.log, "  first token: %.0f us without, %.0f with, %+.0f added\n", cost.Without, cost.With, cost.Added)
	return nil
}

// firstToken is the time from the request to the first byte of its stream in us.
func firstToken(ctx context.Context, client *http.Client, p *process, body []byte) (float64, error) {
	req, err := p.post(body)
	if err != nil {
		return 0, err
	}
	req.Header.Set(bench.ChunksHeader, "2")
	req.Header.Set(bench.EveryHeader, "1")
	began := time.Now()
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var first [1]byte
	if _, err := io.ReadFull(resp.Body, first[:]); err != nil {
		return 0, err
	}
	took := time.Since(began)
	_, err = io.Copy(io.Discard, resp.Body)
	return bench.Micros(took), err
}
