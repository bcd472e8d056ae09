// Command soak drives the module through a million requests and says whether
// it keeps three promises: no callback holds the proxy's thread for more than
// 10 ms while a million-entry base and the given vocabularies load, a VM has
// less than 40 MiB of memory, and it stays flat after its first 100,000
// requests.
//
// A run goes like this: a stand-in for the control service builds the base,
// which holds the prefixes of the conversations that the traffic is made of;
// a host of two VMs loads it by the courier's protocol over loopback, with
// light traffic on both; then each VM plays its half of the requests on its
// own goroutine while entry changes go on arriving. A meter around every
// export takes its time on the wall and on the thread's own clock: the first
// is what a client feels, the second what the module costs on a machine that
// others use too.
//
// The exit code is 1 when a promise is broken, 2 when the run itself failed.
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
	"path/filepath"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/integration/modules"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// errBroken tells that the module broke a promise; the report says which.
var errBroken = errors.New("a budget was missed")

func run(args []string, out, progress io.Writer) int {
	o, jsonFile, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err = measure(ctx, o, jsonFile, out, progress)
	switch {
	case errors.Is(err, errBroken):
		fmt.Fprintln(progress, "soak:", err)
		return 1
	case err != nil:
		fmt.Fprintln(progress, "soak:", err)
		return 2
	}
	return 0
}

// defaultGrowth is less than 5 bytes a request of the default run. It is not 0
// because memory follows the highest the heap ever was, and that depends on
// how many 1 MB bodies happen to meet between two collections.
const defaultGrowth = 4 << 20

// options say how much to play.
type options struct {
	Module   string        // path of the .wasm file; empty builds it
	Requests int           // over all VMs
	Settled  int           // requests after which memory must not grow
	Entries  int           // of the base
	VMs      int           // each on its own goroutine
	Changes  int           // entry changes a second
	Callback time.Duration // CPU time a callback may take while the base loads
	Growth   int64         // bytes a VM may grow after Settled requests
	Memory   int64         // bytes a VM may have
	// Vocabularies are files that every VM loads along with the base.
	Vocabularies []string
	Seed         uint64
}

func parse(args []string, progress io.Writer) (o options, jsonFile string, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&o.Module, "module", "", "the `file` to run (default: build it)")
	flags.IntVar(&o.Requests, "requests", 1_000_000, "requests over all VMs")
	flags.IntVar(&o.Settled, "settled", 100_000, "requests after which VM memory must be flat")
	flags.IntVar(&o.Entries, "entries", 1_000_000, "entries of the base table")
	flags.IntVar(&o.VMs, "vms", 2, "VMs, each with its own goroutine")
	flags.IntVar(&o.Changes, "changes", 1000, "entry changes a second")
	flags.DurationVar(&o.Callback, "callback", 10*time.Millisecond, "CPU time a callback may take while the base loads")
	flags.Int64Var(&o.Memory, "memory", 40<<20, "`bytes` a VM may have")
	flags.Func("vocabulary", "`file` (.wpv or tokenizer.json) that the policy names; may be given again", func(path string) error {
		o.Vocabularies = append(o.Vocabularies, path)
		return nil
	})
	flags.Int64Var(&o.Growth, "growth", defaultGrowth, "`bytes` a VM may grow after the settled requests")
	flags.Uint64Var(&o.Seed, "seed", 1, "of traffic and table")
	flags.StringVar(&jsonFile, "json", "", "write the figures to this `file` too (- for standard output)")
	if err := flags.Parse(args); err != nil {
		return o, "", err
	}
	if o.VMs < 1 || o.Requests < o.VMs || o.Settled < 1 || o.Entries < 1 || o.Changes < 0 || flags.NArg() > 0 {
		fmt.Fprintln(progress, "soak: requests, settled, entries and vms must be positive, and there are no other arguments; see -help")
		return o, "", errors.New("usage")
	}
	return o, jsonFile, nil
}

func measure(ctx context.Context, o options, jsonFile string, out, progress io.Writer) error {
	if o.Module == "" {
		dir, err := os.MkdirTemp("", "warmpath-soak-")
		if err != nil {
			return fmt.Errorf("create a directory for the module: %w", err)
		}
		defer os.RemoveAll(dir)
		root, err := envoyrun.Root()
		if err != nil {
			return err
		}
		if o.Module, err = modules.Build(ctx, root, dir, modules.Filter); err != nil {
			return err
		}
	}
	wasm, err := os.ReadFile(filepath.Clean(o.Module))
	if err != nil {
		return fmt.Errorf("read the module: %w", err)
	}
	r, err := soak(ctx, o, wasm, progress)
	if err != nil {
		return err
	}
	if jsonFile != "-" {
		r.print(out)
	}
	if err := writeJSON(r, jsonFile, out); err != nil {
		return err
	}
	if len(r.Missed) > 0 {
		return errBroken
	}
	return nil
}

func writeJSON(r *report, file string, out io.Writer) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the figures: %w", err)
	}
	text = append(text, '\n')
	if file == "-" {
		_, err = out.Write(text)
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
