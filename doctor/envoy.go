package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// envoy reads the proxy's configuration from its admin interface.
func (d *diagnosis) envoy(ctx context.Context, pools []Pool) {
	dump, err := d.fetch(ctx, d.o.EnvoyAdmin, "/config_dump", "", nil)
	if err != nil {
		d.fail("envoy.admin", d.o.EnvoyAdmin, err.Error(), "give the address of Envoy's admin interface (istio-proxy: http://127.0.0.1:15000 inside the pod)")
		return
	}
	d.checks = append(d.checks, Envoy(dump, pools)...)
}

// proxyConfig is what matters of a configuration dump.
type proxyConfig struct {
	report
	managers []tree          // HTTP connection managers, with the listener's buffer limit under listenerLimit
	routes   map[string]tree // route configurations by name
	clusters map[string]tree
	ecds     map[string]tree // typed_config by name of the filter
	pools    []Pool
}

// listenerLimit is the key under which a connection manager carries its
// listener's per_connection_buffer_limit_bytes.
const listenerLimit = "listener limit"

// Envoy holds an answer of Envoy's /config_dump against what the module needs.
// pools are the policy's; nil leaves out whether each has a route.
func Envoy(dump []byte, pools []Pool) []Check {
	p := proxyConfig{routes: map[string]tree{}, clusters: map[string]tree{}, ecds: map[string]tree{}, pools: pools}
	var all tree
	if err := json.Unmarshal(dump, &all); err != nil {
		p.fail("envoy.admin", "", "the configuration dump can't be read: "+err.Error(), "is that Envoy's admin interface?")
		return p.checks
	}
	for _, section := range all.list("configs") {
		p.collect(section)
	}
	found := 0
	for _, m := range p.managers {
		if filter, at := p.module(m); filter != nil {
			found++
			p.manager(m, filter, at)
		}
	}
	if found == 0 {
		p.fail("envoy.module", "", fmt.Sprintf("none of %d HTTP connection managers has the module", len(p.managers)),
			"add the filter warmpath before the router (examples/envoy, examples/istio); if it comes by ECDS, see whether extension_config_discovery.*.config_fail counts")
	}
	return p.checks
}

// collect sorts a section of the dump.
func (p *proxyConfig) collect(section tree) {
	every(map[string]any(section), func(t tree) {
		switch {
		case t.isType(".Listener"):
			limit := t.at("per_connection_buffer_limit_bytes")
			every(map[string]any(t), func(m tree) {
				if m.isType("http_connection_manager.v3.HttpConnectionManager") {
					m[listenerLimit] = limit
					p.managers = append(p.managers, m)
				}
			})
		case t.isType(".RouteConfiguration"):
			p.routes[t.text("name")] = t
		case t.isType(".Cluster"):
			p.clusters[t.text("name")] = t
		case t.isType(".TypedExtensionConfig"):
			p.ecds[t.text("name")] = t.tree("typed_config")
		}
	})
}

// module finds the module among a connection manager's filters.
func (p *proxyConfig) module(m tree) (wasm tree, at int) {
	for i, f := range m.list("http_filters") {
		config := f.tree("typed_config")
		if f.tree("config_discovery") != nil {
			config = p.ecds[f.text("name")]
		}
		if config.isType("wasm.v3.Wasm") && ours(config) {
			return config, i
		}
	}
	return nil, 0
}

// ours: a mesh has other modules too.
func ours(wasm tree) bool {
	c := wasm.tree("config")
	names := c.text("name") + " " + c.text("root_id") + " " + c.text("vm_config", "vm_id") + " " + c.text("vm_config", "code", "local", "filename")
	return strings.Contains(names, "warmpath") || settingsOf(wasm).tree("control") != nil
}

// settingsOf is the module's own configuration, which may hold a token: it must
// not be shown.
func settingsOf(wasm tree) tree {
	var s tree
	if json.Unmarshal([]byte(wasm.text("config", "configuration", "value")), &s) != nil {
		return nil
	}
	return s
}

// manager checks a connection manager that has the module as its filter at.
func (p *proxyConfig) manager(m, wasm tree, at int) {
	target := m.text("stat_prefix")
	filters := m.list("http_filters")
	settings := settingsOf(wasm)
	p.ok("envoy.module", target, "filter %d of %d", at+1, len(filters))
	p.vm(target, wasm, settings)
	p.hold(target, wasm, settings, filters[at+1:])
	p.hygiene(target, m)
	if control := cmp.Or(settings.text("control", "cluster"), "warmpath-control"); len(p.clusters) > 0 && p.clusters[control] == nil {
		p.fail("envoy.control_cluster", target, "no cluster "+control+": the module never hears of the table", "add the cluster, or name another as control.cluster in the module's configuration")
	}
	routes := m.tree("route_config")
	if routes == nil {
		routes = p.routes[m.text("rds", "route_config_name")]
	}
	if routes == nil {
		p.warn("envoy.routes", target, "its routes are not in the dump", "look at it when routes have arrived (RDS)")
		return
	}
	p.routing(target, m, settings, routes)
}

// vm checks the life of the module's VMs.
func (p *proxyConfig) vm(target string, wasm, settings tree) {
	c := wasm.tree("config")
	if c.text("vm_config", "vm_id") == "" {
		p.warn("envoy.vm_id", target, "no vm_id: the table is lost when another module with the same empty id comes and goes", "set vm_config.vm_id; where that can't be (Istio's WasmPlugin), give every deployment its own name in the module's configuration")
	} else {
		p.ok("envoy.vm_id", target, "%s", c.text("vm_config", "vm_id"))
	}
	policy := c.text("failure_policy")
	_, backoff := c.duration("reload_config", "backoff", "base_interval")
	switch {
	case policy == "FAIL_RELOAD" && backoff:
		p.ok("envoy.failure_policy", target, "a VM that crashes is started again")
	case policy == "FAIL_RELOAD":
		p.warn("envoy.failure_policy", target, "a VM that crashes is started again after a second of 503", "set reload_config.backoff.base_interval: 0.05s")
	default:
		p.fail("envoy.failure_policy", target, "failure_policy is "+cmp.Or(policy, "FAIL_CLOSED")+": a VM that crashes once serves nobody, or is passed by for good", "set failure_policy: FAIL_RELOAD with reload_config.backoff.base_interval: 0.05s")
	}
	if settings == nil {
		p.warn("envoy.settings", target, "the module's configuration is no JSON text, so its defaults are in force", "give it as a StringValue (docs/formats.md, section 6)")
	}
}

// hold checks that the module can keep a request back until it has read it, and
// lead it.
func (p *proxyConfig) hold(target string, wasm, settings tree, behind []tree) {
	names := []string{}
	for _, f := range behind {
		names = append(names, f.text("name"))
	}
	buffer, mutation := slices.Index(names, "envoy.filters.http.buffer"), slices.Index(names, "envoy.filters.http.header_mutation")
	stops := wasm.flag("config", "allow_on_headers_stop_iteration")
	switch {
	case settings.text("hold") == "buffer" && (buffer < 0 || mutation < buffer):
		p.fail("envoy.hold", target, "hold is buffer, and the companions don't stand behind the module: the choice reaches no header", "add envoy.filters.http.buffer and then envoy.filters.http.header_mutation, as in examples/envoy/envoy-buffer.yaml")
	case settings.text("hold") == "buffer":
		p.ok("envoy.hold", target, "by the buffer and header_mutation filters")
	case !stops:
		p.fail("envoy.hold", target, "allow_on_headers_stop_iteration is not set: requests with a body hang", "set allow_on_headers_stop_iteration: true (Envoy 1.35 and later), or use hold: buffer with its two companions (examples/envoy/envoy-buffer.yaml)")
	default:
		p.ok("envoy.hold", target, "at the headers, allow_on_headers_stop_iteration is set")
	}
}

// hygiene checks that clients can't say what only the gateway may.
func (p *proxyConfig) hygiene(target string, m tree) {
	var stripped []string
	every(m.at("early_header_mutation_extensions"), func(t tree) {
		stripped = append(stripped, t.text("remove"), t.text("remove_on_match", "key_matcher", "prefix"))
	})
	var missing []string
	if !slices.Contains(stripped, "x-gateway-destination-endpoint") {
		missing = append(missing, "x-gateway-destination-endpoint")
	}
	if !slices.Contains(stripped, "x-warmpath-") && !slices.Contains(stripped, "x-warmpath-pool") {
		missing = append(missing, "x-warmpath-*")
	}
	if !slices.Contains(stripped, "x-envoy-max-retries") {
		missing = append(missing, "x-envoy-max-retries")
	}
	if len(missing) > 0 {
		p.warn("envoy.client_headers", target, "clients may send "+strings.Join(missing, ", ")+" as far as the module, which strips what it knows", "remove them by early_header_mutation_extensions, before any filter and the choice of a route")
		return
	}
	p.ok("envoy.client_headers", target, "what only the gateway may say is removed before any filter")
}
