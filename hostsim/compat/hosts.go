package compat

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Host is a proxy of some version.
type Host struct {
	ID   string `json:"id"` // "envoy-1.36"
	Name string `json:"name"`
	// Evidence is where the row comes from: "measured" (our tests ran it, or its
	// binary was looked into), "source" (read in its source code), "documentation".
	Evidence string   `json:"evidence"`
	Source   string   `json:"source"`
	Notes    []string `json:"notes,omitempty"` // what no binary shows

	table *table
}

// table is what a host provides.
type table struct {
	abi          []string
	calls        map[string]bool // env.*
	wasi         map[string]bool // wasi_snapshot_preview1.*
	wasiUnstable bool            // also under the old name wasi_unstable
	emscripten   bool            // env.emscripten_notify_memory_growth
	fails, notes map[string]string
	callbacks    map[string]string // exported in vain
	memoryPages  uint32            // limit of the start size; 0: none known
}

func set(words ...string) map[string]bool {
	m := map[string]bool{}
	for _, list := range words {
		for _, w := range strings.Fields(list) {
			m[w] = true
		}
	}
	return m
}

// calls021 are the host calls of ABI 0.2.1 (proxy-wasm-cpp-host,
// include/proxy-wasm/exports.h, FOR_ALL_HOST_FUNCTIONS and ..._ABI_SPECIFIC).
const calls021 = `proxy_log proxy_get_log_level proxy_get_status proxy_get_current_time_nanoseconds
	proxy_set_tick_period_milliseconds proxy_set_effective_context proxy_done
	proxy_get_property proxy_set_property proxy_call_foreign_function
	proxy_get_shared_data proxy_set_shared_data
	proxy_register_shared_queue proxy_resolve_shared_queue proxy_dequeue_shared_queue proxy_enqueue_shared_queue
	proxy_get_header_map_value proxy_add_header_map_value proxy_replace_header_map_value proxy_remove_header_map_value
	proxy_get_header_map_pairs proxy_set_header_map_pairs proxy_get_header_map_size
	proxy_get_buffer_status proxy_get_buffer_bytes proxy_set_buffer_bytes
	proxy_continue_stream proxy_close_stream proxy_send_local_response
	proxy_http_call proxy_grpc_call proxy_grpc_stream proxy_grpc_close proxy_grpc_cancel proxy_grpc_send
	proxy_define_metric proxy_increment_metric proxy_record_metric proxy_get_metric`

// calls010 are what only ABI 0.1.0 had.
const calls010 = "proxy_get_configuration proxy_continue_request proxy_continue_response proxy_clear_route_cache"

// What proxy-wasm-cpp-host knows of WASI: at first, since its commit c4d7bb0 of
// December 2024 (Go's runtime starts), and since 94091cd of April 2026 (all that
// Go's SDK and standard library import).
const (
	wasiFirst = `fd_write fd_read fd_seek fd_close fd_fdstat_get environ_get environ_sizes_get args_get args_sizes_get
		clock_time_get random_get proc_exit path_open fd_prestat_get fd_prestat_dir_name`
	wasiGo  = wasiFirst + " fd_fdstat_set_flags sched_yield poll_oneoff"
	wasiAll = wasiGo + ` fd_fdstat_set_rights clock_res_get fd_advise fd_allocate fd_datasync fd_filestat_set_size
		fd_filestat_set_times fd_pread fd_pwrite fd_readdir fd_renumber fd_sync fd_tell path_create_directory
		path_filestat_set_times path_link path_readlink path_remove_directory path_rename path_symlink path_unlink_file
		sock_accept sock_recv sock_send sock_shutdown path_filestat_get fd_filestat_get`
)

const pollENOSYS = "answers ENOSYS: Go's runtime ends the VM when a goroutine waits, sleeps or sets a timer (fixed in Envoy 1.39)"

var envoyNotes = map[string]string{
	"fd_read":   "there are no files: answers an error",
	"path_open": "there are no files: answers an error",
	"fd_seek":   "is logged as an error and does nothing",
	"proc_exit": "is logged as an error and returns",
}

func envoyTable(minor int) *table {
	t := &table{
		abi: []string{"0.1.0", "0.2.0", "0.2.1"}, calls: set(calls021, calls010), wasi: set(wasiGo),
		wasiUnstable: true, emscripten: true, notes: envoyNotes, fails: map[string]string{"poll_oneoff": pollENOSYS},
	}
	if minor >= 39 {
		t.wasi, t.fails = set(wasiAll), nil
	}
	return t
}

func envoy(minor int) Host {
	h := Host{
		ID: fmt.Sprintf("envoy-1.%d", minor), Name: fmt.Sprintf("Envoy 1.%d", minor), table: envoyTable(minor),
		Evidence: "measured", Source: "names registered in the released binary; behaviour of 1.36.2, 1.38.2 and 1.40.0 in our tests; proxy-wasm-cpp-host src/exports.cc",
		Notes: []string{"host calls before proxy_on_vm_start (in _initialize, main, _start) are a trap, but for proxy_log", "foreign functions: compress, uncompress, verify_signature, expr_create, expr_evaluate, expr_delete, declare_property, set_envoy_filter_state, clear_route_cache"},
	}
	if minor < 36 {
		h.Evidence, h.Source = "source", "changelog of 1.33 (Go plugins run) and proxy-wasm-cpp-host at c4d7bb0; the binary was not looked into"
	}
	if minor < 35 {
		h.Notes = append(h.Notes, "allow_on_headers_stop_iteration is not there: a filter that stops at headers sees no body until it is resumed")
	} else {
		h.Notes = append(h.Notes, "a filter that stops at headers needs allow_on_headers_stop_iteration to see the body")
	}
	return h
}

// istioEnvoy is the Envoy of an Istio release.
var istioEnvoy = map[int]int{25: 33, 26: 34, 27: 35, 28: 36}

func istio(minor int) Host {
	h := envoy(istioEnvoy[minor])
	h.ID, h.Name = fmt.Sprintf("istio-1.%d", minor), fmt.Sprintf("Istio 1.%d (Envoy 1.%d)", minor, istioEnvoy[minor])
	h.Evidence, h.Source = "documentation", "Istio's list of supported Envoy versions; `pilot-agent request GET server_info` in a proxy tells its own"
	h.Notes = append(h.Notes, "a WasmPlugin sets neither vm_id nor allow_on_headers_stop_iteration: shared data of all plugins is one space, and an EnvoyFilter is needed for the flag")
	return h
}

// higressCalls are Higress's own.
var higressCalls = set("proxy_redis_init proxy_redis_call proxy_get_upstream_hosts proxy_inject_encoded_data_to_filter_chain proxy_set_upstream_override_host")

func higress() Host {
	t := envoyTable(39)
	maps.Copy(t.calls, higressCalls)
	return Host{
		ID: "higress-2", Name: "Higress 2 (its fork of Envoy)", Evidence: "source", table: t,
		Source: "higress-group/proxy-wasm-cpp-host at 913c1b0 (July 2025), include/proxy-wasm/exports.h and src/exports.cc",
		Notes:  []string{"single-layer wasm OCI images could not be pulled (higress issue 4528): ship the tar+gzip form with plugin.wasm too"},
	}
}

// Callbacks of TCP filters and of gRPC calls out.
const (
	tcpCallbacks  = "proxy_on_new_connection proxy_on_downstream_data proxy_on_upstream_data proxy_on_downstream_connection_close proxy_on_upstream_connection_close"
	grpcCallbacks = "proxy_on_grpc_receive_initial_metadata proxy_on_grpc_receive proxy_on_grpc_receive_trailing_metadata proxy_on_grpc_close"
)

const unimplemented = "answers Unimplemented"

func failing(effect string, names string) map[string]string {
	m := map[string]string{}
	for _, n := range strings.Fields(names) {
		m[n] = effect
	}
	return m
}

func ngxWasmModule() Host {
	never := "is never called"
	fails := failing("traps: the host has it by name only", `proxy_get_log_level proxy_done proxy_close_stream proxy_get_status
		proxy_grpc_call proxy_grpc_stream proxy_grpc_send proxy_grpc_cancel proxy_grpc_close proxy_resolve_shared_queue
		proxy_continue_response proxy_clear_route_cache`)
	fails["poll_oneoff"] = "answers ENOTSUP: Go's runtime ends the VM when a goroutine waits, sleeps or sets a timer"
	return Host{
		ID: "ngx_wasm_module", Name: "ngx_wasm_module (Kong's WasmX for Nginx)", Evidence: "source",
		Source: "Kong/ngx_wasm_module at 3bed278 (April 2025): docs/PROXY_WASM.md, ngx_proxy_wasm_host.c, ngx_wasi_preview1_host.c, ngx_wavm_host.c",
		Notes: []string{
			"http_call takes host:port, not the name of a cluster; it cannot be made in response phases",
			"a response cannot be held: proxy_continue_stream for the response does nothing",
			"proxy_resolve_shared_queue and proxy_on_queue_ready are missing: VMs cannot wake each other",
			"foreign functions: resolve_lua",
		},
		table: &table{
			abi: []string{"0.1.0", "0.2.0", "0.2.1"},
			// proxy_get_header_map_size and proxy_get_buffer_status are not in its table.
			calls:     without(set(calls021, calls010), "proxy_get_header_map_size", "proxy_get_buffer_status"),
			wasi:      set(wasiGo),
			fails:     fails,
			callbacks: failing(never, "proxy_on_request_trailers proxy_on_response_trailers proxy_on_queue_ready "+tcpCallbacks+" "+grpcCallbacks),
		},
	}
}

func apisix() Host {
	never := "is never called"
	return Host{
		ID: "apisix-3", Name: "Apache APISIX 3 (api7/wasm-nginx-module)", Evidence: "source",
		Source: "api7/wasm-nginx-module at 0b4b31d (February 2024): src/http/ngx_http_wasm_api.c, proxy_wasm_abi.md",
		Notes:  []string{"request bodies reach the filter only where the plugin's configuration asks for them", "metrics are accepted and thrown away"},
		table: &table{
			abi:   []string{"0.1.0", "0.2.0", "0.2.1"},
			calls: without(set(calls021, calls010), "proxy_get_log_level", "proxy_get_header_map_size", "proxy_get_buffer_status"),
			wasi:  set(wasiAll), // the engine's own WASI
			fails: failing(unimplemented, `proxy_set_buffer_bytes proxy_get_current_time_nanoseconds proxy_set_tick_period_milliseconds
				proxy_set_header_map_pairs proxy_get_shared_data proxy_set_shared_data proxy_register_shared_queue
				proxy_resolve_shared_queue proxy_dequeue_shared_queue proxy_enqueue_shared_queue proxy_clear_route_cache
				proxy_grpc_call proxy_grpc_stream proxy_grpc_send proxy_grpc_cancel proxy_grpc_close proxy_get_status proxy_done
				proxy_call_foreign_function`),
			notes: failing("answers Ok and does nothing", "proxy_define_metric proxy_increment_metric proxy_record_metric proxy_get_metric proxy_close_stream"),
			callbacks: failing(never, `proxy_on_vm_start proxy_on_tick proxy_on_queue_ready proxy_on_log
				proxy_on_request_trailers proxy_on_response_trailers `+tcpCallbacks+" "+grpcCallbacks),
		},
	}
}

func googleServiceExtensions() Host {
	none := "is not supported there: the page does not say whether it is refused or answers an error"
	return Host{
		ID: "google-service-extensions", Name: "Google Cloud Service Extensions plugins", Evidence: "documentation",
		Source: "cloud.google.com/service-extensions/docs/plugins-overview, limitations (2026)",
		Notes: []string{
			"1 ms of CPU per callback, 16 MiB of memory per VM for 1,000 requests at once, 128 KiB per mutation",
			"WASI functions are not documented; as in Envoy is assumed",
		},
		table: &table{
			abi: []string{"0.2.0", "0.2.1"}, calls: set(calls021), wasi: set(wasiGo), emscripten: true,
			fails: failing(none, `proxy_set_tick_period_milliseconds proxy_define_metric proxy_increment_metric proxy_record_metric
				proxy_get_metric proxy_get_shared_data proxy_set_shared_data proxy_register_shared_queue proxy_resolve_shared_queue
				proxy_dequeue_shared_queue proxy_enqueue_shared_queue proxy_http_call proxy_grpc_call proxy_grpc_stream`),
			callbacks: map[string]string{
				"proxy_on_request_trailers": "is not called: trailers are not supported", "proxy_on_response_trailers": "is not called: trailers are not supported",
				"proxy_on_tick": "is not called: there are no timers",
			},
			memoryPages: 16 << 20 / (64 << 10),
		},
	}
}

func hostsimItself() Host {
	return Host{
		ID: "hostsim", Name: "hostsim (warmpath gateway, hosttest)", Evidence: "measured", Source: "this repository",
		Notes: []string{"gRPC calls, TCP streams and foreign functions answer errors"},
		table: &table{
			abi: []string{"0.2.0", "0.2.1"}, calls: set(calls021), wasi: set(wasiAll), wasiUnstable: true, emscripten: true,
			fails:     failing(unimplemented, "proxy_grpc_call proxy_grpc_stream"),
			callbacks: failing("is never called: HTTP only", tcpCallbacks+" "+grpcCallbacks),
			notes:     map[string]string{"proxy_call_foreign_function": "answers NotFound for every name but clear_route_cache"},
		},
	}
}

func without(m map[string]bool, names ...string) map[string]bool {
	for _, n := range names {
		delete(m, n)
	}
	return m
}

// Hosts lists every host of the table.
func Hosts() []Host {
	var all []Host
	for minor := 33; minor <= 40; minor++ {
		all = append(all, envoy(minor))
	}
	for _, minor := range slices.Sorted(maps.Keys(istioEnvoy)) {
		all = append(all, istio(minor))
	}
	return append(all, higress(), ngxWasmModule(), apisix(), googleServiceExtensions(), hostsimItself())
}

// Find returns the hosts of an id ("envoy-1.36") or of a family ("envoy").
func Find(id string) ([]Host, error) {
	var found []Host
	var ids []string
	for _, h := range Hosts() {
		ids = append(ids, h.ID)
		family, _, _ := strings.Cut(h.ID, "-")
		if h.ID == id || family == id {
			found = append(found, h)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no host %q: there are %s (a patch release is as its minor one)", id, strings.Join(ids, ", "))
	}
	return found, nil
}
