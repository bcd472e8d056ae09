package hostsim

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
type VM struct {
	host *Host
	cfg  VMConfig

	run      sync.Mutex // held while anything runs on this VM's thread
	boxMu    sync.Mutex
	box      []func() // posted work, real clock only
	draining bool     // a goroutine is (about to be) emptying box

	inst    *instance
	plugins []*Plugin
	closed  bool
}

// NewVM instantiates the module and calls _initialize (or _start). Plugins are
// added by AddPlugin.
func (h *Host) NewVM(ctx context.Context, cfg VMConfig) (*VM, error) {
	return nil, fmt.Errorf("not yet: %w", ErrFailed)
}

// Name is VMConfig.Name.
func (vm *VM) Name() string { return vm.cfg.Name }

// Do runs f on the VM's thread and returns when it is done. Everything that
// touches the VM's plugins and streams belongs in here. It must not be called
// from within itself. With a virtual clock it just runs f.
func (vm *VM) Do(f func()) {}

// Post queues f for the VM's thread and returns at once. It may be called from
// anywhere, also from inside another VM's Do. With a virtual clock f waits for
// Host.Run.
func (vm *VM) Post(f func()) {}

// Failed says whether the instance has trapped (and not been reloaded yet).
func (vm *VM) Failed() bool { return true }

// Reload replaces a trapped instance now, whatever the back-off: fresh memory,
// every plugin started again. It does nothing on a healthy VM.
func (vm *VM) Reload(ctx context.Context) error { return nil }

// Stats counts what the VM went through.
func (vm *VM) Stats() VMStats { return VMStats{} }

// VMStats are running totals of one VM; safe to read from anywhere.
type VMStats struct {
	Traps         uint64
	Reloads       uint64
	ActiveStreams int64
	MemoryBytes   uint64 // linear memory of the current instance
}

// Drain asks every plugin to finish (proxy_on_done) as soon as its last stream
// is gone, deletes it, and closes the VM after the last plugin. New streams are
// passed through untouched.
func (vm *VM) Drain() {}

// Close frees the instance at once, without callbacks; open streams are cut.
func (vm *VM) Close() {}

// PluginConfig describes one configured filter.
type PluginConfig struct {
	Name   string // property plugin_name
	RootID string // property plugin_root_id
	// Configuration is what proxy_on_configure may read.
	Configuration []byte
	// AllowOnHeadersStopIteration lets body callbacks run while headers are held
	// back (Envoy >= 1.35 with allow_on_headers_stop_iteration). Without it a
	// filter that stops at headers sees no body until it is resumed.
	AllowOnHeadersStopIteration bool
	// BufferLimitBytes is how much of a body may wait in the filter: above it a
	// request is answered 413, a response 500 (or cut). 0: 1 MiB, as in Envoy.
	BufferLimitBytes int
}

// Plugin is one configured filter in one VM: the embedder's handle, stable over
// reconfiguration and reload.
type Plugin struct {
	vm  *VM
	cfg PluginConfig
}

// AddPlugin starts a plugin: proxy_on_context_create, proxy_on_vm_start,
// proxy_on_configure. Envoy runs on_vm_start for every plugin of a VM.
func (vm *VM) AddPlugin(cfg PluginConfig) (*Plugin, error) { return nil, nil }

// VM returns the VM that the plugin lives in.
func (p *Plugin) VM() *VM { return p.vm }

// Config returns the configuration in force.
func (p *Plugin) Config() PluginConfig { return p.cfg }

// Reconfigure starts a new root context beside the old one in the same VM, as
// Envoy does when only the configuration changed: on_vm_start runs again and
// package variables are shared. Later streams use the new one; the old one
// keeps its ticks and its streams, and is done and deleted after the last of
// them. On ErrRejected the old one stays.
func (p *Plugin) Reconfigure(cfg PluginConfig) error { return nil }

// ContextID is the root context that new streams get.
func (p *Plugin) ContextID() uint32 { return 0 }
