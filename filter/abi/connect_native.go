//go:build !wasm

package abi

// connect does nothing: UseFake connects the SDK, for the length of a test.
func connect() {}
