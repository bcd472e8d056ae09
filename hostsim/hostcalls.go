package hostsim

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// hostCall is one import of the module "env". args are its parameters as wasm
// gives them; the answer is its only result.
type hostCall struct {
	name   string
	params string // one letter each: i = i32, l = i64
	run    func(in *instance, args []uint64) status
}

// hostCalls is every function of ABI 0.2.1, by group.
func hostCalls() []hostCall {
	var all []hostCall
	for _, group := range [][]hostCall{systemCalls, sharedCalls, metricCalls, headerCalls, bufferCalls, streamCalls, outCalls} {
		all = append(all, group...)
	}
	return all
}

// instantiateImports makes the host module "env". It is one for all VMs: the
// instance that calls comes with the context.
func instantiateImports(ctx context.Context, r wazero.Runtime) error {
	env := r.NewHostModuleBuilder("env")
	for _, hc := range hostCalls() {
		params := make([]api.ValueType, len(hc.params))
		for i, p := range hc.params {
			params[i] = api.ValueTypeI32
			if p == 'l' {
				params[i] = api.ValueTypeI64
			}
		}
		run, kinds, name, shares := hc.run, hc.params, hc.name, sharing[hc.name]
		env.NewFunctionBuilder().WithName(hc.name).WithGoModuleFunction(
			api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
				in := ctx.Value(instanceKey{}).(*instance)
				if in.mem == nil { // a start section runs before instantiation is done
					in.mod, in.mem = mod, mod.Memory()
				}
				for i := range kinds { // the upper half of an i32 is not defined
					if kinds[i] == 'i' {
						stack[i] &= 0xffffffff
					}
				}
				if shares && in.host.explorer != nil {
					in.host.explorer.point(in, name, stack)
				}
				stack[0] = uint64(in.hostCall(name, run, stack))
			}), params, []api.ValueType{api.ValueTypeI32}).Export(hc.name)
	}
	// Emscripten's modules tell of growth; nobody needs to know.
	env.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(context.Context, api.Module, []uint64) {}),
		[]api.ValueType{api.ValueTypeI32}, nil).Export("emscripten_notify_memory_growth")
	if _, err := env.Instantiate(ctx); err != nil {
		return fmt.Errorf("module env: %w", err)
	}
	return nil
}

// who is the context that a host call is made for: the effective one if the
// module set it, else the one the host called.
func (in *instance) who() callContext {
	if in.effective.root != nil {
		return in.effective
	}
	return in.current
}

// bytes is a view of the module's memory: valid until the module runs or
// allocates again.
func (in *instance) bytes(ptr, size uint64) ([]byte, bool) {
	return in.mem.Read(uint32(ptr), uint32(size))
}

func (in *instance) string(ptr, size uint64) (string, bool) {
	b, ok := in.bytes(ptr, size)
	return string(b), ok
}

func (in *instance) putU32(ptr uint64, v uint32) status {
	if !in.mem.WriteUint32Le(uint32(ptr), v) {
		return statusInvalidMemory
	}
	return statusOK
}

func (in *instance) putU64(ptr, v uint64) status {
	if !in.mem.WriteUint64Le(uint32(ptr), v) {
		return statusInvalidMemory
	}
	return statusOK
}

// later defers act until the module has returned, as Envoy does with whatever
// could call back into it.
func (in *instance) later(act func()) { in.after = append(in.after, act) }

// systemCalls: log, time, properties, timers, contexts.
var systemCalls = []hostCall{
	{"proxy_log", "iii", func(in *instance, a []uint64) status {
		message, ok := in.string(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		if uint32(a[0]) > uint32(LogCritical) {
			return statusBadArgument
		}
		e := LogEntry{VM: in.vm.cfg.Name, Level: LogLevel(a[0]), Message: message}
		if root := in.who().root; root != nil {
			e.Plugin = root.cfg.Name
		}
		if e.Level == LogCritical {
			in.lastCritical = message
		}
		in.host.log(e)
		return statusOK
	}},
	{"proxy_get_log_level", "i", func(in *instance, a []uint64) status {
		return in.putU32(a[0], uint32(in.host.opts.LogLevel))
	}},
	{"proxy_get_current_time_nanoseconds", "i", func(in *instance, a []uint64) status {
		return in.putU64(a[0], uint64(in.host.clock.Now().UnixNano()))
	}},
	{"proxy_get_status", "iii", func(in *instance, a []uint64) status {
		var code uint32
		var message string
		if root := in.who().root; root != nil && root.reply != nil && root.reply.failed {
			code, message = uint32(statusBrokenConnection), "reset"
		}
		if st := in.putU32(a[0], code); st != statusOK {
			return st
		}
		return in.giveString(message, uint32(a[1]), uint32(a[2]))
	}},
	{"proxy_set_tick_period_milliseconds", "i", func(in *instance, a []uint64) status {
		root := in.who().root
		if root == nil {
			return statusBadArgument
		}
		root.setTickPeriod(time.Duration(uint32(a[0])) * time.Millisecond)
		return statusOK
	}},
	{"proxy_set_effective_context", "i", func(in *instance, a []uint64) status {
		c, ok := in.contexts[uint32(a[0])]
		if !ok {
			return statusBadArgument
		}
		in.effective = c
		return statusOK
	}},
	{"proxy_done", "", func(in *instance, _ []uint64) status {
		root := in.who().root
		if root == nil || !root.awaitDone {
			return statusNotFound
		}
		root.awaitDone = false
		in.later(root.finish)
		return statusOK
	}},
	{"proxy_get_property", "iiii", func(in *instance, a []uint64) status {
		path, ok := in.bytes(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		value, st := in.getProperty(in.who(), splitPath(path))
		if st != statusOK {
			return st
		}
		return in.give(value, uint32(a[2]), uint32(a[3]))
	}},
	{"proxy_set_property", "iiii", func(in *instance, a []uint64) status {
		key, ok := in.string(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		value, ok := in.bytes(a[2], a[3])
		if !ok {
			return statusInvalidMemory
		}
		s := in.who().stream
		if s == nil {
			return statusNotFound // no stream, no filter state
		}
		if s.filterState == nil {
			s.filterState = map[string][]byte{}
		}
		s.filterState[joinPath(key)] = append([]byte(nil), value...)
		return statusOK
	}},
	{"proxy_call_foreign_function", "iiiiii", func(in *instance, a []uint64) status {
		name, ok := in.bytes(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		// The embedder chooses a route when headers come out, so there is never a
		// stale one; other functions of Envoy's are not there.
		if string(name) == "clear_route_cache" {
			return in.putOut(0, 0, uint32(a[4]), uint32(a[5]))
		}
		return statusNotFound
	}},
}

// sharedCalls: shared data and shared queues.
var sharedCalls = []hostCall{
	{"proxy_get_shared_data", "iiiii", func(in *instance, a []uint64) status {
		key, ok := in.bytes(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		v, ok := in.vm.space.get(key)
		if !ok {
			return statusNotFound
		}
		if st := in.give(v.bytes, uint32(a[2]), uint32(a[3])); st != statusOK {
			return st
		}
		return in.putU32(a[4], v.cas)
	}},
	{"proxy_set_shared_data", "iiiii", func(in *instance, a []uint64) status {
		key, ok := in.bytes(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		value, ok := in.bytes(a[2], a[3])
		if !ok {
			return statusInvalidMemory
		}
		return in.vm.space.set(key, value, uint32(a[4]))
	}},
	{"proxy_register_shared_queue", "iii", func(in *instance, a []uint64) status {
		name, ok := in.string(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		root := in.who().root
		if root == nil {
			return statusBadArgument
		}
		return in.putU32(a[2], in.host.shared.registerQueue(root, name))
	}},
	{"proxy_resolve_shared_queue", "iiiii", func(in *instance, a []uint64) status {
		vmID, ok := in.string(a[0], a[1])
		if !ok {
			return statusInvalidMemory
		}
		name, ok := in.string(a[2], a[3])
		if !ok {
			return statusInvalidMemory
		}
		token, ok := in.host.shared.resolveQueue(vmID, name)
		if !ok {
			return statusNotFound
		}
		return in.putU32(a[4], token)
	}},
	{"proxy_enqueue_shared_queue", "iii", func(in *instance, a []uint64) status {
		message, ok := in.bytes(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		return in.host.shared.enqueue(uint32(a[0]), message)
	}},
	{"proxy_dequeue_shared_queue", "iii", func(in *instance, a []uint64) status {
		message, st := in.host.shared.dequeue(uint32(a[0]))
		if st != statusOK {
			return st
		}
		return in.give(message, uint32(a[1]), uint32(a[2]))
	}},
}

// metricCalls. An id is the VM's own: type in the low two bits, then a running
// number from 1.
var metricCalls = []hostCall{
	{"proxy_define_metric", "iiii", func(in *instance, a []uint64) status {
		name, ok := in.string(a[1], a[2])
		if !ok {
			return statusInvalidMemory
		}
		kind := MetricType(a[0])
		if kind > Histogram {
			return statusBadArgument
		}
		in.metrics[kind] = append(in.metrics[kind], in.host.metrics.define(kind, name))
		return in.putU32(a[3], uint32(len(in.metrics[kind]))<<2|uint32(kind))
	}},
	{"proxy_increment_metric", "il", func(in *instance, a []uint64) status {
		m, st := in.metric(a[0])
		if st != statusOK {
			return st
		}
		return m.increment(int64(a[1]))
	}},
	{"proxy_record_metric", "il", func(in *instance, a []uint64) status {
		m, st := in.metric(a[0])
		if st != statusOK {
			return statusNotFound
		}
		m.record(a[1])
		return statusOK
	}},
	{"proxy_get_metric", "ii", func(in *instance, a []uint64) status {
		m, st := in.metric(a[0])
		if st != statusOK {
			return st
		}
		if m.kind == Histogram {
			return statusBadArgument
		}
		return in.putU64(a[1], m.value.Load())
	}},
}

func (in *instance) metric(id uint64) (*metric, status) {
	kind, number := MetricType(id&3), uint32(id)>>2
	if kind > Histogram {
		return nil, statusBadArgument
	}
	if number == 0 || int(number) > len(in.metrics[kind]) {
		return nil, statusNotFound
	}
	return in.metrics[kind][number-1], statusOK
}
