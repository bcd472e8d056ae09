package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/control/api"
)

// quotaCommand is what people ask about admission.
func quotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Show, change and watch who may have how much of the fleet",
		Long: `Shows what a running control service lets in: each pool's limit and how the classes
share it, tenants against their limits, gateways with their leases. Changes the
settings of admission, or says what a change would do (docs/admission.md).`,
		Example: `  warmpath quota show
  warmpath quota set admission.yaml --dry-run
  warmpath quota watch`,
	}
	cmd.AddCommand(quotaShowCommand(), quotaSetCommand(), quotaWatchCommand())
	return cmd
}

func quotaShowCommand() *cobra.Command {
	var (
		c               controlService
		asJSON, history bool
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show pools, classes, tenants and gateways",
		Long: `Shows what the ledger knows at this moment.

Pools: SHARE is a class's share in force, SLOTS how much it gets of the pool now, PREFILL
TOKENS what was admitted and has no first token yet, REFUSED those for whom there was no
room since the ledger began, TTFT P99 that of the last second with any. The line "all" has
the pool's limits, and how many slots gateways have leased or in use.

Tenants, those with limits: AT ONCE is what gateways hold of the limit, REQUESTS LEFT and
TOKENS LEFT what no gateway has drawn yet of the rates.

Gateways: LEASE is what each may have in use, FLOOR what it may have when it is cut off
from the control service, DEBIT what counts as its own.

With --history the last ten minutes of each pool instead, a line for ten seconds: P0's
times to first token and what the controller made of them.`,
		Example: `  warmpath quota show
  warmpath quota show --history
  warmpath quota show --json | jq '.pools[] | {name, slots, debit}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q api.Quota
			path := "/v1/quota"
			if history {
				path += "?history=true"
			}
			if err := c.ask(cmd.Context(), path, &q); err != nil {
				return err
			}
			switch {
			case asJSON:
				return printJSON(cmd, q)
			case history && q.Enabled:
				return printHistory(cmd.OutOrStdout(), &q)
			}
			return printQuota(cmd.OutOrStdout(), &q)
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as the API answers it")
	cmd.Flags().BoolVar(&history, "history", false, "the last ten minutes of each pool; with --json second by second")
	return cmd
}

func quotaSetCommand() *cobra.Command {
	var (
		c      controlService
		dry    bool
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "set FILE",
		Short: "Replace the settings of admission by those in a file, - for standard input",
		Long: `Replaces the settings of admission: what a policy has under the key admission, in YAML
or JSON. A whole policy file does as well, of which only that key counts. The settings
are checked whole first, and a fault is told with its line and column.

With --dry-run nothing is changed. It shows which settings would be others, and replays
the demand of the last ten minutes against them: which tenants would have been refused
how much, and which classes would have had to wait.

docs/policy.md lists all settings.`,
		Example: `  warmpath quota set admission.yaml --dry-run
  warmpath quota set admission.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := readSettings(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			path := "/v1/quota"
			if dry {
				path += "?dry_run=true"
			}
			var change api.QuotaChange
			if err := c.put(cmd.Context(), path, body, &change); err != nil {
				return inFile(err, args[0])
			}
			if asJSON {
				return printJSON(cmd, change)
			}
			return printChange(cmd.OutOrStdout(), &change)
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only check, and show what would change")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as the API answers it")
	return cmd
}

func quotaWatchCommand() *cobra.Command {
	var (
		c      controlService
		pool   string
		every  time.Duration
		count  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print a line a second: use and waiting by class, P0's time to first token, the shares",
		Long: `Prints a line a second for each pool. Numbers with slashes are by class, P0/P1/P2.

SLOTS is the pool's limit. REFUSED are those for whom there was no room since the line
before. P0 P99 is P0's 99th percentile of the time to first token in the last second with
any. OPEN is how far the controller lets the classes below P0: 1 their shares and all that
is lent, 0 their floors. SHARES are in force. STATE: the pool refuses, or observes (what
would be refused is only counted); learns, after the ledger began, until all gateways have
reported.`,
		Example: `  warmpath quota watch --pool chat
  warmpath quota watch --json --interval 10s >> quota.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return fmt.Errorf("--interval %v: want 100ms or more", every)
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
			var before *api.Quota
			for n := 0; count == 0 || n < count; n++ {
				if n > 0 {
					select {
					case <-cmd.Context().Done():
						return nil
					case <-tick.C:
					}
				}
				var q api.Quota
				if err := c.ask(cmd.Context(), "/v1/quota", &q); err != nil {
					return err
				}
				if asJSON {
					if err := json.NewEncoder(cmd.OutOrStdout()).Encode(q); err != nil {
						return err
					}
					continue
				}
				if err := printWatch(cmd.OutOrStdout(), &q, before, pool, n%20 == 0); err != nil {
					return err
				}
				before = &q
			}
			return nil
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	cmd.Flags().DurationVar(&every, "interval", time.Second, "between two lines")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many, 0 for never")
	cmd.Flags().BoolVar(&asJSON, "json", false, "a line of JSON each time, as the API answers it, of all pools")
	return cmd
}

// inFile names the file in a fault that the service tells with its line: it knows only the document.
func inFile(err error, name string) error {
	rest, ok := strings.CutPrefix(err.Error(), "admission:")
	if !ok || name == "-" {
		return err
	}
	return errors.New(name + ":" + rest)
}

func readSettings(name string, stdin io.Reader) ([]byte, error) {
	const limit = 1 << 20
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && len(body) > limit {
		err = fmt.Errorf("%s: settings have at most %d bytes", name, limit)
	}
	return body, err
}
