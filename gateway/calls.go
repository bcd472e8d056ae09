package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/hostsim"
)

// poolCluster begins the name of the cluster that every pool is, as in examples/envoy.
const poolCluster = "pool-"

// calls carry out the module's own calls (proxy_http_call): to the configured clusters, and to
// "pool-<name>", the workers of a pool.
type calls struct {
	*hostsim.HTTPDispatcher
	endpoints *Endpoints
	transport http.RoundTripper
}

// HasCluster implements hostsim.Dispatcher. A pool is a cluster once it has a worker, and stays one:
// with none left it is a cluster of which nobody can be reached.
func (c *calls) HasCluster(name string) bool {
	if c.HTTPDispatcher.HasCluster(name) {
		return true
	}
	pool, ok := strings.CutPrefix(name, poolCluster)
	if !ok || pool == "" || !c.endpoints.serves(pool) {
		return false
	}
	// The host of this URL is replaced by the worker's. One that can't be a host is no cluster.
	return c.SetClusterTransport(name, "http://"+name, &poolCalls{pool: pool, endpoints: c.endpoints, transport: c.transport}) == nil
}

// poolCalls send each call to the one worker of the pool that its endpoint header names. Where
// Envoy's cluster falls back to another worker, it is not sent: what the module has to do with one
// worker is of no use to another. Without the header the next in turn is asked.
type poolCalls struct {
	pool      string
	endpoints *Endpoints
	transport http.RoundTripper
}

// RoundTrip implements http.RoundTripper. An error is answered 503 to the module.
func (p *poolCalls) RoundTrip(req *http.Request) (*http.Response, error) {
	to, ok := p.endpoints.ofPool(p.pool, parseEndpointHeader(req.Header.Get(endpointHeader)))
	if !ok {
		return nil, errNoEndpoint
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host = to.scheme, to.address
	for key := range out.Header {
		if hopByHop(strings.ToLower(key)) {
			delete(out.Header, key)
		}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // don't let net/http add its own
	}
	return p.transport.RoundTrip(out)
}

// serves says whether the pool has workers.
func (e *Endpoints) serves(pool string) bool {
	set := e.known.Load()
	return set != nil && len(set.of(pool)) > 0
}

// ofPool returns the first of wanted, if it is a worker of the pool, or the next in turn if wanted
// is empty.
func (e *Endpoints) ofPool(pool string, wanted []string) (to endpoint, ok bool) {
	if len(wanted) == 0 {
		to, _ = e.choose(nil, pool, nil)
		return to, to.address != ""
	}
	set := e.known.Load()
	if set == nil || !slices.Contains(set.of(pool), wanted[0]) {
		return endpoint{}, false
	}
	return endpoint{set.index[wanted[0]], wanted[0]}, true
}
