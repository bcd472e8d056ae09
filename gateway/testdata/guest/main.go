// Command guest is the module of the gateway's tests: it holds a request to its
// body's end and does what the body's first line says ("dest=a,b", "hold",
// "call=cluster endpoint", "panic"), so that the proxy is tested apart from routing. The header x-fault
// orders a fault in a callback: "trap response_body", "panic done".
package main

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

func init() { abi.Start(&vm{}) }

func main() {}

type vm struct{ types.DefaultVMContext }

func (*vm) NewPluginContext(uint32) types.PluginContext { return &plugin{} }

type plugin struct {
	types.DefaultPluginContext
	done, chunks, answers, failures abi.Metric
	body                            abi.Scratch
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	p.done, _ = abi.DefineMetric(abi.Counter, "guest.done")
	p.failures, _ = abi.DefineMetric(abi.Counter, "guest.upstream_failures")
	p.answers, _ = abi.DefineMetric(abi.Counter, "guest.answers")
	p.chunks, _ = abi.DefineMetric(abi.Counter, "guest.response_chunks")
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
	fault  string
	pass   bool // whatever comes: once headers have gone on, nobody can read them
}

// trap runs into an unreachable instruction: no recover catches that.
func trap()

// at carries out the fault that was ordered for a callback.
func (s *stream) at(callback string) {
	switch s.fault {
	case "trap " + callback:
		trap()
	case "panic " + callback:
		panic("asked for")
	case "exhaust " + callback:
		for {
			hoard = append(hoard, make([]byte, 1<<20))
		}
	}
}

// hoard is what exhausts the memory.
var hoard [][]byte

func (s *stream) OnHttpRequestHeaders(_ int, end bool) types.Action {
	s.fault, _ = abi.HeaderString(abi.RequestHeaders, "x-fault")
	s.at("request_headers")
	path, _ := abi.HeaderString(abi.RequestHeaders, ":path")
	s.pass = path == "/pass"
	if end || s.pass {
		return types.ActionContinue
	}
	return types.ActionPause
}

func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	s.at("request_body")
	if end {
		s.at("request_end")
	}
	if s.pass {
		return types.ActionContinue
	}
	if !end {
		return types.ActionPause
	}
	return s.obey(size)
}

func (s *stream) OnHttpRequestTrailers(int) types.Action {
	s.at("request_trailers")
	if s.pass {
		return types.ActionContinue
	}
	return s.obey(256)
}

// obey does what the body's first line says.
func (s *stream) obey(size int) types.Action {
	b, _ := abi.Buffer(abi.RequestBody, 0, min(size, 256), &s.plugin.body)
	line, _, _ := bytes.Cut(b, []byte("\n"))
	verb, arg, _ := bytes.Cut(line, []byte("="))
	switch string(verb) {
	case "dest":
		abi.SetHeader(abi.RequestHeaders, "x-gateway-destination-endpoint", string(arg))
	case "once":
		abi.SetHeader(abi.RequestHeaders, "x-gateway-destination-endpoint", string(arg))
		abi.SetHeader(abi.RequestHeaders, "x-envoy-max-retries", "0")
	case "call":
		return s.call(bytes.Fields(arg))
	case "hold":
		return types.ActionPause
	case "refuse":
		abi.SendLocalResponse(429, "by_guest", [][2]string{{"retry-after", "1"}}, []byte("no"), -1)
		return types.ActionPause
	case "panic":
		panic("asked for")
	}
	return types.ActionContinue
}

// call asks a worker of a cluster, the one that is given or any, and answers with
// its status and name.
func (s *stream) call(args [][]byte) types.Action {
	headers := [][2]string{
		{":method", "POST"}, {":path", "/v1/completions"}, {":authority", "guest"},
		{"authorization", "Bearer key"}, {"x-warmpath-pool", "ours"},
	}
	if len(args) > 1 {
		headers = append(headers, [2]string{"x-gateway-destination-endpoint", string(args[1])})
	}
	_, status := abi.HTTPCall(string(args[0]), headers, []byte("sliced"), 5*time.Second, func(int, int, int) {
		answered, _ := abi.HeaderString(abi.HTTPCallHeaders, ":status")
		by, _ := abi.HeaderString(abi.HTTPCallHeaders, "x-worker")
		abi.SendLocalResponse(200, "called", nil, []byte(answered+" "+by), -1)
	})
	if status != abi.OK {
		abi.SendLocalResponse(200, "called", nil, []byte("no call"), -1)
	}
	return types.ActionPause
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	s.plugin.answers.Add(1)
	s.at("response_headers")
	return types.ActionContinue
}

func (s *stream) OnHttpResponseBody(int, bool) types.Action {
	s.plugin.chunks.Add(1)
	s.at("response_body")
	return types.ActionContinue
}

func (s *stream) OnHttpResponseTrailers(int) types.Action {
	s.at("response_trailers")
	return types.ActionContinue
}

// upstreamTerminated is Envoy's response flag for a connection that the upstream
// ended.
const upstreamTerminated = 1 << 6

func (s *stream) OnHttpStreamDone() {
	s.at("done")
	flags, _ := abi.Property("response\x00flags", &s.plugin.body)
	if len(flags) == 8 && binary.LittleEndian.Uint64(flags)&upstreamTerminated != 0 {
		s.plugin.failures.Add(1)
	}
	s.plugin.done.Add(1)
}
