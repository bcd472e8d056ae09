// Package gateway is a reverse proxy that runs a proxy-wasm module on hostsim:
// the same warmpath.wasm that Envoy loads, in one Go process, for fleets
// without Envoy, for the demo and for tests.
//
// One request travels through it so: Gateway.ServeHTTP opens an exchange on the
// least busy VM, feeds it the request headers and, while the module holds the
// request, the body (request.go). When the module lets go, net/http's
// ReverseProxy sends it on through endpoints.RoundTrip, which honours the
// endpoint header "best,second" as Envoy's override_host policy with one retry
// does (endpoints.go). The response passes the module's callbacks on its way
// back, chunk by chunk, flushed at once (response.go). Whatever ends the
// exchange, the module's done callback runs exactly once.
package gateway
