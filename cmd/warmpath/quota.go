package main

import (
	"fmt"
	"io"
	"os"
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
settings of admission, or says what a change would do.`,
	}
	cmd.AddCommand(quotaShowCommand(), quotaSetCommand(), quotaWatchCommand())
	return cmd
}

func quotaShowCommand() *cobra.Command {
	var (
		c      controlService
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show pools, classes, tenants and gateways",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q api.Quota
			if err := c.ask(cmd.Context(), "/v1/quota", &q); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, q)
			}
			return printQuota(cmd.OutOrStdout(), &q)
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as the API answers it")
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
are checked whole first; with --dry-run that is all, and what would change is shown.`,
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
				return err
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
		c     controlService
		pool  string
		every time.Duration
		count int
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print a line a second: use and waiting by class, P0's time to first token, the shares",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return fmt.Errorf("--interval %v: want 100ms or more", every)
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
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
				if err := printWatch(cmd.OutOrStdout(), &q, pool, n%20 == 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	cmd.Flags().DurationVar(&every, "interval", time.Second, "between two lines")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many, 0 for never")
	return cmd
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
