package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/guptarohit/asciigraph"

	"github.com/warmpath/warmpath/sim/workload"
)

// Print draws the report: one table, a bar per policy and tier, and what to make
// of it. width is the terminal's, in characters; colour is for terminals only.
func (r *Report) Print(out io.Writer, width int, colour bool) {
	fmt.Fprintf(out, "\n%d requests, %d workers, %d gateway(s), seed %d. Rates are shares of prompt tokens, times are engine time (up to %gx real).\n\n",
		r.Requests, r.Workers, r.Gateways, r.Seed, r.TimeScale)
	rows := [][]string{{""}}
	add := func(label string, cell func(*Outcome) string) {
		row := []string{label}
		for _, name := range r.Order {
			row = append(row, cell(r.Policies[name]))
		}
		rows = append(rows, row)
	}
	rows[0] = append(rows[0], r.Order...)
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	add("hit rate", func(o *Outcome) string { return percent(o.HitRate) })
	add("  first turns", func(o *Outcome) string { return percent(o.FirstTurnHitRate) })
	add("  follow-up turns", func(o *Outcome) string { return percent(o.FollowupHitRate) })
	for _, tier := range workload.Tiers {
		add("  prompts "+tier, func(o *Outcome) string {
			if o.Tiers[tier].Requests == 0 {
				return "-"
			}
			return percent(o.Tiers[tier].HitRate)
		})
	}
	add("copies per prefix", func(o *Outcome) string {
		return fmt.Sprintf("%.1f (max %d)", o.Duplication.CopiesPerPrefix, o.Duplication.MaxCopies)
	})
	add("duplicated tokens", func(o *Outcome) string { return thousands(o.Duplication.DuplicatedTokens) })
	add("TTFT mean", func(o *Outcome) string { return ms(o.TTFT.Mean) })
	add("TTFT p50", func(o *Outcome) string { return ms(o.TTFT.P50) })
	add("TTFT p99", func(o *Outcome) string { return ms(o.TTFT.P99) })
	add("requests/s", func(o *Outcome) string { return fmt.Sprintf("%.1f", o.RequestsPerSec) })
	add("output tokens/s", func(o *Outcome) string { return thousands(int(o.OutputTokensPerS)) })
	add("load CoV (busy time)", func(o *Outcome) string { return fmt.Sprintf("%.2f", o.LoadCoV) })
	add("requests CoV", func(o *Outcome) string { return fmt.Sprintf("%.2f", o.RequestCoV) })
	add("re-routes", func(o *Outcome) string { return fmt.Sprint(o.Reroutes) })
	add("errors", func(o *Outcome) string { return fmt.Sprint(o.Errors) })
	printTable(out, rows)
	r.printBars(out, width)
	r.printCurves(out, width, colour)
	r.printVerdict(out)
}

func printTable(out io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			if i == 0 {
				fmt.Fprintf(out, "  %-*s", widths[0], cell)
			} else {
				fmt.Fprintf(out, "  %*s", widths[i], cell)
			}
		}
		fmt.Fprintln(out)
		if n == 0 {
			total := 2 * len(widths)
			for _, w := range widths {
				total += w
			}
			fmt.Fprintln(out, "  "+strings.Repeat("─", total-2))
		}
	}
}

// printBars draws the hit rates and the mean TTFTs as bars of one scale each.
func (r *Report) printBars(out io.Writer, width int) {
	longest, slowest := 0, 0.0
	for _, name := range r.Order {
		longest = max(longest, len(name))
		slowest = max(slowest, r.Policies[name].TTFT.Mean)
	}
	room := max(10, min(width, 100)-longest-16)
	fmt.Fprintln(out, "\n  prompt tokens found in the cache")
	for _, name := range r.Order {
		v := r.Policies[name].HitRate
		fmt.Fprintf(out, "  %-*s %s %.1f %%\n", longest, name, bar(v, room), 100*v)
	}
	fmt.Fprintln(out, "\n  mean time to first token")
	for _, name := range r.Order {
		v := r.Policies[name].TTFT.Mean
		fmt.Fprintf(out, "  %-*s %s %.0f ms\n", longest, name, bar(v/max(slowest, 1e-9), room), v)
	}
}

// bar draws share (0..1) of width with eighths of a block.
func bar(share float64, width int) string {
	eighths := int(share*float64(width)*8 + 0.5)
	full := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return full
}

// printCurves shows how the hit rate develops from cold caches on.
func (r *Report) printCurves(out io.Writer, width int, colour bool) {
	var series [][]float64
	var names []string
	for _, name := range r.Order {
		if c := r.Policies[name].curve; len(c) > 1 {
			series = append(series, c)
			names = append(names, name)
		}
	}
	if len(series) == 0 {
		return
	}
	options := []asciigraph.Option{
		asciigraph.Height(10), asciigraph.Width(max(20, min(width, 100)-10)),
		asciigraph.LowerBound(0), asciigraph.UpperBound(100), asciigraph.Precision(0),
		asciigraph.Caption("hit rate so far (%), from cold caches to the last request; from top to bottom at the end: " + strings.Join(r.byHitRate(names), ", ")),
	}
	if colour {
		palette := []asciigraph.AnsiColor{asciigraph.Red, asciigraph.Yellow, asciigraph.Green, asciigraph.Blue, asciigraph.Magenta}
		colours := make([]asciigraph.AnsiColor, len(series))
		for i := range colours {
			colours[i] = palette[i%len(palette)]
		}
		options = append(options, asciigraph.SeriesColors(colours...), asciigraph.SeriesLegends(names...))
	}
	fmt.Fprintln(out, "\n"+asciigraph.PlotMany(series, options...))
}

// byHitRate orders names as their curves end, so that they can be told apart
// without colour.
func (r *Report) byHitRate(names []string) []string {
	return slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Compare(r.Policies[b].HitRate, r.Policies[a].HitRate)
	})
}

func (r *Report) printVerdict(out io.Writer) {
	fmt.Fprintln(out)
	for _, name := range r.Order {
		o := r.Policies[name]
		if !o.Trusted {
			fmt.Fprintf(out, "  ! %s: %s\n", name, o.Distrust)
		} else if o.Pace < 0.8*r.TimeScale {
			fmt.Fprintf(out, "  %s: the machine was busy, so the engines' clock ran at %.0fx instead of %gx; the figures hold.\n", name, o.Pace, r.TimeScale)
		}
	}
	base, ours := r.Policies["round_robin"], r.Policies["warmpath"]
	if base == nil || ours == nil || ours.TTFT.Mean == 0 {
		return
	}
	fmt.Fprintf(out, "  warmpath finds %.1f times as many prompt tokens in the cache as round robin and answers %.1f times sooner (mean TTFT).\n",
		ours.HitRate/max(base.HitRate, 1e-9), base.TTFT.Mean/ours.TTFT.Mean)
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
