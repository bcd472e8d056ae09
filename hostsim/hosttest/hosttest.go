// Package hosttest tests a proxy-wasm filter in milliseconds: a finished module
// (Go, Rust, C++, AssemblyScript; ABI 0.2.0 or 0.2.1) runs in [hostsim], which
// behaves as Envoy does, on a clock that only the test moves.
//
//	func TestTenantIsMarked(t *testing.T) {
//		f := hosttest.Load(t, "filter.wasm", hosttest.Config(`{"header": "x-tenant"}`))
//		x := f.Post("/v1/chat", `{"user": "ann"}`)
//		x.Status(200).UpstreamHeader("x-tenant", "ann")
//	}
//
// A request travels through it like this: [Filter.Post] (or Get, Do, Open) feeds
// it to the filter; what the filter lets through reaches the upstream, whose
// answer (200 and "ok", or what [Upstream] says) goes back through the filter; the
// [Exchange] holds what came of it. A filter that waits for a tick, a reply to an
// http_call or a queue message gets it from [Filter.Advance] and [Filter.Call].
//
// A failed assertion prints the transcript: every call between host and module
// since the request came in. Package hosttest/golden compares whole transcripts
// with files and rewrites them under -update.
//
// Where the filter runs in a proxy of several threads, [Workers] starts as many
// VMs; [Filter.On] names the one that a request goes to.
package hosttest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// T is what this package needs of a test: a *testing.T, B or F, Ginkgo's
// GinkgoT(), or what a program of its own puts in its place.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Name() string
	TempDir() string
}

// Filter is a module, configured and running.
type Filter struct {
	// Host is the proxy process behind it, for what this package has no word for.
	Host *hostsim.Host
	// Fleet is the VMs of the filter.
	Fleet *hostsim.Fleet

	t         T
	set       settings
	calls     *hostsim.HandDispatcher
	lines     []string
	logs      []hostsim.LogEntry
	exchanges []*Exchange
	settled   bool // within settle
}

// Start is the time at which every Filter's clock stands at first.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Load compiles and starts the module in a file; the test fails when the module
// or its configuration is refused. Compiled code is kept in the user's cache
// directory, so that only the first run of a changed module pays for it.
func Load(t T, path string, options ...Option) *Filter {
	t.Helper()
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("hosttest: read the module: %v (hosttest.BuildGo builds one from Go source)", err)
	}
	return LoadBytes(t, filepath.Base(path), wasm, options...)
}

// LoadBytes is Load of a module in memory, named for messages.
func LoadBytes(t T, name string, wasm []byte, options ...Option) *Filter {
	t.Helper()
	f, err := Try(t, name, wasm, options...)
	if err != nil {
		t.Fatalf("hosttest: %v%s", err, f.story(0))
	}
	return f
}

// Try is LoadBytes for tests of a module that must not start: it returns the
// error (errors.Is hostsim.ErrRejected when on_vm_start or on_configure answered
// false, errors.As a hostsim.TrapError when it trapped). The Filter then has the
// logs and the transcript, and takes no requests.
func Try(t T, name string, wasm []byte, options ...Option) (*Filter, error) {
	t.Helper()
	f := &Filter{t: t, set: defaults()}
	for _, o := range options {
		o(&f.set)
	}
	ctx := context.Background()
	clusters := make([]string, 0, len(f.set.clusters))
	for c := range f.set.clusters {
		clusters = append(clusters, c)
	}
	f.calls = hostsim.NewHandDispatcher(clusters...)
	host, err := hostsim.NewHost(ctx, hostsim.Options{
		Clock: hostsim.NewVirtualClock(Start), Calls: f.calls, CacheDir: cacheDir(),
		LogLevel: f.set.logLevel, MemoryLimitMiB: f.set.memoryLimitMiB, Node: f.set.node,
		Log: f.heard, Trace: f.traced,
	})
	if err != nil {
		return f, err
	}
	t.Cleanup(func() {
		if err := host.Close(ctx); err != nil {
			t.Errorf("hosttest: %v", err)
		}
	})
	f.Host = host
	module, err := host.Compile(ctx, name, wasm)
	if err != nil {
		return f, err
	}
	if f.set.symbols != "" {
		unstripped, err := os.ReadFile(f.set.symbols)
		if err != nil {
			return f, fmt.Errorf("read symbols: %w", err)
		}
		if err := module.SetSymbols(unstripped); err != nil {
			return f, err
		}
	}
	if err := f.inject(f.set.faults); err != nil {
		return f, err
	}
	f.set.vm.Module = module
	f.Fleet, err = host.Deploy(ctx, hostsim.FleetConfig{
		VM: f.set.vm, Plugins: []hostsim.PluginConfig{f.set.plugin}, Workers: max(f.set.workers, 1),
		NoCanary: f.set.workers == 0, NoMain: f.set.workers == 0,
	})
	return f, err
}

// cacheDir keeps compiled modules between runs; empty where there is no place.
func cacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(base, "warmpath", "hosttest")
	if os.MkdirAll(dir, 0o755) != nil {
		return ""
	}
	return dir
}

func (f *Filter) heard(e hostsim.LogEntry) {
	f.logs = append(f.logs, e)
	if e.Plugin == "" || e.Level >= hostsim.LogError { // the module's own calls of proxy_log are traced
		f.say(e.VM, "["+e.Level.String()+"] "+strings.ReplaceAll(e.Message, "\n", "\n    "))
	}
}

func (f *Filter) traced(e hostsim.Event) {
	if f.set.trace != nil {
		f.set.trace(e)
	}
	switch {
	case (e.Kind == hostsim.EventAllocate || e.Kind == hostsim.EventWASI) && !f.set.traceAll:
	case e.Name == "proxy_log" && e.Kind == hostsim.EventHostCall && len(e.Args) == 2 && (e.Args[0] == "error" || e.Args[0] == "critical"):
		// heard has it
	default:
		f.say(e.VM, e.String())
	}
}

// say adds a line to the transcript; of a fleet it names the VM.
func (f *Filter) say(vm, line string) {
	if f.set.workers > 0 && vm != "" {
		line = vm + ": " + line
	}
	f.lines = append(f.lines, line)
}

// Transcript is everything that happened so far, a line each: what the client
// and the upstream sent, what the filter let through, and every call between host
// and module.
func (f *Filter) Transcript() string {
	if len(f.lines) == 0 {
		return ""
	}
	return strings.Join(f.lines, "\n") + "\n"
}

// story is the transcript from a line on, as an appendix to a failure.
func (f *Filter) story(from int) string {
	const most = 200
	lines := f.lines[min(from, len(f.lines)):]
	if len(lines) == 0 {
		return ""
	}
	left := ""
	if len(lines) > most {
		left = fmt.Sprintf("\n    ... %d lines left out", len(lines)-most)
		lines = lines[len(lines)-most:]
	}
	return "\nwhat happened:" + left + "\n    " + strings.Join(lines, "\n    ")
}

// Advance moves the clock by d: ticks and timeouts on the way run, handlers of
// [Cluster] answer their calls, and upstreams answer what the filter released.
func (f *Filter) Advance(d time.Duration) *Filter {
	f.say("", "--- "+d.String()+" pass")
	f.settle()
	f.Host.AdvanceEach(d, f.settle)
	f.settle()
	return f
}

// settle delivers what is under way until nothing is.
func (f *Filter) settle() {
	if f.settled { // a handler that sends a request
		return
	}
	f.settled = true
	defer func() { f.settled = false }()
	for range 10_000 {
		busy := f.Host.Run() > 0
		for _, c := range f.calls.Pending() {
			if handler := f.set.clusters[c.Cluster]; handler != nil {
				handler(f.take(c))
				busy = true
				break
			}
		}
		for _, x := range f.exchanges {
			busy = x.advance() || busy
		}
		if !busy {
			return
		}
	}
	f.t.Helper()
	f.t.Fatalf("hosttest: the filter and its clusters talk for ever%s", f.story(len(f.lines)-50))
}

// Reconfigure puts another plugin configuration in force on the live VMs, as
// Envoy does when only the configuration changes. The test fails when the module
// refuses it.
func (f *Filter) Reconfigure(config string) *Filter {
	f.t.Helper()
	p := f.set.plugin
	p.Configuration = []byte(config)
	from := len(f.lines)
	if err := f.Fleet.Reconfigure(context.Background(), []hostsim.PluginConfig{p}); err != nil {
		f.t.Fatalf("hosttest: %v%s", err, f.story(from))
	}
	f.set.plugin = p
	f.settle()
	return f
}

// Fault puts faults in force from now on, in hostsim.ParseFault's text form:
// "proxy_on_request_body:1=trap", "proxy_set_shared_data:2=CasMismatch". At the
// end of the test those that hit nothing fail it.
func (f *Filter) Fault(faults ...string) *Filter {
	f.t.Helper()
	if err := f.inject(faults); err != nil {
		f.t.Fatalf("hosttest: %v", err)
	}
	return f
}

func (f *Filter) inject(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	for _, text := range faults {
		fault, err := hostsim.ParseFault(text)
		if err != nil {
			return err
		}
		if err := f.Host.Inject(fault); err != nil {
			return err
		}
	}
	f.t.Cleanup(func() {
		for _, missed := range f.Host.ClearFaults() {
			f.t.Errorf("hosttest: fault %s hit nothing: there were fewer such calls", missed)
		}
	})
	return nil
}

// Failed says whether the module has trapped in a worker (and was not reloaded
// yet); Err how.
func (f *Filter) Failed() bool { return f.Err() != nil }

// Err is the trap of the first worker that failed, a *hostsim.TrapError; nil if
// all are well.
func (f *Filter) Err() error {
	if f.Fleet == nil {
		return nil
	}
	for _, vm := range f.Fleet.Workers {
		if vm.Failed() {
			return vm.Err()
		}
	}
	return nil
}

// Metric is the value of a counter or gauge, or the number of values in a
// histogram; 0 if the module has defined none of that name.
func (f *Filter) Metric(name string) uint64 {
	m, ok := f.Host.Metric(name)
	if !ok {
		return 0
	}
	if m.Type == hostsim.Histogram {
		return m.Count
	}
	return m.Value
}

// SharedData is the value of a key, "" and false if there is none.
func (f *Filter) SharedData(key string) (string, bool) {
	v, _, ok := f.Host.SharedData(f.set.vm.VMID, key)
	return string(v), ok
}

// Logs are the log lines so far, of the module and about its VMs.
func (f *Filter) Logs() []hostsim.LogEntry { return f.logs }

// Logged fails the test unless a log line contains text.
func (f *Filter) Logged(text string) *Filter {
	f.t.Helper()
	for _, e := range f.logs {
		if strings.Contains(e.Message, text) {
			return f
		}
	}
	f.t.Errorf("no log line contains %q%s", text, f.story(0))
	return f
}
