package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/control/api"
)

// tableSummary is what "warmpath table show" tells.
type tableSummary struct {
	Pools    []poolSummary `json:"pools"`
	Workers  []api.Worker  `json:"workers"`
	Gateways []api.Gateway `json:"gateways"`
	Table    api.Table     `json:"table"`
	Index    api.Index     `json:"index"`
	Learning bool          `json:"learning"`
	Off      bool          `json:"off"`
}

// poolSummary sums up the workers of a pool.
type poolSummary struct {
	Pool     string  `json:"pool"`
	Workers  int     `json:"workers"`
	Entries  int     `json:"entries"` // (checkpoint, worker) pairs
	Tokens   float64 `json:"covered_tokens"`
	Capacity int     `json:"capacity_tokens"`
	Degraded int     `json:"degraded_workers"`
}

// summarize keeps what a pool, or everybody, has in the table.
func summarize(s *api.Status, pool string) (*tableSummary, error) {
	out := &tableSummary{Pools: []poolSummary{}, Workers: []api.Worker{}, Gateways: s.Gateways, Table: s.Table, Index: s.Index, Learning: s.Learning, Off: s.Off}
	pools := map[string]*poolSummary{}
	for _, w := range s.Workers {
		if pool != "" && w.Pool != pool {
			continue
		}
		out.Workers = append(out.Workers, w)
		p := pools[w.Pool]
		if p == nil {
			p = &poolSummary{Pool: w.Pool}
			pools[w.Pool] = p
		}
		p.Workers++
		p.Entries += w.Entries
		p.Tokens += w.CoveredTokens
		p.Capacity += w.Capacity
		if len(w.Degraded) > 0 {
			p.Degraded++
		}
	}
	if pool != "" && len(out.Workers) == 0 {
		return nil, fmt.Errorf("no worker is in pool %q (leave --pool out to see the pools)", pool)
	}
	for _, p := range pools {
		out.Pools = append(out.Pools, *p)
	}
	slices.SortFunc(out.Pools, func(a, b poolSummary) int { return cmp.Compare(a.Pool, b.Pool) })
	slices.SortFunc(out.Workers, func(a, b api.Worker) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Address, b.Address))
	})
	return out, nil
}

func (s *tableSummary) print(w io.Writer) error {
	state := ""
	if s.Learning {
		state = ", learning anew after a start without state"
	}
	if s.Off {
		state += "; the fleet is switched off (warmpath on takes it back)"
	}
	fmt.Fprintf(w, "%d entries in %s of pages, %d in the index (%s)%s\n\n", s.Table.Entries, bytesText(int64(s.Table.Bytes)), s.Index.Entries, bytesText(s.Index.Bytes), state)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POOL\tWORKERS\tENTRIES\tTOKENS\tOF CAPACITY\tDEGRADED")
	for _, p := range s.Pools {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%d\n", p.Pool, p.Workers, p.Entries, countText(p.Tokens), shareText(p.Tokens, float64(p.Capacity)), p.Degraded)
	}
	fmt.Fprintln(t, "\nWORKER\tPOOL\tSTATE\tSOURCE\tENTRIES\tTOKENS\tEVENTS\tMATCHED\tGAPS\tAGE\tTRUST")
	for i := range s.Workers {
		a := &s.Workers[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%.2f\n", a.Address, a.Pool, a.State, a.Truth, a.Entries, countText(a.CoveredTokens), eventsText(a), a.Trust)
	}
	if len(s.Gateways) > 0 {
		fmt.Fprintln(t, "\nGATEWAY\tREPORTED\tTABLE")
		for _, g := range s.Gateways {
			fmt.Fprintf(t, "%s\t%s ago\t%s\n", g.Name, ageText(g.Age), lagText(&g, &s.Table))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	printReasons(w, "degraded", s.Workers, func(a *api.Worker) []string { return a.Degraded })
	printReasons(w, "hints", s.Workers, func(a *api.Worker) []string { return a.Hints })
	return nil
}

// printReasons lists each reason once, with the first worker that has it.
func printReasons(w io.Writer, title string, workers []api.Worker, of func(*api.Worker) []string) {
	having := map[string][]string{}
	var order []string
	for i := range workers {
		for _, reason := range of(&workers[i]) {
			if having[reason] == nil {
				order = append(order, reason)
			}
			having[reason] = append(having[reason], workers[i].Address)
		}
	}
	if len(order) > 0 {
		fmt.Fprintf(w, "\n%s:\n", title)
	}
	for _, reason := range order {
		fmt.Fprintf(w, "  %s: %s\n", someOf(having[reason], 1), reason)
	}
}

// eventsText is the columns events, matched, gaps and age of a worker.
func eventsText(w *api.Worker) string {
	switch {
	case w.Events != nil && w.Events.Source != "off":
		e := w.Events
		return fmt.Sprintf("%d\t%d of %d blocks\t%d (%d lost)\t%s", e.Events, e.Held, e.Blocks, e.Gaps, e.Lost, ageText(e.Age))
	case w.Heartbeats != nil:
		return fmt.Sprintf("%d beats\t-\t-\t%s", w.Heartbeats.Count, ageText(w.Heartbeats.Age))
	}
	return "-\t-\t-\t" + ageText(w.LastSeen)
}

func lagText(g *api.Gateway, t *api.Table) string {
	switch {
	case g.TableEpoch == 0:
		return "none yet"
	case g.TableEpoch != t.Epoch:
		return "of another epoch"
	case g.TableVersion < t.Version:
		return fmt.Sprintf("%d versions behind", t.Version-g.TableVersion)
	}
	return "up to date"
}

// shownHolders of an entry are named, the others counted.
const shownHolders = 3

func printTop(w io.Writer, entries []api.Entry) error {
	if len(entries) == 0 {
		fmt.Fprintln(w, "the table is empty: nothing was routed yet, or no worker is up")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HEAT\tTOKENS\tHOLDERS\tPOOL\tFINGERPRINT\tWORKERS")
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(t, "%.1f\t%s\t%d of %d\t%s\t%s\t%s\n", e.Heat, countText(e.Tokens), len(e.Holders), e.PoolSize, e.Pool, e.Fingerprint, holdersText(e.Holders))
	}
	return t.Flush()
}

func holdersText(holders []api.Holder) string {
	var names []string
	for _, h := range holders {
		names = append(names, h.Worker)
	}
	return someOf(names, shownHolders)
}

// someOf names the first n and counts the others.
func someOf(names []string, n int) string {
	text := strings.Join(names[:min(len(names), n)], ", ")
	if more := len(names) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// scaled writes a number with the largest of the units that it reaches.
func scaled(v, step float64, units ...string) string {
	i := 0
	for v >= step && i < len(units)-1 {
		v /= step
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", v, units[0])
	}
	return fmt.Sprintf("%.1f%s", v, units[i])
}

func countText(n float64) string { return scaled(n, 1000, "", "k", "M", "G") }

func bytesText(n int64) string { return scaled(float64(n), 1024, " bytes", " KiB", " MiB", " GiB") }

func shareText(part, whole float64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*part/whole)
}

func ageText(seconds float64) string {
	if seconds < 0 {
		return "never"
	}
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
