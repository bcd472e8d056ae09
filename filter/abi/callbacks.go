package abi

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// One function per callback of ABI 0.2.1. Each recovers from a panic with the
// answer that lets the proxy go on: Continue for a stream, done for a context
// to be deleted. Start and configuration answer false, so that the host keeps
// the configuration it had.

// OnVMStart serves proxy_on_vm_start.
func OnVMStart(rootID uint32, configurationSize int) (ok bool) {
	defer recovered("proxy_on_vm_start")
	return bool(sdkOnVMStart(rootID, configurationSize))
}

// OnConfigure serves proxy_on_configure.
func OnConfigure(rootID uint32, configurationSize int) (ok bool) {
	defer recovered("proxy_on_configure")
	return bool(sdkOnConfigure(rootID, configurationSize))
}

// OnContextCreate serves proxy_on_context_create: a plugin context if parentID
// is 0, a stream of that plugin context otherwise.
func OnContextCreate(contextID, parentID uint32) {
	defer recovered("proxy_on_context_create")
	sdkOnContextCreate(contextID, parentID)
}

// OnLog serves proxy_on_log, which comes once when a stream has ended.
func OnLog(contextID uint32) {
	defer recovered("proxy_on_log")
	sdkOnLog(contextID)
}

// OnDone serves proxy_on_done. false delays the deletion until Done.
func OnDone(contextID uint32) (done bool) {
	done = true
	defer recovered("proxy_on_done")
	return sdkOnDone(contextID)
}

// OnDelete serves proxy_on_delete.
func OnDelete(contextID uint32) {
	defer recovered("proxy_on_delete")
	sdkOnDelete(contextID)
}

// OnTick serves proxy_on_tick.
func OnTick(rootID uint32) {
	defer recovered("proxy_on_tick")
	sdkOnTick(rootID)
}

// OnQueueReady serves proxy_on_queue_ready.
func OnQueueReady(rootID, queueID uint32) {
	defer recovered("proxy_on_queue_ready")
	sdkOnQueueReady(rootID, queueID)
}

// OnRequestHeaders serves proxy_on_request_headers.
func OnRequestHeaders(contextID uint32, numHeaders int, end bool) (action types.Action) {
	defer recovered("proxy_on_request_headers")
	return sdkOnRequestHeaders(contextID, numHeaders, end)
}

// OnRequestBody serves proxy_on_request_body. size counts all bytes that are
// buffered, not only the new ones.
func OnRequestBody(contextID uint32, size int, end bool) (action types.Action) {
	defer recovered("proxy_on_request_body")
	return sdkOnRequestBody(contextID, size, end)
}

// OnRequestTrailers serves proxy_on_request_trailers.
func OnRequestTrailers(contextID uint32, numTrailers int) (action types.Action) {
	defer recovered("proxy_on_request_trailers")
	return sdkOnRequestTrailers(contextID, numTrailers)
}

// OnResponseHeaders serves proxy_on_response_headers.
func OnResponseHeaders(contextID uint32, numHeaders int, end bool) (action types.Action) {
	defer recovered("proxy_on_response_headers")
	return sdkOnResponseHeaders(contextID, numHeaders, end)
}

// OnResponseBody serves proxy_on_response_body.
func OnResponseBody(contextID uint32, size int, end bool) (action types.Action) {
	defer recovered("proxy_on_response_body")
	return sdkOnResponseBody(contextID, size, end)
}

// OnResponseTrailers serves proxy_on_response_trailers.
func OnResponseTrailers(contextID uint32, numTrailers int) (action types.Action) {
	defer recovered("proxy_on_response_trailers")
	return sdkOnResponseTrailers(contextID, numTrailers)
}

// OnHTTPCallResponse serves proxy_on_http_call_response.
func OnHTTPCallResponse(rootID, callID uint32, numHeaders, bodySize, numTrailers int) {
	defer recovered("proxy_on_http_call_response")
	sdkOnHTTPCallResponse(rootID, callID, numHeaders, bodySize, numTrailers)
}

// OnNewConnection serves proxy_on_new_connection.
func OnNewConnection(contextID uint32) (action types.Action) {
	defer recovered("proxy_on_new_connection")
	return sdkOnNewConnection(contextID)
}

// OnDownstreamData serves proxy_on_downstream_data.
func OnDownstreamData(contextID uint32, size int, end bool) (action types.Action) {
	defer recovered("proxy_on_downstream_data")
	return sdkOnDownstreamData(contextID, size, end)
}

// OnDownstreamConnectionClose serves proxy_on_downstream_connection_close.
func OnDownstreamConnectionClose(contextID uint32, peer types.PeerType) {
	defer recovered("proxy_on_downstream_connection_close")
	sdkOnDownstreamConnectionClose(contextID, peer)
}

// OnUpstreamData serves proxy_on_upstream_data.
func OnUpstreamData(contextID uint32, size int, end bool) (action types.Action) {
	defer recovered("proxy_on_upstream_data")
	return sdkOnUpstreamData(contextID, size, end)
}

// OnUpstreamConnectionClose serves proxy_on_upstream_connection_close.
func OnUpstreamConnectionClose(contextID uint32, peer types.PeerType) {
	defer recovered("proxy_on_upstream_connection_close")
	sdkOnUpstreamConnectionClose(contextID, peer)
}

// The SDK knows neither gRPC nor foreign functions nor HTTP/2 metadata; what
// the host says about them comes to these variables, where nil ignores it. The
// SDK is told the context, as it needs it to remember who made an HTTP call.
var (
	// GRPC receives what calls and streams made by GRPCCall and GRPCStream get.
	GRPC struct {
		InitialMetadata  func(rootID, id uint32, numElements int)  // read GRPCInitialMetadata
		Message          func(rootID, id uint32, size int)         // read GRPCMessage
		TrailingMetadata func(rootID, id uint32, numElements int)  // read GRPCTrailingMetadata
		Close            func(rootID, id uint32, grpcStatus int32) // CallStatus has the message
	}

	// ForeignFunction is called by the host; read ForeignArguments.
	ForeignFunction func(rootID, functionID uint32, argumentsSize int)

	// Metadata is told of an HTTP/2 METADATA frame.
	Metadata func(contextID uint32, stream StreamType, numElements int) types.Action
)

// OnGRPCInitialMetadata serves proxy_on_grpc_receive_initial_metadata.
func OnGRPCInitialMetadata(rootID, id uint32, numElements int) {
	defer recovered("proxy_on_grpc_receive_initial_metadata")
	if GRPC.InitialMetadata != nil {
		sdkSetActiveContext(rootID)
		GRPC.InitialMetadata(rootID, id, numElements)
	}
}

// OnGRPCReceive serves proxy_on_grpc_receive.
func OnGRPCReceive(rootID, id uint32, size int) {
	defer recovered("proxy_on_grpc_receive")
	if GRPC.Message != nil {
		sdkSetActiveContext(rootID)
		GRPC.Message(rootID, id, size)
	}
}

// OnGRPCTrailingMetadata serves proxy_on_grpc_receive_trailing_metadata.
func OnGRPCTrailingMetadata(rootID, id uint32, numElements int) {
	defer recovered("proxy_on_grpc_receive_trailing_metadata")
	if GRPC.TrailingMetadata != nil {
		sdkSetActiveContext(rootID)
		GRPC.TrailingMetadata(rootID, id, numElements)
	}
}

// OnGRPCClose serves proxy_on_grpc_close.
func OnGRPCClose(rootID, id uint32, grpcStatus int32) {
	defer recovered("proxy_on_grpc_close")
	if GRPC.Close != nil {
		sdkSetActiveContext(rootID)
		GRPC.Close(rootID, id, grpcStatus)
	}
}

// OnForeignFunction serves proxy_on_foreign_function. It may run inside
// CallForeign, whose result must still go where that call wants it.
func OnForeignFunction(rootID, functionID uint32, argumentsSize int) {
	outer := into
	defer func() { into = outer }()
	defer recovered("proxy_on_foreign_function")
	into = nil
	if ForeignFunction != nil {
		sdkSetActiveContext(rootID)
		ForeignFunction(rootID, functionID, argumentsSize)
	}
}

// OnRequestMetadata serves proxy_on_request_metadata.
func OnRequestMetadata(contextID uint32, numElements int) types.Action {
	return onMetadata("proxy_on_request_metadata", contextID, StreamRequest, numElements)
}

// OnResponseMetadata serves proxy_on_response_metadata.
func OnResponseMetadata(contextID uint32, numElements int) types.Action {
	return onMetadata("proxy_on_response_metadata", contextID, StreamResponse, numElements)
}

func onMetadata(callback string, contextID uint32, stream StreamType, numElements int) (action types.Action) {
	defer recovered(callback)
	if Metadata != nil {
		sdkSetActiveContext(contextID)
		action = Metadata(contextID, stream, numElements)
	}
	return action
}
