package hostsim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
)

// ErrModule marks wasm bytes that cannot be a proxy-wasm module.
var ErrModule = errors.New("not a proxy-wasm 0.2.1 module")

// Module is compiled wasm, ready to be instantiated by any number of VMs.
type Module struct {
	name     string
	compiled wazero.CompiledModule
	exports  Exports
	symbols  *symbols
}

// Exports says which optional callbacks a module has. A direction whose body
// callback is missing costs no call into the VM.
type Exports struct {
	RequestHeaders, RequestBody, RequestTrailers    bool
	ResponseHeaders, ResponseBody, ResponseTrailers bool
	Tick, QueueReady, HTTPCallResponse              bool
	Names                                           []string // every exported function, sorted
}

// Compile compiles wasm (named for logs) or says what keeps it from being a
// proxy-wasm module: broken bytes, an ABI other than 0.2.0 and 0.2.1, no
// allocator.
func (h *Host) Compile(ctx context.Context, name string, wasm []byte) (*Module, error) {
	compiled, err := h.runtime.CompileModule(ctx, wasm)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w: %w", name, ErrModule, err)
	}
	m := &Module{name: name, compiled: compiled, symbols: &symbols{wasm: wasm}}
	functions := compiled.ExportedFunctions()
	for export := range functions {
		m.exports.Names = append(m.exports.Names, export)
	}
	slices.Sort(m.exports.Names)
	has := func(export string) bool { _, ok := functions[export]; return ok }
	if !has("proxy_abi_version_0_2_1") && !has("proxy_abi_version_0_2_0") {
		_ = compiled.Close(ctx)
		if has("proxy_abi_version_0_1_0") {
			return nil, fmt.Errorf("compile %s: %w: it speaks ABI 0.1.0, which went out in 2020 (build it with a current SDK)", name, ErrModule)
		}
		return nil, fmt.Errorf("compile %s: %w: it exports neither proxy_abi_version_0_2_1 nor proxy_abi_version_0_2_0", name, ErrModule)
	}
	if !has("proxy_on_memory_allocate") && !has("malloc") {
		_ = compiled.Close(ctx)
		return nil, fmt.Errorf("compile %s: %w: it exports neither proxy_on_memory_allocate nor malloc", name, ErrModule)
	}
	e := &m.exports
	e.RequestHeaders, e.RequestBody, e.RequestTrailers = has("proxy_on_request_headers"), has("proxy_on_request_body"), has("proxy_on_request_trailers")
	e.ResponseHeaders, e.ResponseBody, e.ResponseTrailers = has("proxy_on_response_headers"), has("proxy_on_response_body"), has("proxy_on_response_trailers")
	e.Tick, e.QueueReady, e.HTTPCallResponse = has("proxy_on_tick"), has("proxy_on_queue_ready"), has("proxy_on_http_call_response")
	return m, nil
}

// Name is the name given to Compile.
func (m *Module) Name() string { return m.name }

// Exports says which callbacks the module has.
func (m *Module) Exports() Exports { return m.exports }

// Close frees the machine code. VMs of the module must be closed first.
func (m *Module) Close(ctx context.Context) error { return m.compiled.Close(ctx) }
