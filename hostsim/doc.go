// Package hostsim is a proxy-wasm host (ABI 0.2.1) on wazero that behaves as
// Envoy 1.40 does: good enough to test a filter against, and the engine of a
// production gateway.
//
// One thing travels through it: a request. The embedding proxy opens a [Stream]
// on a [Plugin] and feeds it what arrives (RequestHeaders, RequestData,
// RequestTrailers, then the response side). The stream calls the module, and
// what the module lets through comes out of the embedder's [Sink], at once or
// later, when the module resumes the stream from a tick, a queue message or the
// reply to an http_call.
//
// The nouns, from the outside in:
//
//   - [Host]: one proxy process. Shared data, shared queues, metrics, the clock,
//     the clusters that http_call may reach.
//   - [Module]: wasm bytes compiled once, instantiated by many VMs.
//   - [VM]: one worker thread with its instance of the module. Everything that
//     enters the module is serialised: see [VM.Do].
//   - [Plugin]: one configured filter in a VM (a root context).
//   - [Stream]: one HTTP request in a plugin (a stream context).
//   - [Fleet]: what Envoy makes of one filter config: a canary that is thrown
//     away, a main-thread VM and one VM per worker.
//
// # Time and threads
//
// With a [VirtualClock] nothing happens by itself: posted work (queue messages,
// http_call replies, ticks) waits for [Host.Run] or [Host.Advance], which run it
// on the caller's goroutine in a fixed order, so a test's transcript is the same
// every time. With the real clock the same work runs as soon as its VM is free.
//
// Methods of Stream and Plugin must be called on the VM's thread: inside VM.Do,
// or, with a virtual clock, from the one goroutine that drives the host.
//
// # Where Envoy's word stands
//
// Names, statuses and orders are Envoy's: a stream ends with on_log, on_done,
// on_delete; a body callback sees the size buffered so far; a filter that stops
// at headers never sees the body unless AllowOnHeadersStopIteration is set; the
// increment of a counter by 0 is a BadArgument; a CAS of 0 always overwrites.
// What of this is known and how is in integration/conformance: scenarios in plain
// text, each played on a real Envoy, whose transcript it holds, and on this host
// with every test run (docs/conformance.md lists them).
//
// # Looking on and interfering
//
// Tests of a filter are written with package hosttest. Beneath it, Options.Trace
// is told every call between host and module, [Host.Inject] makes a [Fault] come
// at an exact call, [VM.Stall] and [VirtualClock.Jump] disturb time, and a module
// that traps leaves a [TrapError] with the names of its functions.
// docs/hostsim.md shows all of it, and the command line.
//
// What is left out on purpose: gRPC calls (answered Unimplemented, or NotFound
// for a token), TCP streams, metadata frames, foreign functions (NotFound, but for
// clear_route_cache), chains of several filters on one stream.
package hostsim
