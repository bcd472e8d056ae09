//go:build !wasm

package plugin

import (
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

// begin makes a VM with one plugin on a fake host and a stream in it.
func begin(t *testing.T, config string) (*abi.Fake, *stream) {
	t.Helper()
	host := abi.NewFake()
	host.Clock = 1_700_000_000_000_000_000
	t.Cleanup(abi.UseFake(host))
	host.Buffers[abi.PluginConfiguration] = []byte(config)
	vm := NewVM()
	p := vm.NewPluginContext(1).(*Plugin)
	if p.OnPluginStart(len(config)) != types.OnPluginStartStatusOK {
		t.Fatalf("refused: %v", host.Logs)
	}
	return host, p.NewHttpContext(2).(*stream)
}

func TestPanicsAreCountedAndTheRequestPasses(t *testing.T) {
	_, s := begin(t, `{}`)
	vm := s.plugin.vm
	vm.panicked("proxy_on_request_body")
	vm.panicked("proxy_on_tick")
	vm.metrics.Flush()
	s.phase = phaseHeld
	func() {
		defer func() { _ = recover() }()
		s.plugin.fleet = nil // the panic
		s.routeBody([]byte(`{}`))
		t.Error("no panic")
	}()
	if s.phase != phasePassing {
		t.Errorf("after a panic the stream is in phase %d: later callbacks would stop it again", s.phase)
	}
	if got := s.OnHttpRequestBody(10, true); got != types.ActionContinue {
		t.Error("the next callback stops the stream")
	}
}

func TestContentTypesThatAreRead(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true,
		" application/json ": true, "application/vnd.api+json": true, "application/problem+JSON;x=1": true,
		"text/json": false, "application/jsonx": false, "": false, "+json": false, "application/": false,
		"multipart/form-data; boundary=application/json": false,
	} {
		if got := isJSON([]byte(contentType)); got != want {
			t.Errorf("%q: %v", contentType, got)
		}
	}
}

func TestAtMostTwoWorkersAreExcluded(t *testing.T) {
	for value, want := range map[string][2]uint32{
		"":                                      {},
		"0000000a":                              {10},
		"0000000a, 0000000b":                    {10, 11},
		"0000000a,0000000a, 0000000b":           {10, 11},
		"0000000a,0000000b,0000000c":            {10, 11},
		"nonsense,,\t0000000b ,zz":              {11},
		strings.Repeat("x", 5000) + ",0000000c": {12},
	} {
		if got := parseExclude([]byte(value), [2]uint32{}); got != want {
			t.Errorf("%.40q: %v", value, got)
		}
	}
}

func TestABadConfigurationIsRefusedWithOneLine(t *testing.T) {
	host := abi.NewFake()
	t.Cleanup(abi.UseFake(host))
	host.Buffers[abi.PluginConfiguration] = []byte(`{"hold":"maybe"}`)
	p := NewVM().NewPluginContext(1).(*Plugin)
	if p.OnPluginStart(16) != types.OnPluginStartStatusFailed {
		t.Fatal("accepted")
	}
	if len(host.Logs) != 1 || !strings.Contains(host.Logs[0].Message, "hold: must be") {
		t.Errorf("%v", host.Logs)
	}
	if len(host.Shared) != 0 || host.TickPeriod != 0 {
		t.Error("a refused plugin has begun to work")
	}
	if !p.OnPluginDone() {
		t.Error("a refused plugin does not end")
	}
}

func TestTheGatewayIsNamedByItsNode(t *testing.T) {
	for config, want := range map[string]string{`{}`: "envoy-7", `{"gateway":"gw"}`: "gw"} {
		t.Run(want, func(t *testing.T) {
			host := abi.NewFake()
			t.Cleanup(abi.UseFake(host))
			host.Properties[nodeID] = []byte("envoy-7")
			host.Buffers[abi.PluginConfiguration] = []byte(config)
			p := NewVM().NewPluginContext(1).(*Plugin)
			p.OnPluginStart(len(config))
			if p.config.Gateway != want {
				t.Errorf("%s: %q", config, p.config.Gateway)
			}
		})
	}
}

func TestShortNumbersOnly(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "12": 12, "999999": 999999, "1000000": 0, "-1": 0, "": 0, "Wed, 21 Oct": 0, "1.5": 0} {
		if got := decimal([]byte(text)); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}
