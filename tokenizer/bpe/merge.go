package bpe

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/tokenizer/vocab"
)

const (
	// shortBytes is the longest piece that is merged by scanning for the lowest rank; above it a
	// heap is faster.
	shortBytes = 80
	// longUnits is the cost of a byte of a longer piece.
	longUnits = 16
)

const none = uint32(vocab.None)

// short is the scratch memory of pieces of up to shortBytes.
type short struct {
	text [shortBytes + 16]byte // the piece, and room to read eight bytes anywhere in it
	hash [128]uint64           // hash[i] is that of the first i bytes
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

// split makes the first symbols of a piece: characters that may be taken whole, and bytes.
func (e *Encoder) split(p []byte) int {
	s := &e.short
	n := 0
	for i := 0; i < len(p); n++ {
		c := p[i]
		token, size := e.v.Ones[c], 1
		if c >= 0xc2 {
			before, after := byte(0x80), byte(0x80)
			if i > 0 {
				before = p[i-1]
			}
			full := sequence(c)
			if i+full < len(p) {
				after = p[i+full]
			}
			if index := e.char(p[i:], full, before, after); index != none {
				token, size = index, full
			}
		}
		s.symbols[n&127] = uint64(noRank)<<rankShift | uint64(i)<<startShift | uint64(token)
		i += size
	}
	s.symbols[n&127] = uint64(noRank)<<rankShift | uint64(len(p))<<startShift
	return n
}

// mergeShort merges the two neighbours with the lowest rank, leftmost first, until none can.
// It looks tokens up like vocab.Find, but in place: calls are what costs most inside a VM.
func (e *Encoder) mergeShort(dst []uint32, size int) []uint32 {
	s := &e.short
	n := e.split(s.text[:size])
	t := e.v.Table()
	powers := e.powers
	// Ranks from here to there are not known yet.
	unknown, known := 0, n-1
	for {
		for i := unknown; i < known; i++ {
			symbol := s.symbols[i&127]
			from := int(symbol>>startShift) & 0xff
			to := int(s.symbols[(i+2)&127]>>startShift) & 0xff
			size := to - from
			rank := uint32(noRank)
			if size == 2 && (s.text[from]|s.text[from+1]) < 0x80 {
				rank = e.pairs[int(s.text[from])<<7|int(s.text[from+1])] & noRank
			} else if size < len(powers) {
				h := s.hash[to&127] - s.hash[from&127]*powers[size]
				at := h >> (t.Shift & 63)
				tag := uint32(h>>(t.TagShift&63)) << 20
				for {
					slot := t.Slots[at&uint64(len(t.Slots)-1)]
					if slot == none {
						break
					}
					at++
					if (slot^tag)>>20 != 0 {
						continue
					}
					index := slot & tokenMask
					ends := t.Ends[index : index+2 : index+2]
					if int(ends[1]-ends[0]) != size {
						continue
					}
					a, b := t.Text[ends[0]:], s.text[from:]
					left := size
					for ; left > 8; left -= 8 {
						if binary.LittleEndian.Uint64(a) != binary.LittleEndian.Uint64(b) {
							break
						}
						a, b = a[8:], b[8:]
					}
					if left <= 8 && (binary.LittleEndian.Uint64(a)^binary.LittleEndian.Uint64(b))<<(64-8*left&63) == 0 {
						rank = index
						break
					}
				}
			}
			s.symbols[i&127] = uint64(rank)<<rankShift | symbol&(1<<rankShift-1)
		}
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
		unknown, known = max(best-1, 0), min(best+1, n-1)
	}
	for i := range n {
		dst = append(dst, e.v.ID(uint32(s.symbols[i&127])&tokenMask))
	}
	return dst
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

// long is the scratch memory of longer pieces: about 36 bytes a byte of the longest piece so
// far.
type long struct {
	hash       []uint64
	token      []uint32 // by first byte of a symbol
	rank       []uint32 // by first byte: index of what it and the next become
	next, back []int32  // by first byte: first byte of the neighbours
	heap       []uint64 // rank << 32 | first byte
}

func (l *long) fit(n int) {
	if cap(l.token) < n {
		l.hash, l.token, l.rank = make([]uint64, n+1), make([]uint32, n), make([]uint32, n)
		l.next, l.back, l.heap = make([]int32, n), make([]int32, n), make([]uint64, 0, n)
	}
	l.hash, l.token, l.rank = l.hash[:n+1], l.token[:n], l.rank[:n]
	l.next, l.back, l.heap = l.next[:n], l.back[:n], l.heap[:0]
}

// mergeLong is mergeShort with a heap. An entry of the heap is stale if its symbol has another
// rank by now.
func (e *Encoder) mergeLong(dst []uint32, p []byte) []uint32 {
	l := &e.long
	l.fit(len(p))
	h := uint64(0)
	l.hash[0] = 0
	for i, c := range p {
		h = (h + uint64(c) + 1) * vocab.Multiplier
		l.hash[i+1] = h
	}
	if index := e.whole(h, p); index != none {
		return append(dst, e.v.ID(index))
	}
	back := int32(-1)
	for i := 0; i < len(p); {
		size, token := 1, e.v.Ones[p[i]]
		if p[i] >= 0xc2 {
			before, after, full := byte(0x80), byte(0x80), sequence(p[i])
			if i > 0 {
				before = p[i-1]
			}
			if i+full < len(p) {
				after = p[i+full]
			}
			if index := e.char(p[i:], full, before, after); index != none {
				size, token = full, index
			}
		}
		l.token[i], l.back[i], l.next[i] = token, back, int32(i+size)
		back = int32(i)
		i += size
	}
	for i := 0; i < len(p); i = int(l.next[i]) {
		l.rank[i] = e.becomes(p, i)
		if l.rank[i] != none {
			l.heap = append(l.heap, uint64(l.rank[i])<<32|uint64(i))
		}
	}
	heapify(l.heap)
	for len(l.heap) > 0 {
		top := l.heap[0]
		i, rank := int(uint32(top)), uint32(top>>32)
		if l.rank[i] != rank {
			l.heap = pop(l.heap)
			continue
		}
		gone := int(l.next[i])
		after := l.next[gone]
		l.token[i], l.next[i], l.rank[gone] = rank, after, none
		if int(after) < len(p) {
			l.back[after] = int32(i)
		}
		l.rank[i] = e.becomes(p, i)
		if l.rank[i] != none {
			l.heap[0] = uint64(l.rank[i])<<32 | uint64(i)
			down(l.heap, 0)
		} else {
			l.heap = pop(l.heap)
		}
		if before := int(l.back[i]); before >= 0 {
			l.rank[before] = e.becomes(p, before)
			if l.rank[before] != none {
				l.heap = push(l.heap, uint64(l.rank[before])<<32|uint64(before))
			}
		}
	}
	for i := 0; i < len(p); i = int(l.next[i]) {
		dst = append(dst, e.v.ID(l.token[i]))
	}
	return dst
}

// find returns the token of p[from:to].
func (e *Encoder) find(hash []uint64, p []byte, from, to int) uint32 {
	if to-from >= len(e.powers) {
		return none
	}
	return e.v.Find(hash[to]-hash[from]*e.powers[to-from], p[from:to])
}

// becomes returns the token of the symbol at i and the one after it.
func (e *Encoder) becomes(p []byte, i int) uint32 {
	next := int(e.long.next[i])
	if next >= len(p) {
		return none
	}
	return e.find(e.long.hash, p, i, int(e.long.next[next]))
}

// A heap of four children a node: half as deep as a binary one.

func heapify(h []uint64) {
	for i := (len(h) - 2) / 4; i >= 0 && len(h) > 1; i-- {
		down(h, i)
	}
}

func pop(h []uint64) []uint64 {
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	if last > 1 {
		down(h, 0)
	}
	return h
}

func push(h []uint64, x uint64) []uint64 {
	h = append(h, x)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if h[parent] <= x {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = x
	return h
}

func down(h []uint64, i int) {
	x := h[i]
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least, at := h[child], child
		for j := child + 1; j < min(child+4, len(h)); j++ {
			if h[j] < least {
				least, at = h[j], j
			}
		}
		if least >= x {
			break
		}
		h[i] = least
		i = at
	}
	h[i] = x
}
