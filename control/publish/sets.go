package publish

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/warmpath/warmpath/shared/wire"
)

// setTable interns the holder sets of entries with more holders than fit inline.
// Hot prefixes share them: the checkpoints of one system prompt mostly have the
// same holders. The members make the id, 24 bits of their hash, so replicas call a
// set by the same id, and hardly ever one by the id of another: where two would
// meet, the later one takes the next free id, and the digests of its entries
// differ between replicas.
type setTable struct {
	byID    map[uint32]*set
	byBits  map[string]uint32
	bytes   int
	changes uint64
}

type set struct {
	bitmap string
	users  int
}

func (s *setTable) init() {
	s.byID, s.byBits, s.bytes = map[uint32]*set{}, map[string]uint32{}, 0
	s.changes++
}

// take returns the id of the set of refs, 0 when the section is full.
func (s *setTable) take(refs []uint16) uint32 {
	bitmap := make([]byte, int(slices.Max(refs))/8+1)
	for _, r := range refs {
		bitmap[r/8] |= 1 << (r % 8)
	}
	if id, ok := s.byBits[string(bitmap)]; ok {
		s.byID[id].users++
		return id
	}
	if s.bytes+8+len(bitmap) > maxSetBytes {
		return 0
	}
	const ids = 1<<24 - 1 // and 0, for none
	id := uint32(xxhash.Sum64(bitmap) % ids)
	for s.byID[id+1] != nil {
		id = (id + 1) % ids
	}
	id++
	s.byID[id] = &set{bitmap: string(bitmap), users: 1}
	s.byBits[string(bitmap)] = id
	s.bytes += 8 + len(bitmap)
	s.changes++
	return id
}

// release gives one use of a set back. Id 0 is nobody's.
func (s *setTable) release(id uint32) {
	e := s.byID[id]
	if e == nil {
		return
	}
	if e.users--; e.users > 0 {
		return
	}
	delete(s.byID, id)
	delete(s.byBits, e.bitmap)
	s.bytes -= 8 + len(e.bitmap)
	s.changes++
}

// payload is the SETS section, by id.
func (s *setTable) payload(b []byte) []byte {
	ids := make([]uint32, 0, len(s.byID))
	for id := range s.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		b = wire.AppendSet(b, id, []byte(s.byID[id].bitmap))
	}
	return b
}
