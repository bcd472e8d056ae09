// Command modcheck checks a finished WebAssembly module before it ships: that
// it imports only what proxies provide, exports the callbacks that the filter
// needs, and is small enough to start fast. It prints a table (or JSON) and
// fails with what is wrong and how to mend it.
//
//	modcheck [--json] [--no-response-body] [--max-file-bytes N] [--max-code-bytes N] FILE...
//
// Exit status: 0 all well, 1 a rule is broken, 2 wrong use or unreadable file.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// report is the result for one file, as printed with --json.
type report struct {
	File           string    `json:"file"`
	FileBytes      int       `json:"file_bytes"`
	CodeBytes      int       `json:"code_bytes"`
	MaxFileBytes   int       `json:"max_file_bytes"`
	MaxCodeBytes   int       `json:"max_code_bytes"`
	CompileSeconds float64   `json:"compile_cpu_seconds"` // estimate for Envoy
	ProxyImports   []string  `json:"proxy_imports"`
	WASIImports    []string  `json:"wasi_imports"`
	Callbacks      []string  `json:"callbacks"`
	Findings       []finding `json:"findings"`
}

func run(args []string, stdout, stderr io.Writer) int {
	r := defaultRules
	flags := flag.NewFlagSet("modcheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	noResponseBody := flags.Bool("no-response-body", false, "the module must not export "+responseBodyExport)
	flags.IntVar(&r.MaxFileBytes, "max-file-bytes", r.MaxFileBytes, "budget of the file")
	flags.IntVar(&r.MaxCodeBytes, "max-code-bytes", r.MaxCodeBytes, "budget of the code section")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: modcheck [flags] FILE...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return 2
	}
	r.ResponseBody = !*noResponseBody

	var reports []report
	for _, file := range flags.Args() {
		wasm, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintf(stderr, "modcheck: %v; build it first with make wasm\n", err)
			return 2
		}
		m, err := parse(wasm)
		if err != nil {
			fmt.Fprintf(stderr, "modcheck: parse %s: %v\n", file, err)
			return 2
		}
		reports = append(reports, newReport(file, m, r))
	}

	if *asJSON {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		if err := out.Encode(reports); err != nil {
			fmt.Fprintf(stderr, "modcheck: print: %v\n", err)
			return 2
		}
	} else {
		printTable(stdout, reports)
	}
	code := 0
	for _, rep := range reports {
		for _, f := range rep.Findings {
			fmt.Fprintf(stderr, "modcheck: %s %s\n", rep.File, f)
			code = 1
		}
	}
	return code
}

func newReport(file string, m *module, r rules) report {
	rep := report{
		File: file, FileBytes: m.FileBytes, CodeBytes: m.CodeBytes,
		MaxFileBytes: r.MaxFileBytes, MaxCodeBytes: r.MaxCodeBytes,
		CompileSeconds: compileSeconds(m.CodeBytes),
		ProxyImports:   []string{}, WASIImports: []string{}, Callbacks: []string{},
		Findings: append([]finding{}, r.check(m)...),
	}
	proxy, wasi, callbacks := map[string]string{}, map[string]string{}, map[string]string{}
	for _, i := range m.Imports {
		if i.Module == "env" {
			proxy[i.Name] = ""
		} else {
			wasi[i.Name] = ""
		}
	}
	for name := range m.Exports {
		if strings.HasPrefix(name, "proxy_on_") {
			callbacks[name] = ""
		}
	}
	rep.ProxyImports = append(rep.ProxyImports, sortedKeys(proxy)...)
	rep.WASIImports = append(rep.WASIImports, sortedKeys(wasi)...)
	rep.Callbacks = append(rep.Callbacks, sortedKeys(callbacks)...)
	return rep
}

func printTable(w io.Writer, reports []report) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "module\tfile\tbudget\tcode\tbudget\tcompiles in (CPU)\tproxy imports\tWASI imports\tcallbacks\tverdict\t")
	for _, r := range reports {
		verdict := "ok"
		if n := len(r.Findings); n > 0 {
			verdict = fmt.Sprintf("%d broken", n)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.1f s\t%d\t%d\t%d\t%s\t\n", r.File, mib(r.FileBytes), mib(r.MaxFileBytes),
			mib(r.CodeBytes), mib(r.MaxCodeBytes), r.CompileSeconds,
			len(r.ProxyImports), len(r.WASIImports), len(r.Callbacks), verdict)
	}
	t.Flush()
}
