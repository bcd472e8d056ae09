package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/sim/admit"
)

func simAdmissionCommand() *cobra.Command {
	var (
		seed   uint64
		seeds  uint64
		charts string
		asJSON bool
		list   bool
	)
	cmd := &cobra.Command{
		Use:   "admission [SCENARIO...]",
		Short: "Play admission in virtual time: stampedes, floods, idle capacity, failing workers",
		Long: `Plays 20 workers of 10,000 tokens/s of prefill behind 8 gateways that ask the ledger
of the control service for their leases, and the same runs without admission. Says
which figures hold; with several seeds, the median of each and between what it lies.
All scenarios but the comparison of laws, or those named.`,
		Example: `  warmpath sim admission --seeds 5
  warmpath sim admission stampede --charts /tmp/charts`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if seeds == 0 {
				return errors.New("--seeds 0: want 1 or more")
			}
			scenarios := admit.Scenarios()
			if len(args) == 0 && !list {
				scenarios = slices.DeleteFunc(scenarios, func(s admit.Scenario) bool { return s.Alone })
			}
			if len(args) > 0 {
				scenarios = nil
				for _, name := range args {
					s, err := admit.Find(name)
					if err != nil {
						return err
					}
					scenarios = append(scenarios, s)
				}
			}
			if list {
				return printScenarios(cmd.OutOrStdout(), scenarios)
			}
			reports := []*admit.Report{}
			missed := 0
			for _, s := range scenarios {
				r, err := admit.PlaySeeds(s, seed, seeds, charts)
				if err != nil {
					return err
				}
				reports = append(reports, r)
				if !r.Holds() {
					missed++
				}
				if !asJSON {
					if err := printAdmission(cmd.OutOrStdout(), r); err != nil {
						return err
					}
				}
			}
			if asJSON {
				if err := printJSON(cmd, reports); err != nil {
					return err
				}
			}
			if missed > 0 {
				return errors.New("figures are missed; the lines with MISSED say which")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&seed, "seed", 1, "of the arrivals")
	f.Uint64Var(&seeds, "seeds", 1, "so many of them, from --seed on; a figure has to hold with each")
	f.StringVar(&charts, "charts", "", "draw every run of the first seed into this folder, as PNG and SVG")
	f.BoolVar(&asJSON, "json", false, "figures as JSON")
	f.BoolVar(&list, "list", false, "only list the scenarios")
	return cmd
}

func printScenarios(out io.Writer, scenarios []admit.Scenario) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCENARIO\tWHAT")
	for _, s := range scenarios {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.About)
	}
	return w.Flush()
}

func printAdmission(out io.Writer, r *admit.Report) error {
	fmt.Fprintf(out, "%s: %s\n", r.Scenario, r.About)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		want, verdict := "", ""
		switch {
		case c.Told:
		case c.AtLeast:
			want, verdict = fmt.Sprintf("at least %g", c.Target), "holds"
		default:
			want, verdict = fmt.Sprintf("at most %g", c.Target), "holds"
		}
		if !c.Holds {
			verdict = "MISSED"
		}
		spread := ""
		if len(c.Seeds) > 1 {
			spread = fmt.Sprintf("%.3f to %.3f", slices.Min(c.Seeds), slices.Max(c.Seeds))
		}
		fmt.Fprintf(w, "  %s\t%.3f\t%s\t%s\t%s\n", c.Name, c.Value, spread, want, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, file := range r.Charts {
		fmt.Fprintln(out, "  drew "+file)
	}
	_, err := fmt.Fprintln(out)
	return err
}
