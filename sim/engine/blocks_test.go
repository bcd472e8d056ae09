package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dumbCache is vLLM's pool spelt out (v1/core/block_pool.py): blocks with numbers, a queue of those that
// nobody references, and of each hash the blocks that have it, in the order in which they were filled.
type dumbCache struct {
	blocks []dumbBlock
	free   []int
	cached map[BlockHash][]int
}

type dumbBlock struct {
	full bool
	hash BlockHash
	refs int
}

func newDumbCache(capacity int) *dumbCache {
	c := &dumbCache{blocks: make([]dumbBlock, capacity), cached: map[BlockHash][]int{}}
	for i := range c.blocks {
		c.free = append(c.free, i)
	}
	return c
}

// hit references the blocks of a chain that are cached, until one isn't.
func (c *dumbCache) hit(chain []BlockHash) (hit []int) {
	for _, h := range chain {
		if len(c.cached[h]) == 0 {
			break
		}
		hit = append(hit, c.cached[h][0])
	}
	return hit
}

func (c *dumbCache) reference(blocks []int) {
	for _, at := range blocks {
		c.free = slices.DeleteFunc(c.free, func(other int) bool { return other == at })
		c.blocks[at].refs++
	}
}

func (c *dumbCache) take() int {
	at := c.free[0]
	c.free = c.free[1:]
	if b := &c.blocks[at]; b.full {
		c.cached[b.hash] = slices.DeleteFunc(c.cached[b.hash], func(other int) bool { return other == at })
	}
	c.blocks[at] = dumbBlock{refs: 1}
	return at
}

func (c *dumbCache) publish(at int, h BlockHash) {
	c.blocks[at].full, c.blocks[at].hash = true, h
	c.cached[h] = append(c.cached[h], at)
}

func (c *dumbCache) release(blocks []int) {
	for _, at := range slices.Backward(blocks) {
		b := &c.blocks[at]
		b.refs--
		switch {
		case b.refs > 0:
		case b.full:
			c.free = append(c.free, at)
		default:
			c.free = slices.Insert(c.free, 0, at)
		}
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

func TestThePoolIsTheDumbOne(t *testing.T) {
	for name, chainOf := range map[string]func([]int) []BlockHash{"hashed": chainOf, "counted": countedChainOf} {
		t.Run(name, func(t *testing.T) {
			spares := 0
			rapid.Check(t, func(t *rapid.T) { spares += checkPool(t, chainOf) })
			if spares < 10 {
				t.Errorf("only %d blocks were filled that were resident", spares)
			}
		})
	}
}

// checkPool plays requests that come, fill their blocks a few at a time, and go. It counts the spares.
func checkPool(t *rapid.T, chainOf func([]int) []BlockHash) (spares int) {
	capacity := rapid.IntRange(4, 128).Draw(t, "capacity")
	pool := newBlockPool(capacity)
	resident := map[BlockHash]bool{}
	pool.watch = func(h BlockHash, now bool) {
		if resident[h] == now {
			t.Fatalf("block %x: told %v twice", h, now)
		}
		resident[h] = now
	}
	dumb := newDumbCache(capacity)
	type request struct {
		chain     []BlockHash
		blocks    []int // of the dumb one
		published int
		spares    []spare
	}
	publish := func(r *request, n int) {
		r.spares = pool.publish(r.chain[:r.published+n], r.published, r.spares)
		pool.tell()
		for range n {
			dumb.publish(r.blocks[r.published], r.chain[r.published])
			r.published++
		}
	}
	var open []*request
	var asked [][]BlockHash
	for range rapid.IntRange(20, 200).Draw(t, "operations") {
		what := rapid.IntRange(0, 3).Draw(t, "what")
		if len(open) > 0 && what < 3 {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			r := open[i]
			left := len(r.chain) - r.published
			if what > 0 && left > 0 {
				publish(r, rapid.IntRange(1, left).Draw(t, "blocks"))
			} else { // done, or cancelled
				spares += len(r.spares)
				pool.release(r.chain[:r.published], left, r.spares)
				dumb.release(r.blocks)
				open = slices.Delete(open, i, i+1)
			}
		} else {
			var chain []BlockHash
			if len(asked) > 0 && rapid.Bool().Draw(t, "again") {
				chain = rapid.SampledFrom(asked).Draw(t, "chain")
			} else {
				var path []int // a few straight parts
				for _, part := range rapid.SliceOfN(rapid.IntRange(0, 19), 1, 5).Draw(t, "path") {
					path = append(path, slices.Repeat([]int{part % 2}, 1+part/2)...)
				}
				chain = chainOf(path)
				asked = append(asked, chain)
			}
			matched, idle := pool.match(chain)
			hit := dumb.hit(chain)
			if matched != len(hit) {
				t.Fatalf("match %d, want %d", matched, len(hit))
			}
			for i, h := range chain[matched:] {
				if pool.find(h) != none {
					t.Fatalf("block %d is resident behind block %d, which isn't", matched+i, matched)
				}
			}
			if idle+len(chain)-matched > pool.free() {
				continue
			}
			pool.reference(chain[:matched])
			dumb.reference(hit)
			pool.takePrivate(len(chain) - matched)
			for range len(chain) - matched {
				hit = append(hit, dumb.take())
			}
			open = append(open, &request{chain: chain, blocks: hit, published: matched})
		}
		full, referenced := 0, 0
		for _, b := range dumb.blocks {
			if b.full {
				full++
				referenced += min(b.refs, 1)
			}
		}
		if pool.resident != full || pool.referenced != referenced || pool.free() != len(dumb.free) {
			t.Fatalf("%d blocks resident, %d referenced, %d free; want %d, %d, %d", pool.resident, pool.referenced, pool.free(), full, referenced, len(dumb.free))
		}
		for h, blocks := range dumb.cached {
			if there := len(blocks) > 0; there != (pool.find(h) != none) || there != resident[h] {
				t.Fatalf("block %x: %d of it, the pool has one: %v, told %v", h, len(blocks), pool.find(h) != none, resident[h])
			}
		}
	}
	return spares
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
