package abi

// Callbacks of HTTP streams. proxy_on_response_body is in a file of its own, as
// a module may be built without it.

//go:wasmexport proxy_on_request_headers
func exportRequestHeaders(contextID, numHeaders, end uint32) uint32 {
	return uint32(OnRequestHeaders(contextID, int(numHeaders), end != 0))
}

//go:wasmexport proxy_on_request_body
func exportRequestBody(contextID, size, end uint32) uint32 {
	return uint32(OnRequestBody(contextID, int(size), end != 0))
}

//go:wasmexport proxy_on_request_trailers
func exportRequestTrailers(contextID, numTrailers uint32) uint32 {
	return uint32(OnRequestTrailers(contextID, int(numTrailers)))
}

//go:wasmexport proxy_on_request_metadata
func exportRequestMetadata(contextID, numElements uint32) uint32 {
	return uint32(OnRequestMetadata(contextID, int(numElements)))
}

//go:wasmexport proxy_on_response_headers
func exportResponseHeaders(contextID, numHeaders, end uint32) uint32 {
	return uint32(OnResponseHeaders(contextID, int(numHeaders), end != 0))
}

//go:wasmexport proxy_on_response_trailers
func exportResponseTrailers(contextID, numTrailers uint32) uint32 {
	return uint32(OnResponseTrailers(contextID, int(numTrailers)))
}

//go:wasmexport proxy_on_response_metadata
func exportResponseMetadata(contextID, numElements uint32) uint32 {
	return uint32(OnResponseMetadata(contextID, int(numElements)))
}
