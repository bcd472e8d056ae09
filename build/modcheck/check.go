package main

import (
	"fmt"
	"sort"
	"strings"
)

// rules are what a finished module must keep to.
type rules struct {
	MaxFileBytes int
	MaxCodeBytes int
	ResponseBody bool // whether proxy_on_response_body must be exported, or must not
}

// defaultRules are the budgets of the product. Envoy compiles a module with its
// optimising compiler before it serves: about 3.6 CPU seconds per MB of code
// section, in every proxy of the fleet at every update.
var defaultRules = rules{MaxFileBytes: 6 << 20, MaxCodeBytes: 3 << 20, ResponseBody: true}

// finding is one rule that a module breaks.
type finding struct {
	Rule    string `json:"rule"`    // import, export, file_size or code_size
	Subject string `json:"subject"` // what breaks it
	Remedy  string `json:"remedy"`
}

func (f finding) String() string { return f.Subject + ". " + f.Remedy }

// check lists every rule that m breaks, in a fixed order.
func (r rules) check(m *module) []finding {
	var found []finding
	add := func(rule, subject, remedy string) { found = append(found, finding{rule, subject, remedy}) }

	foreign := map[string]string{}
	for _, i := range m.Imports {
		name := i.Module + "." + i.Name
		switch {
		case i.Kind != kindFunction:
			foreign[name] = fmt.Sprintf("imports the %s %s, but proxies provide functions only", i.Kind, name)
		case i.Module == "env" && proxyImports[i.Name], i.Module == "wasi_snapshot_preview1" && wasiImports[i.Name]:
		default:
			foreign[name] = "imports " + name + ", which not every supported proxy provides"
		}
	}
	for _, name := range sortedKeys(foreign) {
		add("import", foreign[name], "Find the caller (GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags=-dumpdep -o /dev/null ./filter 2>&1 | grep '-> .*"+
			name[strings.LastIndexByte(name, '.')+1:]+"') and do without; if all supported proxies have it, add it to build/modcheck/contract.go")
	}

	for _, name := range requiredExports {
		if k, ok := m.Exports[name]; !ok || k != kindFunction {
			add("export", "does not export the function "+name,
				"Build with -buildmode=c-shared and import filter/abi in package main, whose exports_*.go files have it")
		}
	}
	switch _, has := m.Exports[responseBodyExport]; {
	case r.ResponseBody && !has:
		add("export", "does not export "+responseBodyExport,
			"Build without the tag noresponsebody, or check this variant with --no-response-body")
	case !r.ResponseBody && has:
		add("export", "exports "+responseBodyExport+", so that every chunk of a streamed answer costs a call",
			"Build this variant with -tags noresponsebody")
	}

	if over := m.FileBytes - r.MaxFileBytes; over > 0 {
		add("file_size", fmt.Sprintf("the file has %s, %s over its budget of %s", mib(m.FileBytes), mib(over), mib(r.MaxFileBytes)),
			"Build with -ldflags='-s -w'; look for a new dependency (go list -deps ./filter) such as regexp or encoding/json")
	}
	if over := m.CodeBytes - r.MaxCodeBytes; over > 0 {
		add("code_size", fmt.Sprintf("the code section has %s, %s over its budget of %s (%.1f CPU seconds more at every start of a proxy)",
			mib(m.CodeBytes), mib(over), mib(r.MaxCodeBytes), compileSeconds(over)),
			"Look for a new dependency (go list -deps ./filter) such as regexp, encoding/json or reflection; prefer strconv and append to fmt")
	}
	return found
}

// compileSeconds is the CPU time Envoy needs to compile that much code,
// measured with Envoy 1.40 (V8, TurboFan).
func compileSeconds(codeBytes int) float64 { return 3.6 * float64(codeBytes) / 1e6 }

func mib(bytes int) string { return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20)) }

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
