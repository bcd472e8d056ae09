// Command benchdelays measures how long information takes in a live system, and prints it as the
// file of delays that the simulator reads (warmpath sim run --delays). What it printed last is
// committed as sim/virtual/measured.json, the simulator's default.
//
// The system is whole and on this machine: engines of sim/live on the real clock, a control service
// and two gateways with the module, all with the intervals that they are shipped with. A prediction is
// timed from a request at the one gateway to the table of the other, whether the request is answered
// or not, in a quiet fleet: the simulator adds what pauses between words take in a busy one, and with
// requests at random at both gateways (-rate) the quartiles tell whether it is right. A report is timed
// from control's look at an engine to the load record that a gateway decides by. What engines' events
// take needs an engine that publishes them: make test-engine measures it with a real vLLM, and -event-ms
// says it.
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

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// delays is the file that the simulator reads, see package virtual.
type delays struct {
	ReportEvery float64 `json:"report_every_ms"`
	Report      float64 `json:"report_ms"`
	BooksEvery  float64 `json:"books_every_ms"`
	Books       float64 `json:"books_ms"`
	EndsEvery   float64 `json:"ends_every_ms"`
	Event       float64 `json:"event_ms"`
	Prediction  float64 `json:"prediction_ms"`
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("benchdelays", flag.ContinueOnError)
	flags.SetOutput(stderr)
	module := flags.String("module", "bin/warmpath.wasm", "the module")
	rounds := flags.Int("rounds", 40, "requests that are timed for each figure")
	rate := flags.Float64("rate", 0, "requests a second at both gateways together, beside those that are timed")
	event := flags.Float64("event-ms", 41, "from an engine's event to the tables, median of make test-engine")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d, err := measure(ctx, *module, *rounds, *rate, stderr)
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

func measure(ctx context.Context, module string, rounds int, rate float64, stderr io.Writer) (delays, error) {
	r, err := startRig(ctx, module)
	if err != nil {
		return delays{}, err
	}
	defer r.stop()
	var predictions, reports, books []float64
	err = r.busy(ctx, rate, func() error {
		for i := range rounds {
			prediction, err := r.prediction(ctx, i)
			if err != nil {
				return err
			}
			predictions = append(predictions, prediction)
		}
		return nil
	})
	if err != nil {
		return delays{}, err
	}
	for i := range rounds {
		report, err := r.report(ctx, i)
		if err != nil {
			return delays{}, err
		}
		reports = append(reports, report)
		book, err := r.books(ctx, i)
		if err != nil {
			return delays{}, err
		}
		books = append(books, book)
	}
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	say := func(what string, values []float64) {
		slices.Sort(values)
		at := func(share int) float64 { return values[share*(len(values)-1)/100] }
		fmt.Fprintf(stderr, "%s: %.1f to %.1f ms, quartiles %.1f, %.1f, %.1f\n", what, at(0), at(100), at(25), median(values), at(75))
	}
	say("prediction at the other gateway", predictions)
	say("report at a gateway", reports)
	say("a gateway's requests in flight at the other", books)
	return delays{
		ReportEvery: millis(discovery.DefaultMetrics), Report: round(median(reports)),
		BooksEvery: millis(control.DefaultLoadsInterval / 2), Books: round(median(books)), // half: of few workers
		EndsEvery:  millis(config.Default().Control.BatchInterval),
		Prediction: round(median(predictions)),
	}, nil
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

func round(ms float64) float64 { return float64(int(ms*10+0.5)) / 10 }

// anyMoment waits for so long that every interval of the system is met at another moment each time.
func anyMoment(ctx context.Context) error {
	return pause(ctx, time.Duration(100+rand.IntN(400))*time.Millisecond)
}

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
// implies in the table of the second. It is longer than the others: its report is known by that.
func (r *rig) prediction(ctx context.Context, i int) (took float64, err error) {
	if err := anyMoment(ctx); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- ask(ctx, r.gateways[0].URL(), fresh(i, longPrompt), 1) }()
	var end uint64
	took, err = until(ctx, "the prediction of a request", began, func() bool {
		if end == 0 {
			end = r.dispatched()
		}
		return end != 0 && holds(r.gateways[1].Host(), end)
	})
	return took, errors.Join(err, <-done)
}

// busy sends short prompts at random to all gateways while f runs.
func (r *rig) busy(ctx context.Context, rate float64, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	var asked errgroup.Group
	for n, g := range r.gateways {
		asked.Go(func() error {
			var open errgroup.Group
			for i := 0; rate > 0; i++ {
				gap := rand.ExpFloat64() / rate * float64(len(r.gateways))
				if pause(ctx, time.Duration(gap*float64(time.Second))) != nil {
					break
				}
				open.Go(func() error {
					err := ask(ctx, g.URL(), fresh(10_000_000*(n+1)+i, shortPrompt), 1)
					if ctx.Err() != nil {
						return nil
					}
					return err
				})
			}
			return open.Wait()
		})
	}
	err := f()
	stop()
	return errors.Join(err, asked.Wait())
}

// report gives an engine something to do that no gateway knows of, and waits until its load says so.
// It returns the time from the look that found it.
func (r *rig) report(ctx context.Context, i int) (took float64, err error) {
	began, took, err := r.shows(ctx, "http://"+r.fleet.Addresses()[0], fresh(1_000_000+i, shortPrompt), running)
	if err != nil {
		return 0, err
	}
	return r.looks.before(began.Add(time.Duration(took*float64(time.Millisecond))), began), nil
}

// books sends a request through the first gateway, and waits until the second knows that the worker
// has one more.
func (r *rig) books(ctx context.Context, i int) (took float64, err error) {
	_, took, err = r.shows(ctx, r.gateways[0].URL(), fresh(2_000_000+i, shortPrompt), inFlight)
	return took, err
}

// shows sends a request of long duration in an idle fleet, and waits until what the second gateway
// counts isn't 0 any more.
func (r *rig) shows(ctx context.Context, url, prompt string, count func(*hostsim.Host) int) (began time.Time, took float64, err error) {
	host := r.gateways[1].Host()
	if _, err := until(ctx, "an idle fleet", time.Now(), func() bool { return count(host) == 0 }); err != nil {
		return began, 0, err
	}
	if err := anyMoment(ctx); err != nil {
		return began, 0, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	began = time.Now()
	go func() { done <- ask(working, url, prompt, 4000) }()
	took, err = until(ctx, "word of a request", began, func() bool { return count(host) > 0 })
	stop()
	if asked := <-done; asked != nil && !errors.Is(asked, context.Canceled) {
		return began, 0, asked
	}
	return began, took, err
}

// In sentences of some 30 bytes.
const (
	shortPrompt = 20
	longPrompt  = 200
)

// fresh is a prompt of so many sentences that shares nothing with another.
func fresh(i, sentences int) string {
	return strings.Repeat(fmt.Sprintf("prompt %d asks about %d. ", i, 7*i+1), sentences)
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

// dispatched is the deepest checkpoint of the long prompt that the first gateway has dispatched and
// this wasn't asked of yet, 0 for none: the gateway's VM has written it for its courier.
func (r *rig) dispatched() (fingerprint uint64) {
	for slot := range uint16(2) {
		for n := range uint64(wire.ReportChunks) {
			value, _, _ := r.gateways[0].Host().SharedData(vmID, keys.Report(slot, n))
			_, records, err := wire.DecodeChunk(value)
			if err != nil {
				continue
			}
			_ = wire.ForEachReport(records, func(rep *wire.Report) error { // a module's own
				if rep.Kind == wire.Dispatch && rep.PromptUnits > 2*shortPrompt && !r.seen[rep.ID] {
					r.seen[rep.ID] = true
					fingerprint = rep.Checkpoint(rep.Checkpoints() - 1).Fingerprint
				}
				return nil
			})
		}
	}
	return fingerprint
}

// holds tells whether a checkpoint is in a gateway's table.
func holds(h *hostsim.Host, fingerprint uint64) bool {
	value, _, _ := h.SharedData(vmID, keys.Meta())
	meta, err := table.DecodeMeta(value)
	if err != nil {
		return false
	}
	page, _, ok := h.SharedData(vmID, keys.Page(meta.Bits, table.PageIndex(fingerprint, meta.Bits)))
	if !ok {
		return false
	}
	_, there := table.Page(page).Lookup(fingerprint)
	return there
}

// running is how many requests run in the fleet, and inFlight how many all gateways have sent that are
// not answered, as a gateway knows it.
func running(h *hostsim.Host) int { return sum(h, func(l *wire.Load) int { return int(l.Running) }) }

func inFlight(h *hostsim.Host) int {
	return sum(h, func(l *wire.Load) int { return int(l.FleetInFlight) })
}

func sum(h *hostsim.Host, of func(l *wire.Load) int) (n int) {
	value, _, _ := h.SharedData(vmID, keys.Loads())
	_ = wire.ForEachLoad(value, func(l *wire.Load) error { // none yet: nothing runs
		n += of(l)
		return nil
	})
	return n
}
