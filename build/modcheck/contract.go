package main

// proxyImports are the host functions of proxy-wasm ABI 0.2.1, all in module
// "env" (https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1).
var proxyImports = set(
	"proxy_log", "proxy_get_log_level", "proxy_get_current_time_nanoseconds",
	"proxy_set_tick_period_milliseconds", "proxy_set_effective_context", "proxy_done",
	"proxy_get_buffer_bytes", "proxy_set_buffer_bytes", "proxy_get_buffer_status",
	"proxy_get_header_map_size", "proxy_get_header_map_pairs", "proxy_set_header_map_pairs",
	"proxy_get_header_map_value", "proxy_add_header_map_value", "proxy_replace_header_map_value",
	"proxy_remove_header_map_value",
	"proxy_get_property", "proxy_set_property",
	"proxy_continue_stream", "proxy_close_stream", "proxy_get_status", "proxy_send_local_response",
	"proxy_http_call",
	"proxy_grpc_call", "proxy_grpc_stream", "proxy_grpc_send", "proxy_grpc_cancel", "proxy_grpc_close",
	"proxy_get_shared_data", "proxy_set_shared_data",
	"proxy_register_shared_queue", "proxy_resolve_shared_queue", "proxy_enqueue_shared_queue", "proxy_dequeue_shared_queue",
	"proxy_define_metric", "proxy_increment_metric", "proxy_record_metric", "proxy_get_metric",
	"proxy_call_foreign_function",
)

// wasiImports are the WASI functions that Go's runtime, os and time import and
// that Envoy provides. A package that needs more (files, sockets) makes Envoy
// refuse the module. poll_oneoff is not among them: Envoy 1.36 has it but answers
// with ENOSYS, on which Go's runtime ends the VM (build/wasmprep leaves it out).
var wasiImports = set(
	"args_get", "args_sizes_get", "environ_get", "environ_sizes_get",
	"clock_time_get", "random_get", "sched_yield", "proc_exit",
	"fd_write", "fd_fdstat_get", "fd_fdstat_set_flags", "fd_prestat_get", "fd_prestat_dir_name", "fd_close",
)

// requiredExports are what a host needs to run the filter. Without one of the
// callbacks the filter would silently not be asked.
var requiredExports = []string{
	"_initialize", "proxy_abi_version_0_2_1", "proxy_on_memory_allocate",
	"proxy_on_vm_start", "proxy_on_configure", "proxy_on_context_create",
	"proxy_on_tick", "proxy_on_queue_ready", "proxy_on_http_call_response",
	"proxy_on_request_headers", "proxy_on_request_body", "proxy_on_request_trailers",
	"proxy_on_response_headers", "proxy_on_response_trailers",
	"proxy_on_done", "proxy_on_log", "proxy_on_delete",
}

// responseBodyExport costs a call per chunk of a streamed answer; one variant
// of the module is built without it.
const responseBodyExport = "proxy_on_response_body"

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
