package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// print writes the report as tables.
func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %d CPUs, %d alternated rounds, medians; us of CPU\n", r.Machine, r.CPUs, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	fmt.Fprintln(t, "\nchat body\twithout\twith\tadded\tlowest\thighest\tbudget\t\t")
	for _, c := range r.Requests {
		budget := "-"
		if c.Budget > 0 {
			budget = fmt.Sprintf("%.0f", c.Budget)
		}
		fmt.Fprintf(t, "%d B\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%s\t\n", c.BodyBytes, c.Without, c.With, c.Added, c.Lowest, c.Highest, budget, c.Verdict)
	}
	if c := r.FirstToken; c != nil {
		fmt.Fprintln(t, "\nfirst token (us of wall time)\twithout\twith\tadded\tbudget\t\t")
		fmt.Fprintf(t, "%d B, %d pairs\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t\n", c.BodyBytes, c.Pairs, c.Without, c.With, c.Added, c.Budget, c.Verdict)
	}
}
