package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/hostsim/compat"
)

func hostsimCheckCommand() *cobra.Command {
	var (
		asJSON bool
		names  []string
	)
	cmd := &cobra.Command{
		Use:   "check MODULE.wasm",
		Short: "Say which proxies and versions lack what a module imports",
		Long: `Holds a module's ABI version, imports and callbacks against what each proxy
provides, without running it.

  yes   all that the module imports is there and works
  no    the module is refused, or a call it imports never works

Rows marked with * come from the host's documentation alone. What a binary does
not show (properties, foreign functions, time limits) is told by -v.

Exit status: 0, or 1 when a host named by --host lacks something. Names are
envoy-1.36, istio-1.27, higress-2, ngx_wasm_module, apisix-3,
google-service-extensions, hostsim, or a family such as envoy.`,
		Example: `  warmpath hostsim check filter.wasm
  warmpath hostsim check filter.wasm --host envoy-1.36 --host istio
  warmpath hostsim check filter.wasm --json`,
		Args: exactlyOne("the module to check"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wasm, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read the module: %w", err)
			}
			var hosts []compat.Host
			for _, name := range names {
				some, err := compat.Find(name)
				if err != nil {
					return err
				}
				hosts = append(hosts, some...)
			}
			report, err := compat.Check(wasm, hosts)
			if err != nil {
				return fmt.Errorf("check %s: %w", args[0], err)
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				if err := enc.Encode(report); err != nil {
					return err
				}
			} else {
				verbose, _ := cmd.Flags().GetBool("verbose")
				printCheck(cmd.OutOrStdout(), args[0], report, verbose)
			}
			var lacking []string
			for _, r := range report.Results {
				if !r.OK() {
					lacking = append(lacking, r.Host.ID)
				}
			}
			if len(names) > 0 && len(lacking) > 0 {
				return fmt.Errorf("%s does not run on %s", args[0], strings.Join(lacking, ", "))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&names, "host", nil, "check this host or family only and fail when it lacks something, repeatable")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolP("verbose", "v", false, "also print notes and sources")
	return cmd
}

// printCheck prints a block per row of hosts with the same findings.
func printCheck(out io.Writer, path string, report *compat.Report, verbose bool) {
	fmt.Fprintf(out, "%s: ABI %s, %d imports, %d callbacks, %.2f MiB (%.2f MiB of code)\n\n",
		path, report.ABI, len(report.Imports), len(report.Callbacks), float64(report.FileBytes)/(1<<20), float64(report.CodeBytes)/(1<<20))
	for i := 0; i < len(report.Results); {
		r := report.Results[i]
		var names []string
		doc := false
		for ; i < len(report.Results) && sameFindings(report.Results[i].Findings, r.Findings) && (!verbose || len(names) == 0); i++ {
			names = append(names, report.Results[i].Host.ID)
			doc = doc || report.Results[i].Host.Evidence == "documentation"
		}
		verdict := "yes"
		if !r.OK() {
			verdict = "no "
		}
		name := ranges(names)
		if doc {
			name += " *"
		}
		fmt.Fprintf(out, "%s  %s\n", verdict, name)
		for i, f := range r.Findings {
			if f.Severity == compat.Note && !verbose || i > 0 && r.Findings[i-1].Effect == f.Effect {
				continue
			}
			var subjects []string
			for _, same := range r.Findings[i:] {
				if same.Effect != f.Effect {
					break
				}
				subjects = append(subjects, same.Subject)
			}
			fmt.Fprintf(out, "       %s: %s\n", strings.Join(subjects, ", "), f.Effect)
		}
		if verbose {
			for _, n := range r.Host.Notes {
				fmt.Fprintf(out, "       %s\n", n)
			}
			fmt.Fprintf(out, "       (%s: %s)\n", r.Host.Evidence, r.Host.Source)
		}
	}
}

// ranges writes hosts of one family that follow each other as first to last.
func ranges(ids []string) string {
	var parts []string
	for i := 0; i < len(ids); {
		family, _, _ := strings.Cut(ids[i], "-")
		last := i
		for last+1 < len(ids) && strings.HasPrefix(ids[last+1], family+"-") {
			last++
		}
		part := ids[i]
		if last > i {
			part += " to " + strings.TrimPrefix(ids[last], family+"-")
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ", ")
}

func sameFindings(a, b []compat.Finding) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
