//go:build !noresponsebody

package abi

//go:wasmexport proxy_on_response_body
func exportResponseBody(contextID, size, end uint32) uint32 {
	return uint32(OnResponseBody(contextID, int(size), end != 0))
}
