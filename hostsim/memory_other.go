//go:build !((linux || darwin) && (amd64 || arm64))

package hostsim

import "github.com/tetratelabs/wazero/experimental"

// reserve is done with mmap elsewhere; here growth copies.
func reserve(uint64) experimental.LinearMemory { return nil }
