package hostsim

import (
	"testing"
	"unsafe"
)

func TestLinearMemoryKeepsItsBytesAsItGrows(t *testing.T) {
	var reserved linearMemory
	memories := map[string]interface{ Reallocate(uint64) []byte }{
		"reserved": reserved.Allocate(64<<10, 1<<20),
		"heap":     &heapMemory{},
	}
	for name, m := range memories {
		b := m.Reallocate(64 << 10)
		b[0], b[64<<10-1] = 1, 2
		b = m.Reallocate(1 << 20)
		if len(b) != 1<<20 || b[0] != 1 || b[64<<10-1] != 2 || b[64<<10] != 0 {
			t.Errorf("%s: grown memory has %d bytes, or other ones", name, len(b))
		}
	}
}

func TestReservedMemoryNeverMovesAndEndsAtItsLimit(t *testing.T) {
	m := reserve(1 << 20)
	if m == nil {
		t.Log("this system has no reservation: memory is on the heap")
		return
	}
	before := m.Reallocate(64 << 10)
	if after := m.Reallocate(1 << 20); unsafe.SliceData(after) != unsafe.SliceData(before) {
		t.Error("memory moved")
	}
	if m.Reallocate(1<<20+1) != nil {
		t.Error("memory grew beyond its limit")
	}
	before[0] = 7
	m.Free()
	if before[0] != 0 {
		t.Error("freed memory keeps its contents") // and is still mapped: a late read is no crash
	}
}
