package abi

import "unsafe"

// Callbacks of the VM, of plugin contexts and of what they started.

//go:wasmexport proxy_abi_version_0_2_1
func exportABIVersion() {}

//go:wasmexport proxy_on_memory_allocate
func exportMemoryAllocate(size uint32) unsafe.Pointer { return allocate(size) }

//go:wasmexport proxy_on_vm_start
func exportVMStart(rootID, configurationSize uint32) uint32 {
	return flag(OnVMStart(rootID, int(configurationSize)))
}

//go:wasmexport proxy_on_configure
func exportConfigure(rootID, configurationSize uint32) uint32 {
	return flag(OnConfigure(rootID, int(configurationSize)))
}

//go:wasmexport proxy_on_context_create
func exportContextCreate(contextID, parentID uint32) { OnContextCreate(contextID, parentID) }

//go:wasmexport proxy_on_log
func exportLog(contextID uint32) { OnLog(contextID) }

//go:wasmexport proxy_on_done
func exportDone(contextID uint32) uint32 { return flag(OnDone(contextID)) }

//go:wasmexport proxy_on_delete
func exportDelete(contextID uint32) { OnDelete(contextID) }

//go:wasmexport proxy_on_tick
func exportTick(rootID uint32) { OnTick(rootID) }

//go:wasmexport proxy_on_queue_ready
func exportQueueReady(rootID, queueID uint32) { OnQueueReady(rootID, queueID) }

//go:wasmexport proxy_on_http_call_response
func exportHTTPCallResponse(rootID, callID, numHeaders, bodySize, numTrailers uint32) {
	OnHTTPCallResponse(rootID, callID, int(numHeaders), int(bodySize), int(numTrailers))
}

//go:wasmexport proxy_on_grpc_receive_initial_metadata
func exportGRPCInitialMetadata(rootID, id, numElements uint32) {
	OnGRPCInitialMetadata(rootID, id, int(numElements))
}

//go:wasmexport proxy_on_grpc_receive
func exportGRPCReceive(rootID, id, size uint32) { OnGRPCReceive(rootID, id, int(size)) }

//go:wasmexport proxy_on_grpc_receive_trailing_metadata
func exportGRPCTrailingMetadata(rootID, id, numElements uint32) {
	OnGRPCTrailingMetadata(rootID, id, int(numElements))
}

//go:wasmexport proxy_on_grpc_close
func exportGRPCClose(rootID, id uint32, grpcStatus int32) { OnGRPCClose(rootID, id, grpcStatus) }

//go:wasmexport proxy_on_foreign_function
func exportForeignFunction(rootID, functionID, argumentsSize uint32) {
	OnForeignFunction(rootID, functionID, int(argumentsSize))
}

// flag is a bool as the ABI returns it.
func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
