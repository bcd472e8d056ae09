package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
settings of admission, or says what a change would do.`,
	}
	cmd.AddCommand(quotaShowCommand(), quotaSetCommand(), quotaWatchCommand())
	return cmd
}

func quotaShowCommand() *cobra.Command {
	var (
		c      tableSource
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
	c.flags(cmd, true)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as the API answers it")
	return cmd
}

func quotaSetCommand() *cobra.Command {
	var (
		c      tableSource
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
	c.flags(cmd, true)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only check, and show what would change")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as the API answers it")
	return cmd
}

func quotaWatchCommand() *cobra.Command {
	var (
		c     tableSource
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
	c.flags(cmd, true)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool")
	cmd.Flags().DurationVar(&every, "interval", time.Second, "between two lines")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many, 0 for never")
	return cmd
}

func readSettings(name string, stdin io.Reader) ([]byte, error) {
	const limit = 1 << 20
	if name == "-" {
		return io.ReadAll(io.LimitReader(stdin, limit))
	}
	body, err := os.ReadFile(name)
	if err == nil && len(body) > limit {
		err = fmt.Errorf("%s has %d bytes, settings have at most %d", name, len(body), limit)
	}
	return body, err
}

// put sends a document to a path and decodes the answer into v. What the control service refuses
// is told with its remedy.
func (c *tableSource) put(ctx context.Context, path string, body []byte, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(c.url, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("--control %q: %w", c.url, err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := (&http.Client{Timeout: c.timeout}).Do(req)
	if err != nil {
		return fmt.Errorf("ask the control service: %w (is it running, and is --control its address?)", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read %s from the control service: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusalOf(resp, answer)
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("read %s of %s: %w (is that a control service, and of this version?)", path, c.url, err)
	}
	return nil
}

// refusalOf is what an answer that isn't 200 says.
func refusalOf(resp *http.Response, answer []byte) error {
	var refusal struct {
		Error struct {
			Message string `json:"message"`
			Remedy  string `json:"remedy"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &refusal) != nil || refusal.Error.Message == "" {
		return fmt.Errorf("control service answered %s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	if refusal.Error.Remedy == "" {
		return fmt.Errorf("%s", refusal.Error.Message)
	}
	return fmt.Errorf("%s (%s)", refusal.Error.Message, refusal.Error.Remedy)
}
