// Package plugin is the module's side of the proxy's callbacks.
//
// One request travels through it file by file: request_headers.go decides
// whether it is ours and holds it, request_body.go waits for its prompt,
// prompt.go turns that into fingerprints, route.go asks the table and chooses a
// worker, announce.go writes the choice into headers, response.go learns who
// really answered, response_body.go sees the first token and the usage, and
// done.go closes the books and writes one report. tick.go does everything that
// no request waits for.
//
// The VM is one object for all plugin contexts in it: scratch memory, metrics
// and one fleet.Fleet per deployment. A configuration belongs to its plugin
// context, because a proxy reuses the VM when only the configuration changes
// and the old context goes on draining; the newest context of a deployment
// ticks its fleet.
package plugin

import (
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/config"
	"github.com/warmpath/warmpath/filter/courier"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
)

// memoryLimit is the soft limit of a VM's heap. The budget for a whole VM is
// 40 MiB; above this the collector works harder instead of the heap growing.
const memoryLimit = 32 << 20

// VM is the one object of a VM. Everything in it is reused from request to
// request: a VM has one thread, and no callback runs inside another.
type VM struct {
	types.DefaultVMContext

	deployments []*deployment
	metrics     metrics.Set
	rng         *route.Rand
	score       route.Score // of the rule custom, nil for none
	readers     readers
	observed    int    // checkpoints kept for observed requests
	current     uint32 // the context whose callback runs

	headers  abi.Scratch
	bodies   abi.Scratch
	tail     abi.Scratch
	property abi.Scratch
	line     []byte

	request      body.Request
	chain        fingerprint.Chain
	tokens       *tokens // nil before the first exact prompt
	routeRequest route.Request
	decision     route.Decision
	report       wire.Report
}

// deployment is a fleet with the plugin contexts that use it.
type deployment struct {
	name     string
	fleet    *fleet.Fleet
	gate     *admission.Gate
	courier  *courier.Courier
	copies   copies
	tickedAt int64     // the last whole tick, unix ns
	plugins  []*Plugin // in the order of their start, the newest last
}

// Option changes a module that is built on this one.
type Option func(*VM)

// WithScore makes a function of yours the policy rule custom: see route.Score.
func WithScore(score route.Score) Option { return func(vm *VM) { vm.score = score } }

// NewVM makes the VM context for abi.Start.
func NewVM(options ...Option) *VM {
	vm := &VM{rng: route.NewRand(rand.Uint64()), line: make([]byte, 0, 512)}
	for _, option := range options {
		option(vm)
	}
	abi.OnPanic = vm.panicked
	return vm
}

// Start makes the program a module: call it in an init function of package main, as the Go runtime
// of a c-shared module never runs main.
func Start(options ...Option) { abi.Start(NewVM(options...)) }

// panicked counts a recovered panic. One in a request callback has let the
// request pass to the cluster's own balancer.
func (vm *VM) panicked(callback string) {
	vm.metrics.Inc(metrics.Panics, 0)
	if strings.HasPrefix(callback, "proxy_on_request") {
		vm.metrics.Inc(metrics.Fallback, metrics.FallbackPanic)
	}
}

// OnVMStart bounds the heap. The throw-away canary runs it too, so nothing
// here touches what other VMs see.
func (vm *VM) OnVMStart(int) types.OnVMStartStatus {
	debug.SetMemoryLimit(memoryLimit)
	return types.OnVMStartStatusOK
}

// NewPluginContext makes the context of one configuration.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext { return &Plugin{vm: vm, id: id} }

// deploymentOf finds or makes the fleet of a deployment.
func (vm *VM) deploymentOf(name string) *deployment {
	for _, d := range vm.deployments {
		if d.name == name {
			return d
		}
	}
	f := fleet.New(name, &vm.metrics, vm.rng)
	f.Score = vm.score
	gate := admission.New(f, &vm.metrics)
	d := &deployment{name: name, fleet: f, gate: gate, courier: courier.New(f, gate, &vm.metrics, vm.rng)}
	d.copies.vm, d.copies.fleet = vm, f
	vm.deployments = append(vm.deployments, d)
	return d
}

// handOver gives the deployment to its newest context. Calls that were made in
// another one are made again there. Without any context the VM is not ticked
// again: what it has to say is said now, and its lease given back.
func (d *deployment) handOver() {
	d.courier.Abandon()
	d.copies.abandon()
	d.gate.Rearm()
	if n := len(d.plugins); n > 0 {
		d.fleet.Configure(d.plugins[n-1].config)
		d.fleet.Orphan(0, false)
		d.gate.Orphan(0, false)
		return
	}
	d.courier.Resign()
	d.fleet.Orphan(abi.Now(), true)
	d.gate.Orphan(abi.Now(), true)
	d.fleet.Metrics().Flush()
}

// Plugin is the context of one configuration.
type Plugin struct {
	types.DefaultPluginContext

	vm         *VM
	id         uint32
	config     *config.Config
	deployment *deployment
	fleet      *fleet.Fleet
	gate       *admission.Gate

	named     uint64 // answers to requests that were sent to named workers
	elsewhere uint64 // of those, answers by another worker
	misrouted bool   // that was told
	neverHeld bool   // a hold without a body was told
	untried   bool   // a refusal without a second try was told
	bodies    bool   // the proxy shows us the bodies of held requests
}

// OnPluginStart reads the configuration. A bad one is refused, and the proxy
// keeps the one before. The canary runs it too: nothing is claimed here.
func (p *Plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	var raw []byte
	if size > 0 {
		var scratch abi.Scratch
		value, status := abi.Buffer(abi.PluginConfiguration, 0, size, &scratch)
		if status != abi.OK {
			abi.Log(abi.LogError, "warmpath: read the plugin configuration: "+status.Err().Error())
			return types.OnPluginStartStatusFailed
		}
		raw = value
	}
	cfg, err := config.Parse(raw)
	if err != nil {
		abi.Log(abi.LogError, "warmpath: "+err.Error()+"; the configuration is refused, the one before stays")
		return types.OnPluginStartStatusFailed
	}
	if cfg.Gateway == "" {
		cfg.Gateway = "gw-1"
		if id, status := abi.Property(nodeID, &p.vm.property); status == abi.OK && len(id) > 0 {
			cfg.Gateway = string(id)
		}
	}
	p.vm.metrics.Define()
	p.leave() // a host may configure a context again
	p.config = cfg
	p.deployment = p.vm.deploymentOf(cfg.Deployment)
	p.fleet, p.gate = p.deployment.fleet, p.deployment.gate
	p.deployment.plugins = append(p.deployment.plugins, p)
	p.deployment.handOver()
	if status := abi.SetTickPeriod(cfg.Tick); status != abi.OK {
		abi.Log(abi.LogWarn, "warmpath: this host has no ticks ("+status.Err().Error()+"): the table will stay empty and requests pass unrouted")
	}
	return types.OnPluginStartStatusOK
}

// OnPluginDone hands the deployment to the newest context that remains.
func (p *Plugin) OnPluginDone() bool {
	p.leave()
	return true
}

func (p *Plugin) leave() {
	d := p.deployment
	if d == nil {
		return
	}
	for i, other := range d.plugins {
		if other == p {
			d.plugins = append(d.plugins[:i], d.plugins[i+1:]...)
			break
		}
	}
	d.handOver()
}

// NewHttpContext makes the context of one request.
func (p *Plugin) NewHttpContext(id uint32) types.HttpContext { return &stream{plugin: p, id: id} }

// warnHold tells once that requests were held whose body never came.
func (p *Plugin) warnHold() {
	if p.neverHeld {
		return
	}
	p.neverHeld = true
	abi.Log(abi.LogError, `warmpath: a request was held at its headers and the proxy never delivered its body. `+
		`With hold=headers the filter needs allow_on_headers_stop_iteration: true (Envoy 1.35 or later); `+
		`otherwise set hold to "buffer" and add the buffer and header_mutation filters behind this one`)
}

// warnUntried tells once that the proxy didn't try the second worker.
func (p *Plugin) warnUntried() {
	if p.untried {
		return
	}
	p.untried = true
	abi.Log(abi.LogWarn, "warmpath: a worker refused a request and the proxy did not try the second one: the body is larger than what the proxy keeps for that "+
		"(request_body_buffer_limit), or the route has no retry_policy for 429 and 503 (told once, counted in warmpath.retries_denied.proxy)")
}

// countPlacement counts whether the proxy sent a request where it was told,
// and tells once when a quarter or more go elsewhere. A balancer that never
// heard of our choice still meets it now and then by luck.
func (p *Plugin) countPlacement(elsewhere bool) {
	p.named++
	if !elsewhere {
		return
	}
	p.elsewhere++
	if p.misrouted || p.elsewhere < 8 || p.elsewhere*4 < p.named {
		return
	}
	p.misrouted = true
	remedy := `check that the cluster uses override_host with header ` + endpointHeader + ` and lists the workers' addresses`
	if p.config.Hold == config.HoldBuffer {
		remedy = `with hold=buffer the filters buffer and header_mutation must follow this one in that order, ` +
			`and header_mutation must set ` + endpointHeader + ` from %FILTER_STATE(wasm.gw.dest:PLAIN)%; also ` + remedy
	}
	abi.Log(abi.LogError, "warmpath: "+strconv.FormatUint(p.elsewhere, 10)+" of "+strconv.FormatUint(p.named, 10)+
		" requests were answered by other workers than the ones they were sent to: "+remedy)
}
