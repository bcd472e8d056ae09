package virtual

import "github.com/warmpath/warmpath/sim/engine"

// pool is one LRU cache of the whole fleet's size: the honest ceiling of hits.
// Requests go through it in the order in which they arrive, whoever serves
// them.
type pool struct {
	capacity int
	index    map[engine.BlockHash]int32
	nodes    []poolNode
	head     int32 // least recently used
	tail     int32
}

type poolNode struct {
	hash       engine.BlockHash
	prev, next int32
}

func newPool(blocks int) *pool {
	return &pool{capacity: blocks, index: map[engine.BlockHash]int32{}, head: -1, tail: -1}
}

// play returns how many leading blocks of the prompt were there, and keeps
// prompt and answer.
func (p *pool) play(r *Request) (hit int) {
	prompt := (r.Prompt - 1) / engine.BlockTokens // the last token is always computed
	for hit < prompt {
		if _, ok := p.index[r.blocks[hit]]; !ok {
			break
		}
		hit++
	}
	for i := len(r.blocks) - 1; i >= 0; i-- { // the leaf is the oldest, as engines release
		p.touch(r.blocks[i])
	}
	return hit
}

func (p *pool) touch(h engine.BlockHash) {
	at, ok := p.index[h]
	switch {
	case ok:
		if at == p.tail {
			return
		}
		p.unlink(at)
	case len(p.nodes) < p.capacity:
		at = int32(len(p.nodes))
		p.nodes = append(p.nodes, poolNode{hash: h})
		p.index[h] = at
	default:
		at = p.head
		p.unlink(at)
		delete(p.index, p.nodes[at].hash)
		p.nodes[at].hash = h
		p.index[h] = at
	}
	n := &p.nodes[at]
	n.prev, n.next = p.tail, -1
	if p.tail >= 0 {
		p.nodes[p.tail].next = at
	} else {
		p.head = at
	}
	p.tail = at
}

func (p *pool) unlink(at int32) {
	n := &p.nodes[at]
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
