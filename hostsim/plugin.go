package hostsim

import (
	"fmt"
	"slices"
	"time"
)

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
	// request is answered 413, a response 500 (or cut). 0: 1 MiB, as in Envoy;
	// negative: no limit.
	BufferLimitBytes int
}

const defaultBufferLimitBytes = 1 << 20

// Plugin is one configured filter in one VM: the embedder's handle, stable over
// reconfiguration and reload.
type Plugin struct {
	vm  *VM
	cfg PluginConfig
	// roots are the root contexts that live: the last one takes new streams, the
	// ones before it are draining.
	roots []*rootContext
}

// AddPlugin starts a plugin: proxy_on_context_create, proxy_on_vm_start,
// proxy_on_configure. Envoy runs on_vm_start for every plugin of a VM.
func (vm *VM) AddPlugin(cfg PluginConfig) (*Plugin, error) {
	p := &Plugin{vm: vm}
	if err := p.start(cfg); err != nil {
		return nil, err
	}
	vm.plugins = append(vm.plugins, p)
	return p, nil
}

// VM returns the VM that the plugin lives in.
func (p *Plugin) VM() *VM { return p.vm }

// Config returns the configuration in force.
func (p *Plugin) Config() PluginConfig { return p.cfg }

// ContextID is the root context that new streams get; 0 while there is none.
func (p *Plugin) ContextID() uint32 {
	if root := p.root(); root != nil {
		return root.id
	}
	return 0
}

// Reconfigure starts a new root context beside the old one in the same VM, as
// Envoy does when only the configuration changed: on_vm_start runs again and
// package variables are shared. Later streams use the new one; the old one
// keeps its ticks and its streams, and is done and deleted after the last of
// them. On ErrRejected the old one stays.
func (p *Plugin) Reconfigure(cfg PluginConfig) error {
	old := p.root()
	if err := p.start(cfg); err != nil {
		return err
	}
	if old != nil {
		old.drain()
	}
	return nil
}

func (p *Plugin) root() *rootContext {
	if len(p.roots) == 0 {
		return nil
	}
	return p.roots[len(p.roots)-1]
}

// start makes a root context out of cfg and puts both in force.
func (p *Plugin) start(cfg PluginConfig) error {
	in := p.vm.inst
	what := fmt.Sprintf("start plugin %q in %s", cfg.Name, p.vm.cfg.Name)
	if in.dead() {
		return fmt.Errorf("%s: %w", what, ErrFailed)
	}
	root := &rootContext{in: in, plugin: p, cfg: cfg, id: in.newContextID(), calls: map[uint32]*pendingCall{}}
	in.contexts[root.id] = callContext{root: root}
	c := callContext{root: root}
	if in.fn.contextCreate != nil {
		in.call(c, in.fn.contextCreate, uint64(root.id), 0)
	}
	for _, step := range []struct {
		name string
		call func() (uint64, bool)
	}{
		{"proxy_on_vm_start", func() (uint64, bool) {
			if in.fn.vmStart == nil {
				return 1, !in.dead()
			}
			return in.call(c, in.fn.vmStart, uint64(root.id), uint64(len(p.vm.cfg.Configuration)))
		}},
		{"proxy_on_configure", func() (uint64, bool) {
			if in.fn.configure == nil {
				return 1, !in.dead()
			}
			return in.call(c, in.fn.configure, uint64(root.id), uint64(len(cfg.Configuration)))
		}},
	} {
		root.starting = true
		accepted, ok := step.call()
		root.starting = false
		if ok && uint32(accepted) != 0 {
			continue
		}
		if ok && p.vm.renewed { // as in Envoy; a canary's context gets no such end
			root.bury()
		}
		root.stop()
		delete(in.contexts, root.id)
		if !ok {
			return fmt.Errorf("%s: %s: %w: %w", what, step.name, ErrFailed, in.failure)
		}
		return fmt.Errorf("%s: %s answered false: %w (the module's log says why)", what, step.name, ErrRejected)
	}
	p.cfg = cfg
	p.roots = append(p.roots, root)
	return nil
}

// rootContext is one configuration of a plugin inside an instance.
type rootContext struct {
	in      *instance
	plugin  *Plugin
	cfg     PluginConfig
	id      uint32
	streams int

	starting    bool // on_vm_start or on_configure: the configuration can be read
	draining    bool
	awaitDone   bool // on_done answered false: wait for proxy_done
	gone        bool
	tickPeriod  time.Duration
	stopTick    func()
	tickVersion uint64
	calls       map[uint32]*pendingCall
	reply       *callAnswer // during on_http_call_response
}

func (r *rootContext) alive() bool { return !r.gone && !r.in.dead() }

// setTickPeriod starts, restarts or (0) stops the timer. As in Envoy the period
// counts from the end of a tick, and setting it again restarts it.
func (r *rootContext) setTickPeriod(period time.Duration) {
	r.tickPeriod = period
	r.armTick()
}

func (r *rootContext) armTick() {
	if r.stopTick != nil {
		r.stopTick()
		r.stopTick = nil
	}
	r.tickVersion++
	if r.tickPeriod <= 0 || !r.alive() {
		return
	}
	version := r.tickVersion
	r.stopTick = r.in.host.clock.AfterFunc(r.tickPeriod, func() {
		r.in.vm.Post(func() {
			if version == r.tickVersion { // not restarted in the meantime
				r.onTick()
			}
		})
	})
}

func (r *rootContext) onTick() {
	if !r.alive() {
		return
	}
	version := r.tickVersion
	if r.in.faultPosted("proxy_on_tick", func() {
		if version == r.tickVersion {
			r.tick()
		}
	}, r.armTick) {
		return
	}
	r.tick()
}

func (r *rootContext) tick() {
	if !r.alive() {
		return
	}
	version := r.tickVersion
	if r.in.fn.tick != nil {
		r.in.call(callContext{root: r}, r.in.fn.tick, uint64(r.id))
	}
	if version == r.tickVersion {
		r.armTick()
	}
}

func (r *rootContext) onQueueReady(token uint32) {
	if !r.alive() || r.in.fn.queueReady == nil || r.in.faultPosted("proxy_on_queue_ready", func() { r.queueReady(token) }, func() {}) {
		return
	}
	r.queueReady(token)
}

func (r *rootContext) queueReady(token uint32) {
	if r.alive() {
		r.in.call(callContext{root: r}, r.in.fn.queueReady, uint64(r.id), uint64(token))
	}
}

func (r *rootContext) release() {
	r.streams--
	if r.draining {
		r.drain()
	}
}

// drain shuts the context down now, or when its last stream ends.
func (r *rootContext) drain() {
	r.draining = true
	if r.streams > 0 || r.gone || r.awaitDone {
		return
	}
	if r.in.dead() {
		r.remove()
		return
	}
	if r.in.fn.done != nil {
		done, ok := r.in.call(callContext{root: r}, r.in.fn.done, uint64(r.id))
		if ok && uint32(done) == 0 && !r.gone {
			r.awaitDone = true
			return
		}
	}
	r.finish()
}

// bury ends a context that never served, whatever its on_done answers.
func (r *rootContext) bury() {
	if r.in.fn.done != nil {
		r.in.call(callContext{root: r}, r.in.fn.done, uint64(r.id))
	}
	if r.in.fn.delete != nil {
		r.in.call(callContext{root: r}, r.in.fn.delete, uint64(r.id))
	}
}

// finish deletes a context whose on_done has agreed.
func (r *rootContext) finish() {
	if r.gone {
		return
	}
	if r.in.fn.delete != nil {
		r.in.call(callContext{root: r}, r.in.fn.delete, uint64(r.id))
	}
	r.remove()
}

func (r *rootContext) remove() {
	r.stop()
	r.gone = true
	delete(r.in.contexts, r.id)
	if at := slices.Index(r.plugin.roots, r); at >= 0 {
		r.plugin.roots = slices.Delete(r.plugin.roots, at, at+1)
	}
	r.in.vm.closeIfDrained()
}

// stop ends ticks and calls out, silently.
func (r *rootContext) stop() {
	r.tickPeriod = 0
	r.armTick()
	for id, call := range r.calls {
		delete(r.calls, id)
		call.abandon()
	}
}

// pendingCall is an http_call that has not been answered.
type pendingCall struct {
	call        *HTTPCall
	stopTimeout func()
	cancel      func()
}

func (p *pendingCall) abandon() {
	p.call.answered.Store(true)
	if p.stopTimeout != nil {
		p.stopTimeout()
	}
	if p.cancel != nil {
		p.cancel()
	}
}

// callIDStep leaves the low two bits of a callout id 0; Envoy marks gRPC calls and
// streams there.
const callIDStep = 4

// What Envoy's router answers, as an ordinary response, to a call out of time.
const timeoutBody = "upstream request timeout"

// httpCall starts a call out and returns its id; BadArgument for an unknown
// cluster or missing pseudo headers, in which case no callback will follow.
func (r *rootContext) httpCall(cluster string, headers []Header, body []byte, trailers []Header, timeout time.Duration) (uint32, status) {
	h := r.in.host
	if h.opts.Calls == nil || !h.opts.Calls.HasCluster(cluster) {
		return 0, statusBadArgument
	}
	m := &HeaderMap{}
	for _, f := range headers {
		m.Add(f.Key, f.Value)
	}
	if m.Value(":method") == "" || m.Value(":path") == "" || m.Value(":authority") == "" && m.Value("host") == "" {
		return 0, statusBadArgument
	}
	if len(body) > 0 {
		m.Set("content-length", itoa(len(body)))
	}
	r.in.lastCall += callIDStep
	id := r.in.lastCall
	call := &HTTPCall{
		VM: r.in.vm.cfg.Name, Plugin: r.cfg.Name, ID: id, Cluster: cluster,
		Headers: m, Body: body, Timeout: timeout,
	}
	if len(trailers) > 0 {
		call.Trailers = &HeaderMap{fields: trailers}
	}
	p := &pendingCall{call: call}
	r.calls[id] = p
	call.deliver = func(a callAnswer) {
		r.in.vm.Post(func() { r.onHTTPCallResponse(p, a) })
	}
	if timeout > 0 {
		p.stopTimeout = h.clock.AfterFunc(timeout, func() {
			call.Reply(NewHeaderMap(":status", "504", "content-length", itoa(len(timeoutBody)), "content-type", "text/plain"),
				[]byte(timeoutBody), nil)
		})
	}
	if !r.in.loseCall {
		p.cancel = h.opts.Calls.Dispatch(call)
	}
	return id, statusOK
}

func (r *rootContext) onHTTPCallResponse(p *pendingCall, a callAnswer) {
	if r.calls[p.call.ID] == p && r.in.faultPosted("proxy_on_http_call_response", func() { r.callResponse(p, a) }, func() {}) {
		return
	}
	r.callResponse(p, a)
}

func (r *rootContext) callResponse(p *pendingCall, a callAnswer) {
	if r.calls[p.call.ID] != p {
		return // the context is gone
	}
	delete(r.calls, p.call.ID)
	p.abandon() // timer and transport; the answer is already here
	if !r.alive() || r.in.fn.callResponse == nil {
		return
	}
	r.reply = &a
	r.in.call(callContext{root: r}, r.in.fn.callResponse,
		uint64(r.id), uint64(p.call.ID), uint64(a.headers.Len()), uint64(len(a.body)), uint64(a.trailers.Len()))
	r.reply = nil
}
