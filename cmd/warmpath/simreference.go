package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/sim/virtual"
)

func simReferenceCommand() *cobra.Command {
	var seeds, traces string
	var only []string
	cmd := &cobra.Command{
		Use:   "reference",
		Short: "Choose the reference's weights for every workload from the published grid (JSON)",
		Long: `Plays every workload at 0.85 of its saturation with the reference (the rule cost with
exact state) at every point of a grid of weights, and prints the point of least mean TTFT.
What it printed is committed as sim/virtual/reference.json, and that is what the policy
"reference" of run, compare and matrix uses.`,
		Example: `  warmpath sim reference --seeds 1-3 --traces traces > sim/virtual/reference.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := parseSeeds(seeds)
			if err != nil {
				return err
			}
			recorded, err := readTraces(traces)
			if err != nil {
				return err
			}
			out := virtual.ReferenceGrid{Load: virtual.GridLoad, Seeds: list, Grid: virtual.Grid(), Workloads: map[string]virtual.GridChoice{}}
			for _, s := range virtual.Workloads() {
				if t := recorded[s.Name]; t != nil {
					s = s.WithTrace(t)
				}
				if s.Source == nil || len(only) > 0 && !slices.Contains(only, s.Name) {
					continue
				}
				choice, err := s.ChooseGrid(cmd.Context(), list, func(done, all int) {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d of %d points\n", s.Name, done, all)
				})
				if err != nil {
					return err
				}
				out.Workloads[s.Name] = choice
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(out)
		},
	}
	cmd.Flags().StringVar(&seeds, "seeds", "1-3", "seeds, such as 1-5")
	cmd.Flags().StringSliceVar(&only, "only", nil, "workloads to choose for; all without it")
	cmd.Flags().StringVar(&traces, "traces", "", "folder with mooncake-conversation.jsonl and mooncake-synthetic.jsonl; without it the recorded scenarios are left out")
	return cmd
}
