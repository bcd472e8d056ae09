// Package fingerprint turns a prompt into the chained fingerprints that name its prefixes.
//
// A prompt travels through it like this: Salt names everything but the text that an engine
// keys its prefix cache with (pool, adapter, cache salt, mode); Reset starts a Chain from that
// salt; Write (canonical bytes) or WriteTokens (token ids) feeds it 64-byte units; TurnEnd marks
// the ends of messages; Finish returns the few positions worth asking the cache-location table
// about. Two prompts have equal fingerprints at unit n exactly when their salts and their first
// n units are equal (up to 64-bit collisions).
//
// The chain goes from segment to segment: a segment ends at each position of the schedule, and
//
//	fingerprint(n) = HighwayHash-64(fingerprint at the segment's start, 24 zero bytes, units of the segment to n)
//
// so any unit can be a checkpoint, and the text is hashed in pieces of up to 4 KB where they
// lie. Hashing each unit by itself costs three times as much, most of it for starting and
// finishing a hash of two blocks.
//
// The same function runs in assembly natively and as plain Go inside WebAssembly.
// Source: J. Alakuijala, B. Cox, J. Wassenberg, "Fast keyed hash/pseudo-random function using
// SIMD multiply and permute", 2016.
package fingerprint

import (
	"encoding/binary"
	"unsafe"

	"github.com/minio/highwayhash"
)

const (
	// UnitTokens is the number of tokens of one unit in exact mode, and the number of tokens
	// a unit is counted as in approximate mode (64 bytes at four bytes a token).
	UnitTokens = 16
	// UnitBytes is the number of bytes of one unit: 16 little-endian uint32 token ids, or 64
	// bytes of the canonical rendering.
	UnitBytes = 64
	// MaxCheckpoints bounds what Finish returns. 256 covers a 16,000-token prompt with
	// 200 turns, and bounds a dispatch report to 3.1 KB.
	MaxCheckpoints = 256
)

// Mode says what a unit is made of. It is part of the salt: fingerprints of different modes
// never meet.
type Mode uint8

const (
	// Approximate units are 64 bytes of the canonical rendering of the conversation.
	Approximate Mode = 1
	// Exact units are 16 token ids, as the engine's own blocks.
	Exact Mode = 2
)

// String returns "approximate" or "exact".
func (m Mode) String() string {
	switch m {
	case Approximate:
		return "approximate"
	case Exact:
		return "exact"
	}
	return "unknown"
}

// Checkpoint is a chain position whose fingerprint is kept.
type Checkpoint struct {
	// Fingerprint names the first End units together with the salt.
	Fingerprint uint64
	// End is the number of whole units from the start that the fingerprint covers, >= 1.
	End uint32
	// TurnEnd is set where a message ended within or right after this unit. A follow-up turn
	// repeats these positions exactly, so lookups probe them first.
	TurnEnd bool
}

const (
	// maxTurnEnds turn ends are kept, the deepest ones. The rest of MaxCheckpoints belongs to
	// the schedule, so that a conversation of a thousand turns can still be matched at its
	// shared system prompt.
	maxTurnEnds = 224

	denseStride  = 4   // every 64 tokens ...
	denseEnd     = 64  // ... to 1,024
	middleStride = 16  // every 256 tokens ...
	middleEnd    = 512 // ... to 8,192
	sparseStride = 64  // every 1,024 tokens beyond
)

// chainKey is the key of every segment's hash. It is the hexadecimal expansion of pi's fraction
// (digits 1 to 64): a number nobody could have picked. Changing it changes every fingerprint and
// is a new wire version.
var chainKey = [32]byte{
	0x24, 0x3f, 0x6a, 0x88, 0x85, 0xa3, 0x08, 0xd3, 0x13, 0x19, 0x8a, 0x2e, 0x03, 0x70, 0x73, 0x44,
	0xa4, 0x09, 0x38, 0x22, 0x29, 0x9f, 0x31, 0xd0, 0x08, 0x2e, 0xfa, 0x98, 0xec, 0x4e, 0x6c, 0x89,
}

// Chain computes the fingerprints of one prompt at a time. It owns all its memory (about
// 12 KB) and allocates nothing; the zero value is ready after Reset. Not safe for concurrent use.
type Chain struct {
	position

	watch uint32 // position of the ring key, 0 = none

	turns     [maxTurnEnds]Checkpoint // ring buffer: the deepest maxTurnEnds
	scheduled [MaxCheckpoints]Checkpoint
	out       [MaxCheckpoints]Checkpoint
}

// position is all of a chain that depends on the prompt so far, but for the checkpoints it keeps.
type position struct {
	digest   highwayhash.Digest64 // of the segment so far
	previous uint64               // fingerprint at the segment's start
	began    uint32               // units before the segment
	end      uint32               // units at its end
	units    uint32

	carry       [UnitBytes]byte // the started unit
	carryLength int

	next   uint32 // next position of the schedule
	stride uint32 // stride beyond middleEnd: sparseStride, doubled each time scheduled fills up

	watched  uint64 // the ring key
	hasWatch bool

	turnCount int // turn ends ever kept; the newest is at (turnCount-1) % len(turns)
	schedule  int // positions of the schedule that are kept
}

// newSegment is the hash that every segment begins with.
var newSegment = func() highwayhash.Digest64 {
	digest, _ := highwayhash.NewDigest64(chainKey[:]) // the key has the right length
	return *digest
}()

// Reset starts a new prompt from a salt.
func (c *Chain) Reset(salt uint64) {
	c.units = 0
	c.begin(salt)
	c.carryLength = 0
	c.next = denseStride
	c.stride = sparseStride
	c.hasWatch = false
	c.turnCount = 0
	c.schedule = 0
}

// Watch asks the chain to remember the fingerprint at the given number of units for RingKey.
// It stays set across Reset. 0 turns it off.
func (c *Chain) Watch(units uint32) { c.watch = units }

// RingKey returns the fingerprint at the watched position, or at the last whole unit of a
// prompt that is shorter. ok is false when there is no whole unit or nothing is watched: such
// a prompt has no key.
func (c *Chain) RingKey() (key uint64, ok bool) {
	switch {
	case c.watch == 0 || c.units == 0:
		return 0, false
	case c.hasWatch:
		return c.watched, true
	}
	return c.fingerprint(), true
}

// Units returns the number of whole units chained since Reset.
func (c *Chain) Units() uint32 { return c.units }

// Write chains canonical bytes (approximate mode). How the text is cut into calls does not
// matter. The bytes are hashed where they are and not kept, apart from a started unit.
func (c *Chain) Write(p []byte) {
	if c.carryLength > 0 {
		n := copy(c.carry[c.carryLength:], p)
		c.carryLength += n
		p = p[n:]
		if c.carryLength < UnitBytes {
			return
		}
		c.whole(c.carry[:])
		c.carryLength = 0
	}
	rest := len(p) % UnitBytes
	c.whole(p[:len(p)-rest])
	c.carryLength = copy(c.carry[:], p[len(p)-rest:])
}

// WriteString is Write for a string, without copying it to the heap.
func (c *Chain) WriteString(s string) {
	for len(s) > 0 {
		n := copy(c.carry[c.carryLength:], s)
		c.carryLength += n
		s = s[n:]
		if c.carryLength == UnitBytes {
			c.whole(c.carry[:])
			c.carryLength = 0
		}
	}
}

// WriteTokens chains token ids (exact mode): 16 ids are one unit, four little-endian bytes each.
// The ids are hashed where they are and not kept, apart from a started unit.
func (c *Chain) WriteTokens(ids []uint32) {
	if len(ids) == 0 {
		return
	}
	if littleEndian {
		c.Write(unsafe.Slice((*byte)(unsafe.Pointer(&ids[0])), 4*len(ids)))
		return
	}
	for _, id := range ids {
		binary.LittleEndian.PutUint32(c.carry[c.carryLength:], id)
		c.carryLength += 4
		if c.carryLength == UnitBytes {
			c.whole(c.carry[:])
			c.carryLength = 0
		}
	}
}

// littleEndian tells that a token id lies in memory as it is hashed: so in WebAssembly and on
// every processor that matters.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// begin starts a segment from a fingerprint, or from the salt.
func (c *Chain) begin(previous uint64) {
	c.previous, c.began = previous, c.units
	switch {
	case c.units < denseEnd:
		c.end = c.units + denseStride
	case c.units < middleEnd:
		c.end = c.units + middleStride
	default:
		c.end = c.units + sparseStride
	}
	var head [highwayhash.Size]byte // what a segment's hash starts with
	binary.LittleEndian.PutUint64(head[:], previous)
	c.digest = newSegment
	_, _ = c.digest.Write(head[:])
}

// whole chains whole units, stopping at the positions that matter.
func (c *Chain) whole(p []byte) {
	for len(p) > 0 {
		stop := c.end
		if c.watch > c.units && c.watch < stop {
			stop = c.watch
		}
		n := min(len(p)/UnitBytes, int(stop-c.units))
		_, _ = c.digest.Write(p[:n*UnitBytes])
		c.units += uint32(n)
		p = p[n*UnitBytes:]
		if c.units == c.end {
			c.begin(c.digest.Sum64())
			if c.units == c.next {
				c.keepScheduled()
			}
		}
		if c.units == c.watch {
			c.watched, c.hasWatch = c.fingerprint(), true
		}
	}
}

// fingerprint is that of the whole units so far, the salt before the first.
func (c *Chain) fingerprint() uint64 {
	if c.units == c.began {
		return c.previous
	}
	return c.digest.Sum64()
}

// keepScheduled keeps the current position and sets the next one. When the room for the
// schedule is used up, the stride of its sparse part doubles and the positions off the new
// stride go. Which positions survive depends on the length only, and a longer prompt keeps a
// subset of what its prefix kept, so prompts of different lengths still meet.
func (c *Chain) keepScheduled() {
	if c.schedule == len(c.scheduled) {
		c.stride *= 2
		kept := 0
		for _, s := range c.scheduled[:c.schedule] {
			if s.End <= middleEnd || s.End%c.stride == 0 {
				c.scheduled[kept] = s
				kept++
			}
		}
		c.schedule = kept
	}
	if c.units <= middleEnd || c.units%c.stride == 0 {
		c.scheduled[c.schedule] = Checkpoint{Fingerprint: c.previous, End: c.units}
		c.schedule++
	}
	switch {
	case c.units < denseEnd:
		c.next = c.units + denseStride
	case c.units < middleEnd:
		c.next = c.units + middleStride
	default:
		c.next = (c.units/c.stride + 1) * c.stride
	}
}

// TurnEnd keeps the last whole unit as a checkpoint: a message ends here. A turn that ends
// inside the first unit keeps nothing; one that ends in the same unit as the turn before it
// is the same checkpoint.
func (c *Chain) TurnEnd() {
	if c.units == 0 {
		return
	}
	if c.turnCount > 0 && c.turns[(c.turnCount-1)%maxTurnEnds].End == c.units {
		return
	}
	c.turns[c.turnCount%maxTurnEnds] = Checkpoint{Fingerprint: c.fingerprint(), End: c.units, TurnEnd: true}
	c.turnCount++
}

// Finish returns the checkpoints of the prompt so far, ascending by End and without
// duplicates, at most MaxCheckpoints. The last whole unit and the deepest 224 turn ends are
// always among them; where room is short the schedule is thinned, every second position first.
// The slice belongs to the chain and is valid until the next Finish. The chain can go on.
func (c *Chain) Finish() []Checkpoint {
	turns := min(c.turnCount, maxTurnEnds)
	room := MaxCheckpoints - turns - 1
	stride := uint32(1)
	for c.countScheduled(stride) > room {
		stride *= 2
	}

	out := c.out[:0]
	turn := c.turnCount - turns
	next := 0
	for {
		for next < c.schedule && c.scheduled[next].End%stride != 0 {
			next++
		}
		var cp Checkpoint
		switch {
		case turn < c.turnCount && next < c.schedule:
			t := c.turns[turn%maxTurnEnds]
			if s := c.scheduled[next]; s.End < t.End {
				cp = s
				next++
			} else {
				cp = t
				turn++
				if s.End == t.End {
					next++
				}
			}
		case turn < c.turnCount:
			cp = c.turns[turn%maxTurnEnds]
			turn++
		case next < c.schedule:
			cp = c.scheduled[next]
			next++
		default:
			if c.units > 0 && (len(out) == 0 || out[len(out)-1].End < c.units) {
				out = append(out, Checkpoint{Fingerprint: c.fingerprint(), End: c.units})
			}
			return out
		}
		out = append(out, cp)
	}
}

func (c *Chain) countScheduled(stride uint32) int {
	n := 0
	for i := range c.scheduled[:c.schedule] {
		if c.scheduled[i].End%stride == 0 {
			n++
		}
	}
	return n
}
