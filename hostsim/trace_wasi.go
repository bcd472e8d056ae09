package hostsim

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// tracedWASI makes the WASI functions instantiated under the context report to
// Options.Trace. Without a trace they cost nothing.
func (h *Host) tracedWASI(ctx context.Context) context.Context {
	if h.opts.Trace == nil {
		return ctx
	}
	return experimental.WithFunctionListenerFactory(ctx, wasiListeners{})
}

type wasiListeners struct{}

// NewFunctionListener implements experimental.FunctionListenerFactory.
func (wasiListeners) NewFunctionListener(d api.FunctionDefinition) experimental.FunctionListener {
	return wasiListener{d.Name()}
}

type wasiListener struct{ name string }

// Before implements experimental.FunctionListener.
func (wasiListener) Before(context.Context, api.Module, api.FunctionDefinition, []uint64, experimental.StackIterator) {
}

// After implements experimental.FunctionListener.
func (l wasiListener) After(ctx context.Context, _ api.Module, _ api.FunctionDefinition, results []uint64) {
	in, ok := ctx.Value(instanceKey{}).(*instance)
	if !ok {
		return
	}
	e := in.event(EventWASI, l.name)
	if len(results) > 0 {
		e.Result = wasiErrno(uint32(results[0]))
	}
	in.tell(e)
}

// Abort implements experimental.FunctionListener.
func (l wasiListener) Abort(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ error) {
	if in, ok := ctx.Value(instanceKey{}).(*instance); ok {
		e := in.event(EventWASI, l.name)
		e.Result = "trap"
		in.tell(e)
	}
}

// wasiErrno names the errors that a proxy's WASI gives.
func wasiErrno(n uint32) string {
	names := map[uint32]string{0: "success", 6: "again", 8: "badf", 21: "fault", 28: "inval", 44: "noent", 52: "nosys", 58: "notsup", 76: "notcapable"}
	if name, ok := names[n]; ok {
		return name
	}
	return fmt.Sprintf("errno %d", n)
}
