package bpe

import "github.com/warmpath/warmpath/tokenizer/vocab"

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
	hash  [shortBytes + 1]uint64 // of the first i bytes
	start [shortBytes + 2]uint8  // of each symbol; one more for the end
	token [shortBytes + 1]uint32 // index of each symbol
	rank  [shortBytes + 1]uint32 // index of what it and the next become; none if nothing
}

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
		h = (h + uint64(c) + 1) * vocab.Multiplier
		s.hash[i+1] = h
	}
	if len(p) <= e.v.Longest {
		index := e.v.Find(h, p)
		if index == none {
			index = e.v.FindWhole(h, p)
		}
		if index != none {
			return append(dst, e.v.ID(index))
		}
	}
	return e.mergeShort(dst, p)
}

// find returns the token of p[from:to].
func (e *Encoder) find(hash []uint64, p []byte, from, to int) uint32 {
	if to-from >= len(e.powers) {
		return none
	}
	return e.v.Find(hash[to]-hash[from]*e.powers[to-from], p[from:to])
}

// mergeShort merges the two neighbours with the lowest rank, leftmost first, until none can.
func (e *Encoder) mergeShort(dst []uint32, p []byte) []uint32 {
	s := &e.short
	n := 0
	for i := 0; i < len(p); n++ {
		s.start[n] = uint8(i)
		c := p[i]
		s.token[n] = e.v.Ones[c]
		i++
		if c < 0xc2 {
			continue
		}
		if size := sequence(c); i-1+size <= len(p) {
			if index := e.find(s.hash[:], p, i-1, i-1+size); index != none && e.v.Safe[index/32]>>(index%32)&1 != 0 {
				s.token[n] = index
				i += size - 1
			}
		}
	}
	s.start[n] = uint8(len(p))
	for i := 0; i+1 < n; i++ {
		from, to := int(s.start[i]), int(s.start[i+2])
		if to-from == 2 && (p[from]|p[from+1]) < 0x80 {
			s.rank[i] = e.pairs[int(p[from])<<7|int(p[from+1])]
		} else {
			s.rank[i] = e.find(s.hash[:], p, from, to)
		}
	}
	for n > 1 {
		ranks := s.rank[:n-1]
		best, lowest := 0, ranks[0]
		for i, r := range ranks {
			if r < lowest {
				best, lowest = i, r
			}
		}
		if lowest == none {
			break
		}
		s.token[best] = lowest
		n--
		// Close the gap: symbol best+1 is gone.
		copy(s.start[best+1:n+1], s.start[best+2:n+2])
		copy(s.token[best+1:n], s.token[best+2:n+1])
		if best < n-1 {
			copy(s.rank[best+1:n-1], s.rank[best+2:n])
			s.rank[best] = e.find(s.hash[:], p, int(s.start[best]), int(s.start[best+2]))
		}
		if best > 0 {
			s.rank[best-1] = e.find(s.hash[:], p, int(s.start[best-1]), int(s.start[best+1]))
		}
	}
	for _, index := range s.token[:n] {
		dst = append(dst, e.v.ID(index))
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
	if len(p) <= e.v.Longest {
		index := e.v.Find(h, p)
		if index == none {
			index = e.v.FindWhole(h, p)
		}
		if index != none {
			return append(dst, e.v.ID(index))
		}
	}
	back := int32(-1)
	for i := 0; i < len(p); {
		size, token := 1, e.v.Ones[p[i]]
		if p[i] >= 0xc2 {
			if n := sequence(p[i]); i+n <= len(p) {
				if index := e.find(l.hash, p, i, i+n); index != none && e.v.Safe[index/32]>>(index%32)&1 != 0 {
					size, token = n, index
				}
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
