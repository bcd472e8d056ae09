package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dumbCache is the LRU rule spelt out with maps: the victim is the block that
// was given back first among those that nobody references and no resident
// block follows.
type dumbCache struct {
	capacity, private int
	clock             int
	blocks            map[BlockHash]*dumbBlock
}

type dumbBlock struct {
	parent BlockHash
	refs   int
	stamp  int
}

func (c *dumbCache) match(chain []BlockHash) int {
	for i, h := range chain {
		if c.blocks[h] == nil {
			return i
		}
	}
	return len(chain)
}

func (c *dumbCache) take() {
	if len(c.blocks)+c.private == c.capacity {
		var victim BlockHash
		best := -1
		for h, b := range c.blocks {
			isParent := false
			for _, other := range c.blocks {
				isParent = isParent || other.parent == h
			}
			if b.refs == 0 && !isParent && (best < 0 || b.stamp < best) {
				victim, best = h, b.stamp
			}
		}
		if best < 0 {
			panic("nothing to evict")
		}
		delete(c.blocks, victim)
	}
	c.private++
}

func (c *dumbCache) publish(parent, h BlockHash) {
	c.private--
	if c.blocks[h] == nil {
		c.blocks[h] = &dumbBlock{parent: parent}
	}
	c.blocks[h].refs++
}

func (c *dumbCache) release(chain []BlockHash) {
	for _, h := range slices.Backward(chain) {
		c.clock++
		c.blocks[h].refs--
		c.blocks[h].stamp = c.clock
	}
}

// chainOf makes the chain of a path through a small tree, so that chains share
// prefixes often.
func chainOf(path []int) []BlockHash {
	var tokens []uint32
	for _, step := range path {
		for range BlockTokens {
			tokens = append(tokens, uint32(step))
		}
	}
	return AppendBlockHashes(nil, RootHash(""), tokens)
}

// countedChainOf is chainOf with hashes that count upwards, within a chunk, as long as a path goes
// straight on.
func countedChainOf(path []int) []BlockHash {
	var chain []BlockHash
	name := RootHash("")
	for i, step := range path {
		if i%(1<<chunkBits) == 0 || step != path[i-1] {
			name = BlockHash(mix(uint64(name)+uint64(i), uint64(step)+1))
		}
		chain = append(chain, name&^(1<<chunkBits-1)|BlockHash(i%(1<<chunkBits)))
	}
	return chain
}

func TestEvictionFollowsTheDumbLRU(t *testing.T) {
	for name, chainOf := range map[string]func([]int) []BlockHash{"hashed": chainOf, "counted": countedChainOf} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkEviction(t, chainOf) }) })
	}
}

// checkEviction plays requests that come, fill their blocks a few at a time, and go.
func checkEviction(t *rapid.T, chainOf func([]int) []BlockHash) {
	capacity := rapid.IntRange(4, 48).Draw(t, "capacity")
	pool := newBlockPool(capacity)
	resident := map[BlockHash]bool{}
	pool.watch = func(h BlockHash, now bool) {
		if resident[h] == now {
			t.Fatalf("block %x: told %v twice", h, now)
		}
		resident[h] = now
	}
	dumb := &dumbCache{capacity: capacity, blocks: map[BlockHash]*dumbBlock{}}
	type request struct {
		chain     []BlockHash
		published int
	}
	publish := func(r *request, n int) {
		pool.publish(r.chain[:r.published+n], r.published)
		for range n {
			parent := RootHash("")
			if r.published > 0 {
				parent = r.chain[r.published-1]
			}
			dumb.publish(parent, r.chain[r.published])
			r.published++
		}
	}
	var open []*request
	for range rapid.IntRange(1, 60).Draw(t, "operations") {
		what := rapid.IntRange(0, 3).Draw(t, "what")
		if len(open) > 0 && what < 3 {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			r := open[i]
			left := len(r.chain) - r.published
			if what > 0 && left > 0 {
				publish(r, rapid.IntRange(1, left).Draw(t, "blocks"))
			} else { // done, or cancelled
				pool.release(r.chain[:r.published], left)
				dumb.release(r.chain[:r.published])
				dumb.private -= left
				open = slices.Delete(open, i, i+1)
			}
		} else {
			var path []int // a few straight parts
			for _, part := range rapid.SliceOfN(rapid.IntRange(0, 19), 1, 5).Draw(t, "path") {
				path = append(path, slices.Repeat([]int{part % 2}, 1+part/2)...)
			}
			chain := chainOf(path)
			matched, idle := pool.match(chain)
			if want := dumb.match(chain); matched != want {
				t.Fatalf("match %d, want %d", matched, want)
			}
			for i, h := range chain[matched:] {
				if pool.find(h) != none {
					t.Fatalf("block %d is resident behind block %d, which isn't", matched+i, matched)
				}
			}
			promised := 0
			for _, r := range open {
				promised += len(r.chain) - r.published
			}
			if pool.referenced+promised+idle+len(chain)-matched > capacity {
				continue
			}
			pool.reference(chain[:matched])
			for _, h := range chain[:matched] {
				dumb.blocks[h].refs++
			}
			pool.takePrivate(len(chain) - matched)
			for range len(chain) - matched {
				dumb.take()
			}
			open = append(open, &request{chain, matched})
		}
		if pool.resident != len(dumb.blocks) {
			t.Fatalf("%d blocks resident, want %d", pool.resident, len(dumb.blocks))
		}
		for h := range dumb.blocks {
			if pool.find(h) == none || !resident[h] {
				t.Fatalf("block %x is gone", h)
			}
		}
		referenced := 0
		for _, b := range dumb.blocks {
			referenced += min(b.refs, 1)
		}
		if pool.referenced != referenced {
			t.Fatalf("%d blocks referenced, want %d", pool.referenced, referenced)
		}
	}
}

func TestBlockHashNamesEverythingBeforeIt(t *testing.T) {
	a := chainOf([]int{1, 2, 3})
	b := chainOf([]int{9, 2, 3})
	for i := range a {
		if a[i] == b[i] {
			t.Errorf("block %d has the same hash after another start", i)
		}
	}
	if !slices.Equal(chainOf([]int{1, 2}), a[:2]) {
		t.Error("a shorter prompt has other hashes")
	}
	if salted := AppendBlockHashes(nil, RootHash("tenant-a"), make([]uint32, 16)); salted[0] == chainOf([]int{0})[0] {
		t.Error("the salt does not separate")
	}
	if got := AppendBlockHashes(nil, RootHash(""), make([]uint32, 31)); len(got) != 1 {
		t.Errorf("31 tokens gave %d blocks", len(got))
	}
}
