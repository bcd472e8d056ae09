package hostsim

import "github.com/tetratelabs/wazero/experimental"

// linearMemory allocates the memory of one instance and keeps it reachable as
// long as the instance is.
type linearMemory struct {
	kept experimental.LinearMemory
	in   *instance
}

// Allocate reserves the most that will ever be asked for.
func (m *linearMemory) Allocate(capacity, most uint64) experimental.LinearMemory {
	m.kept = reserve(most)
	if m.kept == nil {
		m.kept = &heapMemory{block: make([]byte, 0, capacity)}
	}
	return &growingMemory{m.kept, m.in, 0}
}

// growingMemory lets a fault refuse that memory grows.
type growingMemory struct {
	experimental.LinearMemory
	in   *instance
	size uint64
}

func (m *growingMemory) Reallocate(size uint64) []byte {
	if m.in != nil && size > m.size && m.size > 0 && m.in.fault(memoryGrow) != nil {
		return nil
	}
	b := m.LinearMemory.Reallocate(size)
	if b != nil {
		m.size = size
	}
	return b
}

// heapMemory is linear memory on Go's heap, which moves when it grows.
type heapMemory struct{ block []byte }

func (m *heapMemory) Reallocate(size uint64) []byte {
	if grow := int(size) - len(m.block); grow > 0 {
		m.block = append(m.block, make([]byte, grow)...)
	}
	return m.block
}

func (m *heapMemory) Free() { m.block = nil }
