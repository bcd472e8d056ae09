package index

import (
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Checkpoint is a position of a prompt's fingerprint chain.
type Checkpoint = fingerprint.Checkpoint

// node is one checkpoint in one worker's cache. 64 bytes, so that a million of
// them are 64 MB and a visit is one cache line.
type node struct {
	fingerprint  uint64
	touched      uint64 // order of the report that used it last
	born         uint64 // number in order of insertion, over all workers
	parent       uint32 // the nearest known checkpoint before it; 0 none
	child        uint32 // first child
	next, prev   uint32 // siblings (next links the free list too)
	newer, older uint32 // recency order of the worker
	same         uint32 // next holder of the same fingerprint, older one
	end          uint32 // units from the start of the prompt
	tail         uint16 // units of generated text beyond it, until a child covers them
	predictions  uint16 // dispatches that it rests on and that were not taken back; many stays
	ref          uint16
	confirmed    bool
	reported     bool // by the engine itself, and not removed since
}

// many predictions are not counted any more. What came from elsewhere has as many:
// what it rests on isn't known here.
const many = math.MaxUint16

// idle tells whether nothing speaks for a node any more.
func (n *node) idle() bool { return n.predictions == 0 && !n.confirmed && !n.reported && n.child == 0 }

// Cost of bookkeeping in bytes: the node, its slot in the worker's map, and the
// fingerprint's slot in the holders' map (Go maps at their usual fill).
const (
	nodeBytes        = 64 + 28
	fingerprintBytes = 28
)

const slabNodes = 4096

// store keeps the nodes of all workers, the holders of every fingerprint, and
// which fingerprints changed hands.
type store struct {
	slabs   []*[slabNodes]node
	used    uint32 // ids given out so far; id 0 is nobody
	free    uint32 // head of the free list
	live    int
	holders map[uint64]holding
	born    uint64
	dirty   []uint64
	began   time.Time // of clock
	clock   float32   // half-lives of heat since began
	// remembered are heats of a restored snapshot, for those who are claimed.
	remembered map[uint64]float32
}

func newStore() *store {
	return &store{slabs: []*[slabNodes]node{new([slabNodes]node)}, used: 1, holders: map[uint64]holding{}}
}

func (s *store) node(id uint32) *node { return &s.slabs[id/slabNodes][id%slabNodes] }

func (s *store) end(id uint32) uint32 {
	if id == 0 {
		return 0
	}
	return s.node(id).end
}

// bytes is the estimate that the cap is held against.
func (s *store) bytes() int64 {
	return int64(s.live)*nodeBytes + int64(len(s.holders))*fingerprintBytes
}

func (s *store) alloc() uint32 {
	id := s.free
	if id != 0 {
		s.free = s.node(id).next
	} else {
		id = s.used
		s.used++
		if int(id/slabNodes) == len(s.slabs) {
			s.slabs = append(s.slabs, new([slabNodes]node))
		}
	}
	s.live++
	return id
}

func (s *store) release(id uint32) {
	*s.node(id) = node{next: s.free}
	s.free = id
	s.live--
}

func (s *store) markDirty(f uint64) {
	if n := len(s.dirty); n > 0 && s.dirty[n-1] == f {
		return
	}
	s.dirty = append(s.dirty, f)
	if len(s.dirty) >= 1<<20 && len(s.dirty) == cap(s.dirty) {
		slices.Sort(s.dirty)
		s.dirty = slices.Compact(s.dirty)
	}
}

// hold links id as the newest holder of its fingerprint.
func (s *store) hold(id uint32) {
	n := s.node(id)
	h, ok := s.holders[n.fingerprint]
	if !ok {
		h.heat = s.clock + freshHeat
		if past, ok := s.remembered[n.fingerprint]; ok {
			h.heat = max(h.heat, past)
		}
	}
	n.same, h.first = h.first, id
	s.holders[n.fingerprint] = h
	s.markDirty(n.fingerprint)
}

// holdInOrder links id among the holders of its fingerprint by age: restored
// holders must list as they did before, or the digests of pages would differ.
func (s *store) holdInOrder(id uint32) {
	n := s.node(id)
	at := s.holders[n.fingerprint].first
	if at == 0 || s.node(at).born < n.born {
		s.hold(id)
		return
	}
	for s.node(at).same != 0 && s.node(s.node(at).same).born > n.born {
		at = s.node(at).same
	}
	n.same = s.node(at).same
	s.node(at).same = id
	s.markDirty(n.fingerprint)
}

func (s *store) unhold(id uint32) {
	n := s.node(id)
	s.markDirty(n.fingerprint)
	h := s.holders[n.fingerprint]
	if h.first == id {
		if h.first = n.same; h.first == 0 {
			delete(s.holders, n.fingerprint)
		} else {
			s.holders[n.fingerprint] = h
		}
		return
	}
	for at := h.first; at != 0; at = s.node(at).same {
		if p := s.node(at); p.same == id {
			p.same = n.same
			return
		}
	}
}

// appendHolders appends the refs that hold f, newest first.
func (s *store) appendHolders(out []uint16, f uint64) []uint16 {
	for id := s.holders[f].first; id != 0; {
		n := s.node(id)
		out = append(out, n.ref)
		id = n.same
	}
	return out
}
