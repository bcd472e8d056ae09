package engine

// An LRU is a cache of blocks that nobody holds on to: one request after the other comes, and is
// gone at once.
type LRU struct {
	runs
	capacity int
}

// NewLRU returns an empty one for so many blocks.
func NewLRU(capacity int) *LRU { return &LRU{newRuns(), capacity} }

// Resize gives it room for so many blocks; those that have none are dropped.
func (x *LRU) Resize(capacity int) {
	x.capacity = capacity
	for x.resident > capacity {
		x.evict()
	}
}

// Holds counts how many of the blocks are there, from the first on until one isn't.
func (x *LRU) Holds(blocks []BlockHash) (held int) {
	for held < len(blocks) {
		at := x.find(blocks[held])
		if at == none {
			break
		}
		held += x.all[at].lead(blocks[held:])
	}
	return held
}

// Touch keeps the blocks of a chain, the last one first, as engines release them.
func (x *LRU) Touch(blocks []BlockHash) {
	for again := false; len(blocks) > 0; again = true {
		n := 1
		if at := x.find(blocks[len(blocks)-1]); at != none {
			r := &x.all[at]
			n = r.trail(blocks)
			at = x.isolate(at, int(blocks[len(blocks)-n]-r.first), n)
			if at != x.tail {
				x.unlink(at)
				x.append(at, again)
			}
		} else {
			if x.resident == x.capacity {
				x.evict()
			}
			x.append(x.add(blocks[len(blocks)-1], 0), again)
		}
		blocks = blocks[:len(blocks)-n]
	}
}
