package main

import "github.com/spf13/cobra"

// hostsimCommand is for people who write proxy-wasm filters, ours or not.
func hostsimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hostsim",
		Short: "Run and check any proxy-wasm module without a proxy",
		Long: `Runs a proxy-wasm module (ABI 0.2.0 or 0.2.1, any SDK) in a host that behaves
as Envoy does, and says which proxies lack what a module needs. In Go tests the
same host is the package hostsim/hosttest; docs/hostsim.md tells about both.`,
		Example: `  warmpath hostsim run filter.wasm --request login.http --trace
  warmpath hostsim check filter.wasm --host envoy-1.36`,
	}
	cmd.AddCommand(hostsimRunCommand(), hostsimCheckCommand())
	return cmd
}
