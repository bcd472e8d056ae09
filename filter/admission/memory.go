package admission

import "unsafe"

// Cells and records live in the shared data of one process: nobody else reads
// them, so they are stored as they stand in memory. Their structs are drawn with
// every byte, and have no pointers.

// bytesOf are the bytes of a slice of such structs.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// bytesOfOne are the bytes of one.
func bytesOfOne[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), int(unsafe.Sizeof(*v)))
}

// fill makes s as long as n structs and copies them from b.
func fill[T any](s []T, n int, b []byte) []T {
	if cap(s) < n {
		s = make([]T, n, n+n/2+4)
	}
	s = s[:n]
	copy(bytesOf(s), b)
	return s
}
