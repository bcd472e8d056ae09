package bpe

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/tokenizer/vocab"
)

const (
	// shortBytes is the longest piece that is merged by scanning for the lowest rank; above it a
	// heap is faster.
	shortBytes = 80
)

const none = uint32(vocab.None)

// short is the scratch memory of pieces of up to shortBytes.
type short struct {
	text [128 + 16]byte // the piece, and room to read eight bytes anywhere in it
	hash [128]uint64    // hash[i] is that of the first i bytes
	// symbols: rank << 28 | start << 20 | token. Rank is the index of what the symbol and the
	// next one become, noRank if nothing; start is its first byte, so the lowest number is the
	// leftmost of the lowest rank.
	symbols [128]uint64
}

const (
	noRank     = 1<<20 - 1 // no index: vocab.MaxIndexes is the number of indexes
	rankShift  = 28
	startShift = 20
	tokenMask  = 1<<20 - 1
)

// char is an entry of the cache of characters: which token a character is, and whether it may
// be taken whole (vocab.Safe).
type char struct {
	bytes uint32 // the character's bytes, 0 for an unused entry
	token uint32 // index | charAlone or charAnywhere; none if it may not
}

const (
	charBits = 12
	// charAlone: the character may be taken whole between characters of several bytes and at a
	// piece's ends; charAnywhere: beside ASCII too.
	charAlone    = 1 << 30
	charAnywhere = 1 << 31
)

// piece appends the ids of one piece.
func (e *Encoder) piece(dst []uint32, p []byte) []uint32 {
	if len(p) == 1 {
		return append(dst, e.v.ID(e.v.Ones[p[0]]))
	}
	if len(p) > shortBytes {
		return e.mergeLong(dst, p)
	}
	s := &e.short
	h := uint64(0)
	for i, c := range p {
		s.text[i] = c
		h = (h + uint64(c) + 1) * vocab.Multiplier
		s.hash[(i+1)&127] = h
	}
	if index := e.whole(h, p); index != none {
		return append(dst, e.v.ID(index))
	}
	return e.mergeShort(dst, len(p))
}

// whole returns the token that all of a piece is, none if it is several.
func (e *Encoder) whole(h uint64, p []byte) uint32 {
	if len(p) > e.v.Longest {
		return none
	}
	if index := e.v.Find(h, p); index != none {
		return index
	}
	return e.v.FindWhole(h, p)
}

// char returns the token of the character that p begins with and that may be taken whole; none
// if it may not. The bytes before and after it are what its neighbours touch it with; 0x80
// stands for an end of the piece.
func (e *Encoder) char(p []byte, size int, before, after byte) uint32 {
	bytes := uint32(0)
	for _, c := range p[:size] {
		bytes = bytes<<8 | uint32(c)
	}
	slot := &e.chars[bytes*0x9e3779b1>>(32-charBits)]
	if slot.bytes != bytes {
		slot.bytes, slot.token = bytes, none
		if index := e.v.Find(vocab.HashBytes(p[:size]), p[:size]); index != none {
			switch {
			case e.v.Safe[index/32]>>(index%32)&1 != 0:
				slot.token = index | charAnywhere
			case e.v.SafeInside[index/32]>>(index%32)&1 != 0:
				slot.token = index | charAlone
			}
		}
	}
	token := slot.token
	if token == none || token&charAnywhere == 0 && before&after < 0x80 {
		return none
	}
	return token & tokenMask
}

// first returns the symbol that merging begins with at p[i]: a character that may be taken
// whole, or a byte. p may end within a character where it is a part of a longer piece.
func (e *Encoder) first(p []byte, i int) (token uint32, size int) {
	c := p[i]
	if size := sequence(c); c >= 0xc2 && i+size <= len(p) {
		before, after := byte(0x80), byte(0x80)
		if i > 0 {
			before = p[i-1]
		}
		if i+size < len(p) {
			after = p[i+size]
		}
		if index := e.char(p[i:], size, before, after); index != none {
			return index, size
		}
	}
	return e.v.Ones[c], 1
}

// split makes the first symbols of a piece.
func (e *Encoder) split(p []byte) int {
	s := &e.short
	n := 0
	for i := 0; i < len(p); n++ {
		token, size := e.v.Ones[p[i]], 1
		if p[i] >= 0xc2 {
			token, size = e.first(p, i)
		}
		s.symbols[n&127] = uint64(noRank)<<rankShift | uint64(i)<<startShift | uint64(token)
		i += size
	}
	s.symbols[n&127] = uint64(noRank)<<rankShift | uint64(len(p))<<startShift
	return n
}

// mergeShort merges the two neighbours with the lowest rank, leftmost first, until none can.
func (e *Encoder) mergeShort(dst []uint32, size int) []uint32 {
	s := &e.short
	n := e.split(s.text[:size])
	e.rank(0, n-1)
	for {
		best, lowest := 0, uint64(noRank)<<rankShift
		for i := 0; i < n-1; i++ {
			if x := s.symbols[i&127]; x < lowest {
				best, lowest = i, x
			}
		}
		if lowest>>rankShift == noRank {
			break
		}
		s.symbols[best&127] = lowest&(0xff<<startShift) | lowest>>rankShift
		n--
		for i := best + 1; i <= n; i++ {
			s.symbols[i&127] = s.symbols[(i+1)&127]
		}
		if best == n-1 { // now the last: it has no next one
			s.symbols[best&127] |= uint64(noRank) << rankShift
		}
		e.rank(max(best-1, 0), min(best+1, n-1))
	}
	for i := range n {
		dst = append(dst, e.v.ID(uint32(s.symbols[i&127])&tokenMask))
	}
	return dst
}

// span is an entry of the cache of what short parts of pieces are: a token's index, or noRank.
type span struct {
	text uint64 // its bytes in the upper ones, the last one highest
	size uint32 // their number, 0 for an unused entry
	rank uint32
}

const (
	spanBits  = 13
	spanBytes = 8
)

// rank looks up what the symbols from one place to another become with their next ones. Most parts
// of words are parts of other words as well: they are found in a cache that is near, where the
// vocabulary's tables are large and far.
func (e *Encoder) rank(i, end int) {
	s := &e.short
	for ; i < end; i++ {
		symbol := s.symbols[i&127]
		from := (symbol >> startShift) & 0x7f
		to := (s.symbols[(i+2)&127] >> startShift) & 0x7f
		size := to - from
		var rank uint64
		switch {
		case size == 2 && (s.text[from]|s.text[from+1]) < 0x80:
			rank = uint64(e.pairs[uint(s.text[from])<<7|uint(s.text[from+1])] & noRank)
		case size <= spanBytes:
			text := binary.LittleEndian.Uint64(s.text[from:]) << ((64 - 8*size) & 63)
			slot := &e.spans[(text^size)*mix>>(64-spanBits)]
			if slot.text != text || slot.size != uint32(size) {
				*slot = span{text, uint32(size), uint32(e.find(from, to))}
			}
			rank = uint64(slot.rank)
		default:
			rank = e.find(from, to)
		}
		s.symbols[i&127] = rank<<rankShift | symbol&(1<<rankShift-1)
	}
}

// find looks up what the part of the short piece from one place to another is. It does what
// vocab.Find does, but in place.
func (e *Encoder) find(from, to uint64) uint64 {
	s, t, size := &e.short, &e.table, to-from
	h := s.hash[to&127] - s.hash[from&127]*e.powers[size]
	at := h >> (t.Shift & 63)
	tag := uint32(h>>(t.TagShift&63)) << 20
	for {
		slot := t.Slots[at&uint64(len(t.Slots)-1)]
		if slot == none {
			return noRank
		}
		at++
		if (slot^tag)>>20 == 0 && e.same(slot&tokenMask, from, size) {
			return uint64(slot & tokenMask)
		}
	}
}

// same tells whether a token is the bytes of the short piece from one place on. Both can be
// read in eights: there is room behind them.
func (e *Encoder) same(index uint32, from, size uint64) bool {
	t := &e.table
	begin := t.Ends[index]
	if uint64(t.Ends[index+1]-begin) != size {
		return false
	}
	a, b := t.Text[begin:], e.short.text[from:]
	for ; size > 8; size -= 8 {
		if binary.LittleEndian.Uint64(a) != binary.LittleEndian.Uint64(b) {
			return false
		}
		a, b = a[8:], b[8:]
	}
	return (binary.LittleEndian.Uint64(a)^binary.LittleEndian.Uint64(b))<<((64-8*size)&63) == 0
}

// sequence returns the length of the UTF-8 sequence that c begins; text is valid here.
func sequence(c byte) int {
	switch {
	case c < 0xe0:
		return 2
	case c < 0xf0:
		return 3
	}
	return 4
}
