// Command warmpath is the companion of warmpath.wasm: control service, embedded
// gateway, simulated workers and the demo, in one binary.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns the exit code: 0, or 1 on an error
// that was printed.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a drain that takes too long
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "warmpath:", err)
		return 1
	}
	return 0
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "warmpath",
		Short: "Send every LLM request to the worker that already holds its prefix",
		Long: `warmpath routes LLM requests to the worker whose KV cache already holds their
prefix. The proxy-wasm module (warmpath.wasm) decides inside Envoy or Istio; this
binary is what stands beside it.

Start with:
  warmpath demo                    see what it is worth, in two minutes
  warmpath control --workers F     the control service that Envoy's module talks to
  warmpath gateway --upstream ...  the same module without Envoy
  warmpath agent --engine URL      beside an engine that can't be reached or has no events
  warmpath doctor                  what an installation lacks, and what to change`,
		Args:          cobra.ArbitraryArgs, // so that onlySubcommands tells what is no command
		RunE:          onlySubcommands,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(demoCommand(), controlCommand(), gatewayCommand(), agentCommand(), simCommand(), explainCommand(), tableCommand(), quotaCommand(), clusterCommand(), doctorCommand(), hostsimCommand(), tokenizerCommand(), modeCommand("off"), modeCommand("on"), versionCommand())
	for _, c := range root.Commands() {
		if c.HasSubCommands() {
			c.RunE = onlySubcommands
		}
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w (%s --help lists the flags)", err, c.CommandPath())
	})
	teachArgs(root)
	return root
}

// teachArgs has every command say, beside what cobra says of arguments, how it is used.
func teachArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return fmt.Errorf("%w: %s (see %s --help)", err, c.UseLine(), c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		teachArgs(sub)
	}
}

// onlySubcommands is what a group of commands does by itself: cobra would print the
// help for a misspelt subcommand too, and exit with 0.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		meant := ""
		cmd.SuggestionsMinimumDistance = 2
		if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
			meant = ", did you mean " + strings.Join(names, " or ") + "?"
		}
		return fmt.Errorf("unknown command %q for %q%s (see %s --help)", args[0], cmd.CommandPath(), meant, cmd.CommandPath())
	}
	return cmd.Help()
}
