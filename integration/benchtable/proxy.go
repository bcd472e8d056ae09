package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// Hosts of the guest module.
const (
	hostWazero = "wazero"
	hostEnvoy  = "envoy"
)

// proxy is a host with the guest in it.
type proxy interface {
	// post sends a request by one of the connections and returns the answer's
	// body. Different connections may be used at the same time.
	post(ctx context.Context, connection int, path string, body []byte) ([]byte, error)
	// counter reads a counter of the guest.
	counter(ctx context.Context, name string) (uint64, error)
	cpu() (time.Duration, error)
	resident() (int64, error)
	// vmBytes is the linear memory of the largest VM, 0 where it can't be read.
	vmBytes() uint64
	close()
}

// settings are the guest's configuration.
func settings(bits uint8, way string) map[string]any {
	s := map[string]any{"bits": bits}
	if way == wayCopy {
		s["copy"] = 1
	}
	return s
}

// wazero is this repository's host; connection i belongs to VM i mod VMs.
type wazero struct {
	host  *hostsim.Host
	fleet *hostsim.Fleet
}

func startWazero(ctx context.Context, module string, settings map[string]any, vms int) (proxy, error) {
	wasm, err := os.ReadFile(filepath.Clean(module))
	if err != nil {
		return nil, fmt.Errorf("read the guest: %w", err)
	}
	configuration, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encode the guest's configuration: %w", err)
	}
	host, err := hostsim.NewHost(ctx, hostsim.Options{
		LogLevel: hostsim.LogWarn, CacheDir: filepath.Join(os.TempDir(), "warmpath-wazero-cache"),
	})
	if err != nil {
		return nil, err
	}
	p := &wazero{host: host}
	compiled, err := host.Compile(ctx, "guest", wasm)
	if err == nil {
		p.fleet, err = host.Deploy(ctx, hostsim.FleetConfig{
			VM: hostsim.VMConfig{Module: compiled, VMID: "benchtable"}, Workers: vms, NoMain: true, NoCanary: true,
			Plugins: []hostsim.PluginConfig{{
				Name: "benchtable", Configuration: configuration, AllowOnHeadersStopIteration: true,
			}},
		})
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// answered is a Sink that keeps the module's own answer.
type answered struct {
	hostsim.Recorder
	body []byte
	done bool
}

func (a *answered) LocalReply(r hostsim.LocalReply) { a.body, a.done = bytes.Clone(r.Body), true }

func (p *wazero) post(_ context.Context, connection int, path string, body []byte) ([]byte, error) {
	plugin := p.fleet.Plugins[connection%len(p.fleet.Workers)][0]
	var sink answered
	plugin.VM().Do(func() {
		s := plugin.NewStream(&sink)
		s.RequestHeaders(hostsim.NewHeaderMap(":method", "POST", ":path", path, ":authority", "bench"), false)
		s.RequestData(body, true)
	})
	if !sink.done {
		return nil, fmt.Errorf("%s: the guest gave no answer", path)
	}
	return sink.body, nil
}

func (p *wazero) counter(_ context.Context, name string) (uint64, error) {
	m, _ := p.host.Metric(name)
	return m.Value, nil
}

func (p *wazero) cpu() (time.Duration, error) { return envoyrun.CPU(os.Getpid()) }

func (p *wazero) resident() (int64, error) {
	debug.FreeOSMemory() // garbage of the host would hide what is kept
	return envoyrun.ResidentBytes(os.Getpid())
}

func (p *wazero) vmBytes() (most uint64) {
	for _, vm := range p.fleet.Workers {
		most = max(most, vm.Stats().MemoryBytes)
	}
	return most
}

func (p *wazero) close() {
	if p.fleet != nil {
		p.fleet.Close()
	}
	_ = p.host.Close(context.Background()) // the process of the cell ends with it
}

// envoy is a real one, on the shipped example with the guest in its place.
// Which worker serves a connection is the kernel's choice.
type envoy struct {
	run     *envoyrun.Proxy
	clients []*http.Client
}

func startEnvoy(ctx context.Context, binary, module string, settings map[string]any, vms, connections int) (proxy, error) {
	run, err := envoyrun.Start(ctx, envoyrun.Options{
		Binary: binary, Example: "envoy.yaml", Module: module, Concurrency: vms, LogLevel: "warning",
		Settings: func(shipped envoyrun.Tree) {
			clear(shipped)
			maps.Copy(shipped, settings)
		},
		Bootstrap: quiet,
	})
	if err != nil {
		return nil, err
	}
	p := &envoy{run: run}
	for range connections {
		p.clients = append(p.clients, &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxConnsPerHost: 1}})
	}
	return p, nil
}

// quiet takes the access log out: it is no part of the comparison.
func quiet(bootstrap envoyrun.Tree) {
	if m := envoyrun.Find(bootstrap, "stat_prefix", "llm"); m != nil {
		delete(m, "access_log")
	}
}

func (p *envoy) post(ctx context.Context, connection int, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.run.ClientURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := p.clients[connection%len(p.clients)].Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask envoy: %w\n%s", err, p.run.LogTail(4))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read envoy's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: envoy answers %s: %s", path, resp.Status, answer)
	}
	return answer, nil
}

func (p *envoy) counter(ctx context.Context, name string) (uint64, error) {
	stats, err := p.run.Stats(ctx, name)
	if err != nil {
		return 0, err
	}
	return uint64(stats["wasmcustom."+name]), nil
}

func (p *envoy) cpu() (time.Duration, error) { return envoyrun.CPU(p.run.PID()) }

func (p *envoy) resident() (int64, error) { return envoyrun.ResidentBytes(p.run.PID()) }

func (p *envoy) vmBytes() uint64 { return 0 }

func (p *envoy) close() {
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
	p.run.Stop()
}

// answer is what the guest says to a lookup.
type answer struct {
	took    time.Duration
	vm      uint64
	hash    uint64
	matches uint32
	longest uint32
}

var errAnswer = errors.New("the guest's answer has another length than its source says")

func decodeAnswer(b []byte) (answer, error) {
	if len(b) != 32 {
		return answer{}, errAnswer
	}
	le := binary.LittleEndian
	return answer{time.Duration(le.Uint64(b)), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:]), le.Uint32(b[28:])}, nil
}
