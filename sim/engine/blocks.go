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
//
// Nothing is merged. Two requests that fill the same block side by side, and
// one that fills the last block of its prompt again, have a block each, and
// each takes its room until it is evicted. A hit takes the one that was filled
// first. So does vLLM (0.32, v1/core/block_pool.py, BlockHashToBlockMap).
type blockPool struct {
	runs
	capacity   int
	referenced int // resident blocks with references
	private    int
	evictions  uint64
	now        time.Duration               // of what is released and evicted
	watch      func(h BlockHash, now bool) // told of blocks that become resident and that go
	untold     []BlockHash                 // resident, but computed by the present step: told at its end
}

// A spare is the block of a request that was resident when the request filled
// it: where it stands in the request's chain, and its run.
type spare struct {
	block int
	run   int32
}

func newBlockPool(capacity int) *blockPool {
	return &blockPool{runs: newRuns(), capacity: capacity}
}

// inUse counts the blocks that cannot be evicted.
func (p *blockPool) inUse() int { return p.referenced + p.private }

// free counts the blocks that can be taken, by evicting others if need be.
func (p *blockPool) free() int { return p.capacity - p.inUse() }

// match counts the leading hashes that are resident, and how many of those
// nobody references.
func (p *blockPool) match(hashes []BlockHash) (matched, idle int) {
	for matched < len(hashes) {
		at := p.find(hashes[matched])
		if at == none {
			break
		}
		r := &p.all[at]
		n := r.lead(hashes[matched:])
		if r.refs == 0 {
			idle += n
		}
		matched += n
	}
	return matched, idle
}

// reference takes resident blocks.
func (p *blockPool) reference(hashes []BlockHash) {
	for len(hashes) > 0 {
		hashes = hashes[p.take(p.find(hashes[0]), hashes):]
	}
}

// take references the blocks of a run that hashes begin with, and counts them.
func (p *blockPool) take(at int32, hashes []BlockHash) int {
	r := &p.all[at]
	n := r.lead(hashes)
	at = p.isolate(at, int(hashes[0]-r.first), n)
	if r = &p.all[at]; r.refs == 0 {
		p.unlink(at)
		p.referenced += n
	}
	r.refs++
	return n
}

// takePrivate takes n free blocks for a request to fill, evicting as needed.
func (p *blockPool) takePrivate(n int) {
	for range n {
		if p.resident+p.private == p.capacity {
			p.evict()
		}
		p.private++
	}
}

// publish gives the private blocks of a request from the from-th of its hashes
// on their hash: they are full, or will be when the step that has begun is
// over. It returns the request's spares with those that are added.
func (p *blockPool) publish(hashes []BlockHash, from int, spares []spare) []spare {
	p.private -= len(hashes) - from
	p.referenced += len(hashes) - from
	last := int32(none) // the run of the block before, if nobody else references it
	if n := len(spares); from > 0 && (n == 0 || spares[n-1].block != from-1) {
		if last = p.find(hashes[from-1]); p.all[last].refs > 1 {
			last = none
		}
	}
	for i, h := range hashes[from:] {
		if p.find(h) != none {
			spares = append(spares, spare{from + i, p.addSpare(h)})
			last = none
			continue
		}
		if last == none || !p.grow(last, h) {
			last = p.add(h, 1)
		}
		if p.watch != nil {
			p.untold = append(p.untold, h)
		}
	}
	return spares
}

// tell tells of what has become resident.
func (p *blockPool) tell() {
	for _, h := range p.untold {
		p.watch(h, true)
	}
	p.untold = p.untold[:0]
}

// release gives back a request's resident blocks, last first, its spares among
// them, and its private ones.
func (p *blockPool) release(hashes []BlockHash, private int, spares []spare) {
	p.private -= private
	appended := false // what stands last in the list
	for len(hashes) > 0 {
		var at int32
		if n := len(spares); n > 0 && spares[n-1].block == len(hashes)-1 {
			at, spares = spares[n-1].run, spares[:n-1]
		} else {
			at = p.find(hashes[len(hashes)-1])
		}
		r := &p.all[at]
		n := int(r.n) // whoever references one of them references all
		hashes = hashes[:len(hashes)-n]
		if r.refs--; r.refs == 0 {
			p.referenced -= n
			r.released = p.now
			p.append(at, appended)
			appended = true
		} else {
			appended = false
		}
	}
}

func (p *blockPool) evict() {
	spares := p.spares > 0
	h := p.runs.evict()
	if p.watch != nil && (!spares || p.find(h) == none) {
		p.watch(h, false)
	}
	p.evictions++
}

// clear drops every block that no running request references.
func (p *blockPool) clear() {
	p.tell()
	for p.head != none {
		p.evict()
	}
}
