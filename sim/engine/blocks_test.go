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

func TestEvictionFollowsTheDumbLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(4, 24).Draw(t, "capacity")
		pool := newBlockPool(capacity)
		dumb := &dumbCache{capacity: capacity, blocks: map[BlockHash]*dumbBlock{}}
		type request struct {
			chain []BlockHash
			slots []int32
		}
		var open []request
		root := RootHash("")
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(open) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				pool.release(open[i].slots, 0)
				dumb.release(open[i].chain)
				open = slices.Delete(open, i, i+1)
			} else {
				chain := chainOf(rapid.SliceOfN(rapid.IntRange(0, 2), 1, 6).Draw(t, "path"))
				slots, idle := pool.match(nil, chain)
				matched := len(slots)
				if want := dumb.match(chain); matched != want {
					t.Fatalf("match %d, want %d", matched, want)
				}
				for i, h := range chain[matched:] {
					if pool.index.find(pool.slots, h) != none {
						t.Fatalf("block %d is resident behind block %d, which isn't", matched+i, matched)
					}
				}
				if pool.inUse()+idle+len(chain)-matched > capacity {
					continue
				}
				pool.reference(slots)
				for _, h := range chain[:matched] {
					dumb.blocks[h].refs++
				}
				pool.takePrivate(len(chain) - matched)
				for range len(chain) - matched {
					dumb.take()
				}
				for i := matched; i < len(chain); i++ {
					parent := root
					if i > 0 {
						parent = chain[i-1]
					}
					slots = append(slots, pool.publish(chain[i]))
					dumb.publish(parent, chain[i])
				}
				open = append(open, request{chain, slots})
			}
			if pool.resident != len(dumb.blocks) {
				t.Fatalf("%d blocks resident, want %d", pool.resident, len(dumb.blocks))
			}
			for h := range dumb.blocks {
				if pool.index.find(pool.slots, h) == none {
					t.Fatalf("block %x is gone", h)
				}
			}
		}
	})
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

func TestIndexAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 16
		slots := make([]slot, capacity)
		x := newSlotIndex(capacity)
		want := map[BlockHash]int32{}
		// Neighbours on the index's ring: long runs that wrap around.
		hash := rapid.Custom(func(t *rapid.T) BlockHash {
			return BlockHash(rapid.Uint64Range(0, 3).Draw(t, "high")<<8 | rapid.SampledFrom([]uint64{30, 15, 0, 17}).Draw(t, "low"))
		})
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			h := hash.Draw(t, "hash")
			if at, ok := want[h]; ok {
				x.remove(slots, at)
				delete(want, h)
			} else if len(want) < capacity {
				at := int32(0)
				for taken := true; taken; {
					taken = false
					for _, used := range want {
						taken = taken || used == at
					}
					if taken {
						at++
					}
				}
				slots[at].hash = h
				x.put(x.place(slots, h), h, at)
				want[h] = at
			}
			for low := range uint64(32) {
				for high := range uint64(4) {
					h := BlockHash(high<<8 | low)
					at, ok := want[h]
					if !ok {
						at = none
					}
					if got := x.find(slots, h); got != at {
						t.Fatalf("hash %x: slot %d, want %d", h, got, at)
					}
				}
			}
		}
	})
}
