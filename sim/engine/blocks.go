package engine

import (
	"math/bits"
	"time"
)

// A BlockHash names one full block of tokens and everything before it.
type BlockHash uint64

// RootHash starts a chain. The salt separates what must not share blocks: the
// adapter's name, the client's cache_salt.
func RootHash(salt string) BlockHash {
	h := uint64(0x243f6a8885a308d3)
	for i := range len(salt) {
		h = mix(h, uint64(salt[i])+1)
	}
	return BlockHash(h)
}

// AppendBlockHashes appends the hash of each full block of tokens, chained
// from root. Tokens of the last, partial block are ignored.
func AppendBlockHashes[T ~uint32](dst []BlockHash, root BlockHash, tokens []T) []BlockHash {
	h := uint64(root)
	for len(tokens) >= BlockTokens {
		block := tokens[:BlockTokens]
		for i := 0; i < BlockTokens; i += 2 {
			h = mix(h, uint64(block[i])<<32|uint64(block[i+1]))
		}
		dst = append(dst, BlockHash(h))
		tokens = tokens[BlockTokens:]
	}
	return dst
}

func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^0xa0761d6478bd642f, v^0xe7037ed1a0b428db)
	return hi ^ lo
}

// A blockPool is the KV memory: resident blocks that have a hash, and private
// blocks that a running request is still filling.
//
// A resident block is referenced by running requests or it stands in the list
// of evictable blocks, least recently used first. A request releases its
// blocks last block first, and whoever references a block references all
// blocks before it; so in the list a block always stands before its
// predecessor in the chain, and the head is always a leaf.
type blockPool struct {
	slots      []slot
	index      slotIndex
	vacant     []int32 // unused slots
	head, tail int32   // evictable list, none when empty
	resident   int
	referenced int // resident blocks with references
	private    int
	evictions  uint64
	now        time.Duration               // of what is released and evicted
	watch      func(h BlockHash, now bool) // told of blocks that become resident and that go
}

type slot struct {
	hash       BlockHash
	refs       int32 // none: the slot is vacant
	prev, next int32
	released   time.Duration // when the last request let it go
}

const none = -1

func newBlockPool(capacity int) *blockPool {
	p := &blockPool{
		slots: make([]slot, capacity),
		index: newSlotIndex(capacity),
		head:  none, tail: none,
	}
	p.vacant = make([]int32, capacity)
	for i := range p.vacant {
		p.vacant[i] = int32(capacity - 1 - i)
		p.slots[i].refs = none
	}
	return p
}

func (p *blockPool) capacity() int { return len(p.slots) }

// inUse counts the blocks that cannot be evicted.
func (p *blockPool) inUse() int { return p.referenced + p.private }

// match appends to dst the slots of the leading hashes that are resident, and
// counts how many of those nobody references.
func (p *blockPool) match(dst []int32, hashes []BlockHash) (slots []int32, idle int) {
	for _, h := range hashes {
		at := p.index.find(p.slots, h)
		if at == none {
			break
		}
		if p.slots[at].refs == 0 {
			idle++
		}
		dst = append(dst, at)
	}
	return dst, idle
}

// reference takes resident blocks.
func (p *blockPool) reference(slots []int32) {
	for _, at := range slots {
		s := &p.slots[at]
		if s.refs == 0 {
			p.unlink(at)
			p.referenced++
		}
		s.refs++
	}
}

// takePrivate takes n blocks for a request to fill, evicting as needed. The
// caller has reserved them, so there is always something to evict.
func (p *blockPool) takePrivate(n int) {
	for range n {
		if p.resident+p.private == p.capacity() {
			p.evict()
		}
		p.private++
	}
}

// publish gives one full private block its hash and returns its slot. If
// another request filled the same block meanwhile, that one is shared and the
// private one given back. (vLLM would keep the second copy until its request
// ends.)
func (p *blockPool) publish(h BlockHash) int32 {
	p.private--
	place := p.index.place(p.slots, h)
	if at := p.index[place].at; at != none {
		p.reference([]int32{at})
		return at
	}
	at := p.vacant[len(p.vacant)-1]
	p.vacant = p.vacant[:len(p.vacant)-1]
	p.slots[at] = slot{hash: h, refs: 1, prev: none, next: none}
	p.index.put(place, h, at)
	p.resident++
	p.referenced++
	if p.watch != nil {
		p.watch(h, true)
	}
	return at
}

// release gives back a request's resident blocks, last first, and its private
// ones.
func (p *blockPool) release(slots []int32, private int) {
	p.private -= private
	for i := len(slots) - 1; i >= 0; i-- {
		s := &p.slots[slots[i]]
		if s.refs--; s.refs == 0 {
			p.referenced--
			s.released = p.now
			p.append(slots[i])
		}
	}
}

func (p *blockPool) evict() {
	at := p.head
	if p.watch != nil {
		p.watch(p.slots[at].hash, false)
	}
	p.unlink(at)
	p.index.remove(p.slots, at)
	p.slots[at].refs = none
	p.vacant = append(p.vacant, at)
	p.resident--
	p.evictions++
}

// clear drops every block that no running request references.
func (p *blockPool) clear() {
	for p.head != none {
		p.evict()
	}
}

func (p *blockPool) append(at int32) {
	s := &p.slots[at]
	s.prev, s.next = p.tail, none
	if p.tail == none {
		p.head = at
	} else {
		p.slots[p.tail].next = at
	}
	p.tail = at
}

func (p *blockPool) unlink(at int32) {
	s := &p.slots[at]
	if s.prev == none {
		p.head = s.next
	} else {
		p.slots[s.prev].next = s.next
	}
	if s.next == none {
		p.tail = s.prev
	} else {
		p.slots[s.next].prev = s.prev
	}
	s.prev, s.next = none, none
}
