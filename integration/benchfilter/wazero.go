package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// WazeroCost is what one request costs this process when the module runs in
// the wazero host: the callbacks of its whole life, no sockets.
type WazeroCost struct {
	BodyBytes  int     `json:"body_bytes"`
	Requests   int     `json:"requests_per_round"`
	PerRequest float64 `json:"us"` // median of the rounds
	Lowest     float64 `json:"lowest_us"`
	Highest    float64 `json:"highest_us"`
}

func measureWazero(ctx context.Context, o options, b *backend, module string, report *Report) error {
	code, err := os.ReadFile(module)
	if err != nil {
		return err
	}
	calls, err := hostsim.NewHTTPDispatcher(map[string]string{"warmpath-control": b.control.URL()}, http.DefaultTransport)
	if err != nil {
		return err
	}
	host, err := hostsim.NewHost(ctx, hostsim.Options{Calls: calls, Log: func(hostsim.LogEntry) {}, LogLevel: hostsim.LogError})
	if err != nil {
		return err
	}
	defer host.Close(ctx)
	compiled, err := host.Compile(ctx, "warmpath", code)
	if err != nil {
		return err
	}
	fleet, err := host.Deploy(ctx, hostsim.FleetConfig{
		VM: hostsim.VMConfig{Module: compiled, VMID: "warmpath"},
		Plugins: []hostsim.PluginConfig{{
			Name: "warmpath", AllowOnHeadersStopIteration: true, BufferLimitBytes: 10 << 20,
			Configuration: []byte(`{"gateway":"bench-wazero","hold":"headers","control":{"cluster":"warmpath-control","token":"change-me"}}`),
		}},
		Workers: 1,
	})
	if err != nil {
		return err
	}
	defer fleet.Close()
	life := &life{vm: fleet.Workers[0], plugin: fleet.Plugins[0][0], worker: b.addresses[0]}
	if err := life.waitSteered(); err != nil {
		return err
	}
	for _, size := range sizes {
		cost := WazeroCost{BodyBytes: size.bytes, Requests: size.requests / 2}
		bodies := bench.NewBodies(size.bytes)
		var rounds []float64
		for round := -1; round < max(3, o.rounds/2); round++ {
			batch := make([][]byte, cost.Requests)
			for i := range batch {
				batch[i] = bodies.Next()
			}
			before, err := envoyrun.CPU(os.Getpid())
			if err != nil {
				return err
			}
			for _, body := range batch {
				life.request(body)
			}
			after, err := envoyrun.CPU(os.Getpid())
			if err != nil {
				return err
			}
			if life.steered == 0 {
				return fmt.Errorf("%d bytes: no request was steered", size.bytes)
			}
			if round >= 0 {
				rounds = append(rounds, bench.Micros(after-before)/float64(len(batch)))
			}
		}
		cost.PerRequest, cost.Lowest, cost.Highest = bench.Median(rounds), slices.Min(rounds), slices.Max(rounds)
		report.Wazero = append(report.Wazero, cost)
		fmt.Fprintf(o.log, "  %7d bytes in wazero: %.0f us\n", size.bytes, cost.PerRequest)
	}
	return nil
}

// life plays whole requests in one VM and is their Sink.
type life struct {
	vm      *hostsim.VM
	plugin  *hostsim.Plugin
	worker  string
	steered int // requests that left with an endpoint
	refused int
}

// readBytes is how much of a body arrives at once.
const readBytes = 64 << 10

func (l *life) request(body []byte) {
	l.vm.Do(func() {
		s := l.plugin.NewStream(l)
		s.RequestHeaders(hostsim.NewHeaderMap(
			":method", "POST", ":path", "/v1/chat/completions", ":authority", "bench", ":scheme", "http",
			"content-type", "application/json", "content-length", fmt.Sprint(len(body)),
			"user-agent", "benchfilter", "x-request-id", "0123456789abcdef",
		), false)
		for rest := body; len(rest) > 0; {
			n := min(len(rest), readBytes)
			s.RequestData(rest[:n], n == len(rest))
			rest = rest[n:]
		}
		s.Info.UpstreamAddress, s.Info.UpstreamRequestAttemptCount = l.worker, 1
		s.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", "application/json"), false)
		s.ResponseData([]byte(bench.Reply), true)
		s.Close()
	})
}

// waitSteered returns once the VM has a table.
func (l *life) waitSteered() error {
	bodies := bench.NewBodies(4000)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		l.steered = 0
		for range 8 {
			l.request(bodies.Next())
		}
		if l.steered == 8 {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return fmt.Errorf("the module does not steer after 30 s")
}

// RequestHeaders sees where a request would go.
func (l *life) RequestHeaders(h *hostsim.HeaderMap, _ bool) {
	if strings.Contains(h.Value("x-gateway-destination-endpoint"), ":") {
		l.steered++
	}
}

// RequestData has nowhere to go.
func (l *life) RequestData([]byte, bool) {}

// RequestTrailers are not sent.
func (l *life) RequestTrailers(*hostsim.HeaderMap) {}

// ResponseHeaders have nowhere to go.
func (l *life) ResponseHeaders(*hostsim.HeaderMap, bool) {}

// ResponseData has nowhere to go.
func (l *life) ResponseData([]byte, bool) {}

// ResponseTrailers are not sent.
func (l *life) ResponseTrailers(*hostsim.HeaderMap) {}

// LocalReply counts what the module refused.
func (l *life) LocalReply(hostsim.LocalReply) { l.refused++ }

// Reset does not come: there is no upstream that could.
func (l *life) Reset(string) {}
