package hostsim

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero/api"
)

// start lets the module initialise itself, in Envoy's order: _initialize (a WASI
// reactor: Go, Rust and C++ libraries), then main if it is exported too (AssemblyScript,
// Zig and C set their SDK up there); without _initialize _start (a WASI command).
func (in *instance) start() error {
	steps := []string{"_initialize", "main", "__main_void"}
	if in.mod.ExportedFunction("_initialize") == nil {
		steps = []string{"_start"}
	}
	in.initialising = true
	defer func() { in.initialising = false }()
	ran := 0
	for _, name := range steps {
		f := in.mod.ExportedFunction(name)
		if f == nil || name == "__main_void" && ran > 1 {
			continue
		}
		args, ok := mainArgs(f.Definition())
		if !ok {
			continue // a function that is called so, and something else
		}
		ran++
		if in.call(callContext{}, f, args...); in.failure != nil {
			return fmt.Errorf("initialize %s in %s: %w: %w", in.vm.cfg.Module.name, in.vm.cfg.Name, ErrFailed, in.failure)
		}
	}
	return nil
}

// restrictedCall is the trap of a module that makes host calls before it is
// started: Envoy's "restricted_callback".
type restrictedCall struct{ name string }

func (c restrictedCall) Error() string {
	return "restricted_callback: " + c.name + " before proxy_on_vm_start (while it initialises itself a module may log and use WASI only)"
}

// mainArgs is no argument, or argc and argv of nothing.
func mainArgs(d api.FunctionDefinition) (args []uint64, ok bool) {
	for _, t := range d.ParamTypes() {
		if t != api.ValueTypeI32 {
			return nil, false
		}
	}
	n := len(d.ParamTypes())
	return make([]uint64, n), n == 0 || n == 2
}

// procExit is WASI's proc_exit: as in Envoy it logs an error and returns. A
// module does not expect that, so what follows is an unreachable instruction and
// with it a stack that shows who gave up.
func procExit(ctx context.Context, _ api.Module, stack []uint64) {
	in, ok := ctx.Value(instanceKey{}).(*instance)
	if !ok {
		return
	}
	in.exited = true
	in.exitCode = uint32(stack[0])
	in.host.log(LogEntry{VM: in.vm.cfg.Name, Level: LogError, Message: "wasi_unstable proc_exit"})
}

// noSys answers like Envoy's fd_read: there is nothing to read in a proxy.
func noSys(_ context.Context, _ api.Module, stack []uint64) { stack[0] = 52 }
