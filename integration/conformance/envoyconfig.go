package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// What both hosts are told.
const (
	nodeID         = "node-1"
	nodeCluster    = "edge"
	routeName      = "story"
	routeMoved     = "moved" // of requests with headerMove
	headerMove     = "x-move"
	clusterHTTP2   = "upstream"
	clusterHTTP1   = "upstream1"
	clusterControl = "control"
	clusterDead    = "dead"
)

// cluster is where the route leads.
func (s *Setup) cluster() string {
	if s.HTTP1 {
		return clusterHTTP1
	}
	return clusterHTTP2
}

type tree = map[string]any

const typePrefix = "type.googleapis.com/envoy."

func typed(name string, fields tree) tree {
	out := tree{"@type": typePrefix + name}
	for k, v := range fields {
		out[k] = v
	}
	return out
}

func address(port int) tree {
	return tree{"socket_address": tree{"address": "127.0.0.1", "port_value": port}}
}

func watchedFile(path string) tree {
	return tree{"path_config_source": tree{"path": path}, "resource_api_version": "V3"}
}

// bootstrap is an Envoy without listeners but the barrier; those of scenarios
// come and go in a watched file.
func (e *Envoy) bootstrap() tree {
	cluster := func(name string, port int, http2 bool) tree {
		c := tree{
			"name": name, "type": "STATIC", "connect_timeout": "5s",
			"load_assignment": tree{"cluster_name": name, "endpoints": []any{tree{"lb_endpoints": []any{
				tree{"endpoint": tree{"address": address(port)}},
			}}}},
		}
		protocol := tree{"http_protocol_options": tree{"enable_trailers": true}}
		if http2 {
			protocol = tree{"http2_protocol_options": tree{}}
		}
		c["typed_extension_protocol_options"] = tree{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed("extensions.upstreams.http.v3.HttpProtocolOptions", tree{"explicit_http_config": protocol}),
		}
		return c
	}
	barrier := e.manager("barrier", nil, tree{
		"virtual_hosts": []any{tree{"name": "barrier", "domains": []any{"*"}, "routes": []any{
			tree{"match": tree{"prefix": "/"}, "direct_response": tree{"status": 200}},
		}}},
	})
	barrier["codec_type"] = "HTTP1"
	return tree{
		"node":  tree{"id": nodeID, "cluster": nodeCluster},
		"admin": tree{"address": address(0)},
		"static_resources": tree{
			"clusters": []any{
				cluster(clusterHTTP2, e.upstream.port(), true), cluster(clusterHTTP1, e.upstream1.port(), false),
				cluster(clusterControl, e.control.port(), true), cluster(clusterDead, e.deadPort, true),
			},
			"listeners": []any{e.listener("barrier", 0, 0, barrier)},
		},
		"dynamic_resources": tree{"lds_config": watchedFile(e.path("lds.json"))},
	}
}

// manager is a connection manager with as few opinions as it can be given.
func (e *Envoy) manager(name string, filters []any, routes tree) tree {
	router := tree{"name": "envoy.filters.http.router", "typed_config": typed("extensions.filters.http.router.v3.Router", tree{"suppress_envoy_headers": true})}
	return typed("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", tree{
		"stat_prefix": name, "generate_request_id": false, "skip_xff_append": true,
		"server_header_transformation": "PASS_THROUGH", "stream_idle_timeout": "0s",
		"delayed_close_timeout": "0s",
		"http_protocol_options": tree{"enable_trailers": true},
		"route_config":          routes, "http_filters": append(filters, router),
	})
}

func (e *Envoy) listener(name string, port, bufferLimit int, manager tree) tree {
	l := tree{
		"name": name, "address": address(port),
		"filter_chains": []any{tree{"filters": []any{tree{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}}}},
	}
	if bufferLimit > 0 {
		l["per_connection_buffer_limit_bytes"] = bufferLimit
	}
	return l
}

// listenerOf is the listener of one plugin of a scenario.
func (e *Envoy) listenerOf(scenario string, s *Setup, p *PluginSetup, port int) tree {
	filter := tree{"name": resourceName(scenario, p), "config_discovery": tree{
		"config_source": watchedFile(e.filterPath(scenario, p)),
		"type_urls":     []any{typePrefix + "extensions.filters.http.wasm.v3.Wasm"},
	}}
	to := tree{"cluster": s.cluster(), "timeout": "0s"}
	plain := tree{"name": routeName, "match": tree{"prefix": "/"}, "route": to}
	if s.RouteLimitBytes > 0 {
		plain["request_body_buffer_limit"] = s.RouteLimitBytes
	}
	m := e.manager("story", []any{filter}, tree{
		"virtual_hosts": []any{tree{"name": "story", "domains": []any{"*"}, "routes": []any{
			tree{"name": routeMoved, "match": tree{"prefix": "/", "headers": []any{tree{"name": headerMove, "present_match": true}}}, "route": to},
			plain,
		}}},
	})
	m["codec_type"] = "HTTP2"
	if s.HTTP1 {
		m["codec_type"] = "HTTP1"
	}
	if s.WindowBytes > 0 {
		m["http2_protocol_options"] = tree{"initial_stream_window_size": s.WindowBytes}
	}
	if s.IdleTimeout > 0 {
		m["stream_idle_timeout"] = fmt.Sprintf("%.3fs", s.IdleTimeout.Seconds())
	}
	return e.listener(resourceName(scenario, p), port, s.BufferLimitBytes, m)
}

func resourceName(scenario string, p *PluginSetup) string { return scenario + "." + p.Name }

// filterConfig is the watched file of one plugin.
func (e *Envoy) filterConfig(scenario string, p *PluginSetup) tree {
	text := func(s string) tree {
		return tree{"@type": "type.googleapis.com/google.protobuf.StringValue", "value": s}
	}
	config := tree{
		"name": p.Name, "root_id": p.RootID, "failure_policy": p.Policy.String(),
		"vm_config": tree{
			"vm_id": p.VMID, "runtime": "envoy.wasm.runtime.v8",
			"code": tree{"local": tree{"filename": e.modules[p.Module]}},
		},
		"configuration": text(p.Script),
	}
	if p.VMConfiguration != "" {
		config["vm_config"].(tree)["configuration"] = text(p.VMConfiguration)
	}
	if p.AllowStop {
		config["allow_on_headers_stop_iteration"] = true
	}
	if p.Policy.String() == "FAIL_RELOAD" {
		config["reload_config"] = tree{"backoff": tree{"base_interval": fmt.Sprintf("%.3fs", p.Backoff.Seconds())}}
	}
	return tree{"resources": []any{tree{
		"@type":        typePrefix + "config.core.v3.TypedExtensionConfig",
		"name":         resourceName(scenario, p),
		"typed_config": typed("extensions.filters.http.wasm.v3.Wasm", tree{"config": config}),
	}}}
}

func (e *Envoy) path(name string) string { return filepath.Join(e.dir, name) }

func (e *Envoy) filterPath(scenario string, p *PluginSetup) string {
	return e.path(resourceName(scenario, p) + ".json")
}

// put writes a watched file by rename, with a version of its own.
func (e *Envoy) put(path string, content tree) error {
	e.version++
	content["version_info"] = fmt.Sprint(e.version)
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	fresh := path + ".fresh"
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
