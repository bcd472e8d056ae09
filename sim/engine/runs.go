package engine

import "time"

// A run is resident blocks of one chain that have always been treated alike: they are referenced by
// the same requests, or stand one behind the other in the list of evictable blocks, the last one
// first. Their hashes count upwards within one chunk. Blocks whose hashes don't count (those of real
// tokens) are runs of one; package virtual names 16 blocks of a prompt so, and pays for one.
type run struct {
	first      BlockHash
	released   time.Duration // when the last request let it go
	n          int32         // blocks
	refs       int32
	prev, next int32 // in the list of evictable blocks
	more       int32 // another run of the same chunk
	spare      bool  // a block that was resident when it was filled once more: it stays alone
}

// chunkBits of a hash count blocks within a chunk.
const chunkBits = 4

func chunkOf(h BlockHash) uint64 { return uint64(h) >> chunkBits }

// has tells whether a block is in the run.
func (r *run) has(h BlockHash) bool { return h-r.first < BlockHash(r.n) }

func (r *run) end() BlockHash { return r.first + BlockHash(r.n) }

// lead counts the leading hashes that are the run's, which has the first one.
func (r *run) lead(hashes []BlockHash) int {
	n := min(int(r.end()-hashes[0]), len(hashes))
	for i := 1; i < n; i++ {
		if hashes[i] != hashes[0]+BlockHash(i) {
			return i
		}
	}
	return n
}

// trail counts the trailing hashes that are the run's, which has the last one.
func (r *run) trail(hashes []BlockHash) int {
	last := hashes[len(hashes)-1]
	n := min(int(last-r.first)+1, len(hashes))
	for i := 1; i < n; i++ {
		if hashes[len(hashes)-1-i] != last-BlockHash(i) {
			return i
		}
	}
	return n
}

// none stands for no run.
const none = -1

// runs are the resident blocks, and the order in which they are evicted.
type runs struct {
	all        []run
	unused     []int32 // of all
	index      chunkIndex
	head, tail int32 // evictable list, none when empty
	resident   int   // blocks, spare ones included
	spares     int   // runs
}

func newRuns() runs { return runs{index: newChunkIndex(8), head: none, tail: none} }

// find returns the run that has a block, or none; of several the one that was filled first.
func (x *runs) find(h BlockHash) int32 {
	at := x.index.find(x.all, chunkOf(h))
	for at != none && !x.all[at].has(h) {
		at = x.all[at].more
	}
	return at
}

// add makes a run of one block, which no run has.
func (x *runs) add(h BlockHash, refs int32) int32 {
	x.resident++
	return x.enter(run{first: h, n: 1, refs: refs, prev: none, next: none})
}

// addSpare makes a run of one block that is resident already. It stands behind all others of its chunk,
// so that those of the block that were filled before are found before it.
func (x *runs) addSpare(h BlockHash) int32 {
	x.spares++
	x.resident++
	at := x.place(run{first: h, n: 1, refs: 1, prev: none, next: none, more: none, spare: true})
	last := x.index.find(x.all, chunkOf(h))
	for x.all[last].more != none {
		last = x.all[last].more
	}
	x.all[last].more = at
	return at
}

// grow makes a run longer by the block behind it, if it lies in the same chunk.
func (x *runs) grow(at int32, h BlockHash) bool {
	r := &x.all[at]
	if r.spare || h != r.end() || chunkOf(h) != chunkOf(r.first) {
		return false
	}
	r.n++
	x.resident++
	return true
}

// enter gives a run a place before all others of its chunk.
func (x *runs) enter(r run) int32 {
	at := x.place(r)
	x.all[at].more = x.index.put(x.all, chunkOf(r.first), at)
	return at
}

// place gives a run a place that the index doesn't know yet.
func (x *runs) place(r run) (at int32) {
	if n := len(x.unused); n > 0 {
		at, x.unused = x.unused[n-1], x.unused[:n-1]
		x.all[at] = r
		return at
	}
	x.all = append(x.all, r)
	return int32(len(x.all) - 1)
}

// drop takes a run's place, which is in no list.
func (x *runs) drop(at int32) {
	r := &x.all[at]
	chunk := chunkOf(r.first)
	first := x.index.find(x.all, chunk)
	switch {
	case first != at:
		before := first
		for x.all[before].more != at {
			before = x.all[before].more
		}
		x.all[before].more = r.more
	case r.more != none:
		x.index.put(x.all, chunk, r.more)
	default:
		x.index.remove(x.all, chunk)
	}
	r.n = 0
	if r.spare {
		x.spares--
	}
	x.unused = append(x.unused, at)
}

// isolate makes a run of some of a run's blocks, and returns it.
func (x *runs) isolate(at int32, from, n int) int32 {
	if rest := int(x.all[at].n) - from - n; rest > 0 {
		at = x.split(at, from+n)
	}
	if from > 0 {
		x.split(at, from)
	}
	return at
}

// split cuts a run before its n-th block and returns the part before it. The part from there on
// keeps the run's place: it is evicted first.
func (x *runs) split(at int32, n int) int32 {
	front := x.all[at]
	x.all[at].first += BlockHash(n)
	x.all[at].n -= int32(n)
	front.n = int32(n)
	cut := x.enter(front)
	if front.refs == 0 {
		x.link(cut, at, front.next)
	}
	return cut
}

// append lets a run be evicted last. If the run before it was the blocks behind it, and was
// appended for the same request, both become one; append returns it.
func (x *runs) append(at int32, sameRequest bool) int32 {
	if r := &x.all[at]; sameRequest && x.tail != none {
		if t := &x.all[x.tail]; t.first == r.end() && chunkOf(t.first) == chunkOf(r.first) && !r.spare && !t.spare {
			n := r.n
			x.drop(at)
			t.first -= BlockHash(n)
			t.n += n
			return x.tail
		}
	}
	x.link(at, x.tail, none)
	return at
}

// link puts a run between two others.
func (x *runs) link(at, prev, next int32) {
	x.all[at].prev, x.all[at].next = prev, next
	if prev == none {
		x.head = at
	} else {
		x.all[prev].next = at
	}
	if next == none {
		x.tail = at
	} else {
		x.all[next].prev = at
	}
}

func (x *runs) unlink(at int32) {
	r := &x.all[at]
	if r.prev == none {
		x.head = r.next
	} else {
		x.all[r.prev].next = r.next
	}
	if r.next == none {
		x.tail = r.prev
	} else {
		x.all[r.next].prev = r.prev
	}
	r.prev, r.next = none, none
}

// evict drops the block that is due, and returns it.
func (x *runs) evict() BlockHash {
	at := x.head
	r := &x.all[at]
	h := r.end() - 1
	x.resident--
	if r.n == 1 {
		x.unlink(at)
		x.drop(at)
	} else {
		r.n--
	}
	return h
}

// A chunkIndex finds the first run of a chunk: open addressing, at most half full. 32 bits of a
// chunk's number stand beside the run, so that a probe rarely has to look there.
type chunkIndex struct {
	places []place
	used   int
}

type place struct {
	low uint32 // bits of the chunk
	at  int32  // none: free
}

func newChunkIndex(size int) chunkIndex {
	x := chunkIndex{places: make([]place, size)}
	for i := range x.places {
		x.places[i].at = none
	}
	return x
}

// seek returns where a chunk stands, or the free place that it would take.
func (x *chunkIndex) seek(all []run, chunk uint64) int {
	mask := len(x.places) - 1
	i := int(chunk) & mask
	for p := &x.places[i]; p.at != none && (p.low != uint32(chunk) || chunkOf(all[p.at].first) != chunk); p = &x.places[i] {
		i = (i + 1) & mask
	}
	return i
}

// find returns the first run of a chunk, or none.
func (x *chunkIndex) find(all []run, chunk uint64) int32 { return x.places[x.seek(all, chunk)].at }

// put makes a run the first of its chunk, and returns the one that was.
func (x *chunkIndex) put(all []run, chunk uint64, at int32) (before int32) {
	i := x.seek(all, chunk)
	if before = x.places[i].at; before == none {
		if x.used++; 2*x.used > len(x.places) {
			x.grow()
			i = x.seek(all, chunk)
		}
	}
	x.places[i] = place{uint32(chunk), at}
	return before
}

func (x *chunkIndex) grow() {
	old := x.places
	x.places = newChunkIndex(2 * len(old)).places
	mask := len(x.places) - 1
	for _, p := range old {
		if p.at == none {
			continue
		}
		i := int(p.low) & mask
		for x.places[i].at != none {
			i = (i + 1) & mask
		}
		x.places[i] = p
	}
}

// remove takes out a chunk and moves up those behind it that its place stood in the way of.
func (x *chunkIndex) remove(all []run, chunk uint64) {
	mask := len(x.places) - 1
	hole := x.seek(all, chunk)
	for i := (hole + 1) & mask; x.places[i].at != none; i = (i + 1) & mask {
		// Its first choice must not lie after the hole, seen from i backwards.
		if wanted := int(x.places[i].low) & mask; (i-wanted)&mask >= (i-hole)&mask {
			x.places[hole] = x.places[i]
			hole = i
		}
	}
	x.places[hole].at = none
	x.used--
}
