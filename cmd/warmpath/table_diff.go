package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/control/api"
)

// errTablesDiffer makes the exit code 1, as diff does.
var errTablesDiffer = errors.New("the tables differ")

func tableDiffCommand() *cobra.Command {
	var c controlService
	var pool string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "What differs between two tables: control services, or exports",
		Long: `Compares two tables, each the URL of a control service or a file that "warmpath
table export" wrote (- is standard input). References differ between services, so
holders are compared by address. The exit code is 1 when anything differs.

Two replicas that hear of the same traffic a moment apart differ in what happened
in between; what stays different when it is run again is worth a look.`,
		Example: `  warmpath table diff http://control-0:8780 http://control-1:8780
  warmpath table export > before.ndjson; sleep 60; warmpath table diff before.ndjson http://127.0.0.1:8780`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2]tableContents
			for i, from := range args {
				var err error
				if sides[i], err = c.contents(cmd.Context(), from, pool, cmd.InOrStdin()); err != nil {
					return err
				}
			}
			d := diffTables(sides[0], sides[1], limit)
			var err error
			if asJSON {
				err = printJSON(cmd, d)
			} else {
				err = d.print(cmd.OutOrStdout(), args)
			}
			if err == nil && d.differs() {
				err = errTablesDiffer
			}
			return err
		},
	}
	c.accessFlags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "this pool only")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "how many entries that differ to list")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// tableContents are the holders of every entry, by fingerprint and pool:
// addresses in order, joined by blanks.
type tableContents map[string]string

func (t tableContents) add(e *api.Entry) {
	names := make([]string, 0, len(e.Holders))
	for _, h := range e.Holders {
		names = append(names, h.Worker)
	}
	slices.Sort(names)
	t[e.Fingerprint+" "+e.Pool] = strings.Join(names, " ")
}

// contents reads a table from a service or a file.
func (c *controlService) contents(ctx context.Context, from, pool string, stdin io.Reader) (tableContents, error) {
	out := tableContents{}
	if strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://") {
		side := *c
		side.url = from
		err := side.entries(ctx, pool, func(e *api.Entry) error { out.add(e); return nil })
		return out, err
	}
	in := stdin
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return nil, fmt.Errorf("%w (a side is the URL of a control service, or a file of warmpath table export)", err)
		}
		defer f.Close()
		in = f
	}
	dec := json.NewDecoder(bufio.NewReader(in))
	dec.DisallowUnknownFields()
	for n := 1; ; n++ {
		var e api.Entry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil && len(e.Fingerprint) != 16 {
			err = errors.New("no fingerprint")
		}
		if err != nil {
			return nil, fmt.Errorf("read %s, entry %d: %w (was it written by warmpath table export?)", from, n, err)
		}
		if pool == "" || e.Pool == pool {
			out.add(&e)
		}
	}
}

// tableDiff says how two tables differ.
type tableDiff struct {
	Same         int          `json:"same"`
	OnlyA        int          `json:"only_a"`
	OnlyB        int          `json:"only_b"`
	OtherHolders int          `json:"other_holders"`
	Workers      []workerDiff `json:"workers"` // those that differ
	Entries      []entryDiff  `json:"entries"` // the first of those that differ
}

// workerDiff counts the entries of one worker.
type workerDiff struct {
	Worker string `json:"worker"`
	Both   int    `json:"both"`
	OnlyA  int    `json:"only_a"`
	OnlyB  int    `json:"only_b"`
}

// entryDiff is one entry that differs; nil is no such entry.
type entryDiff struct {
	Pool        string   `json:"pool"`
	Fingerprint string   `json:"fingerprint"`
	A           []string `json:"a"`
	B           []string `json:"b"`
}

func (d *tableDiff) differs() bool { return d.OnlyA+d.OnlyB+d.OtherHolders > 0 }

func diffTables(a, b tableContents, limit int) *tableDiff {
	d := &tableDiff{Workers: []workerDiff{}, Entries: []entryDiff{}}
	workers := map[string]*workerDiff{}
	var different []string
	compare := func(key string) {
		inA, okA := a[key]
		inB, okB := b[key]
		for _, name := range union(strings.Fields(inA), strings.Fields(inB)) {
			w := workers[name]
			if w == nil {
				w = &workerDiff{Worker: name}
				workers[name] = w
			}
			switch hasA, hasB := slices.Contains(strings.Fields(inA), name), slices.Contains(strings.Fields(inB), name); {
			case hasA && hasB:
				w.Both++
			case hasA:
				w.OnlyA++
			default:
				w.OnlyB++
			}
		}
		switch {
		case !okB:
			d.OnlyA++
		case !okA:
			d.OnlyB++
		case inA != inB:
			d.OtherHolders++
		default:
			d.Same++
			return
		}
		different = append(different, key)
	}
	for key := range a {
		compare(key)
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			compare(key)
		}
	}
	for _, w := range workers {
		if w.OnlyA+w.OnlyB > 0 {
			d.Workers = append(d.Workers, *w)
		}
	}
	slices.SortFunc(d.Workers, func(a, b workerDiff) int {
		return cmp.Or(cmp.Compare(b.OnlyA+b.OnlyB, a.OnlyA+a.OnlyB), cmp.Compare(a.Worker, b.Worker))
	})
	slices.Sort(different)
	for _, key := range different[:min(len(different), max(limit, 0))] {
		fp, pool, _ := strings.Cut(key, " ")
		e := entryDiff{Pool: pool, Fingerprint: fp}
		if holders, ok := a[key]; ok {
			e.A = strings.Fields(holders)
		}
		if holders, ok := b[key]; ok {
			e.B = strings.Fields(holders)
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

func union(a, b []string) []string {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *tableDiff) print(w io.Writer, names []string) error {
	fmt.Fprintf(w, "A is %s, B is %s\n%d entries are the same, %d only in A, %d only in B, %d have other holders\n", names[0], names[1], d.Same, d.OnlyA, d.OnlyB, d.OtherHolders)
	if !d.differs() {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nWORKER\tIN BOTH\tONLY A\tONLY B")
	for _, x := range d.Workers {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", x.Worker, x.Both, x.OnlyA, x.OnlyB)
	}
	fmt.Fprintln(t, "\nENTRY\tPOOL\tHOLDERS IN A\tIN B")
	for _, e := range d.Entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", e.Fingerprint, e.Pool, sideText(e.A), sideText(e.B))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := d.OnlyA + d.OnlyB + d.OtherHolders - len(d.Entries); more > 0 {
		fmt.Fprintf(w, "and %d more (--limit)\n", more)
	}
	return nil
}

func sideText(holders []string) string {
	if holders == nil {
		return "not there"
	}
	return strings.Join(holders, ", ")
}
