// Command benchfilter measures what the filter costs: processor time of the
// Envoy process with the module minus without it, per request and per streamed
// chunk, the time of an idle Envoy, what it costs to tell of dispatches at once,
// and the same requests in the wazero host.
//
//	go run ./integration/benchfilter --json out.json
//
// A figure travels like this: two Envoys run side by side from the shipped
// example, one with its filter taken out; the same requests go to each in turn,
// round by round; a round's figure is the difference of the two processes'
// CPU time over its requests; reported is the median of the rounds. Wall time
// is never used, so a busy machine makes the figures wider, not wrong. The
// module has a table to look into: a control service runs beside, half of the
// requests repeat an earlier prefix (found in the table) and half are new.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoybin"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

// Report is the JSON result. Times are microseconds of CPU.
type Report struct {
	Envoy     string          `json:"envoy"`
	Machine   string          `json:"machine"`
	CPUs      int             `json:"cpus"`
	Rounds    int             `json:"rounds"`
	Requests  []RequestCost   `json:"requests"`
	Exact     []ExactCost     `json:"exact"`
	Admission []AdmissionCost `json:"admission"`
	Streams   []StreamCost    `json:"streams"`
	Idle      []IdleCost      `json:"idle"`
	News      []NewsCost      `json:"news"`
	Wazero    []WazeroCost    `json:"wazero"`
	Passed    bool            `json:"passed"` // every figure that has a budget keeps it
}

// options of a run.
type options struct {
	envoy   string
	rounds  int
	quick   bool
	only    string
	against string // another build of the module, "" for none
	sizes   []int  // of bodies, nil for those with a budget
	log     io.Writer
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == controlMode {
		return runControl(os.Stdin, stdout, stderr)
	}
	flags := flag.NewFlagSet("benchfilter", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := options{log: stderr}
	flags.StringVar(&o.envoy, "envoy", "1.40.0", "version of Envoy")
	flags.IntVar(&o.rounds, "rounds", 12, "alternated rounds; the median counts")
	flags.BoolVar(&o.quick, "quick", false, "3 rounds and short streams: to see that it runs, not to quote")
	flags.StringVar(&o.only, "only", "", "one of requests, exact, admission, streams, idle, news, wazero; all when empty")
	flags.StringVar(&o.against, "against", "", "another build of the module, whose requests and news are measured in turns with this one's")
	flags.Func("sizes", "body sizes of the requests, in bytes: 4000,16000", func(list string) error { return json.Unmarshal([]byte("["+list+"]"), &o.sizes) })
	file := flags.String("json", "", "write the report here as well")
	gate := flags.Bool("gate", false, "exit with 1 when a budget is missed")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if o.quick {
		o.rounds = 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := measure(ctx, o)
	if err != nil {
		fmt.Fprintf(stderr, "benchfilter: %v\n", err)
		return 1
	}
	report.print(stdout)
	if err := bench.WriteJSON(*file, report); err != nil {
		fmt.Fprintf(stderr, "benchfilter: %v\n", err)
		return 1
	}
	if *gate && !report.Passed {
		return 1
	}
	return 0
}

// measure runs every part.
func measure(ctx context.Context, o options) (*Report, error) {
	binary, err := envoybin.Install(ctx, o.envoy)
	if err != nil {
		return nil, err
	}
	root, err := envoyrun.Root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "warmpath-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	full, err := modules.Build(ctx, root, dir, modules.Filter)
	if err != nil {
		return nil, err
	}
	lean, err := modules.Build(ctx, root, dir, modules.Filter, "noresponsebody")
	if err != nil {
		return nil, err
	}
	b, err := startBackend(ctx, "", "")
	if err != nil {
		return nil, err
	}
	defer b.stop()

	report := &Report{
		Envoy: o.envoy, CPUs: runtime.NumCPU(), Rounds: o.rounds, Passed: true,
		Machine: bench.Machine(),
	}
	parts := []struct {
		name string
		run  func() error
	}{
		{"requests", func() error { return measureRequests(ctx, o, b, binary, full, report) }},
		{"exact", func() error { return measureExact(ctx, o, b, binary, full, report) }},
		{"admission", func() error { return measureAdmission(ctx, o, b, binary, full, report) }},
		{"streams", func() error { return measureStreams(ctx, o, b, binary, full, lean, report) }},
		{"idle", func() error { return measureIdle(ctx, o, b, binary, full, report) }},
		{"news", func() error { return measureNews(ctx, o, b, binary, full, report) }},
		{"wazero", func() error { return measureWazero(ctx, o, b, full, report) }},
	}
	for _, part := range parts {
		if o.only != "" && o.only != part.name {
			continue
		}
		began := time.Now()
		if err := part.run(); err != nil {
			return nil, fmt.Errorf("measure %s: %w", part.name, err)
		}
		fmt.Fprintf(o.log, "%s measured in %.0f s\n", part.name, time.Since(began).Seconds())
	}
	for _, r := range report.Requests {
		report.Passed = report.Passed && r.Verdict != bench.Missed
	}
	for _, e := range report.Exact {
		report.Passed = report.Passed && e.Verdict != bench.Missed
	}
	for _, a := range report.Admission {
		report.Passed = report.Passed && a.Verdict != bench.Missed
	}
	for _, s := range report.Streams {
		report.Passed = report.Passed && s.Verdict != bench.Missed
	}
	for _, i := range report.Idle {
		report.Passed = report.Passed && i.Verdict != bench.Missed
	}
	return report, nil
}
