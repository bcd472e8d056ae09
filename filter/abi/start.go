package abi

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// Start makes vm the VM context that the callbacks go to. Call it from an init
// of package main.
func Start(vm types.VMContext) {
	if panics == ^uint64(0) { // never: see reachSDKHost
		reachSDKHost(bridge{})
	}
	proxywasm.SetVMContext(vm)
	connect()
}
