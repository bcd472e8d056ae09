package index

import (
	"math"
	"time"
)

// What an entry of the table is worth is what the fleet loses without it:
//
//	value = heat x units x (1 - 0.9 x holders / workers of the pool)
//
// heat counts the requests whose longest match it was, each fading by half in
// heatHalf: whoever goes on beyond doesn't need it. units are those from the
// nearest checkpoint before it: without the entry that one is found. The last
// factor is the luck of finding a holder without a table.
//
// All heats fade alike, so their order changes by requests only, never by time:
// heat is kept as log2 of the sum of 2^(t / heatHalf) over its requests, and
// values are compared as logarithms.
const (
	heatHalf = 5 * time.Minute
	// freshHeat is the heat, in log2, of a checkpoint that nobody matched yet:
	// one in 32 will be matched soon. The place where the next turn of a
	// conversation begins has that of one request.
	freshHeat = -5
	// chance is how much of an entry's worth is gone when everybody holds it.
	chance = 0.9
)

// holding is who holds a fingerprint, and its heat.
type holding struct {
	first uint32  // newest holder
	heat  float32 // log2, against store.clock
}

// tick brings the clock of heat to now, in half-lives since the first now.
func (s *store) tick(now time.Time) {
	if s.began.IsZero() {
		s.began = now
	}
	s.clock = max(s.clock, float32(float64(now.Sub(s.began))/float64(heatHalf)))
}

// warm counts one more request whose longest match is f.
func (s *store) warm(f uint64) {
	h, ok := s.holders[f]
	if !ok {
		return
	}
	high, low := max(h.heat, s.clock), min(h.heat, s.clock)
	h.heat = high + float32(math.Log2(1+math.Exp2(float64(low-high))))
	s.holders[f] = h
	// An entry that had no room in the table may be worth it now.
	s.markDirty(f)
}

// expect gives f the heat of one request at least: one is likely to come.
func (s *store) expect(f uint64) {
	if h, ok := s.holders[f]; ok && h.heat < s.clock {
		h.heat = s.clock
		s.holders[f] = h
	}
}

// warmMatch counts a request for the longest match of its path.
func (x *Index) warmMatch(path []Checkpoint) {
	for i := len(path) - 1; i >= 0; i-- {
		if _, ok := x.store.holders[path[i].Fingerprint]; ok {
			x.store.warm(path[i].Fingerprint)
			return
		}
	}
}

// expectNext: the next turn of a conversation repeats its prompt to where the
// last turn ended.
func (x *Index) expectNext(path []Checkpoint) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i].TurnEnd {
			x.store.expect(path[i].Fingerprint)
			return
		}
	}
	if len(path) > 0 {
		x.store.expect(path[len(path)-1].Fingerprint)
	}
}

// heatChunk nodes are looked at before others may take their turn.
const heatChunk = 1 << 16

// eachHeat calls f for every fingerprint that is held, with its newest holder.
// Others go on between chunks, so what changes meanwhile may be missed.
func (x *Index) eachHeat(f func(newest *node, h holding)) {
	for from := uint32(1); from != 0; {
		from = x.heatsFrom(from, f)
	}
}

// heatsFrom goes through one chunk and returns where the next begins, 0 behind
// the last.
func (x *Index) heatsFrom(from uint32, f func(newest *node, h holding)) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	end := min(from+heatChunk, x.store.used)
	for id := from; id < end; id++ {
		n := x.store.node(id)
		if h := x.store.holders[n.fingerprint]; h.first == id {
			f(n, h)
		}
	}
	if end == x.store.used {
		return 0
	}
	return end
}

// Value is what the entry of a fingerprint is worth, log2 of a number that only
// means something beside others; -Inf for one that nobody holds.
func (x *Index) Value(f uint64) float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.value(f)
}

func (x *Index) value(f uint64) float64 {
	h, ok := x.store.holders[f]
	if !ok {
		return math.Inf(-1)
	}
	first := x.store.node(h.first)
	holders := 0
	for id := h.first; id != 0; id = x.store.node(id).same {
		holders++
	}
	pool := 0
	if m := x.models[first.ref]; m != nil {
		pool = x.poolSize[m.pool]
	}
	share := float64(holders) / float64(max(holders, pool))
	units := first.end - x.store.end(first.parent)
	return float64(h.heat) + math.Log2(float64(units)*(1-chance*share))
}
