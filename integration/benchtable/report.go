package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// line is a cell as progress shows it.
func (c *cell) line() string {
	return fmt.Sprintf("%s, %d entries, %d VMs, %s: lookup p50 %.1f us, %.0f us of CPU a request, %.1f us a change, %.1f MiB",
		c.Host, c.Entries, c.VMs, c.Way, c.LookupP50Micros, c.RequestMicros, c.ChangeMicros, mebibytes(c.TableBytes))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// printCells prints the comparison, a way above the other.
func printCells(w io.Writer, cells []*cell) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "entries\thost\tVMs\ttable\tlookup p50, us\tp99\tCPU us/request\twithout lookup\tCPU us/change\tfill, CPU ms\ttable, MiB\tper VM\tRSS, MiB\tlag p50, ms\tmax\tcold max\t")
	for _, c := range cells {
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%.1f\t%.1f\t%.0f\t%.0f\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f\t%s\t%s\t%s\t\n",
			c.Entries, c.Host, c.VMs, c.Way, c.LookupP50Micros, c.LookupP99Micros, c.RequestMicros, c.NothingMicros, c.ChangeMicros, c.BaseMillis,
			mebibytes(c.TableBytes), mebibytes(c.TableBytes)/float64(c.Ticking), mebibytes(c.ResidentBytes),
			lag(c, c.LagP50Millis), lag(c, c.LagMaxMillis), lag(c, c.ColdLagMaxMillis))
	}
	t.Flush()
	fmt.Fprintln(w, "\nlookup: on the wall, inside the module. CPU: of the whole process; a request comes with one change at the default rates.\n"+
		"table: growth of the resident memory by filling and traffic. lag: until every VM sees a change whose page it has just read, and (cold) has not.")
}

func lag(c *cell, millis float64) string {
	if c.Host != hostWazero {
		return "-"
	}
	return fmt.Sprintf("%.1f", millis)
}

// keepLeast takes from another round what it measured as less: on a machine
// with other work, what disturbs a time only ever adds to it. Memory and lag
// are the later round's.
func (c *cell) keepLeast(o *cell) {
	for _, t := range [][2]*float64{
		{&o.LookupP50Micros, &c.LookupP50Micros},
		{&o.LookupP99Micros, &c.LookupP99Micros},
		{&o.RequestMicros, &c.RequestMicros},
		{&o.NothingMicros, &c.NothingMicros},
		{&o.ChangeMicros, &c.ChangeMicros},
		{&o.BaseMillis, &c.BaseMillis},
	} {
		*t[0] = min(*t[0], *t[1])
	}
	o.Wrong = max(o.Wrong, c.Wrong)
	*c = *o
}
