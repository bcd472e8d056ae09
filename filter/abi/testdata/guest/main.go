//go:build !bare

// Command guest is the module that the tests of package abi run. It reports
// every callback as a log line, panics where it is told to, and makes the host
// calls that it is asked for by proxy_on_foreign_function: the arguments are
// the name of an exercise (see sdk.go and fast.go).
package main

import (
	"strconv"
	"strings"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

func init() {
	abi.ForeignFunction = runExercise
	abi.OnPanic = func(callback string) { report("OnPanic(" + callback + ")") }
	abi.GRPC.InitialMetadata = func(_, id uint32, n int) { called("proxy_on_grpc_receive_initial_metadata", int(id), n) }
	abi.GRPC.Message = func(_, id uint32, size int) { called("proxy_on_grpc_receive", int(id), size) }
	abi.GRPC.TrailingMetadata = func(_, id uint32, n int) { called("proxy_on_grpc_receive_trailing_metadata", int(id), n) }
	abi.GRPC.Close = func(_, id uint32, status int32) { called("proxy_on_grpc_close", int(id), int(status)) }
	abi.Metadata = func(_ uint32, stream abi.StreamType, n int) types.Action {
		name := "proxy_on_request_metadata"
		if stream == abi.StreamResponse {
			name = "proxy_on_response_metadata"
		}
		called(name, n)
		return types.ActionPause
	}
	abi.Start(&vm{})
}

func main() {}

// runExercise runs "name argument" and reports its result.
func runExercise(_, _ uint32, size int) {
	var s abi.Scratch
	command, st := abi.Buffer(abi.ForeignArguments, 0, size, &s)
	if st != abi.OK {
		report("no command: " + st.String())
		return
	}
	name, argument, _ := strings.Cut(string(command), " ")
	exercise := exercises[name]
	if exercise == nil {
		report("no exercise " + name)
		return
	}
	report(exercise(argument))
}

func report(line string) { abi.Log(abi.LogInfo, line) }

// called reports a callback and, if an exercise asked for it, panics in it.
func called(callback string, arguments ...int) {
	line := callback + "("
	for i, a := range arguments {
		if i > 0 {
			line += ", "
		}
		line += strconv.Itoa(a)
	}
	report(line + ")")
	if kind, ok := panicIn[callback]; ok {
		panics[kind]()
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The contexts answer the opposite of what a recovered panic answers, so that
// a test sees which of the two it got.

type (
	vm     struct{ types.DefaultVMContext }
	plugin struct {
		types.DefaultPluginContext
		id uint32
	}
	stream struct{}
	tcp    struct{}
)

func (*vm) OnVMStart(size int) types.OnVMStartStatus {
	called("proxy_on_vm_start", size)
	return types.OnVMStartStatusOK
}

func (*vm) NewPluginContext(id uint32) types.PluginContext {
	called("proxy_on_context_create", int(id))
	return &plugin{id: id}
}

func (*plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	called("proxy_on_configure", size)
	return types.OnPluginStartStatusOK
}

func (*plugin) OnPluginDone() bool {
	called("proxy_on_done")
	return false
}

func (*plugin) OnTick()                { called("proxy_on_tick") }
func (*plugin) OnQueueReady(id uint32) { called("proxy_on_queue_ready", int(id)) }

// NewHttpContext makes streams with ids from 1000 on TCP streams.
func (*plugin) NewHttpContext(id uint32) types.HttpContext {
	if id >= 1000 {
		return nil
	}
	called("proxy_on_context_create", int(id))
	return &stream{}
}

func (*plugin) NewTcpContext(id uint32) types.TcpContext {
	called("proxy_on_context_create", int(id))
	return &tcp{}
}

func (*stream) OnHttpRequestHeaders(n int, end bool) types.Action {
	called("proxy_on_request_headers", n, number(end))
	return types.ActionPause
}

func (*stream) OnHttpRequestBody(size int, end bool) types.Action {
	called("proxy_on_request_body", size, number(end))
	return types.ActionPause
}

func (*stream) OnHttpRequestTrailers(n int) types.Action {
	called("proxy_on_request_trailers", n)
	return types.ActionPause
}

func (*stream) OnHttpResponseHeaders(n int, end bool) types.Action {
	called("proxy_on_response_headers", n, number(end))
	return types.ActionPause
}

func (*stream) OnHttpResponseBody(size int, end bool) types.Action {
	called("proxy_on_response_body", size, number(end))
	return types.ActionPause
}

func (*stream) OnHttpResponseTrailers(n int) types.Action {
	called("proxy_on_response_trailers", n)
	return types.ActionPause
}

func (*stream) OnHttpStreamDone() { called("proxy_on_log") }

func (*tcp) OnNewConnection() types.Action {
	called("proxy_on_new_connection")
	return types.ActionPause
}

func (*tcp) OnDownstreamData(size int, end bool) types.Action {
	called("proxy_on_downstream_data", size, number(end))
	return types.ActionPause
}

func (*tcp) OnDownstreamClose(peer types.PeerType) {
	called("proxy_on_downstream_connection_close", int(peer))
}

func (*tcp) OnUpstreamData(size int, end bool) types.Action {
	called("proxy_on_upstream_data", size, number(end))
	return types.ActionPause
}

func (*tcp) OnUpstreamClose(peer types.PeerType) {
	called("proxy_on_upstream_connection_close", int(peer))
}

func (*tcp) OnStreamDone() { called("proxy_on_log") }
