package hostsim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// LogLevel is proxy_log's scale: 0 trace to 5 critical.
type LogLevel uint32

// The levels of proxy_log.
const (
	LogTrace LogLevel = iota
	LogDebug
	LogInfo
	LogWarn
	LogError
	LogCritical
)

func (l LogLevel) String() string {
	names := [...]string{"trace", "debug", "info", "warn", "error", "critical"}
	if int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level(%d)", uint32(l))
}

// LogEntry is one line of a module, or of the host about a VM (Plugin empty).
type LogEntry struct {
	VM      string
	Plugin  string
	Level   LogLevel
	Message string
}

// Node is the proxy's identity, readable as xds.node.id and xds.node.cluster.
type Node struct{ ID, Cluster string }

// Options configure a Host; the zero value is a host on the real clock without
// clusters.
type Options struct {
	// Clock is the time of ticks, timeouts, properties and WASI. Nil: RealClock.
	Clock Clock
	// Calls carries out http_call. Nil: no cluster is known.
	Calls Dispatcher
	// Log receives module and host lines, on the VM's thread. Nil: slog.Default.
	Log func(LogEntry)
	// LogLevel is the lowest level that reaches Log and the answer to
	// proxy_get_log_level. The zero value is trace.
	LogLevel LogLevel
	// CacheDir keeps compiled modules between processes. Empty: in memory only.
	CacheDir string
	// MemoryLimitMiB bounds the linear memory of each VM. 0: 4,096 (wasm's own).
	MemoryLimitMiB uint32
	// Node is the proxy's identity.
	Node Node
	// Trace is told every call between host and module, on the VM's thread. It
	// makes each call some microseconds slower. Nil: nobody looks.
	Trace func(Event)
}

// Host is one proxy process.
type Host struct {
	opts     Options
	clock    Clock
	virtual  *VirtualClock // nil with a real clock
	faults   faultSet
	explorer *Explorer // interleaves VMs; nil: one callback after the other
	runtime  wazero.Runtime
	cache    wazero.CompilationCache

	shared    sharedStore
	metrics   metricStore
	instances atomic.Uint64 // made so far
	streams   atomic.Uint64 // opened so far

	mu    sync.Mutex
	inbox []func() // posted work, virtual clock only
	vms   map[*VM]struct{}
}

// NewHost starts a host: a wazero runtime with WASI and the proxy-wasm imports.
// ctx governs start-up only.
func NewHost(ctx context.Context, opts Options) (*Host, error) {
	h := &Host{opts: opts, clock: opts.Clock, vms: map[*VM]struct{}{}}
	if h.clock == nil {
		h.clock = RealClock()
	}
	h.virtual, _ = h.clock.(*VirtualClock)
	if h.opts.Log == nil {
		h.opts.Log = logToSlog
	}
	h.shared.init()
	h.metrics.init()

	config := wazero.NewRuntimeConfig().WithDebugInfoEnabled(true)
	if opts.MemoryLimitMiB > 0 {
		config = config.WithMemoryLimitPages(min(opts.MemoryLimitMiB*16, 65536))
	}
	if opts.CacheDir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(opts.CacheDir)
		if err != nil {
			return nil, fmt.Errorf("open compilation cache %s: %w (give a directory that can be written, or none)", opts.CacheDir, err)
		}
		h.cache = cache
		config = config.WithCompilationCache(cache)
	}
	h.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	// As in Envoy the same functions under both names: the old one is what
	// AssemblyScript's SDK imports.
	for _, name := range []string{wasi_snapshot_preview1.ModuleName, "wasi_unstable"} {
		wasi := h.runtime.NewHostModuleBuilder(name)
		wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(wasi)
		wasi.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(procExit), []api.ValueType{api.ValueTypeI32}, nil).Export("proc_exit")
		i32 := api.ValueTypeI32
		wasi.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(noSys), []api.ValueType{i32, i32, i32, i32}, []api.ValueType{i32}).Export("fd_read")
		if _, err := wasi.Instantiate(h.tracedWASI(ctx)); err != nil {
			return nil, fmt.Errorf("instantiate %s: %w", name, err)
		}
	}
	if err := instantiateImports(ctx, h.runtime); err != nil {
		return nil, fmt.Errorf("instantiate proxy-wasm imports: %w", err)
	}
	return h, nil
}

// Close closes every VM without further callbacks and frees the runtime.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	vms := make([]*VM, 0, len(h.vms))
	for vm := range h.vms {
		vms = append(vms, vm)
	}
	h.mu.Unlock()
	for _, vm := range vms {
		vm.Do(vm.Close)
	}
	err := h.runtime.Close(ctx)
	if h.cache != nil {
		if cerr := h.cache.Close(ctx); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return fmt.Errorf("close host: %w", err)
	}
	return nil
}

// Now is the host's time.
func (h *Host) Now() time.Time { return h.clock.Now() }

// post queues work of a host on a virtual clock until Run.
func (h *Host) post(f func()) {
	h.mu.Lock()
	h.inbox = append(h.inbox, f)
	h.mu.Unlock()
}

// Run runs posted work (queue messages, http_call replies), first in first out,
// until none is left, and says how much there was. Virtual clock only; with a
// real clock there is never any.
func (h *Host) Run() int {
	if h.explorer != nil {
		return h.explorer.run()
	}
	n := 0
	for {
		h.mu.Lock()
		if len(h.inbox) == 0 {
			h.inbox = nil
			h.mu.Unlock()
			return n
		}
		f := h.inbox[0]
		h.inbox = h.inbox[1:]
		h.mu.Unlock()
		f()
		n++
	}
}

// Advance moves a virtual clock by d: see AdvanceTo.
func (h *Host) Advance(d time.Duration) { h.AdvanceTo(h.clock.Now().Add(d)) }

// AdvanceTo moves a virtual clock to t. Timers (ticks, call timeouts) that come
// due on the way fire in order of time, then of setting; after each, posted work
// runs until none is left. It panics on a host with a real clock.
func (h *Host) AdvanceTo(t time.Time) { h.advance(t, func() {}) }

// AdvanceEach moves a virtual clock by d as Advance does, and calls each after
// every timer and the work that followed from it: there a test answers what the
// module has asked meanwhile, at the time at which it asked.
func (h *Host) AdvanceEach(d time.Duration, each func()) { h.advance(h.clock.Now().Add(d), each) }

func (h *Host) advance(t time.Time, each func()) {
	if h.virtual == nil {
		panic("hostsim: Advance needs a VirtualClock")
	}
	h.Run()
	limit := h.virtual.monotonic().Add(t.Sub(h.virtual.Now()))
	for f := h.virtual.next(limit); f != nil; f = h.virtual.next(limit) {
		f()
		h.Run()
		each()
	}
}

func (h *Host) log(e LogEntry) {
	if e.Level >= h.opts.LogLevel {
		h.opts.Log(e)
	}
}

func logToSlog(e LogEntry) {
	level := slog.LevelDebug
	switch {
	case e.Level >= LogError:
		level = slog.LevelError
	case e.Level == LogWarn:
		level = slog.LevelWarn
	case e.Level == LogInfo:
		level = slog.LevelInfo
	}
	slog.Log(context.Background(), level, e.Message, "vm", e.VM, "plugin", e.Plugin)
}
