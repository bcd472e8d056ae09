package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/control/api"
)

// tableCommand is what people ask about the cache-location table.
func tableCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Look into the cache-location table of a running control service",
		Long: `Looks into the table that a running control service gives to its gateways: which
worker holds which prefix, why that is believed, and what is hot.`,
	}
	cmd.AddCommand(tableShowCommand(), tableTopCommand(), tableExportCommand(), tableDiffCommand())
	return cmd
}

// entries calls f for every entry of the table, or of one pool.
func (c *controlService) entries(ctx context.Context, pool string, f func(*api.Entry) error) error {
	path := "/v1/table/entries"
	for {
		var page api.Entries
		if err := c.ask(ctx, path, &page); err != nil {
			return err
		}
		for i := range page.Entries {
			if e := &page.Entries[i]; pool == "" || e.Pool == pool {
				if err := f(e); err != nil {
					return err
				}
			}
		}
		if page.Next == nil {
			return nil
		}
		path = fmt.Sprintf("/v1/table/entries?epoch=%d&page=%d", page.Epoch, *page.Next)
	}
}

func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func tableShowCommand() *cobra.Command {
	var c controlService
	var pool string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Entries by pool and worker, where they come from and what is wrong with them",
		Long: `Shows how much the table holds, by pool and by worker. Of each worker: where the
belief about its cache comes from (events, heartbeats or predictions), how many KV
events were seen and how many of its blocks stand in the table (matched), gaps in
the event stream, the age of the last batch, trust, and why it is degraded.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var status api.Status
			if err := c.ask(cmd.Context(), "/v1/status", &status); err != nil {
				return err
			}
			s, err := summarize(&status, pool)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, s)
			}
			return s.print(cmd.OutOrStdout())
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "this pool only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func tableTopCommand() *cobra.Command {
	var c controlService
	var pool string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "The prefixes that most requests match",
		Long: `Lists the hottest prefixes. Heat is the number of requests whose longest match it
was, each fading by half in five minutes: a system prompt is hot where its
conversations part, not where they all begin.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var top struct {
				Entries []api.Entry `json:"entries"`
			}
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			if pool != "" {
				query.Set("pool", pool)
			}
			if err := c.ask(cmd.Context(), "/v1/table/top?"+query.Encode(), &top); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, top)
			}
			return printTop(cmd.OutOrStdout(), top.Entries)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "this pool only")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "how many, at most 1000")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func tableExportCommand() *cobra.Command {
	var c controlService
	var pool string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print every entry as a line of JSON",
		Long: `Prints the table, one entry a line (NDJSON): fingerprint, pool, tokens, heat and
holders, each with the proof for it (predicted, confirmed or reported). What
changes meanwhile may be missed or be as it was. Its lines are described in
/openapi.yaml of the control service, and "warmpath table diff" reads them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			enc := json.NewEncoder(out)
			err := c.entries(cmd.Context(), pool, func(e *api.Entry) error { return enc.Encode(e) })
			if errors.Is(err, errMoved) {
				err = fmt.Errorf("the export is not whole: %w", err)
			}
			return errors.Join(err, out.Flush())
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "this pool only")
	return cmd
}
