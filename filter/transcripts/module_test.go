package transcripts

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/hostsim"
)

// modules are the two builds of the module, made once for all tests.
var modules struct {
	full, noResponseBody []byte
}

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("rapid.nofailfile", "true") // testdata holds stories only
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "warmpath-module-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if modules.full, err = build(filepath.Join(dir, "full.wasm")); err == nil {
			modules.noResponseBody, err = build(filepath.Join(dir, "nobody.wasm"), "-tags", "noresponsebody")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := goleak.Find(); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// build compiles the module; Go's build cache makes it cheap when nothing has
// changed.
func build(out string, flags ...string) ([]byte, error) {
	args := append([]string{"build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, "github.com/warmpath/warmpath/filter")...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the module: %w\n%s", err, output)
	}
	return os.ReadFile(out)
}

// proxy is one proxy process with the module in some VMs, on a virtual clock,
// and a control service beside it.
type proxy struct {
	t       testing.TB
	host    *hostsim.Host
	clock   interface{ Now() time.Time }
	fleet   *hostsim.Fleet
	calls   *hostsim.HandDispatcher
	control *control
	config  hostsim.PluginConfig
	module  *hostsim.Module
	logs    []string
	streams map[string]*exchange
	engines []*hostsim.HTTPCall // calls to other clusters, for the test to answer
	heard   func(hostsim.Event) // every call between host and module, if set before the start
}

const vmID = "warmpath"

// start deploys the module and fails the test when it is refused.
func start(t testing.TB, wasm []byte, config string, workers int) *proxy {
	t.Helper()
	p, err := tryStart(t, wasm, config, workers, true)
	if err != nil {
		t.Fatalf("deploy: %v\n%v", err, p.logs)
	}
	return p
}

// tryStart deploys the module with a canary, a main VM and the given number of
// workers.
func tryStart(t testing.TB, wasm []byte, config string, workers int, stopsAtHeaders bool) (*proxy, error) {
	t.Helper()
	p := &proxy{t: t}
	return p, p.deploy(wasm, config, workers, stopsAtHeaders)
}

// deploy starts a proxy that may have hooks set already.
func (p *proxy) deploy(wasm []byte, config string, workers int, stopsAtHeaders bool) error {
	t := p.t
	t.Helper()
	p.control, p.streams = newControl(), map[string]*exchange{}
	clock := hostsim.NewVirtualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	p.clock = clock
	p.calls = hostsim.NewHandDispatcher("warmpath-control", "pool-default")
	ctx := context.Background()
	host, err := hostsim.NewHost(ctx, hostsim.Options{
		Clock: clock, Calls: p.calls, CacheDir: filepath.Join(os.TempDir(), "warmpath-wazero-cache"),
		Log:      func(e hostsim.LogEntry) { p.logs = append(p.logs, e.VM+" "+e.Level.String()+": "+e.Message) },
		LogLevel: hostsim.LogInfo, MemoryLimitMiB: 128, Trace: p.heard,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.host = host
	t.Cleanup(func() {
		_ = host.Close(ctx)
		host = nil // or testing keeps it until all parallel tests have ended
	})
	if p.module, err = host.Compile(ctx, "warmpath", wasm); err != nil {
		t.Fatal(err)
	}
	p.config = hostsim.PluginConfig{
		Name: "warmpath", Configuration: []byte(config),
		AllowOnHeadersStopIteration: stopsAtHeaders, BufferLimitBytes: 64 << 20,
	}
	p.fleet, err = host.Deploy(ctx, hostsim.FleetConfig{
		VM:      hostsim.VMConfig{Module: p.module, VMID: vmID, FailurePolicy: hostsim.FailReload},
		Plugins: []hostsim.PluginConfig{p.config}, Workers: workers,
	})
	return err
}

// advance moves the clock in steps and lets control answer what it is asked.
func (p *proxy) advance(d time.Duration) {
	const step = 10 * time.Millisecond
	for ; d > 0; d -= step {
		p.host.Advance(min(step, d))
		p.settle()
	}
}

// settle answers calls until none is left that control would answer now.
func (p *proxy) settle() {
	for range 1000 {
		p.host.Run()
		call := p.calls.Take()
		if call == nil {
			if !p.control.release(p.host.Now()) {
				return
			}
			continue
		}
		if call.Cluster != "warmpath-control" {
			p.engines = append(p.engines, call)
			continue
		}
		p.control.answer(call, p.host.Now())
	}
	p.t.Fatal("control and courier talk for ever")
}

// counter is the value of a counter, 0 when nothing was counted.
func (p *proxy) counter(name string) uint64 {
	m, _ := p.host.Metric("warmpath." + name)
	return m.Value
}
