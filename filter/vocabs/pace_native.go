//go:build !wasm

package vocabs

// keepPace is for the VM's heap; a native process has others.
func keepPace(int) {}
