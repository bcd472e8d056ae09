package hostsim

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// instance is one life of a VM: the module's memory, its contexts, its exports.
// It ends with the first trap.
type instance struct {
	vm     *VM
	host   *Host
	mod    api.Module
	mem    api.Memory
	memory linearMemory    // behind mem
	ctx    context.Context // carries the instance to the host functions
	fn     exportTable
	args   [8]uint64
	alloc1 [1]uint64

	inCall bool
	// initialising: _initialize, main or _start runs, in which a module may log
	// and use WASI only.
	initialising bool
	failure      error // non-nil after a trap

	callback string // the export under way, while somebody looks on
	loseCall bool   // a fault: the http_call being made gets no reply

	// What the call under way has said, should it trap.
	lastWords    []string // the end of what it wrote to standard error
	lastCritical string   // its last critical log line
	exited       bool     // it called proc_exit, with exitCode
	exitCode     uint32

	contexts  map[uint32]callContext
	lastID    uint32
	lastCall  uint32 // last http_call id
	current   callContext
	effective callContext
	after     []func() // Envoy's after-VM-call actions
	metrics   [3][]*metric
	sleptNs   int64 // virtual clock: what the module has slept through
}

// callContext is who a call is made for: a root context or a stream.
type callContext struct {
	root   *rootContext
	stream *Stream
}

type exportTable struct {
	alloc                                           api.Function
	contextCreate, vmStart, configure               api.Function
	done, log, delete                               api.Function
	tick, queueReady, callResponse                  api.Function
	requestHeaders, requestBody, requestTrailers    api.Function
	responseHeaders, responseBody, responseTrailers api.Function
}

type instanceKey struct{}

// newInstance instantiates vm's module and lets it initialise itself.
func newInstance(ctx context.Context, vm *VM) (*instance, error) {
	h := vm.host
	in := &instance{vm: vm, host: h, contexts: map[uint32]callContext{}}
	in.memory.in = in
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithStdout(&lineLog{vm: vm, level: LogInfo}).WithStderr(&lineLog{vm: vm, level: LogError, also: in.hear})
	if h.virtual == nil {
		config = config.WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader)
	} else {
		var seed [32]byte
		binary.LittleEndian.PutUint64(seed[:], h.instances.Add(1))
		config = config.WithRandSource(mathrand.NewChaCha8(seed)).
			WithWalltime(func() (int64, int32) { t := h.clock.Now(); return t.Unix(), int32(t.Nanosecond()) }, 1).
			WithNanotime(func() int64 { return h.virtual.monotonic().UnixNano() + in.sleptNs }, 1).
			WithNanosleep(func(ns int64) { in.sleptNs += ns })
	}
	for _, key := range slices.Sorted(maps.Keys(vm.cfg.Env)) {
		config = config.WithEnv(key, vm.cfg.Env[key])
	}
	ctx = experimental.WithMemoryAllocator(context.WithValue(ctx, instanceKey{}, in), &in.memory)
	mod, err := h.runtime.InstantiateModule(ctx, vm.cfg.Module.compiled, config)
	if err != nil {
		return nil, fmt.Errorf("instantiate %s in %s: %w", vm.cfg.Module.name, vm.cfg.Name, err)
	}
	in.mod, in.mem = mod, mod.Memory()
	if in.mem == nil {
		_ = mod.Close(ctx)
		return nil, fmt.Errorf("instantiate %s in %s: %w: it has no memory", vm.cfg.Module.name, vm.cfg.Name, ErrModule)
	}
	in.fn = exportTable{
		alloc:         mod.ExportedFunction("proxy_on_memory_allocate"),
		contextCreate: mod.ExportedFunction("proxy_on_context_create"),
		vmStart:       mod.ExportedFunction("proxy_on_vm_start"), configure: mod.ExportedFunction("proxy_on_configure"),
		done: mod.ExportedFunction("proxy_on_done"), log: mod.ExportedFunction("proxy_on_log"), delete: mod.ExportedFunction("proxy_on_delete"),
		tick: mod.ExportedFunction("proxy_on_tick"), queueReady: mod.ExportedFunction("proxy_on_queue_ready"),
		callResponse:   mod.ExportedFunction("proxy_on_http_call_response"),
		requestHeaders: mod.ExportedFunction("proxy_on_request_headers"), requestBody: mod.ExportedFunction("proxy_on_request_body"),
		requestTrailers: mod.ExportedFunction("proxy_on_request_trailers"), responseHeaders: mod.ExportedFunction("proxy_on_response_headers"),
		responseBody: mod.ExportedFunction("proxy_on_response_body"), responseTrailers: mod.ExportedFunction("proxy_on_response_trailers"),
	}
	if in.fn.alloc == nil {
		in.fn.alloc = mod.ExportedFunction("malloc")
	}
	if err := in.start(); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *instance) dead() bool { return in.failure != nil }

// call enters the module on behalf of c, then runs what the module has put off
// until after the call (local replies, resumed streams). ok is false if the
// module trapped or had already.
func (in *instance) call(c callContext, f api.Function, args ...uint64) (result uint64, ok bool) {
	if in.failure != nil {
		return 0, false
	}
	if in.inCall {
		// A Sink called back into its Stream. The module's state belongs to the
		// outer call, so this one can only be refused, loudly.
		panic("hostsim: call into a VM that is already running; use VM.Post from a Sink")
	}
	in.inCall, in.current, in.effective = true, c, callContext{}
	in.lastWords, in.lastCritical = in.lastWords[:0], ""
	copy(in.args[:], args)
	err := in.enter(f, len(args))
	result = in.args[0]
	in.inCall, in.current, in.effective = false, callContext{}, callContext{}
	in.vm.memoryBytes.Store(uint64(in.mem.Size()))
	if err != nil {
		in.fail(in.trap(f, err))
		return 0, false
	}
	for len(in.after) > 0 {
		act := in.after[0]
		in.after[0] = nil
		in.after = in.after[1:]
		act()
	}
	return result, in.failure == nil
}

// fail ends the instance after a trap.
func (in *instance) fail(err error) {
	in.failure = err
	in.after = nil
	in.host.log(LogEntry{VM: in.vm.cfg.Name, Level: LogCritical, Message: "wasm VM failed: " + err.Error()})
	in.vm.onTrap()
	_ = in.mod.Close(in.ctx)
}

// close frees the instance; nothing is called any more.
func (in *instance) close() {
	if in.failure == nil {
		in.failure = ErrFailed
		_ = in.mod.Close(in.ctx)
	}
	in.after = nil
}

func (in *instance) newContextID() uint32 {
	in.lastID++
	return in.lastID
}

// allocTrap carries a trap of the nested allocation call through the host
// function up to the outer call, which wazero then fails.
type allocTrap struct{ err error }

func (t allocTrap) Error() string { return "allocate in the module: " + t.err.Error() }
func (t allocTrap) Unwrap() error { return t.err }

// allocate asks the module for n > 0 bytes and returns their place; memory may
// have moved afterwards.
func (in *instance) allocate(n int) (ptr uint32, ok bool) {
	in.alloc1[0] = uint64(uint32(n))
	if err := in.enterAllocate(); err != nil {
		panic(allocTrap{err})
	}
	ptr = uint32(in.alloc1[0])
	return ptr, ptr != 0
}

// give hands data to the module: allocated there, its address and size written
// to the out-parameters.
func (in *instance) give(data []byte, ptrOut, sizeOut uint32) status {
	var ptr uint32
	if len(data) > 0 {
		var ok bool
		if ptr, ok = in.allocate(len(data)); !ok || !in.mem.Write(ptr, data) {
			return statusInvalidMemory
		}
	}
	return in.putOut(ptr, uint32(len(data)), ptrOut, sizeOut)
}

func (in *instance) giveString(s string, ptrOut, sizeOut uint32) status {
	var ptr uint32
	if len(s) > 0 {
		var ok bool
		if ptr, ok = in.allocate(len(s)); !ok || !in.mem.WriteString(ptr, s) {
			return statusInvalidMemory
		}
	}
	return in.putOut(ptr, uint32(len(s)), ptrOut, sizeOut)
}

func (in *instance) givePairs(fields []Header, ptrOut, sizeOut uint32) status {
	if len(fields) == 0 {
		return in.putOut(0, 0, ptrOut, sizeOut)
	}
	n := pairsSize(fields)
	ptr, ok := in.allocate(n)
	if !ok {
		return statusInvalidMemory
	}
	dst, ok := in.mem.Read(ptr, uint32(n))
	if !ok {
		return statusInvalidMemory
	}
	putPairs(dst, fields)
	return in.putOut(ptr, uint32(n), ptrOut, sizeOut)
}

func (in *instance) putOut(ptr, size, ptrOut, sizeOut uint32) status {
	if !in.mem.WriteUint32Le(ptrOut, ptr) || !in.mem.WriteUint32Le(sizeOut, size) {
		return statusInvalidMemory
	}
	return statusOK
}

// lineLog turns what a module writes to stdout and stderr into log lines, as
// Envoy does.
type lineLog struct {
	vm      *VM
	level   LogLevel
	also    func(line string)
	partial strings.Builder
}

func (l *lineLog) Write(b []byte) (int, error) {
	for rest := string(b); rest != ""; {
		line, tail, complete := strings.Cut(rest, "\n")
		l.partial.WriteString(line)
		if !complete {
			// A runaway writer without line ends must not grow the host.
			if l.partial.Len() < 64<<10 {
				break
			}
		}
		l.vm.host.log(LogEntry{VM: l.vm.cfg.Name, Level: l.level, Message: l.partial.String()})
		if l.also != nil {
			l.also(l.partial.String())
		}
		l.partial.Reset()
		rest = tail
	}
	return len(b), nil
}

var _ io.Writer = (*lineLog)(nil)
