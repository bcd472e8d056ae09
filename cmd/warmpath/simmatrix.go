package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/warmpath/warmpath/sim/virtual"
)

func simMatrixCommand() *cobra.Command {
	var plan virtual.MatrixPlan
	var traces, seeds, keep, delays string
	var set []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Play every scenario at every load and hold the figures against their targets",
		Long: `Plays every workload at 0.5, 0.7, 0.85 and 0.95 of its saturation, and what can go
wrong at 0.7, under all policies, and compares the figures with their targets.
docs/simulator.md tells how to read them.

With --keep every run that ends is kept in a file, and the same command goes on
where it was stopped.`,
		Example: `  warmpath sim matrix --quick
  warmpath sim matrix --seeds 1-5 --traces traces --keep runs.jsonl --json > matrix.json
  warmpath sim matrix --only seed-16,zipf-32
  warmpath sim matrix --only doubling --seeds 1-3 --set cost.ramp_first_ms=600
  warmpath sim matrix --only hot-prefix --seeds 1-3 --set engine.long_prefill_tokens=512
  warmpath sim matrix --only deaths --loads 0.5,0.8`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if plan.Seeds, err = parseSeeds(seeds); err != nil {
				return err
			}
			if plan.Traces, err = readTraces(traces); err != nil {
				return err
			}
			for _, name := range plan.Only {
				if _, err := virtual.FindScenario(name); err != nil {
					return err
				}
			}
			if delays != "" {
				if plan.Delays, err = virtual.ReadDelays(delays); err != nil {
					return err
				}
			}
			if plan.Tune, plan.Engine, err = parseSettings(set); err != nil {
				return err
			}
			if keep != "" && len(set) > 0 {
				return errors.New("--keep is for runs with the defaults: without --set")
			}
			if keep != "" {
				program, err := thisProgram()
				if err != nil {
					return err
				}
				if plan.Kept, err = virtual.OpenKept(keep, program, plan.Delays); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, plan.Kept.Close()) }()
			}
			plan.Progress = matrixProgress(cmd.ErrOrStderr())
			m, err := plan.Play(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(m)
			}
			for _, c := range m.Runs {
				printComparison(cmd.OutOrStdout(), c)
				fmt.Fprintln(cmd.OutOrStdout())
			}
			return printFigures(cmd.OutOrStdout(), m)
		},
	}
	cmd.Flags().BoolVar(&plan.Quick, "quick", false, "only 0.85 of saturation and the module's own rules")
	cmd.Flags().StringVar(&seeds, "seeds", "1", "seeds, such as 1-5")
	cmd.Flags().StringVar(&traces, "traces", "", "folder with mooncake-conversation.jsonl and mooncake-synthetic.jsonl; without it the recorded scenarios are left out")
	cmd.Flags().StringSliceVar(&plan.Only, "only", nil, "scenarios to play; all without it")
	cmd.Flags().Float64SliceVar(&plan.Loads, "loads", nil, "shares of saturation; without it 0.5,0.7,0.85,0.95, and 0.7 or 0.5 for what can go wrong")
	cmd.Flags().StringArrayVar(&set, "set", nil, "a policy parameter, such as cost.ramp_first_ms=300, or an engine's; may be repeated (warmpath sim run --help)")
	cmd.Flags().StringVar(&delays, "delays", "", "JSON file with delays measured on a live system (warmpath sim run --help)")
	cmd.Flags().StringVar(&keep, "keep", "", "file of finished runs: they are not played again")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the figures as JSON")
	return cmd
}

// readTraces reads the traces of the recorded scenarios that are in a folder.
func readTraces(folder string) (map[string]*virtual.Trace, error) {
	traces := map[string]*virtual.Trace{}
	for _, s := range virtual.Scenarios() {
		if !s.Recorded || folder == "" {
			continue
		}
		t, err := virtual.ReadTrace(filepath.Join(folder, s.Name+".jsonl"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			traces[s.Name] = t
		}
	}
	return traces, nil
}

// thisProgram names the build that runs: by its bytes, as a version says nothing of changes that
// were not committed.
func thisProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// matrixProgress tells how far it is: at once on a terminal, elsewhere once a minute.
func matrixProgress(out io.Writer) func(p virtual.MatrixProgress) {
	file, ok := out.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	var told time.Time
	return func(p virtual.MatrixProgress) {
		last := p.Done == p.All
		if !terminal && !last && time.Since(told) < time.Minute {
			return
		}
		told = time.Now()
		line := fmt.Sprintf("%d of %d runs", p.Done, p.All)
		if p.Kept > 0 {
			line += fmt.Sprintf(", %d from before", p.Kept)
		}
		if p.Left > 0 {
			line += fmt.Sprintf(", about %s left", p.Left.Round(time.Second))
		}
		if p.What != "" {
			line += "; " + p.What
		}
		switch {
		case !terminal:
			fmt.Fprintln(out, line)
		case last:
			fmt.Fprintf(out, "\r\x1b[K%s\n", line)
		default:
			fmt.Fprintf(out, "\r\x1b[K%s", line)
		}
	}
}

// printFigures prints every figure, those that fall short once more, and how many hold of each.
func printFigures(out io.Writer, m *virtual.Matrix) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := range m.Checks {
		c := &m.Checks[i]
		fmt.Fprintf(w, "%s\t%s\t%s\n", verdict(c.Holds), figure(c), c.Name)
	}
	fmt.Fprintf(w, "\t\t\nIN SHORT\tWORST\tWHAT\n")
	for i := range m.Summary {
		f := &m.Summary[i]
		fmt.Fprintf(w, "%s %d of %d\t%s\t%s (%s)\n", verdict(f.Holds == f.Of), f.Holds, f.Of, figure(&f.Worst), f.What, f.Where())
	}
	return w.Flush()
}

func verdict(holds bool) string {
	if holds {
		return "ok"
	}
	return "SHORT"
}

// figure is a value with its spread and its target.
func figure(c *virtual.Check) string {
	sign := "<="
	if c.AtLeast {
		sign = ">="
	}
	if c.Missing {
		return fmt.Sprintf("none (%s %.4g)", sign, c.Target)
	}
	return fmt.Sprintf("%.4g ± %.2g (%s %.4g)", c.Value, c.Spread, sign, c.Target)
}
