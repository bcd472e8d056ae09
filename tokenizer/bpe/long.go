package bpe

import "github.com/warmpath/warmpath/tokenizer/vocab"

const (
	// blockBytes of a long piece are merged at a time. A heap over 100 KB at once leaves the
	// processor's caches with every step and costs five times as much a byte.
	blockBytes = 1 << 10
	// longUnits is the cost of a byte of a long piece: it takes 8 to 16 times as long as one of
	// ordinary text.
	longUnits = 12
	// keptBytes is the longest piece whose scratch memory, 0.5 MB, is kept for the next one.
	keptBytes = 64 << 10
)

// long is the scratch memory of longer pieces: 32 bytes a byte of a block, 8 a byte of the piece.
type long struct {
	block int      // blockBytes; tests take less, to have more joints
	at    []symbol // by first byte; one more for the end
	heap  []uint64 // rank << 32 | first byte
	// Indexes: of the piece so far, of the next block, of the text around their joint.
	out, next, joint []uint32
}

// symbol of a block. What one step of merging reads lies side by side.
type symbol struct {
	hash       uint64 // of all bytes before
	token      uint32
	rank       uint32 // index of what it and the next become
	next, back int32  // first byte of the neighbours
}

func (l *long) fit(n int) {
	if cap(l.at) <= n {
		size := max(n, 2*blockBytes)
		l.at, l.heap = make([]symbol, size+1), make([]uint64, 0, size)
	}
	l.at, l.heap = l.at[:n+1], l.heap[:0]
}

// mergeLong merges a long piece block by block and mends the joints.
//
// Tokens t1 .. tn are what merging makes of their text if each is what merging makes of its own
// bytes and each two neighbours are what merging makes of theirs. For let the first merge that
// crosses an edge between two of them be x with y, in ti and t(i+1). Until then each of the two
// has gone through the steps of its own merging, and which of them took the next step was
// decided by rank and position, as if the two were alone. So when they are alone they come
// through the same state, x and y are the best there too, and their two bytes' merging would
// not end with ti and t(i+1).
//
// So where the text around a joint, merged by itself, begins with a token that was there and
// ends with one that was there, it can be put in their place: all neighbours are right.
func (e *Encoder) mergeLong(dst []uint32, p []byte) []uint32 {
	if len(p) <= e.v.Longest {
		if index := e.whole(vocab.HashBytes(p), p); index != none {
			return append(dst, e.v.ID(index))
		}
	}
	l := &e.long
	l.out = l.out[:0]
	mending := 4*len(p) + 64*blockBytes // bytes that may be merged again
	for done := 0; done < len(p); {
		end := min(done+l.block, len(p))
		for end < len(p) && p[end]&0xc0 == 0x80 { // at most three: text is valid UTF-8
			end--
		}
		l.next = e.mergeHeap(l.next[:0], p[done:end])
		if done > 0 {
			if mending -= e.join(p, done); mending < 0 {
				// No vocabulary is known whose tokens depend on so much text.
				l.out = e.mergeHeap(l.out[:0], p)
				break
			}
		} else {
			l.out = append(l.out, l.next...)
		}
		done = end
	}
	for _, index := range l.out {
		dst = append(dst, e.v.ID(index))
	}
	if len(p) > keptBytes {
		*l = long{block: l.block}
	}
	return dst
}

// join appends l.next, the tokens from p[at] on, to l.out, those before. It returns how many
// bytes it merged again.
func (e *Encoder) join(p []byte, at int) (again int) {
	l := &e.long
	for left, right := 1, 1; ; {
		left, right = min(left, len(l.out)), min(right, len(l.next))
		keep := len(l.out) - left
		from, to := at-e.length(l.out[keep:]), at+e.length(l.next[:right])
		l.joint = e.mergeHeap(l.joint[:0], p[from:to])
		again += to - from
		first, last := l.joint[0], l.joint[len(l.joint)-1]
		fits := true
		if keep > 0 && first != l.out[keep] {
			left, fits = 2*left, false
		}
		if right < len(l.next) && last != l.next[right-1] {
			right, fits = 2*right, false
		}
		if fits {
			l.out = append(append(l.out[:keep], l.joint...), l.next[right:]...)
			return again
		}
	}
}

// length returns the bytes of tokens.
func (e *Encoder) length(indexes []uint32) (n int) {
	for _, index := range indexes {
		n += int(e.table.Ends[index+1] - e.table.Ends[index])
	}
	return n
}

// mergeHeap appends the indexes of the tokens of p. It does what mergeShort does, with a heap;
// an entry of the heap is stale if its symbol has another rank by now.
func (e *Encoder) mergeHeap(dst []uint32, p []byte) []uint32 {
	l := &e.long
	l.fit(len(p))
	h := uint64(0)
	l.at[0].hash = 0
	for i, c := range p {
		h = (h + uint64(c) + 1) * vocab.Multiplier
		l.at[i+1].hash = h
	}
	back := int32(-1)
	for i := 0; i < len(p); {
		token, size := e.first(p, i)
		s := &l.at[i]
		s.token, s.back, s.next = token, back, int32(i+size)
		back = int32(i)
		i += size
	}
	for i := 0; i < len(p); i = int(l.at[i].next) {
		if rank := e.becomes(p, i); rank != none {
			l.heap = append(l.heap, uint64(rank)<<32|uint64(i))
		}
	}
	heapify(l.heap)
	for len(l.heap) > 0 {
		top := l.heap[0]
		i, rank := int(uint32(top)), uint32(top>>32)
		s := &l.at[i]
		if s.rank != rank {
			l.heap = pop(l.heap)
			continue
		}
		gone := &l.at[s.next]
		s.token, s.next, gone.rank = rank, gone.next, none
		if int(s.next) < len(p) {
			l.at[s.next].back = int32(i)
		}
		if rank := e.becomes(p, i); rank != none {
			l.heap[0] = uint64(rank)<<32 | uint64(i)
			down(l.heap, 0)
		} else {
			l.heap = pop(l.heap)
		}
		if before := int(s.back); before >= 0 {
			if rank := e.becomes(p, before); rank != none {
				l.heap = push(l.heap, uint64(rank)<<32|uint64(before))
			}
		}
	}
	for i := 0; i < len(p); i = int(l.at[i].next) {
		dst = append(dst, l.at[i].token)
	}
	return dst
}

// becomes notes and returns the token of the symbol at i and the one after it.
func (e *Encoder) becomes(p []byte, i int) uint32 {
	s := &e.long.at[i]
	s.rank = none
	if int(s.next) < len(p) {
		end := int(e.long.at[s.next].next)
		if n := end - i; n <= e.v.Longest {
			s.rank = e.v.Find(e.long.at[end].hash-s.hash*e.powers[n], p[i:end])
		}
	}
	return s.rank
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
