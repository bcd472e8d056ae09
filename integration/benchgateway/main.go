// Command benchgateway measures what the module costs in the embedded gateway:
// processor time and time to the first token, against the same reverse proxy
// without a module.
//
//	go run ./integration/benchgateway --json out.json
//
// A figure travels like this: two proxies run side by side, each in a process of
// its own: the gateway with warmpath.wasm, and httputil.ReverseProxy with the
// same server and transport that takes workers in turn. The same requests go to
// each in turn, round by round; a round's figure is the difference of the two
// processes' CPU time over its requests; reported is the median of the rounds.
// A busy machine makes these figures wider, not wrong. The time to the first
// token is wall time, taken request by request from one proxy and then the
// other; reported is the median of the pairs' differences. The module has a
// table to look into: a control service runs beside, half of the requests repeat
// an earlier prefix and half are new.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

// Report is the JSON result. Times are microseconds, of CPU where not said
// otherwise.
type Report struct {
	Machine    string          `json:"machine"`
	CPUs       int             `json:"cpus"`
	Rounds     int             `json:"rounds"`
	Requests   []bench.Cost    `json:"requests"`
	FirstToken *FirstTokenCost `json:"first_token,omitempty"`
	Passed     bool            `json:"passed"` // every figure that has a budget keeps it
}

// options of a run.
type options struct {
	module string
	rounds int
	quick  bool
	log    io.Writer
}

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == serveCommand {
		return serve(args[1:], stdin, stdout, stderr)
	}
	flags := flag.NewFlagSet("benchgateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := options{log: stderr}
	flags.StringVar(&o.module, "module", "", "the `file` to run (default: build it)")
	flags.IntVar(&o.rounds, "rounds", 15, "alternated rounds; the median counts")
	flags.BoolVar(&o.quick, "quick", false, "3 short rounds: to see that it runs, not to quote")
	file := flags.String("json", "", "write the report to this `file` as well")
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
		fmt.Fprintf(stderr, "benchgateway: %v\n", err)
		return 1
	}
	report.print(stdout)
	if err := bench.WriteJSON(*file, report); err != nil {
		fmt.Fprintf(stderr, "benchgateway: %v\n", err)
		return 1
	}
	if *gate && !report.Passed {
		return 1
	}
	return 0
}

func measure(ctx context.Context, o options) (*Report, error) {
	if o.module == "" {
		dir, err := os.MkdirTemp("", "warmpath-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		root, err := envoyrun.Root()
		if err != nil {
			return nil, err
		}
		if o.module, err = modules.Build(ctx, root, dir, modules.Filter); err != nil {
			return nil, err
		}
	}
	rig, err := startRig(ctx, o.module)
	if err != nil {
		return nil, err
	}
	defer rig.stop()
	report := &Report{Machine: bench.Machine(), CPUs: runtime.NumCPU(), Rounds: o.rounds, Passed: true}
	began := time.Now()
	if err := rig.measureRequests(ctx, o, report); err != nil {
		return nil, err
	}
	if err := rig.measureFirstToken(ctx, o, report); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.log, "measured in %.0f s\n", time.Since(began).Seconds())
	for _, c := range report.Requests {
		report.Passed = report.Passed && c.Verdict != bench.Missed
	}
	report.Passed = report.Passed && report.FirstToken.Verdict != bench.Missed
	return report, nil
}
