package abi

import "runtime/debug"

// gcPercent is Go's default, said aloud: a collection of a VM's 2 MB of live
// data takes 0.6 ms and comes once in 9,000 requests, since the fast calls
// leave next to no garbage. At 400 the heap's least goal is 16 MB, and a VM
// kept 26 to 46 MiB instead of 13 (make soak).
const gcPercent = 100

// connect sends the SDK's host calls to the host. The lock that the SDK takes
// for its tests is never released.
func connect() {
	debug.SetGCPercent(gcPercent)
	sdkRegisterHost(bridge{})
}
