package hostsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FailurePolicy is what becomes of streams that arrive after their VM trapped.
type FailurePolicy int

const (
	// FailReload makes a fresh instance for the next stream, once the back-off
	// is over; streams before that get 503.
	FailReload FailurePolicy = iota
	// FailOpen lets later streams pass untouched, for ever.
	FailOpen
	// FailClosed answers later streams with 503, for ever.
	FailClosed
)

func (p FailurePolicy) String() string {
	return [...]string{"FAIL_RELOAD", "FAIL_OPEN", "FAIL_CLOSED"}[p]
}

// VMConfig describes one VM.
type VMConfig struct {
	// Name appears in logs ("worker_0").
	Name   string
	Module *Module
	// VMID scopes shared data and queues. VMs of one VMID share them; they die
	// with the last of these VMs.
	VMID string
	// Configuration is what proxy_on_vm_start may read.
	Configuration []byte
	// Env is the module's environment (vm_config.environment_variables): GOGC and
	// GOMEMLIMIT of a Go module, for one.
	Env           map[string]string
	FailurePolicy FailurePolicy
	// ReloadBackoff is how long a trapped VM stays down under FailReload. It
	// doubles with each trap in a row, up to ten times the value. 0: none;
	// Envoy's default is 1 s.
	ReloadBackoff time.Duration
	// EndStreamsOnTrap ends every stream of a VM the moment it traps. Envoy
	// doesn't (a stream learns of it at its next callback, so a held one hangs
	// until an idle timeout): leave it false in tests that stand for Envoy, set
	// it in a gateway.
	EndStreamsOnTrap bool
	// PassStreamsOnTrap goes further: every stream of a VM that traps goes on
	// without the module, with what was held and what is to come untouched, and so
	// do the streams that arrive before the reload. Envoy can't do that; a gateway
	// sets it so that a fault of the module costs no request.
	PassStreamsOnTrap bool
}

// Errors that NewVM, AddPlugin and Reconfigure wrap.
var (
	// ErrRejected: on_vm_start or on_configure answered false.
	ErrRejected = errors.New("module rejected its configuration")
	// ErrFailed: the VM has trapped (or was closed) and takes no calls.
	ErrFailed = errors.New("wasm VM has failed")
)

// VM is one worker thread with its instance of a module. A trap ends the
// instance, not the VM: under FailReload the next stream gets a fresh instance
// with the same plugins.
//
// Name, Do, Post, Failed and Stats may be called from anywhere, every other
// method on the VM's thread: inside Do. A module that loops for ever holds its
// thread for ever, as in Envoy.
type VM struct {
	host  *Host
	cfg   VMConfig
	space *sharedSpace

	run sync.Mutex // held while anything runs on this VM's thread

	boxMu   sync.Mutex
	box     []func() // posted work, real clock only
	emptier bool     // a goroutine is (about to be) emptying box
	stalls  bool     // posted work waits in held: see Stall
	held    []func()

	// Below: the thread's own.
	inst      *instance
	plugins   []*Plugin
	streams   map[*Stream]struct{}
	draining  bool
	closed    bool
	renewed   bool      // a fresh instance has not started its plugins yet
	downUntil time.Time // no reload before
	backoff   time.Duration

	failed      atomic.Bool
	traps       atomic.Uint64
	reloads     atomic.Uint64
	active      atomic.Int64
	memoryBytes atomic.Uint64
}

// NewVM instantiates the module and calls _initialize (or _start). Plugins are
// added by AddPlugin.
func (h *Host) NewVM(ctx context.Context, cfg VMConfig) (*VM, error) {
	if cfg.Module == nil {
		return nil, fmt.Errorf("start VM %s: VMConfig.Module is nil (compile one with Host.Compile)", cfg.Name)
	}
	vm := &VM{host: h, cfg: cfg, streams: map[*Stream]struct{}{}}
	vm.space = h.shared.acquire(cfg.VMID)
	inst, err := newInstance(ctx, vm)
	if err != nil {
		h.shared.release(vm.space)
		return nil, err
	}
	vm.inst = inst
	h.mu.Lock()
	h.vms[vm] = struct{}{}
	h.mu.Unlock()
	return vm, nil
}

// Name is VMConfig.Name.
func (vm *VM) Name() string { return vm.cfg.Name }

// Do runs f on the VM's thread and returns when it is done. Everything that
// touches the VM's plugins and streams belongs in here. It must not be called
// from within itself. A panic of f (or of a Sink that f made work) reaches the
// caller, with the thread free again. With a virtual clock it just runs f.
func (vm *VM) Do(f func()) {
	if vm.host.virtual != nil {
		f()
		return
	}
	vm.run.Lock()
	defer vm.run.Unlock()
	f()
}

// Post queues f for the VM's thread and returns at once. It may be called from
// anywhere, also from inside another VM's Do. With a virtual clock f waits for
// Host.Run.
func (vm *VM) Post(f func()) {
	work := f
	f = func() {
		if !vm.late(work) {
			work()
		}
	}
	if vm.host.explorer != nil {
		vm.host.explorer.Go(vm, f)
		return
	}
	if vm.host.virtual != nil {
		vm.host.post(f)
		return
	}
	vm.boxMu.Lock()
	defer vm.boxMu.Unlock()
	vm.box = append(vm.box, f)
	if !vm.emptier {
		vm.emptier = true
		go vm.emptyBox()
	}
}

// emptyBox runs posted work until none is left. One goroutine per VM at most.
func (vm *VM) emptyBox() {
	for {
		vm.boxMu.Lock()
		work := vm.box
		vm.box = nil
		if len(work) == 0 {
			vm.emptier = false
			vm.boxMu.Unlock()
			return
		}
		vm.boxMu.Unlock()
		for _, f := range work {
			vm.runPosted(f)
		}
	}
}

// runPosted keeps a panic of the embedder's Sink from ending the process: nobody
// above this goroutine could recover it.
func (vm *VM) runPosted(f func()) {
	vm.run.Lock()
	defer vm.run.Unlock()
	defer func() {
		if r := recover(); r != nil {
			vm.host.log(LogEntry{VM: vm.cfg.Name, Level: LogCritical, Message: fmt.Sprintf("panic in posted work: %v\n%s", r, debug.Stack())})
		}
	}()
	f()
}

// Failed says whether the instance has trapped (and not been reloaded yet) or
// the VM was closed.
func (vm *VM) Failed() bool { return vm.failed.Load() }

// Stats returns the VM's counters.
func (vm *VM) Stats() VMStats {
	return VMStats{
		Traps: vm.traps.Load(), Reloads: vm.reloads.Load(),
		ActiveStreams: vm.active.Load(), MemoryBytes: vm.memoryBytes.Load(),
	}
}

// VMStats are running totals of one VM.
type VMStats struct {
	Traps         uint64
	Reloads       uint64
	ActiveStreams int64
	MemoryBytes   uint64 // linear memory of the current instance
}

// maxBackoffFactor bounds the doubling of ReloadBackoff, as Envoy's max_interval
// does by default.
const maxBackoffFactor = 10

// onTrap books a trap and sets the back-off.
func (vm *VM) onTrap() {
	vm.traps.Add(1)
	vm.failed.Store(true)
	now := vm.host.Now()
	base := vm.cfg.ReloadBackoff
	if vm.backoff == 0 || now.Sub(vm.downUntil) > maxBackoffFactor*base {
		vm.backoff = base // the first, or a good while after the last
	} else {
		vm.backoff = min(2*vm.backoff, maxBackoffFactor*base)
	}
	vm.downUntil = now.Add(vm.backoff)
	for _, p := range vm.plugins {
		for _, root := range p.roots {
			root.stop()
		}
	}
	switch {
	case vm.cfg.PassStreamsOnTrap:
		for _, s := range vm.openStreams() {
			s.passBy()
		}
	case vm.cfg.EndStreamsOnTrap:
		for _, s := range vm.openStreams() {
			s.failStream()
		}
	}
}

// openStreams returns the streams in the order in which they were opened.
func (vm *VM) openStreams() []*Stream {
	all := make([]*Stream, 0, len(vm.streams))
	for s := range vm.streams {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Stream) int { return cmp.Compare(a.serial, b.serial) })
	return all
}

// Reload replaces a trapped instance now, whatever the back-off: fresh memory,
// every plugin started again. (By itself a VM starts each plugin with the first
// stream that needs it, as Envoy does.) It does nothing on a healthy VM. On error
// the VM stays failed, with a new back-off.
func (vm *VM) Reload(ctx context.Context) error {
	if vm.closed {
		return fmt.Errorf("reload %s: it is closed: %w", vm.cfg.Name, ErrFailed)
	}
	if vm.inst != nil && !vm.inst.dead() {
		return nil
	}
	if err := vm.renew(ctx); err != nil {
		return err
	}
	for _, p := range vm.plugins {
		if err := vm.restart(p); err != nil {
			return err
		}
	}
	vm.reloaded()
	return nil
}

// renew makes a fresh instance, without plugins.
func (vm *VM) renew(ctx context.Context) error {
	inst, err := newInstance(ctx, vm)
	if err != nil {
		return fmt.Errorf("reload %s: %w", vm.cfg.Name, err)
	}
	vm.inst, vm.renewed = inst, true
	for _, p := range vm.plugins {
		p.roots = nil
	}
	return nil
}

// restart starts a plugin in a fresh instance; on error the instance is given up.
func (vm *VM) restart(p *Plugin) error {
	err := p.start(p.cfg)
	if err == nil {
		return nil
	}
	vm.inst.close()
	vm.failed.Store(true)
	if errors.Is(err, ErrRejected) { // a trap has set its own back-off
		vm.downUntil = vm.host.Now().Add(max(vm.backoff, vm.cfg.ReloadBackoff))
	}
	return fmt.Errorf("reload %s: %w", vm.cfg.Name, err)
}

func (vm *VM) reloaded() {
	vm.renewed = false
	vm.failed.Store(false)
	vm.reloads.Add(1)
	vm.host.log(LogEntry{VM: vm.cfg.Name, Level: LogInfo, Message: "wasm VM reloaded"})
}

// ready says whether new streams of p may enter the module, reloading if it is
// time.
func (vm *VM) ready(p *Plugin) bool {
	fresh := false
	if vm.inst == nil || vm.inst.dead() {
		if vm.cfg.FailurePolicy != FailReload || vm.closed || vm.host.Now().Before(vm.downUntil) {
			return false
		}
		if err := vm.renew(context.Background()); err != nil {
			vm.host.log(LogEntry{VM: vm.cfg.Name, Level: LogError, Message: err.Error()})
			return false
		}
		fresh = true
	}
	if p.root() == nil {
		if err := vm.restart(p); err != nil {
			vm.host.log(LogEntry{VM: vm.cfg.Name, Level: LogError, Message: err.Error()})
			return false
		}
	}
	if fresh {
		vm.reloaded()
	}
	return true
}

// Drain asks every plugin to finish (proxy_on_done) as soon as its last stream
// is gone, deletes it, and closes the VM after the last plugin. New streams are
// passed through untouched.
func (vm *VM) Drain() {
	if vm.draining || vm.closed {
		return
	}
	vm.draining = true
	for _, p := range vm.plugins {
		for _, root := range slices.Clone(p.roots) {
			root.drain()
		}
	}
	vm.closeIfDrained()
}

func (vm *VM) closeIfDrained() {
	if !vm.draining {
		return
	}
	for _, p := range vm.plugins {
		if len(p.roots) > 0 && !vm.inst.dead() {
			return
		}
	}
	vm.shut() // streams that pass untouched may still be open: they go on
}

// Close frees the instance at once, without callbacks; open streams are ended
// (503, or cut after response headers).
func (vm *VM) Close() {
	vm.shut()
	for _, s := range vm.openStreams() {
		s.failStream()
	}
}

func (vm *VM) shut() {
	if vm.closed {
		return
	}
	vm.closed = true
	vm.failed.Store(true)
	for _, p := range vm.plugins {
		for _, root := range p.roots {
			root.stop()
		}
	}
	vm.inst.close()
	vm.host.shared.release(vm.space)
	vm.host.mu.Lock()
	delete(vm.host.vms, vm)
	vm.host.mu.Unlock()
}
