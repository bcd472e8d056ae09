package kvevents

// node is one block of an engine's cache, or the place of one that was removed
// while blocks behind it are still there. 40 bytes.
type node struct {
	hash       uint64
	parent     uint32
	child      uint32 // first child
	next, prev uint32 // siblings; next links the free list too
	depth      uint32 // blocks from the start of the prompt, this one included
	points     uint32 // first of its checkpoints
	tokens     uint32 // slot + 1; 0: nobody will need them
	more       uint16 // further blocks of this name in the engine's GPU memory
	media      Medium // 0: removed
	flags      uint8
}

const (
	held   uint8 = 1 << iota // in GPU memory, and so is every block before it
	kept                     // in any memory, and so is every block before it
	slow                     // kept and not held, and told so
	opaque                   // more than the tokens decides what it holds
)

// point is a checkpoint that a block completes. The first one of a prompt is its
// salt.
type point struct {
	fingerprint uint64
	end         uint32 // units, or those of a turn | turnBit, or the number of an adapter | saltBit
	next        uint32
}

const (
	turnBit = 1 << 27 // not of the schedule: no segment starts there
	saltBit = 1 << 28
	endMask = 1<<27 - 1
)

func (p point) isTurn() bool { return p.end&turnBit != 0 }
func (p point) salt() bool   { return p.end&saltBit != 0 }

// units before the point, 0 for a salt.
func (p point) units() uint32 {
	if p.salt() {
		return 0
	}
	return p.end & endMask
}

const slabLen = 4096

// slab hands out items by number; 0 is nobody.
type slab[T any] struct {
	chunks [][]T
	used   uint32
	free   []uint32
}

func (s *slab[T]) at(id uint32) *T { return &s.chunks[id/slabLen][id%slabLen] }

func (s *slab[T]) alloc() uint32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	if s.used == 0 {
		s.used = 1
	}
	id := s.used
	s.used++
	if int(id/slabLen) == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, slabLen))
	}
	return id
}

func (s *slab[T]) release(id uint32) {
	var zero T
	*s.at(id) = zero
	s.free = append(s.free, id)
}

// bytes that the slab has taken, T being size bytes.
func (s *slab[T]) bytes(size int) int64 {
	return int64(len(s.chunks))*slabLen*int64(size) + 4*int64(cap(s.free))
}

// table finds nodes by the hash of their block: linear probing over node
// numbers, whose nodes hold the hashes.
type table struct {
	slots []uint32
	count int
}

func (t *table) home(hash uint64) int {
	return int((hash * 0x9e3779b97f4a7c15) >> 32 & uint64(len(t.slots)-1))
}

func (t *table) find(nodes *slab[node], hash uint64) uint32 {
	if t.count == 0 {
		return 0
	}
	for i := t.home(hash); ; i = (i + 1) & (len(t.slots) - 1) {
		id := t.slots[i]
		if id == 0 || nodes.at(id).hash == hash {
			return id
		}
	}
}

func (t *table) add(nodes *slab[node], id uint32) {
	if 4*(t.count+1) > 3*len(t.slots) {
		old := t.slots
		t.slots = make([]uint32, max(1024, 2*len(old)))
		for _, o := range old {
			if o != 0 {
				t.put(nodes.at(o).hash, o)
			}
		}
	}
	t.put(nodes.at(id).hash, id)
	t.count++
}

func (t *table) put(hash uint64, id uint32) {
	i := t.home(hash)
	for t.slots[i] != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = id
}

// remove closes the hole, so that no probe ends too early.
func (t *table) remove(nodes *slab[node], hash uint64) {
	mask := len(t.slots) - 1
	i := t.home(hash)
	for nodes.at(t.slots[i]).hash != hash {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		if home := t.home(nodes.at(t.slots[j]).hash); (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
	t.count--
}

// tokenSlots keeps the token ids of blocks from which a prompt may go on within
// a segment: three bytes an id.
type tokenSlots struct {
	size   int // tokens of a slot
	chunks [][]byte
	used   uint32
	free   []uint32
}

const (
	slotsPerChunk = 1024
	maxTokenID    = 1<<24 - 1
)

func (s *tokenSlots) slot(id uint32) []byte {
	i := id - 1
	at := int(i%slotsPerChunk) * 3 * s.size
	return s.chunks[i/slotsPerChunk][at : at+3*s.size]
}

// take returns a free slot.
func (s *tokenSlots) take() uint32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.used++
	if int((s.used-1)/slotsPerChunk) == len(s.chunks) {
		s.chunks = append(s.chunks, make([]byte, slotsPerChunk*3*s.size))
	}
	return s.used
}

func (s *tokenSlots) put(ids []uint32) uint32 {
	id := s.take()
	b := s.slot(id)
	for i, t := range ids {
		b[3*i], b[3*i+1], b[3*i+2] = byte(t), byte(t>>8), byte(t>>16)
	}
	return id
}

func (s *tokenSlots) append(out []uint32, id uint32, from int) []uint32 {
	b := s.slot(id)
	for i := from; i < s.size; i++ {
		out = append(out, uint32(b[3*i])|uint32(b[3*i+1])<<8|uint32(b[3*i+2])<<16)
	}
	return out
}

func (s *tokenSlots) bytes() int64 {
	return int64(len(s.chunks))*slotsPerChunk*3*int64(s.size) + 4*int64(cap(s.free))
}
