package hostsim

import (
	"context"
	"testing"
	"time"
)

// silentSink drops everything at no cost.
type silentSink struct{}

func (silentSink) RequestHeaders(*HeaderMap, bool)  {}
func (silentSink) RequestData([]byte, bool)         {}
func (silentSink) RequestTrailers(*HeaderMap)       {}
func (silentSink) ResponseHeaders(*HeaderMap, bool) {}
func (silentSink) ResponseData([]byte, bool)        {}
func (silentSink) ResponseTrailers(*HeaderMap)      {}
func (silentSink) LocalReply(LocalReply)            {}
func (silentSink) Reset(string)                     {}

const quietScript = `request_headers: silent
request_body: silent
response_headers: silent
response_body: silent
context_create: silent
log: silent
done: silent
delete: silent
tick: silent
`

func benchPlugin(b *testing.B, module func(*Host) *Module, script string) *Plugin {
	b.Helper()
	h := newTestHost(b, Options{Log: func(LogEntry) {}, LogLevel: LogCritical})
	_, p := startGuest(b, h, VMConfig{Name: "w", Module: module(h)}, PluginConfig{Configuration: []byte(script)})
	return p
}

func handCompiled(b *testing.B) func(*Host) *Module {
	return func(h *Host) *Module {
		m := &wasmModule{}
		m.importFunc("proxy_log", 3)
		m.export("proxy_abi_version_0_2_1", 0, 0)
		m.export("malloc", 1, 1, i32Const(1024)...)
		m.export("proxy_on_response_body", 3, 1, 0x41, 0)
		module, err := h.Compile(context.Background(), "empty", m.bytes())
		if err != nil {
			b.Fatal(err)
		}
		return module
	}
}

func benchResponseData(b *testing.B, p *Plugin) {
	s := p.NewStream(silentSink{})
	s.RequestHeaders(postHeaders(), true)
	s.ResponseHeaders(NewHeaderMap(":status", "200"), false)
	chunk := make([]byte, 200)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.ResponseData(chunk, false)
	}
}

// BenchmarkEmptyCall is a body callback of a module assembled by hand that
// answers Continue: the host's own cost of one call.
func BenchmarkEmptyCall(b *testing.B) {
	benchResponseData(b, benchPlugin(b, handCompiled(b), ""))
}

// BenchmarkEmptyGoCall is the same with a Go module: its export wrapper and the
// switch to a goroutine of its own come on top.
func BenchmarkEmptyGoCall(b *testing.B) {
	var last string
	h := newTestHost(b, Options{Log: func(e LogEntry) { last = e.Message }})
	vm, p := startGuest(b, h, VMConfig{Name: "w", Module: compileGuest(b, h)}, PluginConfig{Configuration: []byte("configure: quiet\nresponse_body: silent\n")})
	benchResponseData(b, p)
	b.StopTimer()
	if _, err := vm.AddPlugin(PluginConfig{Configuration: []byte("configure: count")}); err != nil {
		b.Fatal(err)
	}
	if want := "count " + itoa(b.N+1); last != want {
		b.Errorf("the module counted %q, want %q: the calls did not reach it", last, want)
	}
}

// BenchmarkDo is the serialisation around a call on the real clock.
func BenchmarkDo(b *testing.B) {
	h := newTestHost(b, Options{Clock: RealClock(), Log: func(LogEntry) {}, LogLevel: LogCritical})
	vm, p := startGuest(b, h, VMConfig{Name: "w", Module: handCompiled(b)(h)}, PluginConfig{})
	var s *Stream
	vm.Do(func() {
		s = p.NewStream(silentSink{})
		s.RequestHeaders(postHeaders(), true)
		s.ResponseHeaders(NewHeaderMap(":status", "200"), false)
	})
	chunk := make([]byte, 200)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		vm.Do(func() { s.ResponseData(chunk, false) })
	}
	b.StopTimer()
	vm.Do(vm.Close)
}

// BenchmarkStream is a whole request with a Go module: eight callbacks.
func BenchmarkStream(b *testing.B) {
	p := benchPlugin(b, func(h *Host) *Module { return compileGuest(b, h) }, quietScript)
	body := make([]byte, 1024)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s := p.NewStream(silentSink{})
		s.RequestHeaders(postHeaders(), false)
		s.RequestData(body, true)
		s.ResponseHeaders(NewHeaderMap(":status", "200"), false)
		s.ResponseData(body, true)
	}
}

// BenchmarkInstantiate is a new VM of a Go module that is compiled already, with
// its plugin started.
func BenchmarkInstantiate(b *testing.B) {
	h := newTestHost(b, Options{Log: func(LogEntry) {}, LogLevel: LogCritical})
	m := compileGuest(b, h)
	b.ResetTimer()
	for range b.N {
		vm, _ := startGuest(b, h, VMConfig{Name: "w", Module: m}, PluginConfig{Configuration: []byte(quietScript)})
		vm.Close()
	}
}

// BenchmarkCompileCached is what a process pays at start for a module whose
// machine code is on disk.
func BenchmarkCompileCached(b *testing.B) {
	wasm := guestWasm(b)
	for range b.N {
		h := newTestHost(b, Options{Log: func(LogEntry) {}})
		if _, err := h.Compile(context.Background(), "guest", wasm); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTick is one tick of a Go module on the virtual clock.
func BenchmarkTick(b *testing.B) {
	p := benchPlugin(b, func(h *Host) *Module { return compileGuest(b, h) }, "configure: tick 1\ntick: silent")
	h := p.VM().host
	b.ResetTimer()
	for range b.N {
		h.Advance(time.Millisecond)
	}
}
