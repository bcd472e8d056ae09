package virtual

import "github.com/warmpath/warmpath/sim/engine"

// chunkBlocks is how many blocks of a prompt have hashes that count upwards. Whatever is kept of
// blocks is kept by chunk, so it lies side by side and is looked up once for many of them.
const chunkBlocks = 16

// block names block i of a prompt. content names what it and all of its chunk is,
// from the prompt's beginning on.
func block(content uint64, i int) engine.BlockHash {
	return engine.BlockHash(mixHash(content, uint64(i/chunkBlocks))&^(chunkBlocks-1) | uint64(i%chunkBlocks))
}

// chunks numbers chunks from 0 on, for slices that hold something of each.
type chunks struct {
	numbers map[engine.BlockHash]int32 // by first block
	spare   []int32                    // numbers of those that were dropped
	in      engine.BlockHash           // the chunk asked for last, and its number
	number  int32
}

// unknown is the number of a chunk that has none.
const unknown = -1

func newChunks() chunks { return chunks{numbers: map[engine.BlockHash]int32{}, number: unknown} }

// of returns the number of the chunk that a block is in, or unknown.
func (c *chunks) of(h engine.BlockHash) int32 {
	if first := h &^ (chunkBlocks - 1); first != c.in || c.number == unknown {
		c.in, c.number = first, unknown
		if n, ok := c.numbers[first]; ok {
			c.number = n
		}
	}
	return c.number
}

// open is of, for a chunk that gets a number if it has none: the least that was never given, or
// one that was dropped.
func (c *chunks) open(h engine.BlockHash) int32 {
	if c.of(h) == unknown {
		if n := len(c.spare); n > 0 {
			c.number, c.spare = c.spare[n-1], c.spare[:n-1]
		} else {
			c.number = int32(len(c.numbers))
		}
		c.numbers[c.in] = c.number
	}
	return c.number
}

// drop takes the number from a chunk that has one.
func (c *chunks) drop(h engine.BlockHash) {
	c.spare = append(c.spare, c.of(h))
	delete(c.numbers, c.in)
	c.number = unknown
}
