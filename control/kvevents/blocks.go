package kvevents

import (
	"cmp"
	"math"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Sink learns what an engine holds. The slices are valid during the call.
type Sink interface {
	// Hold: the engine holds every checkpoint of path, ascending, of one prompt.
	// The first may be one that was told before, to say where the others hang. At
	// most fingerprint.MaxCheckpoints at a time.
	Hold(path []fingerprint.Checkpoint)
	// Drop: it no longer holds this checkpoint, nor any beyond it.
	Drop(fingerprint uint64)
	// Slow: it has all up to this checkpoint, some of it in slower memory alone; or
	// that is over.
	Slow(fingerprint uint64, on bool)
	// Clear: it holds nothing.
	Clear()
}

// Config says what a Map's fingerprints begin with.
type Config struct {
	Pool string
	// TurnEnds are the token ids that end a turn.
	TurnEnds []uint32
	// MaxBlocks bounds the map; 4 Mi.
	MaxBlocks int
	// MaxAside bounds the tokens of blocks whose parent isn't known yet; 1 Mi.
	MaxAside int
}

// Counts of events, since the Map was made, and of blocks, now.
type Counts struct {
	Stored, Removed, Cleared uint64 // blocks stored and removed, clears
	Evicted                  uint64 // of Removed: from the GPU, and in no other memory
	OtherGroup               uint64 // events of cache groups that aren't full attention
	BadShape                 uint64 // events whose tokens, hashes and block size contradict each other
	Untranslated             uint64 // blocks that gateways have no fingerprints for: images, nameless adapters
	UnknownParent            uint64 // blocks that wait or waited for their parent
	Unplaced                 uint64 // of them, those there was no room for
	UnknownRemoved           uint64 // removals of blocks nobody knew
	Full                     uint64 // blocks beyond MaxBlocks
	Resized                  uint64 // the block size changed: another engine's cache
	Again                    uint64 // blocks stored while one of the same name was there

	Blocks, Held, Gone, Aside int // known; held with all before them; removed with blocks behind; waiting for a parent
	CPU, Disk                 int // blocks that lie there too, or only there
	Slow                      int // blocks that are there with all before them, not all of it on the GPU
	BlockTokens               int
}

// Map is one engine's cache, block by block. Not safe for concurrent use.
type Map struct {
	cfg    Config
	sink   Sink
	nodes  slab[node]
	points slab[point]
	tokens tokenSlots
	byHash table
	group  int // the full-attention group that counts; -1 until one was seen
	counts Counts
	aside  aside
	// inside counts the held blocks that complete a checkpoint before their own
	// end: prompts that part behind it have a block each, and both complete it.
	inside inside
	// insideSlow counts the slow ones.
	insideSlow inside

	adapters    []adapter
	generations map[string]uint64 // of adapters, now
	spare       []int             // numbers that nothing is cached of, as of the last look
	rootsGone   uint64            // first blocks of prompts that have gone
	lookedAt    uint64            // rootsGone at the last look for spare numbers

	chain   fingerprint.Chain
	path    []fingerprint.Checkpoint
	scratch []uint32
	walk    []uint32
	stack   []uint32
}

// NewMap returns an empty map that tells sink what it learns.
func NewMap(cfg Config, sink Sink) *Map {
	cfg.MaxBlocks = cmp.Or(cfg.MaxBlocks, 4<<20)
	cfg.MaxAside = cmp.Or(cfg.MaxAside, 1<<20)
	return &Map{cfg: cfg, sink: sink, group: -1, inside: inside{}, insideSlow: inside{}}
}

// Apply takes the events of a batch in, in order.
func (m *Map) Apply(b *Batch) {
	for i := range b.Events {
		switch e := &b.Events[i]; e.Kind {
		case Stored:
			m.store(e)
		case Removed:
			m.removeAll(e)
		case Cleared:
			m.counts.Cleared++
			m.Clear()
		}
	}
}

// Clear forgets every block.
func (m *Map) Clear() {
	counts := m.counts
	*m = Map{cfg: m.cfg, sink: m.sink, group: m.group, generations: m.generations, inside: inside{}, insideSlow: inside{}}
	counts.Blocks, counts.Held, counts.Gone, counts.Aside, counts.CPU, counts.Disk, counts.Slow = 0, 0, 0, 0, 0, 0, 0
	m.counts = counts
	m.sink.Clear()
}

// Counts returns the counts.
func (m *Map) Counts() Counts {
	c := m.counts
	c.BlockTokens, c.Aside = m.tokens.size, m.aside.blocks
	return c
}

// Bytes is the memory of the blocks.
func (m *Map) Bytes() int64 {
	return m.nodes.bytes(40) + m.points.bytes(16) + m.tokens.bytes() + 4*int64(len(m.byHash.slots)) + 8*int64(m.aside.tokens) + 32*int64(len(m.inside)+len(m.insideSlow))
}

func (m *Map) store(e *Event) {
	if !e.FullAttention || e.Group >= 0 && m.group >= 0 && e.Group != m.group {
		m.counts.OtherGroup++
		return
	}
	if len(e.Hashes) == 0 {
		return
	}
	if len(e.Tokens) == 0 {
		// A copy into another medium, told by name only.
		for _, h := range e.Hashes {
			if id := m.byHash.find(&m.nodes, h); id != 0 {
				m.counts.Stored++
				m.put(id, e.Medium)
			} else {
				m.counts.UnknownParent++
				m.counts.Unplaced++
			}
		}
		m.flush()
		return
	}
	if e.BlockSize < 1 || e.BlockSize > MaxBlockTokens || len(e.Tokens) != len(e.Hashes)*e.BlockSize || slices.Max(e.Tokens) > maxTokenID {
		m.counts.BadShape++
		return
	}
	if m.tokens.size != e.BlockSize {
		if m.tokens.size != 0 {
			m.counts.Resized++
			m.Clear()
		}
		m.tokens.size = e.BlockSize
	}
	if e.Group >= 0 {
		m.group = e.Group
	}
	var parent uint32
	if e.HasParent {
		if parent = m.byHash.find(&m.nodes, e.Parent); parent == 0 {
			m.counts.UnknownParent += uint64(len(e.Hashes))
			if !m.aside.add(e, m.cfg.MaxAside) {
				m.counts.Unplaced += uint64(len(e.Hashes))
			}
			return
		}
	}
	m.place(e, parent)
	m.flush()
	// Blocks that waited for one of these go on, and those that waited for them.
	for i := 0; m.aside.blocks > 0 && i < len(e.Hashes); i++ {
		for _, w := range m.aside.take(e.Hashes[i]) {
			m.store(w)
		}
	}
}

// place stores the blocks of e behind parent.
func (m *Map) place(e *Event, parent uint32) {
	size := e.BlockSize
	chained := false // the chain stands at parent's end
	known := e.Opaque
	if parent == 0 && !m.named(e.Adapter) {
		known = 0
	}
	for i, h := range e.Hashes {
		id := m.byHash.find(&m.nodes, h)
		switch {
		case id != 0 && (chained || m.nodes.at(id).parent != parent):
			m.counts.BadShape++ // the same name at another place
			return
		case id == 0 && m.byHash.count >= m.cfg.MaxBlocks:
			m.counts.Full += uint64(len(e.Hashes) - i)
			return
		case id == 0:
			id = m.add(h, parent)
			n := m.nodes.at(id)
			if i >= known || parent != 0 && m.nodes.at(parent).flags&opaque != 0 {
				n.flags |= opaque
			}
			if n.flags&opaque != 0 {
				m.counts.Untranslated++
			} else {
				if !chained {
					m.resume(e, id, parent)
					chained = true
				}
				m.write(id, e.Tokens[i*size:(i+1)*size])
			}
		}
		m.counts.Stored++
		m.put(id, e.Medium)
		parent = id
	}
}

func (m *Map) add(hash uint64, parent uint32) uint32 {
	id := m.nodes.alloc()
	n := m.nodes.at(id)
	*n = node{hash: hash, parent: parent, depth: 1}
	if parent != 0 {
		p := m.nodes.at(parent)
		n.depth = p.depth + 1
		n.next = p.child
		if p.child != 0 {
			m.nodes.at(p.child).prev = id
		}
		p.child = id
	}
	m.byHash.add(&m.nodes, id)
	m.counts.Gone++ // until put
	return id
}

// put makes a known block lie in a medium. Engines don't merge what they have
// computed twice (the last block of a prompt that ends at its edge, answers that
// come out alike): one name, several blocks, and each goes with an event of
// its own. What is told twice is told on, should the sink have lost it.
func (m *Map) put(id uint32, medium Medium) {
	n := m.nodes.at(id)
	if n.media&medium&GPU != 0 && n.more < math.MaxUint16 {
		n.more++
		m.counts.Again++
	}
	if n.media&medium != 0 && n.flags&held != 0 {
		m.tell(id)
	}
	if n.media == 0 {
		m.counts.Gone--
		m.counts.Blocks++
	}
	m.countMedia(n.media, n.media|medium)
	n.media |= medium
	if n.flags&held == 0 && n.media&GPU != 0 && m.follows(id, held) {
		m.hold(id)
	}
	if n.flags&kept == 0 && m.follows(id, kept) {
		m.keep(id)
	}
}

func (m *Map) countMedia(from, to Medium) {
	if (from^to)&CPU != 0 {
		m.counts.CPU += int(to&CPU/CPU)*2 - 1
	}
	if (from^to)&Disk != 0 {
		m.counts.Disk += int(to&Disk/Disk)*2 - 1
	}
}

// follows tells whether all before a block is held, or kept: behind the salt,
// that it is of the weights that the engine has now.
func (m *Map) follows(id uint32, flag uint8) bool {
	if parent := m.nodes.at(id).parent; parent != 0 {
		return m.nodes.at(parent).flags&flag != 0
	}
	return m.current(id)
}

// hold marks a block and what hangs on it as held, and collects the paths.
func (m *Map) hold(id uint32) {
	m.spread(id, func(n *node) bool { return n.media&GPU != 0 && n.flags&held == 0 }, func(id uint32, n *node) {
		n.flags |= held
		m.counts.Held++
		for at := n.points; at != 0; at = m.points.at(at).next {
			m.complete(m.inside, id, *m.points.at(at))
		}
		m.tell(id)
		m.slowed(id)
	})
}

// keep marks a block and what hangs on it as kept.
func (m *Map) keep(id uint32) {
	m.spread(id, func(n *node) bool { return n.media != 0 && n.flags&kept == 0 }, func(id uint32, n *node) {
		n.flags |= kept
		m.slowed(id)
	})
}

// spread visits a block and those behind it for as far as they are of the kind.
func (m *Map) spread(id uint32, kind func(*node) bool, visit func(uint32, *node)) {
	stack := append(m.stack[:0], id)
	for len(stack) > 0 {
		id = stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		n := m.nodes.at(id)
		visit(id, n)
		for c := n.child; c != 0; c = m.nodes.at(c).next {
			if kind(m.nodes.at(c)) {
				stack = append(stack, c)
			}
		}
	}
	m.stack = stack
}

// slowed tells on what became of a block that is kept or not, held or not.
func (m *Map) slowed(id uint32) {
	n := m.nodes.at(id)
	on := n.flags&(kept|held) == kept
	if on == (n.flags&slow != 0) {
		return
	}
	n.flags ^= slow
	m.counts.Slow += int(n.flags&slow/slow)*2 - 1
	for at := n.points; at != 0; at = m.points.at(at).next {
		p := *m.points.at(at)
		switch {
		case p.salt():
		case on:
			m.complete(m.insideSlow, id, p)
			m.sink.Slow(p.fingerprint, true)
		case m.incomplete(m.insideSlow, id, p):
			m.sink.Slow(p.fingerprint, false)
		}
	}
}

// inside counts blocks by the checkpoint that they complete before their end.
type inside map[uint64]uint32

// complete notes that block id completes p.
func (m *Map) complete(in inside, id uint32, p point) {
	if !p.salt() && m.endsInside(id, p) {
		in[p.fingerprint]++
	}
}

// incomplete notes that block id no longer does. True when no other block does.
func (m *Map) incomplete(in inside, id uint32, p point) bool {
	if !m.endsInside(id, p) {
		return true
	}
	if in[p.fingerprint] > 1 {
		in[p.fingerprint]--
		return false
	}
	delete(in, p.fingerprint)
	return true
}

func (m *Map) endsInside(id uint32, p point) bool {
	return int(p.units())*unit < int(m.nodes.at(id).depth)*m.tokens.size
}

// tell adds the checkpoints of a held block to the path; a path that they don't
// continue is told first.
func (m *Map) tell(id uint32) {
	for at := m.nodes.at(id).points; at != 0; at = m.points.at(at).next {
		if p := *m.points.at(at); !p.salt() {
			m.tellPoint(id, p)
		}
	}
}

func (m *Map) tellPoint(id uint32, p point) {
	before, ok := m.before(id, p)
	if n := len(m.path); n == fingerprint.MaxCheckpoints || n > 0 && (!ok || m.path[n-1].Fingerprint != before.fingerprint) {
		m.flush()
	}
	if len(m.path) == 0 && ok {
		m.path = append(m.path, checkpoint(before))
	}
	m.path = append(m.path, checkpoint(p))
}

func checkpoint(p point) fingerprint.Checkpoint {
	return fingerprint.Checkpoint{Fingerprint: p.fingerprint, End: p.units(), TurnEnd: p.isTurn()}
}

// before is the deepest checkpoint before p, which block id completes.
func (m *Map) before(id uint32, p point) (point, bool) {
	for ; id != 0; id = m.nodes.at(id).parent {
		var best point
		for at := m.nodes.at(id).points; at != 0; at = m.points.at(at).next {
			q := *m.points.at(at)
			if q.units() < p.units() && q.units() > best.units() {
				best = q
			}
		}
		if best.units() > 0 {
			return best, true
		}
	}
	return point{}, false
}

func (m *Map) flush() {
	if len(m.path) > 0 {
		m.sink.Hold(m.path)
		m.path = m.path[:0]
	}
}

func (m *Map) removeAll(e *Event) {
	if e.Group >= 0 && e.Group != m.group {
		m.counts.OtherGroup++
		return
	}
	for _, h := range e.Hashes {
		id := m.byHash.find(&m.nodes, h)
		if id == 0 || m.nodes.at(id).media&e.Medium == 0 {
			if !m.aside.remove(h) {
				m.counts.UnknownRemoved++
			}
			continue
		}
		m.counts.Removed++
		n := m.nodes.at(id)
		if e.Medium&GPU != 0 && n.more > 0 {
			n.more--
			continue
		}
		m.countMedia(n.media, n.media&^e.Medium)
		if n.media == GPU {
			m.counts.Evicted++
		}
		n.media &^= e.Medium
		if n.flags&kept != 0 && n.media == 0 {
			m.unkeep(id)
		}
		if n.flags&held != 0 && n.media&GPU == 0 {
			m.unhold(id)
		}
		if n.media == 0 {
			m.counts.Blocks--
			m.counts.Gone++
			m.prune(id)
		}
	}
}

// unhold takes a block and all that hangs on it from what is held. The blocks
// behind stay known: the engine may store the missing one again.
func (m *Map) unhold(id uint32) {
	m.spread(id, func(n *node) bool { return n.flags&held != 0 }, func(id uint32, n *node) {
		n.flags &^= held
		m.counts.Held--
		for at := n.points; at != 0; at = m.points.at(at).next {
			if p := *m.points.at(at); !p.salt() && m.incomplete(m.inside, id, p) {
				m.sink.Drop(p.fingerprint)
			}
		}
		m.slowed(id)
	})
}

// unkeep takes a block and all that hangs on it from what is kept.
func (m *Map) unkeep(id uint32) {
	m.spread(id, func(n *node) bool { return n.flags&kept != 0 }, func(id uint32, n *node) {
		n.flags &^= kept
		m.slowed(id)
	})
}

// prune forgets a removed block behind which there is nothing, and the removed
// ones before it.
func (m *Map) prune(id uint32) {
	for id != 0 {
		n := m.nodes.at(id)
		if n.media != 0 || n.child != 0 {
			return
		}
		parent := n.parent
		if parent != 0 {
			if p := m.nodes.at(parent); p.child == id {
				p.child = n.next
			}
			if n.prev != 0 {
				m.nodes.at(n.prev).next = n.next
			}
			if n.next != 0 {
				m.nodes.at(n.next).prev = n.prev
			}
		}
		for at := n.points; at != 0; {
			next := m.points.at(at).next
			m.points.release(at)
			at = next
		}
		if n.tokens != 0 {
			m.tokens.free = append(m.tokens.free, n.tokens)
		}
		m.byHash.remove(&m.nodes, n.hash)
		m.nodes.release(id)
		m.counts.Gone--
		if parent == 0 {
			m.rootsGone++
		}
		id = parent
	}
}
