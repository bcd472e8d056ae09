package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/virtual"
)

func simListCommand() *cobra.Command {
	var engines, asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the scenarios and the policies, or the engines",
		Long: `Lists the scenarios and the policies. With --engines the pairs of model and GPU that a
scenario can be played with instead of its own engine: what of the cache's memory is
left for tokens, what a cold prompt and a decode step take.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd, simList(engines))
			}
			if engines {
				return printEngines(cmd.OutOrStdout())
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SCENARIO\tNODES\tREQUESTS/S\tSATURATED AT\tWHAT")
			for _, s := range virtual.Scenarios() {
				saturated := "-"
				if s.Saturation > 0 {
					saturated = fmt.Sprintf("%.0f", s.Saturation)
				}
				fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\n", s.Name, s.Workers, s.Rate, saturated, s.About)
			}
			fmt.Fprintln(w, "\t\t\t\t")
			fmt.Fprintln(w, "POLICY\t\t\t\tWHAT")
			for _, p := range append(virtual.Policies(), virtual.Peers()...) {
				fmt.Fprintf(w, "%s\t\t\t\t%s\n", p.Name, p.About)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&engines, "engines", false, "list the engines instead")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// simFlags are the flags of run and compare.
type simFlags struct {
	policies   string
	seeds      string
	rate, load float64
	requests   int
	gateways   int
	delays     string
	set        []string
	trace      string
	engine     string
	charts     string
	asJSON     bool
}

func (f *simFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "rate", 0, "requests a second; 0: the scenario's")
	flags.Float64Var(&f.load, "load", 0, "rate as a share of saturation, such as 0.85; needs a scenario whose saturation is known (warmpath sim list)")
	flags.IntVar(&f.requests, "requests", 0, "requests in all; 0: the scenario's, and five minutes at least")
	flags.IntVar(&f.gateways, "gateways", 2, "gateways that share the traffic")
	flags.StringVar(&f.delays, "delays", "", "JSON file with delays measured on a live system: "+virtual.DelayNames())
	flags.StringArrayVar(&f.set, "set", nil, "a policy parameter, such as cost.miss_weight=1, or one of the engine: "+engineSettings()+"; may be repeated")
	flags.StringVar(&f.trace, "trace", "", "recorded requests in Mooncake's format, for the scenarios that play them")
	flags.StringVar(&f.engine, "engine", "", engineUsage)
	flags.StringVar(&f.charts, "charts", "", "draw charts into this folder (PNG and SVG)")
	flags.BoolVar(&f.asJSON, "json", false, "print the figures as JSON")
}

func simRunCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Play one scenario under one policy, in virtual time",
		Example: `  warmpath sim run seed-16
  warmpath sim run seed-16 --policy threshold --load 0.85 --charts /tmp/charts
  warmpath sim run zipf-32 --gateways 64 --set cost.sample=0.25
  warmpath sim run documents --set engine.long_prefill_tokens=512
  warmpath sim run seed-16 --engine llama-3.1-8b-h100 --rate 40`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.play(cmd, args[0]) },
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.policies, "policy", "cost", "policy (warmpath sim list)")
	cmd.Flags().StringVar(&f.seeds, "seed", "1", "seed, or a range such as 1-5")
	return cmd
}

func simCompareCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "compare SCENARIO",
		Short: "Play one scenario under several policies and compare",
		Long: `Plays the same requests under several policies, each with several seeds, and
prints a table. The first fifth of each run is left out. Figures are means over the
seeds; ± is the standard deviation between seeds.`,
		Example: `  warmpath sim compare seed-16
  warmpath sim compare agents --load 0.85 --policies cost,threshold,smg --seeds 1-5 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.play(cmd, args[0]) },
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.policies, "policies", "cost,weighted,threshold,session_hash,chwbl,round_robin,smg,llm-d,lmetric,reference", "policies")
	cmd.Flags().StringVar(&f.seeds, "seeds", "1-3", "seeds, such as 1-5 or 1,4,7")
	return cmd
}

func simSaturationCommand() *cobra.Command {
	var seeds, trace, preset string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "saturation SCENARIO",
		Short: "Find the rate at which the reference meets the SLO for 90 % of the requests",
		Long: `Finds the highest rate, within 3 %, at which the policy reference gives 90 % of the
requests of all seeds together a first token within max(1 s, 4 x the cold prefill of
that prompt) and 50 ms a token after it. It is what --load 1 means.`,
		Example: `  warmpath sim saturation seed-16
  warmpath sim saturation seed-16 --engine llama-3.1-8b-l4
  warmpath sim saturation mooncake-conversation --trace traces/mooncake-conversation.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := findScenario(args[0], trace, preset)
			if err != nil {
				return err
			}
			list, err := parseSeeds(seeds)
			if err != nil {
				return err
			}
			rate, err := s.Saturate(cmd.Context(), list, func(rate, goodput float64) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%.1f requests/s: %.1f %% in time\n", rate, 100*goodput)
			})
			if err != nil {
				return err
			}
			if asJSON {
				found := map[string]any{"scenario": s.Name, "seeds": list, "requests_per_second": rate}
				if s.Engine != "" {
					found["engine"] = s.Engine
				}
				return printJSON(cmd, found)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %.1f requests/s\n", s.Name, rate)
			return nil
		},
	}
	cmd.Flags().StringVar(&seeds, "seeds", "1-5", "seeds")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&trace, "trace", "", "recorded requests in Mooncake's format, for the scenarios that play them")
	cmd.Flags().StringVar(&preset, "engine", "", engineUsage)
	return cmd
}

// findScenario returns a scenario, with its trace and on another engine where they are given.
func findScenario(name, trace, preset string) (virtual.Scenario, error) {
	s, err := virtual.FindScenario(name)
	if err == nil && preset != "" {
		var p engine.Preset
		if p, err = findEngine(preset); err == nil {
			s = s.WithEngine(p)
		}
	}
	if err != nil || trace == "" {
		return s, err
	}
	if !s.Recorded {
		return s, fmt.Errorf("%s makes its own requests: --trace is for the recorded scenarios", name)
	}
	t, err := virtual.ReadTrace(trace)
	if err != nil {
		return s, err
	}
	return s.WithTrace(t), nil
}

func (f *simFlags) play(cmd *cobra.Command, name string) error {
	s, err := findScenario(name, f.trace, f.engine)
	if err != nil {
		return err
	}
	seeds, err := parseSeeds(f.seeds)
	if err != nil {
		return err
	}
	names := strings.Split(f.policies, ",")
	p := virtual.Play{Rate: f.rate, Requests: f.requests, Gateways: f.gateways, Pooled: true}
	if f.load > 0 {
		if f.rate > 0 {
			return fmt.Errorf("--rate and --load both name the rate: give one of them")
		}
		if s.Saturation == 0 && f.engine != "" {
			return fmt.Errorf("--load is a share of the saturation, which is known for a scenario's own engine only: give --rate, or find it with warmpath sim saturation %s --engine %s", name, f.engine)
		}
		if s.Saturation == 0 {
			return fmt.Errorf("the saturation of %s is not known: give --rate, or find it with warmpath sim saturation %s", name, name)
		}
		p.Rate = f.load * s.Saturation
	}
	if f.delays != "" {
		if p.Delays, err = virtual.ReadDelays(f.delays); err != nil {
			return err
		}
	}
	tune, change, err := parseSettings(f.set)
	if err != nil {
		return err
	}
	p.Engine = change
	stderr := cmd.ErrOrStderr()
	progress := func(done, all int) {}
	if file, ok := stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		runs := len(names) * len(seeds)
		progress = func(done, all int) {
			fmt.Fprintf(stderr, "\r%3d %% of %d requests in %d runs ", 100*done/max(all, 1), all, runs)
		}
		defer fmt.Fprintf(stderr, "\r%50s\r", "")
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	began := time.Now()
	c, err := s.Compare(ctx, names, seeds, p, tune, progress)
	if err != nil {
		return err
	}
	var files []string
	if f.charts != "" {
		if err := os.MkdirAll(f.charts, 0o755); err != nil {
			return fmt.Errorf("make the folder of the charts: %w", err)
		}
		if files, err = c.Charts(f.charts); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	if f.asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(c)
	}
	printComparison(out, c)
	fmt.Fprintf(out, "\n%d runs in %.0f s", len(names)*len(seeds), time.Since(began).Seconds())
	if len(files) > 0 {
		fmt.Fprintf(out, "; charts: %s", strings.Join(files, ", "))
	}
	fmt.Fprintln(out)
	return nil
}

func printComparison(out io.Writer, c *virtual.Comparison) {
	fmt.Fprintf(out, "%s", c.Scenario)
	if c.Engine != "" {
		fmt.Fprintf(out, " on %s", c.Engine)
	}
	fmt.Fprintf(out, ": %d requests at %.1f/s", c.Requests, c.Rate)
	if c.Load > 0 {
		fmt.Fprintf(out, " (%.2f of saturation)", c.Load)
	}
	fmt.Fprintf(out, ", %d gateways, seeds %v\n\n", c.Gateways, c.Seeds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\thits\tfirst\tlater turns\tTTFT mean\t±\tp50\tp99\tTPOT\tgood\tCoV busy\tCoV requests\trefused\t")
	for _, name := range c.Order {
		p := c.Policies[name]
		if p.Saturated > 0 {
			name += " (saturated)"
		}
		fmt.Fprintf(w, "%s\t%.1f %%\t%.1f\t%.1f\t%.0f ms\t%.0f\t%.0f\t%.0f\t%.1f ms\t%.1f %%\t%.3f\t%.3f\t%d\t\n", name,
			100*p.HitRate, 100*p.FirstHitRate, 100*p.FollowupHitRate, p.TTFT.Mean, p.Spread.MeanTTFT, p.TTFT.P50, p.TTFT.P99, p.TPOT.Mean,
			100*p.Goodput, p.BusyCoV, p.RequestCoV, p.Refused+p.Failed)
	}
	_ = w.Flush() // the terminal's
	printCounts(out, c, "preemptions for want of cache blocks", preemptions)
	printCounts(out, c, "copies of hot prefixes made by gateways", copies)
	printGroups(out, c)
	fmt.Fprintf(out, "\none cache of the fleet's size would have had %.1f %% hits with the requests as they came under %s\n", 100*c.Policies[c.Order[0]].PooledHitRate, c.Order[0])
}

// printCounts lists what is told of each policy's counts, where anything is.
func printCounts(out io.Writer, c *virtual.Comparison, what string, tell func(n *virtual.Counts) string) {
	var by []string
	for _, name := range c.Order {
		if told := tell(&c.Policies[name].Counts); told != "" {
			by = append(by, name+" "+told)
		}
	}
	if len(by) > 0 {
		fmt.Fprintf(out, "\n%s, of all runs: %s\n", what, strings.Join(by, ", "))
	}
}

// preemptions tells where caches were too small for what ran.
func preemptions(n *virtual.Counts) string {
	if n.Preemptions == 0 {
		return ""
	}
	return fmt.Sprintf("%d (%d tokens computed again)", n.Preemptions, n.RecomputedTokens)
}

// copies tells what gateways sent for themselves.
func copies(n *virtual.Counts) string {
	if n.Slices == 0 {
		return ""
	}
	return fmt.Sprintf("%d (%d slices, counted nowhere else)", n.Copies, n.Slices)
}

// printGroups shows the parts of a mixed workload.
func printGroups(out io.Writer, c *virtual.Comparison) {
	groups := map[string]bool{}
	for _, p := range c.Policies {
		for name := range p.ByGroup {
			groups[name] = true
		}
	}
	if len(groups) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\npolicy\tpart\thits\tTTFT mean\tp50\tp99\tmax\t")
	for _, name := range c.Order {
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			if g := c.Policies[name].ByGroup[group]; g != nil {
				fmt.Fprintf(w, "%s\t%s\t%.1f %%\t%.0f ms\t%.0f\t%.0f\t%.0f\t\n", name, group, 100*g.HitRate, g.TTFT.Mean, g.TTFT.P50, g.TTFT.P99, g.TTFT.Max)
			}
		}
	}
	_ = w.Flush() // the terminal's
}

// parseSeeds reads "1-5" or "1,4,7".
func parseSeeds(text string) ([]uint64, error) {
	var seeds []uint64
	for _, part := range strings.Split(text, ",") {
		var from, to uint64
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n < 2 {
			if _, err := fmt.Sscanf(part, "%d", &from); err != nil {
				return nil, fmt.Errorf("seeds %q: write a number, a list 1,4,7 or a range 1-5", text)
			}
			to = from
		}
		if to < from || to-from > 1000 {
			return nil, fmt.Errorf("seeds %q: a range goes upwards, over a thousand at most", text)
		}
		for s := from; s <= to; s++ {
			seeds = append(seeds, s)
		}
	}
	return seeds, nil
}

// engineParameters are those of an engine that --set changes, in the words of engine.Params.
var engineParameters = map[string]func(p *engine.Params) *int{
	"capacity_blocks":     func(p *engine.Params) *int { return &p.CapacityBlocks },
	"max_running":         func(p *engine.Params) *int { return &p.MaxRunning },
	"step_tokens":         func(p *engine.Params) *int { return &p.StepTokens },
	"long_prefill_tokens": func(p *engine.Params) *int { return &p.LongPrefillTokens },
}

// engineSettings lists them as --set takes them.
func engineSettings() string {
	names := slices.Sorted(maps.Keys(engineParameters))
	for i := range names {
		names[i] = "engine." + names[i]
	}
	return strings.Join(names, ", ")
}

// parseSettings reads rule.parameter=value, checked as a policy file is, and engine.parameter=value.
// change is nil where no engine's is set.
func parseSettings(set []string) (tune map[string]func(*policy.Policy), change func(*engine.Params), err error) {
	byRule := map[string][]string{}
	var changes []func(*engine.Params)
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		rule, parameter, dotted := strings.Cut(name, ".")
		if !ok || !dotted {
			return nil, nil, fmt.Errorf("--set %s: write rule.parameter=value, such as cost.miss_weight=1", s)
		}
		if rule == "engine" {
			field, known := engineParameters[parameter]
			n, err := strconv.Atoi(value)
			if !known || err != nil {
				return nil, nil, fmt.Errorf("--set %s: an engine has %s, whole numbers", s, engineSettings())
			}
			changes = append(changes, func(p *engine.Params) { *field(p) = n })
			continue
		}
		byRule[rule] = append(byRule[rule], fmt.Sprintf("%q:%s", parameter, value))
	}
	if len(changes) > 0 {
		change = func(p *engine.Params) {
			for _, set := range changes {
				set(p)
			}
		}
	}
	tune = map[string]func(*policy.Policy){}
	for rule, fields := range byRule {
		sort.Strings(fields)
		name := rule
		if rule == "reference" {
			name = "cost"
		}
		set, err := policy.Parse([]byte(`{"pools":[{"name":"sim","models":["*"],"policy":{"name":"` + name + `",` + strings.Join(fields, ",") + `}}]}`))
		if err != nil {
			return nil, nil, fmt.Errorf("--set for %s: %w", rule, err)
		}
		chosen := set.Pools[0].Policy
		tune[rule] = func(p *policy.Policy) { *p = chosen }
	}
	return tune, change, nil
}
