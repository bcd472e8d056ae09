package abi

import (
	_ "unsafe" // for go:linkname

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// The SDK's internals that its TinyGo build reaches by exports. Its module
// version is pinned in go.mod; a change of these names fails the link, a change
// of their parameters fails the tests that cross into wasm.

//go:linkname sdkRegisterHost github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.RegisterMockWasmHost
func sdkRegisterHost(host sdkHost) (release func())

//go:linkname sdkRegisterHTTPCallout github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.RegisterHttpCallout
func sdkRegisterHTTPCallout(callID uint32, done func(numHeaders, bodySize, numTrailers int))

//go:linkname sdkSetActiveContext github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.VMStateSetActiveContextID
func sdkSetActiveContext(contextID uint32)

//go:linkname sdkActiveContext github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.VMStateGetActiveContextID
func sdkActiveContext() uint32

//go:linkname sdkOnVMStart github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnVMStart
func sdkOnVMStart(rootID uint32, configurationSize int) types.OnVMStartStatus

//go:linkname sdkOnConfigure github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnConfigure
func sdkOnConfigure(rootID uint32, configurationSize int) types.OnPluginStartStatus

//go:linkname sdkOnContextCreate github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnContextCreate
func sdkOnContextCreate(contextID, rootID uint32)

//go:linkname sdkOnLog github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnLog
func sdkOnLog(contextID uint32)

//go:linkname sdkOnDone github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnDone
func sdkOnDone(contextID uint32) bool

//go:linkname sdkOnDelete github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnDelete
func sdkOnDelete(contextID uint32)

//go:linkname sdkOnTick github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnTick
func sdkOnTick(rootID uint32)

//go:linkname sdkOnQueueReady github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnQueueReady
func sdkOnQueueReady(rootID, queueID uint32)

//go:linkname sdkOnNewConnection github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnNewConnection
func sdkOnNewConnection(contextID uint32) types.Action

//go:linkname sdkOnDownstreamData github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnDownstreamData
func sdkOnDownstreamData(contextID uint32, size int, end bool) types.Action

//go:linkname sdkOnDownstreamConnectionClose github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnDownstreamConnectionClose
func sdkOnDownstreamConnectionClose(contextID uint32, peer types.PeerType)

//go:linkname sdkOnUpstreamData github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnUpstreamData
func sdkOnUpstreamData(contextID uint32, size int, end bool) types.Action

//go:linkname sdkOnUpstreamConnectionClose github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnUpstreamConnectionClose
func sdkOnUpstreamConnectionClose(contextID uint32, peer types.PeerType)

//go:linkname sdkOnRequestHeaders github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnRequestHeaders
func sdkOnRequestHeaders(contextID uint32, numHeaders int, end bool) types.Action

//go:linkname sdkOnRequestBody github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnRequestBody
func sdkOnRequestBody(contextID uint32, size int, end bool) types.Action

//go:linkname sdkOnRequestTrailers github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnRequestTrailers
func sdkOnRequestTrailers(contextID uint32, numTrailers int) types.Action

//go:linkname sdkOnResponseHeaders github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnResponseHeaders
func sdkOnResponseHeaders(contextID uint32, numHeaders int, end bool) types.Action

//go:linkname sdkOnResponseBody github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnResponseBody
func sdkOnResponseBody(contextID uint32, size int, end bool) types.Action

//go:linkname sdkOnResponseTrailers github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnResponseTrailers
func sdkOnResponseTrailers(contextID uint32, numTrailers int) types.Action

//go:linkname sdkOnHTTPCallResponse github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/internal.proxyOnHttpCallResponse
func sdkOnHTTPCallResponse(rootID, callID uint32, numHeaders, bodySize, numTrailers int)
