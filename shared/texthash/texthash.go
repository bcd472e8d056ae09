// Package texthash names texts for a memo that is asked by content: 122 bits under a key that
// nobody else has, at the speed of reading the text.
//
// A text travels through it in blocks of up to a kilobyte. Each is compressed to 16 bytes by NH,
// the first layer of UMAC: sums of products of 32-bit halves, which every processor and every VM
// has an instruction for. These, with the lengths of what was written, are the coefficients of two
// polynomials modulo 2^61-1 that are evaluated at secret places, UMAC's second layer.
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
	"math/bits"
	"math/rand/v2"
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
	drawn  bool
	key    [2*blockWords + 2]uint32 // of each half of a block, the second sum two ahead of the first
	places [2]uint64                // where the polynomials are evaluated
	values [2]uint64                // of the polynomials so far
	last   [blockBytes]byte
}

// Reset begins another text.
func (h *Hasher) Reset() {
	if !h.drawn {
		for i := range h.key {
			h.key[i] = rand.Uint32()
		}
		h.places = [2]uint64{rand.Uint64N(prime), rand.Uint64N(prime)}
		h.drawn = true
	}
	h.values = [2]uint64{1, 1}
}

// Write adds a piece of the text. The same bytes in other pieces are another text.
func (h *Hasher) Write(piece []byte) {
	h.Add(uint64(len(piece)))
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
		h.Add(low)
		h.Add(high)
	}
}

// Add adds a number: it is the beginning of the text, or a piece of it.
func (h *Hasher) Add(n uint64) {
	for i, x := range h.places {
		h.values[i] = times(times(h.values[i], x)+n>>32, x) + n&(1<<32-1)
	}
}

// Sum returns the name of what was written since Reset. More can be written after it.
func (h *Hasher) Sum() Sum { return Sum{h.values[0], h.values[1]} }

// prime is what the polynomials are modulo.
const prime = 1<<61 - 1

// times multiplies modulo prime. Factors and product may be a little above it.
func times(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	sum := low&prime + (low>>61 | high<<3)
	return sum&prime + sum>>61
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
