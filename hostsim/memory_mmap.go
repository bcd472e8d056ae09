//go:build (linux || darwin) && (amd64 || arm64)

package hostsim

import (
	"runtime"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// reserve gives the linear memory of an instance an address range for all it
// may ever grow to. The system backs what is touched. Growth is then free, as
// in V8; by itself wazero copies the whole memory every time it grows, which
// at 20 MiB stops the VM for 10 to 20 ms and makes every untouched page real.
func reserve(most uint64) experimental.LinearMemory {
	space, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil // no such address range: the heap will do
	}
	r := &reservation{space: space}
	runtime.AddCleanup(r, func(space []byte) {
		_ = unix.Munmap(space) // nothing to be done about it in a cleanup
	}, space)
	return r
}

// reservation is unmapped when nobody refers to it any more; the instance
// does, so that no late look at its memory meets a hole.
type reservation struct{ space []byte }

// Reallocate returns the first size bytes, which never move.
func (r *reservation) Reallocate(size uint64) []byte {
	if size > uint64(len(r.space)) {
		return nil
	}
	return r.space[:size]
}

// Free gives the memory back at once, and the addresses later.
func (r *reservation) Free() {
	_ = unix.Madvise(r.space, unix.MADV_DONTNEED) // advice
}
