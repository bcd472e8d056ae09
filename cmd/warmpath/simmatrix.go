package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/sim/virtual"
)

func simMatrixCommand() *cobra.Command {
	var plan virtual.MatrixPlan
	var traces, seeds string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Play every scenario at every load and hold the figures against their targets",
		Long: `Plays every workload at 0.5, 0.7, 0.85 and 0.95 of its saturation, and what can go
wrong at 0.7, under all policies, and compares the figures with their targets.
docs/simulator.md tells how to read them.`,
		Example: `  warmpath sim matrix --quick
  warmpath sim matrix --seeds 1-5 --traces traces --json > matrix.json
  warmpath sim matrix --only seed-16,zipf-32`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if plan.Seeds, err = parseSeeds(seeds); err != nil {
				return err
			}
			plan.Traces = map[string]*virtual.Trace{}
			for _, s := range virtual.Scenarios() {
				if !s.Recorded || traces == "" {
					continue
				}
				t, err := virtual.ReadTrace(filepath.Join(traces, s.Name+".jsonl"))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					return err
				}
				plan.Traces[s.Name] = t
			}
			for _, name := range plan.Only {
				if _, err := virtual.FindScenario(name); err != nil {
					return err
				}
			}
			plan.Progress = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
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
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, c := range m.Checks {
				sign, verdict := "<=", "holds"
				if c.AtLeast {
					sign = ">="
				}
				if !c.Holds {
					verdict = "DOES NOT HOLD"
				}
				fmt.Fprintf(w, "%s\t%.4g\t%s %.4g\t%s\n", c.Name, c.Value, sign, c.Target, verdict)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&plan.Quick, "quick", false, "only 0.85 of saturation and the module's own rules")
	cmd.Flags().StringVar(&seeds, "seeds", "1", "seeds, such as 1-5")
	cmd.Flags().StringVar(&traces, "traces", "", "folder with mooncake-conversation.jsonl and mooncake-synthetic.jsonl; without it the recorded scenarios are left out")
	cmd.Flags().StringSliceVar(&plan.Only, "only", nil, "scenarios to play; all without it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the figures as JSON")
	return cmd
}
