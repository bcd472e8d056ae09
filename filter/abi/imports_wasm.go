package abi

// word is how the host writes an address or a length.
type word = uint32

// The host functions of ABI 0.2.1. A string parameter crosses as address and
// length; pointers are out-parameters and must point to package variables.

//go:wasmimport env proxy_log
func proxyLog(level LogLevel, message string) Status

//go:wasmimport env proxy_get_log_level
func proxyGetLogLevel(level *uint32) Status

//go:wasmimport env proxy_get_current_time_nanoseconds
func proxyGetCurrentTimeNanoseconds(unixNanos *uint64) Status

//go:wasmimport env proxy_set_tick_period_milliseconds
func proxySetTickPeriodMilliseconds(period uint32) Status

//go:wasmimport env proxy_set_effective_context
func proxySetEffectiveContext(contextID uint32) Status

//go:wasmimport env proxy_done
func proxyDone() Status

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBufferBytes(buffer BufferType, start, length uint32, data, size *word) Status

//go:wasmimport env proxy_set_buffer_bytes
func proxySetBufferBytes(buffer BufferType, start, length uint32, data string) Status

//go:wasmimport env proxy_get_buffer_status
func proxyGetBufferStatus(buffer BufferType, size *word, unused *uint32) Status

//go:wasmimport env proxy_get_header_map_size
func proxyGetHeaderMapSize(headers MapType, size *word) Status

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetHeaderMapPairs(headers MapType, data, size *word) Status

//go:wasmimport env proxy_set_header_map_pairs
func proxySetHeaderMapPairs(headers MapType, pairs string) Status

//go:wasmimport env proxy_get_header_map_value
func proxyGetHeaderMapValue(headers MapType, key string, data, size *word) Status

//go:wasmimport env proxy_add_header_map_value
func proxyAddHeaderMapValue(headers MapType, key, value string) Status

//go:wasmimport env proxy_replace_header_map_value
func proxyReplaceHeaderMapValue(headers MapType, key, value string) Status

//go:wasmimport env proxy_remove_header_map_value
func proxyRemoveHeaderMapValue(headers MapType, key string) Status

//go:wasmimport env proxy_get_property
func proxyGetProperty(path string, data, size *word) Status

//go:wasmimport env proxy_set_property
func proxySetProperty(path, value string) Status

//go:wasmimport env proxy_continue_stream
func proxyContinueStream(stream StreamType) Status

//go:wasmimport env proxy_close_stream
func proxyCloseStream(stream StreamType) Status

//go:wasmimport env proxy_get_status
func proxyGetStatus(code *uint32, data, size *word) Status

//go:wasmimport env proxy_send_local_response
func proxySendLocalResponse(status uint32, details, body, headers string, grpcStatus int32) Status

//go:wasmimport env proxy_http_call
func proxyHTTPCall(cluster, headers, body, trailers string, timeoutMillis uint32, callID *uint32) Status

//go:wasmimport env proxy_grpc_call
func proxyGRPCCall(cluster, service, method, metadata, message string, timeoutMillis uint32, callID *uint32) Status

//go:wasmimport env proxy_grpc_stream
func proxyGRPCStream(cluster, service, method, metadata string, streamID *uint32) Status

//go:wasmimport env proxy_grpc_send
func proxyGRPCSend(streamID uint32, message string, endOfStream uint32) Status

//go:wasmimport env proxy_grpc_cancel
func proxyGRPCCancel(id uint32) Status

//go:wasmimport env proxy_grpc_close
func proxyGRPCClose(id uint32) Status

//go:wasmimport env proxy_get_shared_data
func proxyGetSharedData(key string, data, size *word, cas *uint32) Status

//go:wasmimport env proxy_set_shared_data
func proxySetSharedData(key, value string, cas uint32) Status

//go:wasmimport env proxy_register_shared_queue
func proxyRegisterSharedQueue(name string, queueID *uint32) Status

//go:wasmimport env proxy_resolve_shared_queue
func proxyResolveSharedQueue(vmID, name string, queueID *uint32) Status

//go:wasmimport env proxy_enqueue_shared_queue
func proxyEnqueueSharedQueue(queueID uint32, message string) Status

//go:wasmimport env proxy_dequeue_shared_queue
func proxyDequeueSharedQueue(queueID uint32, data, size *word) Status

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind MetricKind, name string, metricID *uint32) Status

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(metricID uint32, offset int64) Status

//go:wasmimport env proxy_record_metric
func proxyRecordMetric(metricID uint32, value uint64) Status

//go:wasmimport env proxy_get_metric
func proxyGetMetric(metricID uint32, value *uint64) Status

//go:wasmimport env proxy_call_foreign_function
func proxyCallForeignFunction(name, arguments string, data, size *word) Status
