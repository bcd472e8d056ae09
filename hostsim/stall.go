package hostsim

import "time"

// Stall makes the VM's thread stand still for d: ticks, queue messages and
// http_call replies that come due meanwhile are delivered afterwards, in their
// order. What the embedder itself feeds into streams is not held back. It may be
// called from anywhere; a stall within a stall does not prolong it.
func (vm *VM) Stall(d time.Duration) {
	vm.boxMu.Lock()
	defer vm.boxMu.Unlock()
	if vm.stalls {
		return
	}
	vm.stalls = true
	vm.host.clock.AfterFunc(d, func() {
		vm.boxMu.Lock()
		work := vm.held
		vm.held, vm.stalls = nil, false
		vm.boxMu.Unlock()
		for _, f := range work {
			vm.Post(f)
		}
	})
}

// late keeps f for the end of a stall, if there is one.
func (vm *VM) late(f func()) bool {
	vm.boxMu.Lock()
	defer vm.boxMu.Unlock()
	if !vm.stalls {
		return false
	}
	vm.held = append(vm.held, f)
	return true
}
