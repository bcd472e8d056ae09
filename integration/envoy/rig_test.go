//go:build envoy

package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/engines"
	"github.com/warmpath/warmpath/integration/envoybin"
	"github.com/warmpath/warmpath/integration/envoyrun"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
)

// mode is one way of holding a request, with the example that ships for it.
type mode struct {
	name    string
	example string
	held    string // name of the route on which a request is held
}

var modes = []mode{
	{name: "headers", example: "envoy.yaml", held: "plain"},
	{name: "buffer", example: "envoy-buffer.yaml", held: "buffered"},
}

// heldLimit replaces the 30 s after which the examples end a held request.
const heldLimit = 3 * time.Second

// capacityTokens of each worker's cache: room for a prompt of 2 MB.
const capacityTokens = 1 << 20

// rig is one Envoy with its workers and its control service.
type rig struct {
	t       *testing.T
	version string
	mode    mode
	fleet   *engines.Fleet // 4 workers of "default", then 2 of "small"
	proxy   *envoyrun.Proxy
	client  *http.Client
	// fronts stand before the workers, in their order; nil: nobody does.
	fronts []*front

	policy         string // file; empty: the shipped one
	controlAddress string
	control        *control.Service
	stopControl    func()
}

// newRig starts workers and Envoy, but no control service.
func newRig(t *testing.T, version string, m mode, edit func(*envoyrun.Options)) *rig {
	t.Helper()
	r := &rig{t: t, version: version, mode: m, controlAddress: freeAddress(t)}
	var stopFleet func()
	var err error
	r.fleet, stopFleet, err = engines.Start(6, func(address string) (engines.Engine, error) {
		params := engine.DefaultParams()
		params.CapacityBlocks = capacityTokens / engine.BlockTokens
		params.PrefillPerToken1KContext = 0 // half a million tokens would take minutes
		return live.Start(live.Config{Name: address, TimeScale: 20, MaxModelTokens: capacityTokens, Engine: params})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stopFleet)

	binary, err := envoybin.Install(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	options := envoyrun.Options{
		Binary: binary, Example: m.example, Module: built.filter,
		Ports: map[int]int{envoyrun.ControlPort: portOf(r.controlAddress)},
		Bootstrap: func(tree envoyrun.Tree) {
			route := envoyrun.Find(tree, "name", m.held)["route"].(envoyrun.Tree)
			route["idle_timeout"] = fmt.Sprintf("%.1fs", heldLimit.Seconds())
		},
	}
	for i, w := range r.fleet.Workers {
		options.Ports[9001+i] = w.Port()
	}
	if edit != nil {
		edit(&options)
	}
	r.proxy, err = envoyrun.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.keepLogs()
		}
		r.proxy.Stop()
	})
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 60 * time.Second}
	t.Cleanup(r.client.CloseIdleConnections)
	t.Cleanup(func() { r.killControl() })
	return r
}

// startControl runs the control service until killControl or the test's end.
func (r *rig) startControl() {
	r.t.Helper()
	if r.control != nil {
		return
	}
	config := r.controlConfig()
	config.Listen = r.controlAddress
	service, err := control.New(config)
	if err != nil {
		r.t.Fatalf("start the control service: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	r.control = service
	r.stopControl = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("control service: %v", err)
		}
	}
	select {
	case <-service.Ready():
	case <-time.After(20 * time.Second):
		r.t.Fatal("the control service is not ready after 20 s")
	}
}

// controlConfig is the shipped configuration with the workers of this run.
func (r *rig) controlConfig() control.Config {
	r.t.Helper()
	config, err := control.LoadConfig(r.examplePath("control.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	list, err := os.ReadFile(r.examplePath("workers.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	// The shipped list, at the ports of this run.
	for i, w := range r.fleet.Workers {
		address := w.Address
		if r.fronts != nil {
			address = r.fronts[i].address
		}
		list = bytes.ReplaceAll(list, fmt.Appendf(nil, "127.0.0.1:%d\"", 9001+i), fmt.Appendf(nil, "%s\"", address))
	}
	if config.Workers, err = discovery.Parse("workers.yaml", list); err != nil {
		r.t.Fatal(err)
	}
	config.WorkersFile, config.PolicyFile = "", r.policy
	if r.policy == "" {
		config.PolicyFile = r.examplePath("policy.yaml")
	}
	return config
}

func (r *rig) killControl() {
	if r.control != nil {
		r.stopControl()
		r.control, r.stopControl = nil, nil
	}
}

// waitSteering returns once requests are steered in every VM: no request of a
// round over fresh connections goes to the cluster's own balancer.
func (r *rig) waitSteering() {
	r.t.Helper()
	r.eventually(20*time.Second, "every VM has the table", func() error {
		before := r.counters().Sum(metric("fallback."))
		for range 8 {
			if a := r.chat(r.t.Context(), talk(900, 2000).ask(), false); a.err() != nil {
				return a.err()
			}
			r.client.CloseIdleConnections()
		}
		var rose int64
		r.flushed(func() { rose = r.counters().Sum(metric("fallback.")) - before })
		if rose > 0 {
			return fmt.Errorf("%d of 8 requests were not steered", rose)
		}
		return nil
	})
}

// flushed runs f after the module's counters have had time to reach Envoy:
// VMs hand them over once a tick (100 ms).
func (r *rig) flushed(f func()) {
	<-time.After(300 * time.Millisecond)
	f()
}

// metric is the full name of one of the module's metrics, or a prefix of it.
func metric(name string) string { return "wasmcustom.warmpath." + name }

// counters reads the module's counters.
func (r *rig) counters() envoyrun.Stats {
	r.t.Helper()
	stats, err := r.proxy.Stats(r.t.Context(), `^wasmcustom\.`)
	if err != nil {
		r.t.Fatal(err)
	}
	return stats
}

// eventually repeats check until it passes; the last error is told.
func (r *rig) eventually(limit time.Duration, what string, check func() error) {
	r.t.Helper()
	envoyrun.Eventually(r.t, limit, what, check)
}

// idle waits until nothing is in flight anywhere: in Envoy, in the module's
// counters, in the rows that control adds up.
func (r *rig) idle() {
	r.t.Helper()
	r.eventually(15*time.Second, "nothing is in flight", func() error {
		stats, err := r.proxy.Stats(r.t.Context(), `downstream_rq_active|upstream_rq_active`)
		if err != nil {
			return err
		}
		if n := stats["http.llm.downstream_rq_active"]; n != 0 {
			return fmt.Errorf("envoy has %d active requests", n)
		}
		c := r.counters()
		if d, rel := c[metric("dispatched")], c[metric("released")]; d != rel {
			return fmt.Errorf("the module has dispatched %d and released %d", d, rel)
		}
		if r.control == nil {
			return nil
		}
		return r.controlIdle()
	})
}

// scenario runs one subtest and enters its result into the table.
func (r *rig) scenario(name string, body func(r *rig)) {
	scenario(r.t, name, r.version+" "+r.mode.name, func(t *testing.T) {
		outer := r.t
		r.t = t
		defer func() { r.t = outer }()
		body(r)
	})
}

func scenario(t *testing.T, name, column string, body func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		began := time.Now()
		defer func() {
			results.set(name, column, t.Failed())
			verdict := "ok"
			if t.Failed() {
				verdict = "FAILED"
			}
			fmt.Printf("%-14s %-6s %5.1f s  %s\n", column, verdict, time.Since(began).Seconds(), name)
		}()
		body(t)
	})
}

// keepLogs copies Envoy's log to where the test's output says.
func (r *rig) keepLogs() {
	file, err := os.CreateTemp("", "envoy-"+r.version+"-"+r.mode.name+"-*.log")
	if err != nil {
		return
	}
	defer file.Close()
	io.WriteString(file, r.proxy.Log())
	r.t.Logf("envoy's log is kept in %s; its last lines:\n%s", file.Name(), r.proxy.LogTail(15))
}

// examplePath is the path of a file in examples/envoy.
func (r *rig) examplePath(name string) string {
	r.t.Helper()
	root, err := envoyrun.Root()
	if err != nil {
		r.t.Fatal(err)
	}
	return filepath.Join(root, "examples", "envoy", name)
}

// freeAddress is a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := engines.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func portOf(address string) int {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return 0
	}
	return addr.Port
}
