package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/warmpath/warmpath/cmd/warmpath/demo"
	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/sim/loadgen"
	"github.com/warmpath/warmpath/sim/workload"
)

func demoCommand() *cobra.Command {
	var (
		requests, workers, gateways, vms int
		policies                         []string
		capacity, file, jsonFile, module string
		vocabulary, template, family     string
		verbose                          bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play 10,000 multi-turn requests under three policies and compare",
		Long: `Starts simulated workers (continuous batching, block prefix cache), the control
service and the embedded gateway with the real module, all in this process, and
plays the same multi-turn conversations over HTTP under round robin, a plain
session hash and warmpath. Takes under two minutes on two cores.

Nothing but the policy differs between the runs: same requests, same arrival
times, same workers with the same cache capacity, all cold at the start.`,
		Example: `  warmpath demo
  warmpath demo --policies round_robin,warmpath --capacity x0.5
  warmpath demo --gateways 4 --json result.json
  warmpath demo --vocab qwen3.wpv --template qwen3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := demo.Options{Gateways: gateways, VMs: vms, CacheDir: wazeroCacheDir(), Version: buildVersion(), Logger: slog.New(slog.DiscardHandler)}
			if verbose {
				opts.Logger = slog.Default()
			}
			spec, err := demoSpec(cmd, file, requests, workers)
			if err != nil {
				return err
			}
			if opts.Workload, err = workload.New(spec); err != nil {
				return err
			}
			if opts.Capacity, err = parseFactor(capacity); err != nil {
				return err
			}
			if opts.Policies, err = demoPolicies(policies); err != nil {
				return err
			}
			if vocabulary != "" {
				if opts.Tokenizer, err = demoTokenizer(vocabulary, template, family); err != nil {
					return err
				}
			}
			if gateways < 1 || gateways > 64 {
				return fmt.Errorf("--gateways %d: want 1 to 64", gateways)
			}
			if opts.Module, err = readModule(module); err != nil {
				return err
			}
			return runDemo(cmd, opts, jsonFile)
		},
	}
	f := cmd.Flags()
	f.IntVar(&requests, "requests", 0, "requests (default: the workload's, 10,000)")
	f.IntVar(&workers, "workers", 0, "workers (default: the workload's, 16)")
	f.IntVar(&gateways, "gateways", 1, "gateways, each with its own module instances; requests alternate between them")
	f.IntVar(&vms, "vms", 2, "module instances per gateway")
	f.StringSliceVar(&policies, "policies", []string{"round_robin", "session_hash", "warmpath"}, "policies to run, in order")
	f.StringVar(&capacity, "capacity", "x1", "cache per worker, as a factor of the workload's: x0.5 halves it")
	f.StringVar(&file, "workload", "", "workload file (YAML; default: the built-in one, sim/workload/demo.yaml)")
	f.StringVar(&jsonFile, "json", "", "write the result as JSON to this file, - for standard output")
	f.StringVar(&module, "module", "", "the module (default: warmpath.wasm beside this binary)")
	f.StringVar(&vocabulary, "vocab", "", "a model's vocabulary (.wpv or tokenizer.json): workers and module use its tokens")
	f.StringVar(&template, "template", "", "chat template of the model, with --vocab (warmpath tokenizer render --help)")
	f.StringVar(&family, "engine", "vllm", "engine whose rendering is followed, with --vocab: vllm or sglang")
	f.BoolVar(&verbose, "verbose", false, "log what control service and module say")
	return cmd
}

func demoTokenizer(file, template, engine string) (*demo.Tokenizer, error) {
	encoder, err := openVocabulary(file)
	if err != nil {
		return nil, err
	}
	t, err := chooseTemplate(template, engine)
	if err != nil {
		return nil, err
	}
	if file, err = filepath.Abs(file); err != nil {
		return nil, err
	}
	return &demo.Tokenizer{File: file, Template: template, Engine: engine, Live: &live.Tokenizer{Vocabulary: encoder.Vocab(), Template: t}}, nil
}

func demoSpec(cmd *cobra.Command, file string, requests, workers int) (workload.Spec, error) {
	spec := workload.Demo()
	if file != "" {
		var err error
		if spec, err = workload.Load(file); err != nil {
			return spec, err
		}
	}
	if cmd.Flags().Changed("requests") {
		spec.Requests = requests
	}
	if cmd.Flags().Changed("workers") {
		spec.Fleet.Workers = workers
	}
	return spec, nil
}

// parseFactor reads "x0.5" or "0.5".
func parseFactor(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimPrefix(s, "x"), 64)
	if err != nil || v <= 0 || v > 1000 {
		return 0, fmt.Errorf("--capacity %q: want a factor such as x0.5", s)
	}
	return v, nil
}

func demoPolicies(names []string) ([]demo.Policy, error) {
	var list []demo.Policy
	for _, name := range names {
		i := slices.IndexFunc(demo.Policies, func(p demo.Policy) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--policies: %q is not known; there are %s", name, demo.PolicyNames())
		}
		list = append(list, demo.Policies[i])
	}
	return list, nil
}

func runDemo(cmd *cobra.Command, opts demo.Options, jsonFile string) error {
	out := cmd.OutOrStdout()
	human := out
	if jsonFile == "-" {
		human = cmd.ErrOrStderr()
	}
	if err := opts.Workload.Distribution().Print(human); err != nil {
		return fmt.Errorf("print the workload: %w", err)
	}
	width, colour := terminal(human)
	bars := newBars(human, opts, colour)
	opts.Progress = bars.update
	report, err := demo.Run(cmd.Context(), opts)
	bars.stop()
	if err != nil {
		return err
	}
	report.Print(human, width, colour)
	return writeJSON(jsonFile, out, report)
}

// terminal tells the width to draw for, and whether colours and moving bars make
// sense.
func terminal(out io.Writer) (width int, interactive bool) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 80, false
	}
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w, true
	}
	return 80, true
}

func writeJSON(file string, stdout io.Writer, v any) error {
	if file == "" {
		return nil
	}
	doc, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	doc = append(doc, '\n')
	if file == "-" {
		_, err = stdout.Write(doc)
		return err
	}
	if err := os.WriteFile(file, doc, 0o644); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// bars shows progress: a moving bar per policy on a terminal, else a line every
// few seconds.
type bars struct {
	out     io.Writer
	total   int
	moving  *mpb.Progress
	bar     map[string]*mpb.Bar
	printed time.Time
}

func newBars(out io.Writer, opts demo.Options, interactive bool) *bars {
	b := &bars{out: out, total: opts.Workload.Spec.Requests, bar: map[string]*mpb.Bar{}}
	if !interactive {
		return b
	}
	b.moving = mpb.New(mpb.WithOutput(out), mpb.WithWidth(60))
	for _, p := range opts.Policies {
		b.bar[p.Name] = b.moving.AddBar(int64(b.total),
			mpb.PrependDecorators(decor.Name(p.Name, decor.WC{C: decor.DindentRight | decor.DextraSpace, W: 14}), decor.CountersNoUnit("%d/%d", decor.WCSyncSpace)),
			mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.Elapsed(decor.ET_STYLE_MMSS, decor.WC{W: 6})))
	}
	return b
}

func (b *bars) update(policy string, p loadgen.Progress) {
	if bar := b.bar[policy]; bar != nil {
		bar.SetCurrent(int64(p.Done))
		return
	}
	if p.Done < p.Total && time.Since(b.printed) < 5*time.Second {
		return
	}
	b.printed = time.Now()
	fmt.Fprintf(b.out, "  %-14s %6d of %d requests, hit rate so far %.1f %%\n", policy, p.Done, p.Total, 100*p.HitRate)
}

func (b *bars) stop() {
	if b.moving == nil {
		return
	}
	for _, bar := range b.bar {
		if !bar.Completed() {
			bar.Abort(false)
		}
	}
	b.moving.Wait()
}
