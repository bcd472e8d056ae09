// Package abi is the only place that knows the proxy-wasm calling convention
// (ABI 0.2.1). It lets github.com/tetratelabs/proxy-wasm-go-sdk, which was
// written for TinyGo, run unmodified on Go's own WebAssembly port
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared
//
// and gives the filter faster calls where the SDK's allocations would show.
//
// # How one call travels
//
// The host calls an export, proxy_on_request_headers say (exports_*.go). The
// export hands over to OnRequestHeaders (callbacks.go), which installs the one
// recover of the whole module and enters the SDK by a linkname to
// internal.proxyOnRequestHeaders. The SDK looks up the filter's context and
// calls it.
//
// The filter asks the host something either by the SDK (proxywasm.GetHttp...)
// or by a call of this package (Header, SharedData, ...). The SDK's host calls
// exist under the tinygo build tag only; in every other build they go to an
// interface meant for its test emulator. sdkHost (sdk_host.go) implements that
// interface, so both ways end in the same imported functions (imports_wasm.go).
//
// When the host has bytes to return it calls proxy_on_memory_allocate, copies
// them there, and writes address and length into two out-parameters. allocate
// (memory.go) decides where the bytes go:
//
//   - a call of this package names a Scratch, which is grown once and reused;
//   - an SDK call gets fresh memory, which the SDK's callers may keep, except
//     that results of bigResult bytes and more share one block. They are valid
//     until the next SDK result of that size. Copy what must live longer.
//
// # Why it is so
//
//   - Out-parameters are package variables. A goroutine's stack may move while
//     the host re-enters the module for memory, so the address of a local would
//     be stale when the host writes to it.
//   - Nothing but this module refers to a block between the allocation and the
//     copy, so the last few are kept in a ring; otherwise a collection in
//     between would free them.
//   - The linker drops methods that are only called by the SDK's interface, as
//     its parameter types have other names than ours. reachSDKHost calls each
//     once through an interface with our names, behind a condition that never
//     holds.
//   - A panic must not reach the host: Envoy would destroy the VM and with it
//     every stream on that worker. It is recovered in one place, counted,
//     logged with its source line, and the request goes on as if the filter
//     were not there. A stack overflow and lack of memory cannot be recovered.
//   - proxy_increment_metric with 0 is an error in Envoy and the SDK turns an
//     error into a panic, so an increment of 0 never leaves the module.
//
// # Use
//
//	package main
//
//	func init() { abi.Start(&vmContext{}) }
//	func main() {} // a c-shared module is started by _initialize
//
// With the build tag noresponsebody the module lacks proxy_on_response_body:
// a host then streams responses past it without a call per chunk.
//
// # Native builds
//
// Without wasm the same API runs against a Fake, so that a filter is vetted and
// unit-tested on any machine. Tests drive it by the On... functions of
// callbacks.go, which are what the exports call.
package abi
