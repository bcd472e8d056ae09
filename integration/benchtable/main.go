// Command benchtable measures the two places where the cache-location table of
// a proxy could be: pages in shared data, one copy for all VMs, read through a
// small cache in each; or a table of its own in every VM, fed with the same
// entry changes.
//
// A cell of the comparison is one way, one number of VMs, one table size and
// one host (the wazero host of this repository, or a real Envoy). It goes like
// this: the host starts the guest module (testdata/guest) built for that way;
// the table is filled; typical prompts are looked up by real requests while
// 1,000 entry changes a second arrive; then the changes arrive alone. Each
// request is answered by the module itself, so that no upstream is in the
// figures.
//
// -prompts chat looks up what real conversations ask next, which is what the
// budget of a lookup (40 us) is for; mixed, the default, is harder: a third of it
// is unknown or long and new.
//
// With -figures no host is started: it tells what lookups of real prompts cost in
// pages, how many tokens a table covers for its size, and what a million entries
// take, as JSON.
//
// CPU times are those of the proxy process: the machine may be busy with other
// things. In the wazero host that includes the driver's own small work, the
// same for both ways, which /nothing measures and the table subtracts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options say what to measure.
type options struct {
	Hosts    []string
	VMs      []int
	Entries  []int
	Requests int           // lookups per cell
	Rate     int           // lookups a second, over all VMs
	Changes  int           // entry changes a second
	Alone    time.Duration // how long changes arrive alone
	Rounds   int           // times that everything is measured
	Envoy    string        // version
	Figures  bool          // no hosts: figures of the table itself
	Prompts  string        // what is looked up: mixed, chat or agents
}

const promptsMixed = "mixed"

// kindsOfPrompts make the workload of a table size.
var kindsOfPrompts = map[string]func(entries int) *workload{
	promptsMixed: newWorkload,
	"chat":       func(n int) *workload { return newPrompts(lookupTalks[0], n) },
	"agents":     func(n int) *workload { return newPrompts(lookupTalks[3], n) },
}

func parse(args []string, progress io.Writer) (o options, jsonFile string, err error) {
	flags := flag.NewFlagSet("benchtable", flag.ContinueOnError)
	flags.SetOutput(progress)
	hosts := flags.String("hosts", "wazero,envoy", "where to measure")
	vms := flags.String("vms", "2,8,16", "numbers of VMs (Envoy has one more, its main thread's)")
	entries := flags.String("entries", "100000,1000000", "table sizes")
	quick := flags.Bool("quick", false, "2 and 8 VMs in wazero only, 100,000 entries, fewer requests")
	flags.IntVar(&o.Requests, "requests", 6000, "lookups per cell")
	flags.IntVar(&o.Rate, "rate", 1000, "lookups a second over all VMs")
	flags.IntVar(&o.Changes, "changes", 1000, "entry changes a second")
	flags.DurationVar(&o.Alone, "alone", 4*time.Second, "how long changes arrive without lookups")
	flags.IntVar(&o.Rounds, "rounds", 2, "times that everything is measured, both ways in turn; the least of each time counts")
	flags.StringVar(&o.Envoy, "envoy", "1.40.0", "version of Envoy")
	flags.BoolVar(&o.Figures, "figures", false, "print page gets of real prompts, tokens covered per MB and the size of a million entries as JSON, and nothing else")
	flags.StringVar(&o.Prompts, "prompts", promptsMixed, "what is looked up: mixed (a third unknown or long and new), or the next turns of conversations that the table follows: chat (3,500 tokens), agents (up to 40 turns)")
	flags.StringVar(&jsonFile, "json", "", "write the figures to this `file` too (- for standard output)")
	if err := flags.Parse(args); err != nil {
		return o, "", err
	}
	if *quick {
		*hosts, *vms, *entries, o.Requests, o.Alone = "wazero", "2,8", "100000", 1500, 1500*time.Millisecond
		o.Rounds = 1
	}
	o.Hosts = strings.Split(*hosts, ",")
	for _, h := range o.Hosts {
		if h != hostWazero && h != hostEnvoy {
			err = fmt.Errorf("-hosts: %q is neither wazero nor envoy", h)
		}
	}
	if _, ok := kindsOfPrompts[o.Prompts]; !ok {
		err = errors.Join(err, fmt.Errorf("-prompts: %q is neither mixed, chat nor agents", o.Prompts))
	}
	var vmErr, entryErr error
	o.VMs, vmErr = numbers("-vms", *vms, 1, 64)
	o.Entries, entryErr = numbers("-entries", *entries, 1000, 1_000_000)
	if o.Requests < 1 || o.Rate < 1 || o.Rounds < 1 || o.Changes < 0 || o.Alone <= 0 {
		err = errors.Join(err, errors.New("-requests, -rate, -rounds and -alone must be positive, -changes not negative"))
	}
	if err = errors.Join(err, vmErr, entryErr); err != nil {
		fmt.Fprintln(progress, "benchtable:", err)
	}
	return o, jsonFile, err
}

func numbers(name, list string, least, most int) (out []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%s: %q is no number from %d to %d", name, field, least, most)
		}
		out = append(out, n)
	}
	return out, nil
}

func run(args []string, out, progress io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(args) == 2 && args[0] == childFlag {
		return runCell(ctx, args[1], out, progress)
	}
	o, jsonFile, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	if o.Figures {
		if err := printFigures(out, measureFigures(12_000, map[int]int{40: 400_000, 1000: 100_000}, 1_000_000)); err != nil {
			fmt.Fprintln(progress, "benchtable:", err)
			return 1
		}
		return 0
	}
	if err := compare(ctx, o, jsonFile, out, progress); err != nil {
		fmt.Fprintln(progress, "benchtable:", err)
		return 1
	}
	return 0
}

// runCell is the whole program in the process of a cell.
func runCell(ctx context.Context, text string, out, progress io.Writer) int {
	c, err := measureChild(ctx, text)
	if err == nil {
		err = json.NewEncoder(out).Encode(c)
	}
	if err != nil {
		fmt.Fprintln(progress, "benchtable:", err)
		return 1
	}
	return 0
}

// plan lists the cells of a round.
func plan(o options) (cells []cell) {
	for _, entries := range o.Entries {
		for _, host := range o.Hosts {
			for _, vms := range o.VMs {
				for _, way := range []string{wayPages, wayCopy} {
					cells = append(cells, cell{Host: host, Way: way, VMs: vms, Entries: entries})
				}
			}
		}
	}
	return cells
}

// compare measures all cells and prints them.
func compare(ctx context.Context, o options, jsonFile string, out, progress io.Writer) error {
	b, err := newBuilder(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	loads := map[int]*workload{}
	for _, entries := range o.Entries {
		loads[entries] = kindsOfPrompts[o.Prompts](entries)
	}
	cells, err := measureAll(ctx, o, b, loads, progress)
	if len(cells) == 0 {
		return err
	}
	// What was measured before an error or an interrupt is worth having.
	return errors.Join(err, write(cells, jsonFile, out))
}

// measureAll measures the cells of all rounds. With an error it returns those
// that were measured before.
func measureAll(ctx context.Context, o options, b *builder, loads map[int]*workload, progress io.Writer) (cells []*cell, err error) {
	for round := range o.Rounds {
		for at, want := range plan(o) {
			c, err := measureCell(ctx, o, b, loads[want.Entries], want.Host, want.Way, want.VMs)
			if err != nil {
				return cells, fmt.Errorf("measure %s, %d VMs, %d entries in %s: %w", want.Way, want.VMs, want.Entries, want.Host, err)
			}
			fmt.Fprintf(progress, "round %d: %s\n", round+1, c.line())
			if round == 0 {
				cells = append(cells, c)
			} else {
				cells[at].keepLeast(c)
			}
		}
	}
	return cells, nil
}

// write prints the cells and writes them as JSON where that is asked for.
func write(cells []*cell, jsonFile string, out io.Writer) error {
	if jsonFile != "-" {
		printCells(out, cells)
	}
	if jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(cells, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the figures: %w", err)
	}
	if jsonFile == "-" {
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	}
	if err := os.WriteFile(jsonFile, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
