// Package texthash names texts for a memo that is asked by content: 128 bits under a key that
// nobody else has, at the speed of reading the text.
//
// A text travels through it in blocks of up to a kilobyte. Each is compressed to 16 bytes by NH,
// the first layer of UMAC: sums of products of 32-bit halves, which every processor and every VM
// has an instruction for. These, with the lengths of what was written, go through HighwayHash-128.
//
// Two different texts have the same name with a probability of about 2^-64 whatever they are, as
// long as nobody knows the key, so nobody can look for such a pair. Names of two Hashers have nothing
// to do with each other; what leaves a process is named by package fingerprint.
//
// Source: J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC: Fast and Secure Message
// Authentication", 1999: NH, and its Toeplitz construction for a second sum from the same key.
package texthash

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/minio/highwayhash"
)

// Sum is the name of a text.
type Sum struct{ Low, High uint64 }

const (
	blockBytes = 1024
	blockWords = blockBytes / 8
)

// Hasher makes the sums of what is written to it, under a key of its own. The zero value is ready
// after Reset.
type Hasher struct {
	outer *highwayhash.Digest      // nil before the key is drawn
	key   [2*blockWords + 2]uint32 // of each half of a block, the second sum two ahead of the first
	room  [highwayhash.Size128]byte
	batch [512]byte // of compressed blocks
	last  [blockBytes]byte
}

// Reset begins another text.
func (h *Hasher) Reset() {
	if h.outer != nil {
		h.outer.Reset()
		return
	}
	for i := range h.key {
		h.key[i] = rand.Uint32()
	}
	var outer [highwayhash.Size]byte
	for i := range outer {
		outer[i] = byte(rand.Uint32())
	}
	h.outer, _ = highwayhash.NewDigest128(outer[:]) // the key has the right length
}

// Write adds a piece of the text. The same bytes in other pieces are another text.
func (h *Hasher) Write(piece []byte) {
	batch := binary.LittleEndian.AppendUint64(h.batch[:0], uint64(len(piece)))
	for len(piece) > 0 {
		var block *[blockBytes]byte
		words := blockWords
		if len(piece) >= blockBytes {
			block, piece = (*[blockBytes]byte)(piece), piece[blockBytes:]
		} else {
			block, words = &h.last, (len(piece)+7)/8
			n := copy(block[:], piece)
			clear(block[n : 8*words])
			piece = nil
		}
		low, high := h.compress(block, words)
		if len(batch)+16 > len(h.batch) {
			_, _ = h.outer.Write(batch) // a hash does not fail
			batch = batch[:0]
		}
		batch = binary.LittleEndian.AppendUint64(batch, low)
		batch = binary.LittleEndian.AppendUint64(batch, high)
	}
	_, _ = h.outer.Write(batch)
}

// Add adds a number: it is the beginning of the text, or a piece of it.
func (h *Hasher) Add(n uint64) {
	_, _ = h.outer.Write(binary.LittleEndian.AppendUint64(h.batch[:0], n))
}

// Sum returns the name of what was written since Reset. More can be written after it.
func (h *Hasher) Sum() Sum {
	sum := h.outer.Sum(h.room[:0])
	return Sum{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])}
}

// compress returns both sums of the first words of a block, eight bytes each.
func (h *Hasher) compress(block *[blockBytes]byte, words int) (low, high uint64) {
	key := &h.key
	k0, k1 := key[0], key[1]
	for i := 0; i < words && i < blockWords; i++ {
		word := binary.LittleEndian.Uint64(block[8*i:])
		first, second := uint32(word), uint32(word>>32)
		k2, k3 := key[2*i+2], key[2*i+3]
		low += uint64(first+k0) * uint64(second+k1)
		high += uint64(first+k2) * uint64(second+k3)
		k0, k1 = k2, k3
	}
	return low, high
}
