// Command benchrouting measures what one decision of package route costs: natively, in V8 as
// Envoy compiles a module (optimised from the start), and in wazero. The same guest runs in all
// three; times are CPU times of its process, so the machine may be busy with other things. It
// prints JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/integration/guests"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// decision is what one call of route.Choose takes for a prompt of 4,096 tokens.
type decision struct {
	Host    string `json:"host"`
	Rule    string `json:"rule"`
	Workers int    `json:"workers"`
	// Of the rounds, all hosts in turn: the least is the code's, the median has the machine's part.
	LeastMicros  float64 `json:"least_us"`
	MedianMicros float64 `json:"median_us"`
	Allocs       float64 `json:"allocs_per_call"`
}

type options struct {
	hosts, rules  []string
	workers       int
	calls, rounds int
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "wazero" {
		if err := guests.RunWazero(context.Background(), args[1:], stdout, stderr); err != nil {
			fmt.Fprintln(stderr, "benchrouting:", err)
			return 1
		}
		return 0
	}
	var o options
	flags := flag.NewFlagSet("benchrouting", flag.ContinueOnError)
	flags.SetOutput(stderr)
	hosts := flags.String("hosts", "native,v8,wazero", "where to measure")
	rules := flags.String("rules", "cost,weighted,threshold", "rules to measure")
	flags.IntVar(&o.workers, "workers", 64, "workers of the pool")
	flags.IntVar(&o.calls, "calls", 4000, "decisions of a round")
	flags.IntVar(&o.rounds, "rounds", 15, "rounds")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if o.workers < 4 || o.workers > 1000 || o.calls < 1 || o.rounds < 1 {
		fmt.Fprintln(stderr, "benchrouting: give 4 to 1000 -workers, and -calls and -rounds above 0")
		return 2
	}
	o.hosts, o.rules = strings.Split(*hosts, ","), strings.Split(*rules, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	decisions, err := measure(ctx, o)
	if err != nil {
		fmt.Fprintln(stderr, "benchrouting:", err)
		return 1
	}
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string]any{"choose": decisions}); err != nil {
		fmt.Fprintln(stderr, "benchrouting:", err)
		return 1
	}
	return 0
}

// measure asks every host in turn, round by round, so that none has the quiet minutes alone.
func measure(ctx context.Context, o options) ([]decision, error) {
	folder, err := os.MkdirTemp("", "warmpath-benchrouting-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the guest: %w", err)
	}
	defer os.RemoveAll(folder)
	hosts, err := guests.StartAll(ctx, "integration/benchrouting/guest", folder, o.hosts)
	if err != nil {
		return nil, err
	}
	defer guests.StopAll(hosts)
	var all []decision
	for _, rule := range o.rules {
		nanos, allocs := make([][]float64, len(hosts)), make([]uint64, len(hosts))
		for range o.rounds {
			for i, h := range hosts {
				var a struct {
					Error  string
					Nanos  []int64
					Allocs uint64
					Chosen int
				}
				if err := h.Ask(&a, "choose %s %d %d 1", rule, o.workers, o.calls); err != nil {
					return nil, err
				}
				if a.Error != "" || a.Chosen < 2 {
					return nil, fmt.Errorf("%s, rule %s: %d workers chosen: %s", h.Name, rule, a.Chosen, a.Error)
				}
				nanos[i] = append(nanos[i], float64(a.Nanos[0])/float64(o.calls)/1000)
				allocs[i] += a.Allocs
			}
		}
		for i, h := range hosts {
			slices.Sort(nanos[i])
			all = append(all, decision{
				Host: h.Name, Rule: rule, Workers: o.workers, LeastMicros: nanos[i][0], MedianMicros: nanos[i][o.rounds/2],
				Allocs: float64(allocs[i]) / float64(o.rounds*o.calls),
			})
		}
	}
	return all, nil
}
