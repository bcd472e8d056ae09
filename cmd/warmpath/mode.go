package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// modeCommand is "warmpath off" and "warmpath on": the switch for the moment
// when somebody suspects the router.
func modeCommand(name string) *cobra.Command {
	c := controlService{url: defaultControl, timeout: 5 * time.Second}
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
			c.token = os.Getenv(c.tokenEnv)
			if _, err := c.call(cmd.Context(), http.MethodPost, "/v1/mode", "application/json", []byte(body)); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "routing is", name)
			return nil
		},
	}
	cmd.Flags().Var((*urlValue)(&c.url), "control", "control service")
	cmd.Flags().StringVar(&c.tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the bearer token")
	return cmd
}
