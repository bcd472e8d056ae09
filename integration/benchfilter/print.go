package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// print writes the report as tables.
func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "\nEnvoy %s, %s, %d CPUs, %d alternated rounds, medians; us of CPU\n", r.Envoy, r.Machine, r.CPUs, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	budget := func(value float64, format string) string {
		if value == 0 {
			return "-"
		}
		return fmt.Sprintf(format, value)
	}
	if len(r.Requests) > 0 {
		fmt.Fprintln(t, "\nchat body\tbuild\twithout\twith\tadded\tlowest\thighest\tpages got\twritten\tbudget\t\t")
		for _, c := range r.Requests {
			fmt.Fprintf(t, "%d B\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%s\t%s\t\n", c.BodyBytes, c.Build, c.Without, c.With, c.Added, c.Lowest, c.Highest, c.PageGets, c.PagesWritten, budget(c.Budget, "%.0f"), c.Verdict)
		}
	}
	if len(r.Exact) > 0 {
		fmt.Fprintln(t, "\nexact mode\ttext\tapproximate\texact\tadded\tlowest\thighest\tbudget\t\t")
		for _, c := range r.Exact {
			fmt.Fprintf(t, "%d B\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%s\t\n", c.BodyBytes, c.Text, c.Approximate, c.Exact, c.Added, c.Lowest, c.Highest, budget(c.Budget, "%.0f"), c.Verdict)
		}
	}
	if len(r.Admission) > 0 {
		fmt.Fprintln(t, "\nadmission by limits of\tlease\trouted\tadmitted\tadded\tlowest\thighest\tbudget\t\t")
		for _, c := range r.Admission {
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%s\t%s\t\n", c.Limits, c.Lease, c.Routed, c.Admitted, c.Added, c.Lowest, c.Highest, budget(c.Budget, "%.0f"), c.Verdict)
		}
	}
	if len(r.Streams) > 0 {
		fmt.Fprintln(t, "\nchunks/s\tmodule\twithout\twith\tadded\tof it background\tbudget\t\t")
		for _, c := range r.Streams {
			fmt.Fprintf(t, "%d\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%s\t\n", c.ChunksPerSecond, c.Variant, c.Without, c.With, c.Added, c.Background, budget(c.Budget, "%.0f"), c.Verdict)
		}
	}
	if len(r.Idle) > 0 {
		fmt.Fprintln(t, "\nidle threads\twithout\twith\tbudget\t\t")
		for _, c := range r.Idle {
			fmt.Fprintf(t, "%d\t%.2f %%\t%.2f %%\t%s\t%s\t\n", c.Threads, c.Without, c.With, budget(c.Budget, "%.0f %%"), c.Verdict)
		}
	}
	if len(r.News) > 0 {
		fmt.Fprintln(t, "\nthreads\trequests/s\ttold every\tbuild\tEnvoy\tlowest\thighest\tcontrol\tcalls/s\tpages written\t")
		for _, c := range r.News {
			fmt.Fprintf(t, "%d\t%d\t%d ms\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t\n", c.Threads, c.Rate, c.IntervalMillis, c.Build, c.Envoy, c.Lowest, c.Highest, c.Control, c.Calls, c.PagesWritten)
		}
	}
	if len(r.Wazero) > 0 {
		fmt.Fprintln(t, "\nchat body in wazero\tper request\tlowest\thighest\t\t")
		for _, c := range r.Wazero {
			fmt.Fprintf(t, "%d B\t%.0f\t%.0f\t%.0f\t\t\n", c.BodyBytes, c.PerRequest, c.Lowest, c.Highest)
		}
	}
}
