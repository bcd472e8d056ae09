package virtual

import (
	"slices"

	"github.com/warmpath/warmpath/sim/engine"
)

// pool is one LRU cache of the whole fleet's size: the honest ceiling of hits.
// Requests go through it in the order in which they arrive, whoever serves
// them.
type pool struct {
	capacity, held int
	chunks         chunks
	nodes          []poolNode // of all blocks that ever came, by chunk
	head, tail     int32      // least and most recently used
	at             []int32    // nodes of a request's blocks
}

// poolNode is a block that came, held or not.
type poolNode struct{ prev, next int32 }

// Instead of a node's number: the list ends here; the block isn't held (prev only).
const (
	nobody = -1
	absent = -2
)

func newPool(blocks int) *pool {
	return &pool{capacity: blocks, chunks: newChunks(), head: nobody, tail: nobody}
}

// play returns how many leading blocks of the prompt were there, and keeps
// prompt and answer.
func (p *pool) play(r *Request) (hit int) {
	p.find(r.blocks)
	prompt := (r.Prompt - 1) / engine.BlockTokens // the last token is always computed
	for hit < prompt && p.nodes[p.at[hit]].prev != absent {
		hit++
	}
	for _, at := range slices.Backward(p.at) { // the leaf is the oldest, as engines release
		p.touch(at)
	}
	return hit
}

// find fills in the nodes of blocks.
func (p *pool) find(blocks []engine.BlockHash) {
	p.at = p.at[:0]
	for _, h := range blocks {
		first := int(p.chunks.open(h)) * chunkBlocks
		for len(p.nodes) < first+chunkBlocks {
			p.nodes = append(p.nodes, poolNode{absent, nobody})
		}
		p.at = append(p.at, int32(first)+int32(h%chunkBlocks))
	}
}

func (p *pool) touch(at int32) {
	switch {
	case at == p.tail:
		return
	case p.nodes[at].prev != absent:
		p.unlink(at)
	case p.held == p.capacity:
		oldest := p.head
		p.unlink(oldest)
		p.nodes[oldest].prev = absent
	default:
		p.held++
	}
	p.nodes[at] = poolNode{p.tail, nobody}
	if p.tail >= 0 {
		p.nodes[p.tail].next = at
	} else {
		p.head = at
	}
	p.tail = at
}

func (p *pool) unlink(at int32) {
	n := p.nodes[at]
	if n.prev >= 0 {
		p.nodes[n.prev].next = n.next
	} else {
		p.head = n.next
	}
	if n.next >= 0 {
		p.nodes[n.next].prev = n.prev
	} else {
		p.tail = n.prev
	}
}
