package abi

import "runtime/debug"

// gcPercent lets the heap grow to five times the live data before Go collects.
// A VM's live heap is a few MB, so this costs little memory and saves most
// collections.
const gcPercent = 400

// connect sends the SDK's host calls to the host. The lock that the SDK takes
// for its tests is never released.
func connect() {
	debug.SetGCPercent(gcPercent)
	sdkRegisterHost(bridge{})
}
