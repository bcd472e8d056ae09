package conformance

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// Sim plays scenarios on hostsim. Around it stands as much of a connection
// manager and a router as a scenario can see: the fields they add, the end of a
// stream that one side gives up.
type Sim struct {
	Modules  map[string][]byte // wasm by name
	CacheDir string            // of compiled modules
}

// Play plays one scenario.
func (s *Sim) Play(ctx context.Context, sc *Scenario) (*Scenario, error) {
	j := &journal{}
	return sc.play(ctx, &simProxy{sim: s, journal: j, scenario: sc.Name}, j)
}

// simProxy is one scenario's host.
type simProxy struct {
	sim      *Sim
	journal  *journal
	scenario string
	host     *hostsim.Host
	clock    *hostsim.VirtualClock
	setup    *Setup
	modules  map[string]*hostsim.Module
	fleets   map[string]*simFleet // by vmKey
	streams  map[string]*simStream
	calls    []*simCall // to the control server, unanswered
}

// simFleet is the VMs that some plugins share.
type simFleet struct {
	*hostsim.Fleet
	plugins []string // names, in the fleet's order
}

// simStart is the virtual time at which every scenario begins.
var simStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (p *simProxy) start(ctx context.Context, setup *Setup) (err error) {
	p.setup = setup
	p.clock = hostsim.NewVirtualClock(simStart)
	p.host, err = hostsim.NewHost(ctx, hostsim.Options{
		Clock: p.clock, Calls: p, Log: p.log, LogLevel: hostsim.LogInfo,
		CacheDir: p.sim.CacheDir, Node: hostsim.Node{ID: nodeID, Cluster: nodeCluster},
	})
	if err != nil {
		return err
	}
	p.modules, p.fleets, p.streams = map[string]*hostsim.Module{}, map[string]*simFleet{}, map[string]*simStream{}
	for _, pl := range setup.Plugins {
		if p.fleets[pl.vmKey()] == nil {
			if err := p.deploy(ctx, pl); err != nil {
				return err
			}
		}
	}
	return nil
}

// deploy starts the VMs of a plugin, with every other plugin that shares them.
func (p *simProxy) deploy(ctx context.Context, pl *PluginSetup) error {
	m := p.modules[pl.Module]
	if m == nil {
		var err error
		if m, err = p.host.Compile(ctx, pl.Module, p.sim.Modules[pl.Module]); err != nil {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		p.modules[pl.Module] = m
	}
	fleet := &simFleet{}
	var configs []hostsim.PluginConfig
	for _, other := range p.setup.Plugins {
		if other.vmKey() == pl.vmKey() {
			fleet.plugins = append(fleet.plugins, other.Name)
			configs = append(configs, p.config(other))
		}
	}
	f, err := p.host.Deploy(ctx, hostsim.FleetConfig{
		VM: hostsim.VMConfig{
			Module: m, VMID: pl.VMID, Configuration: []byte(pl.VMConfiguration),
			FailurePolicy: pl.Policy, ReloadBackoff: pl.Backoff,
		},
		Plugins: configs, Workers: 1,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	fleet.Fleet = f
	p.fleets[pl.vmKey()] = fleet
	return nil
}

func (p *simProxy) config(pl *PluginSetup) hostsim.PluginConfig {
	return hostsim.PluginConfig{
		Name: pl.Name, RootID: pl.RootID, Configuration: []byte(pl.Script),
		AllowOnHeadersStopIteration: pl.AllowStop, BufferLimitBytes: p.setup.bufferLimit(),
	}
}

func (p *simProxy) reconfigure(ctx context.Context, setup *Setup, which int) error {
	now := setup.Plugins[which]
	fleet := p.fleets[now.vmKey()]
	if fleet == nil { // another VM: the old one drains
		var old *simFleet
		var key string
		for k, f := range p.fleets {
			if slices.Contains(f.plugins, now.Name) {
				key, old = k, f
			}
		}
		if err := p.deploy(ctx, now); err != nil {
			return err
		}
		delete(p.fleets, key)
		old.Drain()
		return nil
	}
	var configs []hostsim.PluginConfig
	for _, name := range fleet.plugins {
		at := slices.IndexFunc(setup.Plugins, func(pl *PluginSetup) bool { return pl.Name == name })
		configs = append(configs, p.config(setup.Plugins[at]))
	}
	if err := fleet.Reconfigure(ctx, configs); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// log keeps what a script writes; what the host says about a VM, and the last
// words of a dying guest, are worded by each host in its own way.
func (p *simProxy) log(e hostsim.LogEntry) {
	if e.Level >= hostsim.LogError || strings.HasPrefix(e.Message, "wasm VM ") {
		return
	}
	vm := e.VM
	if vm == "canary" { // it runs on the main thread, before the thread's own VM
		vm = "main"
	}
	p.journal.add(event{stream: vm, line: e.Message})
}

func (p *simProxy) stop() {
	if p.host != nil {
		_ = p.host.Close(context.Background())
	}
}

func (p *simProxy) wait(_ context.Context, d time.Duration) error {
	p.host.Advance(d)
	return nil
}

func (p *simProxy) settle(context.Context, *journal, func([]event) bool) error {
	if p.host != nil {
		p.host.Run()
	}
	return nil
}

func (p *simProxy) metrics(_ context.Context, prefix string) ([]string, error) {
	var lines []string
	for _, m := range p.host.Metrics() {
		if strings.HasPrefix(m.Name, prefix) && m.Type != hostsim.Histogram {
			lines = append(lines, fmt.Sprintf("%s %d", m.Name, m.Value))
		}
	}
	sort.Strings(lines)
	return lines, nil
}

func (p *simProxy) act(_ context.Context, actor string, a Action) error {
	if actor == control {
		return p.answer(a)
	}
	if actor == client && a.Kind == Headers {
		return p.open(a)
	}
	s := p.streams[a.Stream]
	if s == nil {
		return fmt.Errorf("%s has no stream %q", actor, a.Stream)
	}
	if actor == client {
		s.fromClient(a)
		return nil
	}
	return s.fromUpstream(a)
}

// HasCluster implements hostsim.Dispatcher.
func (p *simProxy) HasCluster(name string) bool { return name == clusterControl || name == clusterDead }

// Dispatch implements hostsim.Dispatcher.
func (p *simProxy) Dispatch(call *hostsim.HTTPCall) func() {
	if call.Cluster == clusterDead {
		call.ReplyDead()
		return nil
	}
	pending := &simCall{call: call}
	p.calls = append(p.calls, pending)
	end := len(call.Body) == 0
	h := call.Headers.Clone()
	h.Add(":scheme", "http") // by the router
	p.journal.add(event{actor: control, Action: Action{Headers: h.Fields(), End: end}})
	if len(call.Body) > 0 {
		p.journal.add(event{actor: control, Action: Action{Kind: Data, Data: call.Body, End: true}})
	}
	return func() {
		if at := slices.Index(p.calls, pending); at >= 0 {
			p.calls = slices.Delete(p.calls, at, at+1)
			p.journal.add(event{actor: control, Action: Action{Kind: Reset}})
		}
	}
}

// simCall is a call to the control server with what it has answered so far:
// hostsim takes an answer whole.
type simCall struct {
	call    *hostsim.HTTPCall
	headers *hostsim.HeaderMap
	body    []byte
}

// answer is a piece of the control server's answer to the oldest call.
func (p *simProxy) answer(a Action) error {
	if len(p.calls) == 0 {
		return fmt.Errorf("the control server has no call to answer")
	}
	c := p.calls[0]
	var trailers *hostsim.HeaderMap
	switch a.Kind {
	case Headers:
		c.headers = headerMap(a.Headers)
		c.headers.Add("x-envoy-upstream-service-time", "0") // by the router
	case Data:
		c.body = append(c.body, a.Data...)
	case Trailers:
		trailers = headerMap(a.Headers)
	default:
		p.calls = p.calls[1:]
		if c.headers != nil {
			c.call.Fail()
			return nil
		}
		reason := "remote reset"
		if a.Kind == Disconnect {
			reason = "connection termination"
		}
		text := "upstream connect error or disconnect/reset before headers. reset reason: " + reason
		c.call.Reply(hostsim.NewHeaderMap(":status", "503", "content-length", fmt.Sprint(len(text)), "content-type", "text/plain"), []byte(text), nil)
		return nil
	}
	if a.End {
		p.calls = p.calls[1:]
		c.call.Reply(c.headers, c.body, trailers)
	}
	return nil
}

func headerMap(fields []hostsim.Header) *hostsim.HeaderMap {
	m := &hostsim.HeaderMap{}
	for _, f := range fields {
		m.Add(f.Key, f.Value)
	}
	return m
}
