// Command benchrestart measures how soon the control service knows again what
// engines hold, after a restart.
//
// Engines that publish KV events fill their caches and go on storing and
// removing; a prefix of the first batch stays, far out of the reach of the
// replay. The control service follows, is stopped, misses some batches and is
// started again on its state file. From then on the published table is compared
// with the truth.
//
// Times are on the wall; on a busy machine they are longer, never shorter.
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
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options say what to measure.
type options struct {
	Workers int
	Blocks  int // of each worker's cache
	Batches int // of each worker, before the stop
	Missed  int // batches published while the service is down
}

// figures are the outcome.
type figures struct {
	Workers       int `json:"workers"`
	Blocks        int `json:"blocks_per_worker"`
	Batches       int `json:"batches_per_worker"`
	Missed        int `json:"batches_while_down"`
	Entries       int `json:"entries"`        // (checkpoint, worker) pairs that are true after the restart
	PrefixEntries int `json:"prefix_entries"` // of them, those of the first batch

	Restart99Seconds float64 `json:"restart_to_99_percent_s"` // from the start until 99 % of the entries are in the table
	UsableIn5        float64 `json:"share_usable_in_5_s"`
	PrefixUsable     float64 `json:"share_of_prefix_usable_in_5_s"`
	Untrue           int     `json:"untrue_entries"` // in the table at the end, and not true

	SaveSeconds       float64 `json:"save_at_the_end_s"`
	DiskBytes         int64   `json:"disk_bytes"`
	DiskPerBlock      float64 `json:"disk_bytes_per_block"`
	ResidentPerBlock  float64 `json:"resident_bytes_per_block"` // block maps and index
	MapBytesPerBlock  float64 `json:"block_map_bytes_per_block"`
	IngestedPerSecond float64 `json:"ingested_blocks_per_s"`
}

func run(args []string, out, progress io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("benchrestart", flag.ContinueOnError)
	flags.SetOutput(progress)
	var o options
	flags.IntVar(&o.Workers, "workers", 16, "engines")
	flags.IntVar(&o.Blocks, "blocks", 60_000, "blocks of each engine's cache")
	flags.IntVar(&o.Batches, "batches", 20_000, "batches of each engine before the restart")
	flags.IntVar(&o.Missed, "missed", 500, "batches of each engine while the service is down")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case o.Workers < 1 || o.Blocks < 2*promptLen || o.Batches < 1 || o.Missed < 0 || o.Missed >= replayKept:
		fmt.Fprintf(progress, "benchrestart: at least one worker and batch and %d blocks, fewer than %d missed batches\n", 2*promptLen, replayKept)
		return 2
	}
	f, err := measure(ctx, o, progress)
	if err == nil {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(f)
	}
	if err != nil {
		fmt.Fprintln(progress, "benchrestart:", err)
		return 1
	}
	return 0
}
