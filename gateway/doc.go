// Package gateway is a reverse proxy that runs a proxy-wasm module on hostsim:
// the same warmpath.wasm that Envoy loads, in one Go process, for fleets
// without Envoy, for the demo and for tests.
//
// One request travels through it so: Gateway.ServeHTTP opens an exchange on the
// least busy VM (lane.go), feeds it the request headers (headers.go) and, while
// the module holds the request, the body (admit.go). When the module lets go,
// net/http's ReverseProxy sends it on through attempts.RoundTrip, which honours
// the endpoint header "best,second" as Envoy's override_host policy with one
// retry does; each attempt gets a copy of the held body, or the client's as it
// comes (upload.go). The response passes the module's callbacks on its way back,
// chunk by chunk, flushed at once (response.go). Whatever ends the exchange, the
// module's done callback runs exactly once; and where the module itself ends, by
// a trap, its exchanges go on without it.
//
// The module's own calls (calls.go) go to the clusters of Config and to the
// workers, for which every pool is a cluster "pool-<name>", as in examples/envoy.
//
// Framing, TLS, HTTP/2, upgrades and the removal of hop-by-hop fields are
// net/http's. What is added here are limits on silence and on what is kept
// (Config), and an order for the end (serve.go).
package gateway
