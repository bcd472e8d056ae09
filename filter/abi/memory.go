package abi

import "unsafe"

const (
	// bigResult is the size in bytes from which SDK results share one block. A
	// fresh block per request body made Go collect once per seven requests.
	bigResult = 16 << 10

	// maxResult bounds one result in bytes. Beyond, the host is told that there
	// is no memory (a failed call) instead of ending the VM.
	maxResult = 1 << 30

	// minScratch is the smallest block a Scratch holds, in bytes.
	minScratch = 256
)

// Scratch is memory for results of host calls, owned by the caller and reused.
// The zero value is ready. A slice got from a call is valid until the next call
// with the same Scratch, so use one for each thing that must be readable at the
// same time.
type Scratch struct{ block []byte }

// Trim frees the block if it has grown beyond limit bytes, so that one huge
// body does not pin its size for the life of the VM.
func (s *Scratch) Trim(limit int) {
	if cap(s.block) > limit {
		s.block = nil
	}
}

// grow makes room for n bytes and returns them, not zeroed. It over-allocates
// by a quarter, so that slowly growing results do not allocate each time.
func (s *Scratch) grow(n int) []byte {
	if cap(s.block) < n {
		s.block = make([]byte, max(n+n/4, minScratch))
	}
	s.block = s.block[:cap(s.block)]
	return s.block[:n]
}

// What the host writes to (see the package comment for why they live here).
var (
	outData  word
	outSize  word
	outID    uint32
	outCAS   uint32
	outValue uint64
)

var (
	// into is the Scratch of the call in progress, nil during SDK calls.
	into *Scratch

	// big holds SDK results of bigResult bytes and more.
	big Scratch

	// recent keeps the last blocks alive until the host has filled them and the
	// caller holds them itself. One call allocates once; four cover callbacks
	// nested in foreign function calls.
	recent     [4][]byte
	recentNext uint
)

// allocate serves proxy_on_memory_allocate: size bytes for the result of the
// call in progress. A size of 0 still has an address. nil: no memory.
func allocate(size uint32) unsafe.Pointer {
	if size > maxResult {
		return nil
	}
	n := max(int(size), 1)
	var block []byte
	switch {
	case into != nil:
		block = into.grow(n)
	case n >= bigResult:
		block = big.grow(n)
	default:
		block = make([]byte, n)
	}
	recent[recentNext%uint(len(recent))] = block
	recentNext++
	return unsafe.Pointer(unsafe.SliceData(block))
}

// result is the block that the host filled during the call just made: the one
// it got from allocate, found again by its address. nil: an empty result, which
// hosts report as address 0 or length 0. It fails if the host answers with
// memory that it never asked for.
func result(st Status) ([]byte, Status) {
	if st != OK || outData == 0 || outSize == 0 {
		return nil, st
	}
	for i := range uint(len(recent)) {
		block := recent[(recentNext-1-i)%uint(len(recent))]
		if word(uintptr(unsafe.Pointer(unsafe.SliceData(block)))) == outData && outSize <= word(len(block)) {
			return block[:outSize:outSize], OK
		}
	}
	return nil, InvalidMemoryAccess
}

// prepare clears the out-parameters and directs the coming result to s.
func prepare(s *Scratch) {
	outData, outSize = 0, 0
	into = s
}

// finish ends what prepare began.
func finish(st Status) ([]byte, Status) {
	into = nil
	return result(st)
}

// view is b as a string without a copy, for the length of one host call.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
