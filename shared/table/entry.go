// Package table is the cache-location table as the proxy's shared data holds it: which workers
// hold which prefix.
//
// An entry travels like this: the control service puts it into the page that the top bits of
// its fingerprint name; the courier of each gateway writes pages whole into shared data; a
// request's Lookup gets the few pages its checkpoints fall into and returns the longest match
// of every worker. A page is consistent by itself and an entry is an independent fact, so
// readers need no lock and no version across pages.
package table

import (
	"encoding/binary"
	"math/bits"
)

const (
	// EntryBytes is the size of one encoded entry.
	EntryBytes = 24
	// InlineRefs is the number of worker references an entry holds itself.
	InlineRefs = 6

	universalBit = 1 << 31
	setMask      = 1<<24 - 1
)

// Entry says which workers hold one checkpoint.
//
//	offset size
//	0      8    fingerprint
//	8      12   refs, 6 x u16; 0 = none. Control names them in ascending order
//	20     4    info: bit 31 universal, bits 0..23 overflow set id
//
// Little endian. A ref names one generation of one worker; a ref that is not in the roster
// resolves to nothing.
type Entry struct {
	Fingerprint uint64
	Refs        [InlineRefs]uint16
	Info        uint32
}

// Universal tells that more than half of the pool's workers hold the checkpoint.
func (e *Entry) Universal() bool { return e.Info&universalBit != 0 }

// SetUniversal sets or clears the universal flag.
func (e *Entry) SetUniversal(on bool) {
	e.Info &^= universalBit
	if on {
		e.Info |= universalBit
	}
}

// Overflow returns the id of the set (a bitmap over refs) that lists all holders when there
// are more than InlineRefs, or 0.
func (e *Entry) Overflow() uint32 { return e.Info & setMask }

// SetOverflow sets the overflow set id; only the low 24 bits count.
func (e *Entry) SetOverflow(id uint32) { e.Info = e.Info&^setMask | id&setMask }

// Count returns the number of inline refs in use.
func (e *Entry) Count() int {
	n := 0
	for _, r := range e.Refs {
		if r != 0 {
			n++
		}
	}
	return n
}

// Holds tells whether ref is among the inline refs.
func (e *Entry) Holds(ref uint16) bool {
	for _, r := range e.Refs {
		if r == ref && ref != 0 {
			return true
		}
	}
	return false
}

// Add puts ref in front as the most recent holder and returns the ref that fell off the end,
// or 0. A ref that is already there moves to the front.
func (e *Entry) Add(ref uint16) (dropped uint16) {
	if ref == 0 {
		return 0
	}
	carry := ref
	for i, r := range e.Refs {
		e.Refs[i] = carry
		if r == ref || r == 0 {
			return 0
		}
		carry = r
	}
	return carry
}

// Remove takes ref out and closes the gap. It tells whether ref was there.
func (e *Entry) Remove(ref uint16) bool {
	if ref == 0 {
		return false
	}
	for i, r := range e.Refs {
		if r == ref {
			copy(e.Refs[i:], e.Refs[i+1:])
			e.Refs[InlineRefs-1] = 0
			return true
		}
	}
	return false
}

// AppendEntry appends the 24 bytes of e.
func AppendEntry(b []byte, e *Entry) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.Fingerprint)
	for _, r := range e.Refs {
		b = binary.LittleEndian.AppendUint16(b, r)
	}
	return binary.LittleEndian.AppendUint32(b, e.Info)
}

// DecodeEntry reads an entry from the first 24 bytes of b; b must hold that many.
func DecodeEntry(b []byte) Entry {
	_ = b[EntryBytes-1]
	var e Entry
	e.Fingerprint = binary.LittleEndian.Uint64(b)
	for i := range e.Refs {
		e.Refs[i] = binary.LittleEndian.Uint16(b[8+2*i:])
	}
	e.Info = binary.LittleEndian.Uint32(b[20:])
	return e
}

// EntryDigest hashes one entry. A page's digest is the exclusive or of its entries' digests
// and a range's the exclusive or of its pages', so both can be kept up by difference and do
// not depend on the order of changes. It guards against loss and mix-up, not against an
// attacker: control writes all of it.
func EntryDigest(e *Entry) uint64 {
	refs := uint64(e.Refs[0]) | uint64(e.Refs[1])<<16 | uint64(e.Refs[2])<<32 | uint64(e.Refs[3])<<48
	tail := uint64(e.Refs[4]) | uint64(e.Refs[5])<<16 | uint64(e.Info)<<32
	return mix(mix(mix(e.Fingerprint+0x9e3779b97f4a7c15)^refs) ^ bits.RotateLeft64(tail, 29))
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every
// input bit reaches every output bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
