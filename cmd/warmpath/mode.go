package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// modeCommand is "warmpath off" and "warmpath on": the switch for the moment
// when somebody suspects the router.
func modeCommand(name string) *cobra.Command {
	controlURL, tokenEnv := urlValue(defaultControl), ""
	short, body := "Put the whole fleet into observe mode: steer nothing, refuse nothing", `{"off":true}`
	if name == "on" {
		short, body = "Take back warmpath off", `{"off":false}`
	}
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long: short + `.

Every gateway that hears from the control service follows within a second. In
observe mode requests go to the proxy's own balancer; lookups and what they would
have saved are still counted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := http.NewRequestWithContext(cmd.Context(), http.MethodPost, controlURL.String()+"/v1/mode", bytes.NewReader([]byte(body)))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			if token := os.Getenv(tokenEnv); token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := (&http.Client{Timeout: 5 * time.Second}).Do(req)
			if err != nil {
				return fmt.Errorf("ask the control service: %w (is it running, and is --control its address?)", err)
			}
			defer resp.Body.Close()
			answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			if resp.StatusCode == http.StatusUnauthorized {
				return fmt.Errorf("control service at %s refuses the token (put the one it was started with into the environment variable %s)", controlURL, tokenEnv)
			}
			if resp.StatusCode/100 != 2 {
				return fmt.Errorf("control service answered %s: %s", resp.Status, bytes.TrimSpace(answer))
			}
			fmt.Fprintln(cmd.OutOrStdout(), "routing is", name)
			return nil
		},
	}
	cmd.Flags().Var(&controlURL, "control", "control service")
	cmd.Flags().StringVar(&tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the bearer token")
	return cmd
}
