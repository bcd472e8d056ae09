package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/doctor"
)

func doctorCommand() *cobra.Command {
	var o doctor.Options
	var tokenEnv, engineTokenEnv string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation from end to end and say what to change",
		Long: `Checks an installation and says what to change: the control service, its gateways
and workers, the tokenizers' parity; of every engine that it lists (or of --engine)
prefix caching, block size, KV events and data-parallel ranks; with --probe, by
three completions of a few tokens each, whether hits are reported, in streams too;
with --envoy-admin, whether the module is loaded as it must be and whether limits,
retries, clusters and headers suit LLM streams; with --proxy, whether a request
goes where the module sent it.

It changes nothing. Without --probe and --proxy it sends no request to a model.
The exit code is 1 when a check fails; warnings leave it 0.`,
		Example: `  warmpath doctor --control http://127.0.0.1:8780
  warmpath doctor --probe --envoy-admin http://127.0.0.1:9901 --proxy http://127.0.0.1:8080
  warmpath doctor --control "" --engine http://10.0.0.7:8000 --probe --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Control == "" && len(o.Engines) == 0 && o.EnvoyAdmin == "" && o.Proxy == "" {
				return errors.New("nothing to look at (give --control, --engine, --envoy-admin or --proxy)")
			}
			for _, engine := range o.Engines {
				if err := checkURL(engine); err != nil {
					return fmt.Errorf("--engine %q: %w", engine, err)
				}
			}
			o.Token, o.EngineToken = os.Getenv(tokenEnv), os.Getenv(engineTokenEnv)
			checks := doctor.Run(cmd.Context(), o)
			err := cmd.Context().Err()
			if err == nil && asJSON {
				err = printJSON(cmd, struct {
					Checks []doctor.Check `json:"checks"`
				}{checks})
			} else if err == nil {
				err = printChecks(cmd.OutOrStdout(), checks, all)
			}
			if err == nil && doctor.Failed(checks) {
				err = errors.New("some checks failed: what to change stands with them")
			}
			return err
		},
	}
	f := cmd.Flags()
	o.Control = defaultControl
	f.Var((*urlValue)(&o.Control), "control", "control service; empty leaves it out")
	f.StringArrayVar(&o.Engines, "engine", nil, "`URL` of an engine to look at instead of those that the control service lists; may be given again")
	f.Var((*urlValue)(&o.EnvoyAdmin), "envoy-admin", "admin interface of Envoy, such as http://127.0.0.1:9901")
	f.Var((*urlValue)(&o.Proxy), "proxy", "where clients send: a request for one token goes through it")
	f.BoolVar(&o.Probe, "probe", false, "send three small completions to each engine")
	f.StringVar(&o.Model, "model", "", "model to ask for (default: the first that is listed)")
	f.StringVar(&tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the control service's bearer token")
	f.StringVar(&engineTokenEnv, "engine-token-env", "WARMPATH_ENGINE_TOKEN", "environment variable with the engines' API key, sent through the proxy too")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Second, "of each call")
	f.BoolVar(&all, "all", false, "list what is fine too")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printChecks prints what is wrong with its remedies, and counts the rest. What
// is the same at several targets is one line.
func printChecks(w io.Writer, checks []doctor.Check, all bool) error {
	count := map[doctor.Status]int{}
	targets := map[doctor.Check][]string{}
	var order []doctor.Check
	for _, c := range checks {
		count[c.Status]++
		if c.Status == doctor.OK && !all {
			continue
		}
		target := c.Target
		c.Target = ""
		if targets[c] == nil {
			order = append(order, c)
		}
		targets[c] = append(targets[c], target)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range order {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", strings.ToUpper(string(c.Status)), c.Name, someOf(targets[c], 1), c.Seen)
		if c.Remedy != "" {
			fmt.Fprintf(t, "\t\t\t-> %s\n", c.Remedy)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ok, %d warnings, %d failed\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
	return err
}
