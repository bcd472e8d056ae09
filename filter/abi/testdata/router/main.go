// Command router is a filter in small, for the tests of package abi on a host
// that behaves as a proxy does. It holds each request until its body is
// complete, names in a header how many requests this proxy has seen (shared by
// its VMs) and how long the body is, and on demand (header x-do) holds longer,
// answers itself, or panics in a callback of one's choice.
package main

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

type (
	vm struct {
		types.DefaultVMContext
		panics abi.Metric
		live   abi.Metric
	}
	plugin struct {
		types.DefaultPluginContext
		vm    *vm
		id    uint32
		queue uint32
		held  []uint32
		bad   string // callback of the plugin to panic in, next time
	}
	stream struct {
		types.DefaultHttpContext
		plugin *plugin
		id     uint32
		do     string
		bytes  int
	}
)

var body, value abi.Scratch

func main() {}

func init() { abi.Start(&vm{}) }

func (v *vm) OnVMStart(int) types.OnVMStartStatus {
	v.panics, _ = abi.DefineMetric(abi.Counter, "panics")
	v.live, _ = abi.DefineMetric(abi.Gauge, "live")
	abi.OnPanic = func(string) { v.panics.Add(1) }
	return types.OnVMStartStatusOK
}

func (v *vm) NewPluginContext(id uint32) types.PluginContext { return &plugin{vm: v, id: id} }

func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	configuration, _ := abi.Buffer(abi.PluginConfiguration, 0, size, &value)
	switch string(configuration) {
	case "panic":
		panic("as configured")
	case "refuse":
		return types.OnPluginStartStatusFailed
	}
	abi.SetTickPeriod(100 * time.Millisecond)
	p.queue, _ = abi.RegisterQueue("wake." + strconv.Itoa(int(p.id)))
	return types.OnPluginStartStatusOK
}

// OnTick lets held requests go, and asks the control service.
func (p *plugin) OnTick() {
	p.panicIf("proxy_on_tick")
	p.release("tick")
	abi.HTTPCall("control", [][2]string{{":method", "POST"}, {":path", "/v1/batch"}, {":authority", "control"}},
		[]byte("held "+strconv.Itoa(len(p.held))), time.Second, func(_, size, _ int) {
			p.panicIf("proxy_on_http_call_response")
			status, _ := abi.HeaderString(abi.HTTPCallHeaders, ":status")
			answer, _ := abi.Buffer(abi.HTTPCallBody, 0, size, &value)
			proxywasm.LogInfof("control answered %s %q", status, answer)
		})
}

func (p *plugin) OnQueueReady(queue uint32) {
	p.panicIf("proxy_on_queue_ready")
	message, st := abi.Dequeue(queue, &value)
	if st == abi.OK {
		p.release(string(message))
	}
}

func (p *plugin) panicIf(callback string) {
	if p.bad == callback {
		p.bad = ""
		panic("as asked")
	}
}

func (p *plugin) release(by string) {
	for _, id := range p.held {
		abi.SetEffectiveContext(id)
		abi.SetHeader(abi.RequestHeaders, "x-released-by", by)
		abi.Continue(abi.StreamRequest)
	}
	p.held = p.held[:0]
}

func (p *plugin) NewHttpContext(id uint32) types.HttpContext {
	p.vm.live.Add(1)
	return &stream{plugin: p, id: id}
}

func (s *stream) panicIf(callback string) {
	if s.do == "panic in "+callback {
		var nothing *stream
		nothing.bytes++
	}
}

func (s *stream) OnHttpRequestHeaders(_ int, end bool) types.Action {
	s.do, _ = abi.HeaderString(abi.RequestHeaders, "x-do")
	if callback, ok := strings.CutPrefix(s.do, "later panic in "); ok {
		s.plugin.bad = callback
	}
	s.panicIf("proxy_on_request_headers")
	if end {
		return s.route()
	}
	return types.ActionPause
}

func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	s.panicIf("proxy_on_request_body")
	if !end {
		return types.ActionPause
	}
	fast, st := abi.Buffer(abi.RequestBody, 0, size, &body)
	bySDK, err := proxywasm.GetHttpRequestBody(0, size)
	if st != abi.OK || err != nil || string(fast) != string(bySDK) {
		abi.Log(abi.LogError, "the two ways to read a body differ")
	}
	s.bytes = len(fast)
	return s.route()
}

func (s *stream) OnHttpRequestTrailers(int) types.Action {
	s.panicIf("proxy_on_request_trailers")
	return s.route()
}

func (s *stream) route() types.Action {
	switch s.do {
	case "answer":
		abi.SendLocalResponse(429, "told to", [][2]string{{"retry-after", "2"}}, []byte("later\n"), abi.NoGRPCStatus)
		return types.ActionPause
	case "hold":
		s.plugin.held = append(s.plugin.held, s.id)
		return types.ActionPause
	}
	abi.SetHeader(abi.RequestHeaders, "x-seen", strconv.FormatUint(count(), 10))
	abi.SetHeader(abi.RequestHeaders, "x-bytes", strconv.Itoa(s.bytes))
	return types.ActionContinue
}

// count adds 1 to the number of requests that this proxy has seen.
func count() uint64 {
	for {
		var next [8]byte
		n, cas, st := abi.SharedData("seen", &value)
		if st == abi.OK {
			binary.LittleEndian.PutUint64(next[:], binary.LittleEndian.Uint64(n)+1)
		} else {
			binary.LittleEndian.PutUint64(next[:], 1)
			cas = 0xFFFFFFFF
		}
		if abi.SetSharedData("seen", next[:], cas) == abi.OK {
			return binary.LittleEndian.Uint64(next[:])
		}
	}
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	s.panicIf("proxy_on_response_headers")
	upstream, _ := abi.Property("upstream\x00address", &value)
	abi.SetHeader(abi.ResponseHeaders, "x-upstream", string(upstream))
	return types.ActionContinue
}

func (s *stream) OnHttpResponseBody(size int, end bool) types.Action {
	s.panicIf("proxy_on_response_body")
	if end {
		abi.SetBuffer(abi.ResponseBody, size, 0, []byte("[end]"))
	}
	return types.ActionContinue
}

func (s *stream) OnHttpResponseTrailers(int) types.Action {
	s.panicIf("proxy_on_response_trailers")
	return types.ActionContinue
}

func (s *stream) OnHttpStreamDone() {
	s.plugin.vm.live.Add(-1)
	s.panicIf("proxy_on_log")
}
