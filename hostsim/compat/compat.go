// Package compat says which proxies can run a proxy-wasm module, from the
// binary alone: its ABI version, its imports and its callbacks, held against a
// table of what each host provides (hosts.go, each row with its source).
//
// Check reads the module and returns a Report per host. What a binary cannot
// tell (which properties, foreign functions or header values it uses) stays
// outside.
package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/hostsim/internal/wasmbin"
)

// Severity is how much a finding matters.
type Severity string

// The severities, worst first.
const (
	// Refused: the host does not load the module.
	Refused Severity = "refused"
	// Fails: the module loads, and a call it imports never works or a callback it
	// exports never runs.
	Fails Severity = "fails"
	// Note: works otherwise than elsewhere; no reason to fail a check.
	Note Severity = "note"
)

// Finding is one thing that a host lacks.
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // "wasi_snapshot_preview1.poll_oneoff", "proxy_on_tick", "ABI 0.1.0"
	Effect   string   `json:"effect"`
}

// Result is what one host makes of the module.
type Result struct {
	Host     Host      `json:"host"`
	Findings []Finding `json:"findings"`
}

// OK says whether the host has all that the module needs.
func (r Result) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// Report is a module held against hosts.
type Report struct {
	ABI       string   `json:"abi"`
	Imports   []string `json:"imports"` // "env.proxy_log"
	Callbacks []string `json:"callbacks"`
	FileBytes int      `json:"file_bytes"`
	CodeBytes int      `json:"code_bytes"`
	Results   []Result `json:"hosts"`
}

// ErrModule is wrapped by errors about what is no proxy-wasm module.
var ErrModule = errors.New("not a proxy-wasm module")

// module is what the check looks at.
type module struct {
	abi       string
	imports   []wasmbin.Import
	exports   map[string]bool
	fileBytes int
	minPages  uint32
}

// Check holds a module against hosts (nil: all).
func Check(wasm []byte, hosts []Host) (*Report, error) {
	f, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModule, err)
	}
	m := &module{exports: map[string]bool{}, imports: f.Imports, fileBytes: len(wasm), minPages: f.MinPages}
	for _, e := range f.Exports {
		if e.Kind == wasmbin.Function {
			m.exports[e.Name] = true
		}
	}
	// A host takes the newest that is exported.
	for _, version := range []string{"0.2.1", "0.2.0", "0.1.0"} {
		if m.abi == "" && m.exports["proxy_abi_version_"+strings.ReplaceAll(version, ".", "_")] {
			m.abi = version
		}
	}
	if m.abi == "" {
		return nil, fmt.Errorf("%w: it exports no proxy_abi_version_0_2_1 (nor 0_2_0, 0_1_0): it is built without a proxy-wasm SDK, or the linker has dropped the exports", ErrModule)
	}
	r := &Report{ABI: m.abi, FileBytes: len(wasm), CodeBytes: f.CodeBytes, Imports: []string{}, Callbacks: []string{}}
	for _, i := range f.Imports {
		r.Imports = append(r.Imports, i.Module+"."+i.Name)
	}
	for name := range m.exports {
		if strings.HasPrefix(name, "proxy_on_") && name != "proxy_on_memory_allocate" {
			r.Callbacks = append(r.Callbacks, name)
		}
	}
	slices.Sort(r.Imports)
	slices.Sort(r.Callbacks)
	if hosts == nil {
		hosts = Hosts()
	}
	for _, h := range hosts {
		r.Results = append(r.Results, Result{h, h.check(m)})
	}
	return r, nil
}

func (h Host) check(m *module) []Finding {
	found := []Finding{}
	add := func(s Severity, subject, effect string) { found = append(found, Finding{s, subject, effect}) }
	if !slices.Contains(h.table.abi, m.abi) {
		add(Refused, "ABI "+m.abi, "the host speaks "+strings.Join(h.table.abi, ", "))
	}
	if !m.exports["proxy_on_memory_allocate"] && !m.exports["malloc"] {
		add(Refused, "proxy_on_memory_allocate", "neither it nor malloc is exported: the host cannot hand anything over")
	}
	for _, i := range m.imports {
		subject := i.Module + "." + i.Name
		if i.Kind != wasmbin.Function {
			add(Refused, subject, "is a "+i.Kind.String()+": proxies provide functions only")
			continue
		}
		known := false
		switch i.Module {
		case "env":
			known = h.table.calls[i.Name] || i.Name == "emscripten_notify_memory_growth" && h.table.emscripten
		case "wasi_snapshot_preview1":
			known = h.table.wasi[i.Name]
		case "wasi_unstable":
			known = h.table.wasi[i.Name] && h.table.wasiUnstable
		}
		if !known {
			add(Refused, subject, "is not provided"+other(i))
			continue
		}
		if effect, ok := h.table.fails[i.Name]; ok {
			add(Fails, subject, effect)
		}
		if effect, ok := h.table.notes[i.Name]; ok {
			add(Note, subject, effect)
		}
	}
	callbacks := make([]string, 0, len(m.exports))
	for name := range m.exports {
		callbacks = append(callbacks, name)
	}
	slices.Sort(callbacks)
	for _, name := range callbacks {
		if effect, ok := h.table.callbacks[name]; ok {
			add(Note, name, effect)
		}
	}
	if limit := h.table.memoryPages; limit > 0 && m.minPages > limit {
		add(Refused, "memory", fmt.Sprintf("starts with %d KiB, the host allows %d", m.minPages*64, limit*64))
	}
	return found
}

// other says where an import that a host lacks comes from, if that is known.
func other(i wasmbin.Import) string {
	switch {
	case i.Module == "env" && strings.HasPrefix(i.Name, "proxy_redis_"), i.Module == "env" && higressCalls[i.Name]:
		return " (it is Higress's own)"
	case i.Module == "env" && !strings.HasPrefix(i.Name, "proxy_"):
		return " (not of proxy-wasm: AssemblyScript's abort needs --use abort=, C needs its function linked in)"
	case strings.HasPrefix(i.Module, "wasi:"):
		return " (WASI preview 2; build for preview 1)"
	}
	return ""
}
