// Command faultmodule is warmpath.wasm with faults on order, for tests against
// a real proxy:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared ./integration/faultmodule
//
// It wraps the real contexts; the filter itself has no hooks for it. The
// request header x-fault names what goes wrong:
//
//	panic-headers  a panic before the filter has seen the headers
//	panic-body     a panic at the end of the body, before it is read
//	trap           a stack overflow at the end of the body: the VM dies
//	hold           the request is never released
//	gc             a garbage collection at the end of the body
package main

import (
	"runtime"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/plugin"
)

func init() { abi.Start(vm{plugin.NewVM()}) }

func main() {}

type vm struct{ types.VMContext }

func (v vm) NewPluginContext(id uint32) types.PluginContext {
	return root{v.VMContext.NewPluginContext(id)}
}

type root struct{ types.PluginContext }

func (r root) NewHttpContext(id uint32) types.HttpContext {
	return &stream{HttpContext: r.PluginContext.NewHttpContext(id)}
}

// stream keeps the order of its request and carries it out.
type stream struct {
	types.HttpContext
	fault string
}

func (s *stream) OnHttpRequestHeaders(n int, endOfStream bool) types.Action {
	s.fault, _ = abi.HeaderString(abi.RequestHeaders, "x-fault")
	if s.fault == "panic-headers" {
		panic("ordered by x-fault")
	}
	return s.HttpContext.OnHttpRequestHeaders(n, endOfStream)
}

func (s *stream) OnHttpRequestBody(size int, endOfStream bool) types.Action {
	if s.fault == "" || !endOfStream {
		return s.HttpContext.OnHttpRequestBody(size, endOfStream)
	}
	switch s.fault {
	case "panic-body":
		panic("ordered by x-fault")
	case "trap":
		overflow(0)
	case "hold":
		return types.ActionPause
	case "gc":
		runtime.GC()
	}
	return s.HttpContext.OnHttpRequestBody(size, endOfStream)
}

// depth is what overflow leaves behind, so that no compiler can take the
// recursion away.
var depth int

// overflow ends in a trap that nothing recovers: the host's stack is full.
func overflow(n int) int {
	depth = n
	return overflow(n+1) + depth
}
