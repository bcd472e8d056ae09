package table

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

const (
	// PageBytes is the size of every page. 2,040 and not 2,048: the allocator behind Envoy's
	// shared data rounds the latter up by a third.
	PageBytes = 2040
	// PageEntries is the number of entries a page can hold.
	PageEntries = (PageBytes - pageHeaderBytes) / EntryBytes
	// RangePages is the number of pages of one range: what digests cover and what a base
	// transfer fetches at once (261,120 bytes).
	RangePages = 128
	// Wire is the version of the page, entry and meta formats.
	Wire = 1

	pageHeaderBytes = 24
	pageMagic       = 0x5750
)

// ValidBits tells whether bits is a size class: 6, 8, 10, 12, 14 or 16, for 64 to 65,536 pages.
func ValidBits(bits uint8) bool { return bits >= 6 && bits <= 16 && bits%2 == 0 }

// PageIndex returns the page of a fingerprint: its top bits.
func PageIndex(fingerprint uint64, bits uint8) uint32 { return uint32(fingerprint >> (64 - bits)) }

// Ranges returns the number of ranges of a size class.
func Ranges(bits uint8) int { return max(1, 1<<bits/RangePages) }

// RangeOf returns the range that a page belongs to.
func RangeOf(page uint32) int { return int(page / RangePages) }

// Page is a view over the PageBytes of one page. The zero-length page stands for an absent one
// and is empty to Lookup, Count, Digest and At.
//
//	offset size
//	0      2    magic 0x5750, bytes 50 57
//	2      1    wire version
//	3      1    bits: the size class
//	4      4    index
//	8      2    count of entries
//	10     6    0
//	16     8    digest: exclusive or of EntryDigest over the entries
//	24     24n  entries, strictly ascending by fingerprint; the rest is 0
//
// Little endian. All methods but Check expect a page that passed Check or was made by Init.
type Page []byte

// Init makes p, which must have PageBytes bytes, an empty page.
func (p Page) Init(bits uint8, index uint32) {
	clear(p[:PageBytes])
	binary.LittleEndian.PutUint16(p, pageMagic)
	p[2] = Wire
	p[3] = bits
	binary.LittleEndian.PutUint32(p[4:], index)
}

// Bits returns the size class the page belongs to.
func (p Page) Bits() uint8 { return p[3] }

// Index returns the page's index within its size class.
func (p Page) Index() uint32 { return binary.LittleEndian.Uint32(p[4:]) }

// Count returns the number of entries, 0 to PageEntries.
func (p Page) Count() int {
	if len(p) < PageBytes {
		return 0
	}
	return min(int(binary.LittleEndian.Uint16(p[8:])), PageEntries)
}

// Digest returns the exclusive or of EntryDigest over the entries, 0 for an empty page.
func (p Page) Digest() uint64 {
	if len(p) < PageBytes {
		return 0
	}
	return binary.LittleEndian.Uint64(p[16:])
}

// At returns entry i, 0 <= i < Count().
func (p Page) At(i int) Entry { return DecodeEntry(p[pageHeaderBytes+i*EntryBytes:]) }

// search returns the position of fingerprint, or where it belongs.
func (p Page) search(fingerprint uint64) (position int, found bool) {
	low, high := 0, p.Count()
	for low < high {
		middle := int(uint(low+high) / 2)
		switch f := binary.LittleEndian.Uint64(p[pageHeaderBytes+middle*EntryBytes:]); {
		case f == fingerprint:
			return middle, true
		case f < fingerprint:
			low = middle + 1
		default:
			high = middle
		}
	}
	return low, false
}

// Lookup returns the entry of a fingerprint.
func (p Page) Lookup(fingerprint uint64) (Entry, bool) {
	i, found := p.search(fingerprint)
	if !found {
		return Entry{}, false
	}
	return p.At(i), true
}

// Put adds an entry or replaces the one with the same fingerprint. It returns false, and
// changes nothing, when the page is full.
func (p Page) Put(e *Entry) bool {
	i, found := p.search(e.Fingerprint)
	count := p.Count()
	digest := p.Digest() ^ EntryDigest(e)
	at := pageHeaderBytes + i*EntryBytes
	if found {
		old := p.At(i)
		digest ^= EntryDigest(&old)
	} else {
		if count == PageEntries {
			return false
		}
		end := pageHeaderBytes + count*EntryBytes
		copy(p[at+EntryBytes:end+EntryBytes], p[at:end])
		binary.LittleEndian.PutUint16(p[8:], uint16(count+1))
	}
	AppendEntry(p[:at], e)
	binary.LittleEndian.PutUint64(p[16:], digest)
	return true
}

// Remove takes the entry of a fingerprint out. It tells whether there was one.
func (p Page) Remove(fingerprint uint64) bool {
	i, found := p.search(fingerprint)
	if !found {
		return false
	}
	old := p.At(i)
	count := p.Count()
	at := pageHeaderBytes + i*EntryBytes
	end := pageHeaderBytes + count*EntryBytes
	copy(p[at:], p[at+EntryBytes:end])
	clear(p[end-EntryBytes : end])
	binary.LittleEndian.PutUint16(p[8:], uint16(count-1))
	binary.LittleEndian.PutUint64(p[16:], p.Digest()^EntryDigest(&old))
	return true
}

// Check tells what is wrong with bytes that claim to be a page: size, magic, version, size
// class, index, count, order, membership of each fingerprint, digest, unused tail. The error
// is an *Error with the offset.
func (p Page) Check() error {
	switch {
	case len(p) != PageBytes:
		return &Error{What: "page: length is not 2040 but " + strconv.Itoa(len(p))}
	case binary.LittleEndian.Uint16(p) != pageMagic:
		return &Error{What: "page: wrong magic"}
	case p[2] != Wire:
		return &Error{Offset: 2, What: "page: unknown wire version " + strconv.Itoa(int(p[2]))}
	case !ValidBits(p[3]):
		return &Error{Offset: 3, What: "page: no such size class: " + strconv.Itoa(int(p[3])) + " bits"}
	case p.Index()>>p.Bits() != 0:
		return &Error{Offset: 4, What: "page: index beyond the size class"}
	case binary.LittleEndian.Uint16(p[8:]) > PageEntries:
		return &Error{Offset: 8, What: "page: more entries than fit"}
	}
	for i := 10; i < 16; i++ {
		if p[i] != 0 {
			return &Error{Offset: i, What: "page: padding is not zero"}
		}
	}
	var digest, before uint64
	count := p.Count()
	for i := range count {
		e := p.At(i)
		offset := pageHeaderBytes + i*EntryBytes
		if i > 0 && e.Fingerprint <= before {
			return &Error{Offset: offset, What: "page: entries are not ascending"}
		}
		if PageIndex(e.Fingerprint, p.Bits()) != p.Index() {
			return &Error{Offset: offset, What: "page: entry belongs to another page"}
		}
		before = e.Fingerprint
		digest ^= EntryDigest(&e)
	}
	// Entries are multiples of eight bytes, so the tail is looked at by words.
	for i := pageHeaderBytes + count*EntryBytes; i < PageBytes; i += 8 {
		if word := binary.LittleEndian.Uint64(p[i:]); word != 0 {
			return &Error{Offset: i + bits.TrailingZeros64(word)/8, What: "page: bytes behind the last entry are not zero"}
		}
	}
	if digest != p.Digest() {
		return &Error{Offset: 16, What: "page: digest does not match the entries"}
	}
	return nil
}

// Error says what is wrong with encoded bytes and where.
type Error struct {
	// Offset is the position of the first byte that is wrong.
	Offset int
	// What names the format and the fault.
	What string
}

func (e *Error) Error() string { return e.What + " at offset " + strconv.Itoa(e.Offset) }
