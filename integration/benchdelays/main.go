// Command benchdelays measures how long information takes in a live system, and prints it as the
// file of delays that the simulator reads (warmpath sim run --delays). What it printed last is
// committed as sim/virtual/measured.json, the simulator's default.
//
// The system is whole and on this machine: engines of sim/live on the real clock, a control service
// and two gateways with the module, all with the intervals that they are shipped with. A prediction
// is timed from a request at the one gateway to the table of the other; a report from a change of an
// engine to the load record that a gateway decides by. What engines' events take needs an engine
// that publishes them: make test-engine measures it with a real vLLM, and -event-ms says it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// delays is the file that the simulator reads, see package virtual.
type delays struct {
	ReportEvery float64 `json:"report_every_ms"`
	Report      float64 `json:"report_ms"`
	Event       float64 `json:"event_ms"`
	Prediction  float64 `json:"prediction_ms"`
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("benchdelays", flag.ContinueOnError)
	flags.SetOutput(stderr)
	module := flags.String("module", "bin/warmpath.wasm", "the module")
	rounds := flags.Int("rounds", 40, "requests that are timed for each figure")
	event := flags.Float64("event-ms", 41, "from an engine's event to the tables, median of make test-engine")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d, err := measure(ctx, *module, *rounds, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "benchdelays:", err)
		return 1
	}
	d.Event = *event
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		fmt.Fprintln(stderr, "benchdelays:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, module string, rounds int, stderr io.Writer) (delays, error) {
	r, err := startRig(ctx, module)
	if err != nil {
		return delays{}, err
	}
	defer r.stop()
	var predictions, reports []float64
	for i := range rounds {
		// At another moment of the intervals each time.
		if err := pause(ctx, time.Duration(rand.IntN(400))*time.Millisecond); err != nil {
			return delays{}, err
		}
		prediction, err := r.prediction(ctx, i)
		if err != nil {
			return delays{}, err
		}
		report, err := r.report(ctx, i)
		if err != nil {
			return delays{}, err
		}
		predictions, reports = append(predictions, prediction), append(reports, report)
	}
	every := float64(discovery.DefaultMetrics) / float64(time.Millisecond)
	say := func(what string, values []float64) {
		slices.Sort(values)
		fmt.Fprintf(stderr, "%s: %.1f to %.1f ms, median %.1f\n", what, values[0], values[len(values)-1], median(values))
	}
	say("prediction at the other gateway", predictions)
	say("report at a gateway, the wait for it included", reports)
	return delays{
		ReportEvery: every,
		// A change waits half of the interval for its report, in the mean.
		Report:     max(0, round(median(reports)-every/2)),
		Prediction: round(median(predictions)),
	}, nil
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

func round(ms float64) float64 { return float64(int(ms*10+0.5)) / 10 }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// patience is how long a change may take to arrive.
const patience = 20 * time.Second

// until waits for something and returns how long it took, in ms.
func until(ctx context.Context, what string, from time.Time, there func() bool) (float64, error) {
	for !there() {
		if time.Since(from) > patience {
			return 0, fmt.Errorf("%s did not happen within %v", what, patience)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(from)) / float64(time.Millisecond), nil
}

// prediction sends a prompt that nobody knows through the first gateway, and waits for what it
// implies in the table of the second.
func (r *rig) prediction(ctx context.Context, i int) (took float64, err error) {
	before := entries(r.gateways[1].Host())
	began := time.Now()
	if err := ask(ctx, r.gateways[0].URL(), fresh(i), 1); err != nil {
		return 0, err
	}
	return until(ctx, "the prediction of a request", began, func() bool { return entries(r.gateways[1].Host()) > before })
}

// report gives an engine something to do that no gateway knows of, and waits until its load says so.
func (r *rig) report(ctx context.Context, i int) (took float64, err error) {
	host := r.gateways[1].Host()
	if _, err := until(ctx, "an idle fleet", time.Now(), func() bool { return running(host) == 0 }); err != nil {
		return 0, err
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- ask(working, "http://"+r.fleet.Addresses()[0], fresh(1_000_000+i), 4000) }()
	took, err = until(ctx, "the report of a request", began, func() bool { return running(host) > 0 })
	stop()
	if asked := <-done; asked != nil && !errors.Is(asked, context.Canceled) {
		return 0, asked
	}
	return took, err
}

// fresh is a prompt that shares nothing with another.
func fresh(i int) string {
	return strings.Repeat(fmt.Sprintf("prompt %d asks about %d. ", i, 7*i+1), 200)
}

func ask(ctx context.Context, url, prompt string, tokens int) error {
	body, err := json.Marshal(map[string]any{
		"model": "sim", "max_tokens": tokens, "ignore_eos": true, "messages": []any{map[string]string{"role": "user", "content": prompt}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s: %s", url, res.Status, text)
	}
	return nil
}

var keys = wire.NewKeys("default")

// vmID names the shared data of the module in the gateway.
const vmID = "warmpath"

// entries counts the checkpoints in a gateway's table.
func entries(h *hostsim.Host) (n int) {
	value, _, _ := h.SharedData(vmID, keys.Meta())
	meta, err := table.DecodeMeta(value)
	if err != nil {
		return 0
	}
	for i := range uint32(1) << meta.Bits {
		if page, _, ok := h.SharedData(vmID, keys.Page(meta.Bits, i)); ok {
			n += table.Page(page).Count()
		}
	}
	return n
}

// running is how many requests run in the fleet as a gateway knows it.
func running(h *hostsim.Host) (n int) {
	value, _, _ := h.SharedData(vmID, keys.Loads())
	_ = wire.ForEachLoad(value, func(l *wire.Load) error { // none yet: nothing runs
		n += int(l.Running)
		return nil
	})
	return n
}
