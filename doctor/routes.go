package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	poolHeader     = "x-warmpath-pool"
	decisionHeader = "x-warmpath-decision"
	endpointHeader = "x-gateway-destination-endpoint"

	// shortestIdle of a route that serves: a long prefill sends nothing for minutes.
	shortestIdle = 5 * time.Minute
	// longestHold of a route on which requests are held: when a VM crashes, those
	// it holds wait for this and nothing else.
	longestHold = time.Minute
	// streamIdle is Envoy's stream_idle_timeout where none is set, and
	// routeTimeout its limit of a whole answer.
	streamIdle   = 5 * time.Minute
	routeTimeout = 15 * time.Second
	// defaultLimit is what Envoy buffers of a body where nothing is set.
	defaultLimit = 1 << 20
	// defaultBodyCap is the module's body_cap_bytes.
	defaultBodyCap = 4 << 20
	// defaultWorkerCluster is the module's worker_cluster.
	defaultWorkerCluster = "pool-{pool}"
	// fewRetries at once are Envoy's default of a cluster.
	fewRetries = 3
)

// matched returns the header that a route asks for, and its value where it must
// be exact.
func matched(route tree, header string) (value string, ok bool) {
	for _, h := range route.list("match", "headers") {
		if h.text("name") == header {
			return h.text("string_match", "exact"), true
		}
	}
	return "", false
}

// routing checks the routes of a connection manager, and the clusters behind
// those of the pools.
func (p *proxyConfig) routing(target string, m, settings, config tree) {
	idle, set := m.duration("stream_idle_timeout")
	if !set {
		idle = streamIdle
	}
	pools := map[string]string{} // cluster by pool
	hosts := 0
	for _, host := range config.list("virtual_hosts") {
		routes := host.list("routes")
		ours := slices.ContainsFunc(routes, func(r tree) bool { _, ok := matched(r, poolHeader); return ok })
		if !ours {
			continue
		}
		hosts++
		for _, r := range routes {
			if r.tree("route") == nil {
				continue // a redirect or a direct answer
			}
			name := cmp.Or(r.text("name"), "of "+host.text("name"))
			pool, steered := matched(r, poolHeader)
			_, seen := matched(r, decisionHeader)
			if steered {
				pools[pool] = r.text("route", "cluster")
				p.retries(name, host, r)
			}
			switch {
			case steered || seen:
				p.serving(name, r, idle)
			case holds(r, settings):
				p.holding(name, r, idle)
			}
		}
		p.bodies(host.text("name"), m, settings, host)
	}
	if hosts == 0 {
		p.fail("envoy.routes", target, "no route matches "+poolHeader+": released requests keep the short limits of held ones, and every pool goes to one cluster", "add a route for each pool, as in examples/envoy/envoy.yaml")
		return
	}
	for _, pool := range p.pools {
		if _, led := pools[pool.Name]; !led {
			p.fail("envoy.pool_route", pool.Name, "no route leads the pool to a cluster", fmt.Sprintf("add a route with headers: [{name: %s, string_match: {exact: %s}}]", poolHeader, pool.Name))
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		p.cluster(pool, pools[pool])
		p.workerCluster(pool, pools[pool], settings)
	}
}

// workerCluster checks the cluster that the module itself calls with the slices of a copy, by
// worker_cluster; routed is the one that the pool's requests go to.
func (p *proxyConfig) workerCluster(pool, routed string, settings tree) {
	pattern, set := settings.at("worker_cluster").(string)
	if !set {
		pattern = defaultWorkerCluster
	}
	told := Pool{Name: pool}
	if i := slices.IndexFunc(p.pools, func(x Pool) bool { return x.Name == pool }); i >= 0 {
		told = p.pools[i]
	}
	name := strings.Replace(pattern, "{pool}", pool, 1) // as the module does
	c := p.clusters[name]
	switch {
	case pattern == "":
		p.ok("envoy.worker_cluster", pool, "none: copies of hot prefixes are left to the requests")
	case told.Requested:
		p.ok("envoy.worker_cluster", pool, "not called: hot prefixes of the pool are copied by requests")
	case name == routed || len(p.clusters) == 0:
		p.ok("envoy.worker_cluster", pool, "%s", name)
	case c == nil:
		remedy := `set worker_cluster to "" in the module's configuration, or to the name of the pool's cluster, with {pool} in place of the pool's name`
		if strings.Count(routed, pool) == 1 {
			remedy += " (" + strings.Replace(routed, pool, "{pool}", 1) + " here)"
		}
		p.warn("envoy.worker_cluster", pool, "no cluster "+name+": the module can't copy hot prefixes in slices, the requests compute them whole", remedy)
	case !readsEndpoint(overrideOf(c)):
		p.warn("envoy.worker_cluster", pool, "cluster "+name+" goes to any worker: slices of a copy miss the one they are for",
			"give it the load_balancing_policy of "+cmp.Or(routed, "the pool's cluster")+", or name that as worker_cluster in the module's configuration")
	default:
		p.ok("envoy.worker_cluster", pool, "%s, beside %s", name, cmp.Or(routed, "the routes' cluster"))
	}
}

// overrideOf is a cluster's override_host policy, nil without one.
func overrideOf(cluster tree) (override tree) {
	every(cluster.at("load_balancing_policy", "policies"), func(t tree) {
		if t.isType("override_host.v3.OverrideHost") {
			override = t
		}
	})
	return override
}

// readsEndpoint tells whether it reads the module's choice.
func readsEndpoint(override tree) bool {
	return slices.ContainsFunc(override.list("override_host_sources"), func(s tree) bool { return s.text("header") == endpointHeader })
}

// holds tells whether requests are held on a route that nothing steers.
func holds(r, settings tree) bool {
	if settings.text("hold") == "buffer" {
		return r.tree("typed_per_filter_config", "envoy.filters.http.buffer", "buffer") != nil
	}
	_, large := matched(r, "content-length")
	return !large
}

// serving checks the limits of a route on which answers are streamed.
func (p *proxyConfig) serving(name string, r tree, streamIdle time.Duration) {
	total, set := r.duration("route", "timeout")
	if !set {
		total = routeTimeout
	}
	idle, set := r.duration("route", "idle_timeout")
	if !set {
		idle = streamIdle
	}
	switch {
	case total > 0:
		p.fail("envoy.stream_timeout", name, fmt.Sprintf("an answer may take %s in all, streams are cut there", total), "set timeout: 0s on the route; idle_timeout ends what has stalled")
	case idle > 0 && idle < shortestIdle:
		p.fail("envoy.stream_timeout", name, fmt.Sprintf("an answer may be silent for %s: long prefills are cut there", idle), "set idle_timeout: 900s on the route")
	case idle == 0:
		p.warn("envoy.stream_timeout", name, "an answer may be silent for ever", "set idle_timeout: 900s on the route: an engine that is shut down may leave its sockets open and silent")
	default:
		p.ok("envoy.stream_timeout", name, "no limit in all, %s between two bytes", idle)
	}
	if most, set := r.duration("route", "max_stream_duration", "max_stream_duration"); set && most > 0 {
		p.warn("envoy.stream_timeout", name, fmt.Sprintf("max_stream_duration ends every answer after %s", most), "leave it out for streams")
	}
}

// holding checks the limit of a route on which requests are held.
func (p *proxyConfig) holding(name string, r tree, streamIdle time.Duration) {
	idle, set := r.duration("route", "idle_timeout")
	if !set {
		idle = streamIdle
	}
	if idle == 0 || idle > longestHold {
		p.warn("envoy.hold_timeout", name, fmt.Sprintf("requests held by a VM that crashes wait for %s", orEver(idle)), "set idle_timeout: 30s on the routes without "+poolHeader)
		return
	}
	p.ok("envoy.hold_timeout", name, "a held request ends after %s", idle)
}

func orEver(d time.Duration) string {
	if d == 0 {
		return "ever"
	}
	return d.String()
}

// retries checks that a refused request goes to the second address, and an
// answered one nowhere.
func (p *proxyConfig) retries(name string, host, r tree) {
	policy := r.tree("route", "retry_policy")
	if policy == nil {
		policy = host.tree("retry_policy")
	}
	if policy == nil {
		p.warn("envoy.retry", name, "no retry policy: a worker that refuses ends the request, though a second one is named", "set retry_policy as in examples/envoy/envoy.yaml")
		return
	}
	on := strings.Split(policy.text("retry_on"), ",")
	codes := map[float64]bool{}
	numbers, _ := policy.at("retriable_status_codes").([]any)
	for _, n := range numbers {
		if code, ok := n.(float64); ok {
			codes[code] = true
		}
	}
	tries, set := policy.number("num_retries")
	if !set {
		tries = 1
	}
	var missing []string
	for _, want := range []string{"connect-failure", "reset", "retriable-status-codes"} {
		if !slices.Contains(on, want) {
			missing = append(missing, want)
		}
	}
	switch {
	case slices.Contains(on, "5xx"), slices.Contains(on, "gateway-error"), codes[500]:
		p.fail("envoy.retry", name, "answers of 500 are tried again ("+policy.text("retry_on")+"): a prompt that breaks an engine breaks the next one too", "retry_on: connect-failure,refused-stream,reset,retriable-status-codes with retriable_status_codes: [429, 503]")
	case len(missing) > 0 || !codes[429] || !codes[503]:
		p.warn("envoy.retry", name, "not every refusal is tried again: retry_on is "+policy.text("retry_on"), "retry_on: connect-failure,refused-stream,reset,retriable-status-codes with retriable_status_codes: [429, 503]")
	case tries > 1:
		p.warn("envoy.retry", name, fmt.Sprintf("%.0f retries, and two addresses are named", tries), "num_retries: 1: the third attempt goes to the first worker again")
	default:
		p.ok("envoy.retry", name, "one, on %s", policy.text("retry_on"))
	}
}

// bodies checks that what the module wants to read is let through to it.
func (p *proxyConfig) bodies(name string, m, settings, host tree) {
	limit := float64(defaultLimit)
	if n, set := m.number(listenerLimit); set {
		limit = n
	}
	if n, set := host.number("request_body_buffer_limit"); set {
		limit = n
	}
	every(host.at("routes"), func(t tree) {
		if n, set := t.number("request_body_buffer_limit"); set {
			limit = n
		}
		if n, set := t.number("buffer", "max_request_bytes"); set {
			limit = n // the buffer filter's replaces the others
		}
	})
	bodyCap, set := settings.number("body_cap_bytes")
	if !set {
		bodyCap = defaultBodyCap
	}
	if limit <= bodyCap {
		p.fail("envoy.body_limit", name, fmt.Sprintf("the proxy buffers %.0f bytes of a body and answers 413 beyond; the module wants to hold %.0f", limit, bodyCap),
			fmt.Sprintf("set request_body_buffer_limit above %.0f, or lower body_cap_bytes", bodyCap))
		return
	}
	p.ok("envoy.body_limit", name, "%.0f bytes, the module holds at most %.0f", limit, bodyCap)
}

// cluster checks that a pool's cluster goes where it is told.
func (p *proxyConfig) cluster(pool, name string) {
	c := p.clusters[name]
	if c == nil {
		p.warn("envoy.pool_cluster", pool, "cluster "+cmp.Or(name, "(by header or weight)")+" is not in the dump", "look at it when the cluster has arrived (CDS)")
		return
	}
	override := overrideOf(c)
	switch {
	case override == nil:
		p.fail("envoy.override_host", name, "the cluster balances by itself: what the module chooses is ignored", "set load_balancing_policy to envoy.load_balancing_policies.override_host with override_host_sources: [{header: "+endpointHeader+"}]")
	case !readsEndpoint(override):
		p.fail("envoy.override_host", name, "override_host doesn't read "+endpointHeader, "add it to override_host_sources")
	case len(override.list("fallback_policy", "policies")) == 0:
		p.fail("envoy.override_host", name, "override_host has no fallback_policy: requests without a choice fail", "add fallback_policy, least_request say")
	default:
		p.ok("envoy.override_host", name, "reads %s", endpointHeader)
	}
	most := float64(fewRetries)
	for _, t := range c.list("circuit_breakers", "thresholds") {
		if n, set := t.number("max_retries"); set && t.text("priority") != "HIGH" {
			most = n
		}
	}
	if most <= fewRetries {
		p.warn("envoy.circuit_breakers", name, fmt.Sprintf("at most %.0f retries at once: under load a re-route becomes a 503", most), "set circuit_breakers.thresholds: [{max_retries: 1024}], and max_requests and max_pending_requests to what the pool can take")
	} else {
		p.ok("envoy.circuit_breakers", name, "%.0f retries at once", most)
	}
}
