package abi

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// Callbacks of TCP streams.

//go:wasmexport proxy_on_new_connection
func exportNewConnection(contextID uint32) uint32 { return uint32(OnNewConnection(contextID)) }

//go:wasmexport proxy_on_downstream_data
func exportDownstreamData(contextID, size, end uint32) uint32 {
	return uint32(OnDownstreamData(contextID, int(size), end != 0))
}

//go:wasmexport proxy_on_downstream_connection_close
func exportDownstreamConnectionClose(contextID, peer uint32) {
	OnDownstreamConnectionClose(contextID, types.PeerType(peer))
}

//go:wasmexport proxy_on_upstream_data
func exportUpstreamData(contextID, size, end uint32) uint32 {
	return uint32(OnUpstreamData(contextID, int(size), end != 0))
}

//go:wasmexport proxy_on_upstream_connection_close
func exportUpstreamConnectionClose(contextID, peer uint32) {
	OnUpstreamConnectionClose(contextID, types.PeerType(peer))
}
