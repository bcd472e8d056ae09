package bpe

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// oracle merges one piece as HF's Word::merge_all does, by pairs of ids and with a queue that
// may hold what is out of date; the queue is a plain list.
func oracle(s *vocab.Spec, piece string) []uint32 {
	byBytes := map[string]uint32{}
	for id, token := range s.Tokens {
		if len(token) > 0 {
			byBytes[string(token)] = uint32(id)
		}
	}
	if id, ok := byBytes[piece]; ok && s.Whole {
		return []uint32{id}
	}
	type merging struct{ rank, id uint32 }
	pairs := map[[2]uint32]merging{}
	for rank, pair := range s.Merges {
		pairs[pair] = merging{uint32(rank), byBytes[string(s.Tokens[pair[0]])+string(s.Tokens[pair[1]])]}
	}
	type symbol struct {
		id, length int
		prev, next int
	}
	type queued struct {
		merging
		at int
	}
	var symbols []symbol
	for i, b := range []byte(piece) {
		symbols = append(symbols, symbol{id: int(byBytes[string([]byte{b})]), length: 1, prev: i - 1, next: i + 1})
	}
	pair := func(i, j int) [2]uint32 { return [2]uint32{uint32(symbols[i].id), uint32(symbols[j].id)} }
	var queue []queued
	for i := 0; i+1 < len(symbols); i++ {
		if m, ok := pairs[pair(i, i+1)]; ok {
			queue = append(queue, queued{m, i})
		}
	}
	for len(queue) > 0 {
		least := 0
		for i, q := range queue {
			if q.rank < queue[least].rank || q.rank == queue[least].rank && q.at < queue[least].at {
				least = i
			}
		}
		top := queue[least]
		queue = append(queue[:least], queue[least+1:]...)
		if symbols[top.at].length == 0 || symbols[top.at].next >= len(symbols) {
			continue
		}
		right := symbols[top.at].next
		if m, ok := pairs[pair(top.at, right)]; !ok || m.id != top.id {
			continue
		}
		symbols[top.at].id = int(top.id)
		symbols[top.at].length += symbols[right].length
		symbols[top.at].next = symbols[right].next
		symbols[right].length = 0
		if next := symbols[top.at].next; next < len(symbols) {
			symbols[next].prev = top.at
			if m, ok := pairs[pair(top.at, next)]; ok {
				queue = append(queue, queued{m, top.at})
			}
		}
		if prev := symbols[top.at].prev; prev >= 0 {
			if m, ok := pairs[pair(prev, top.at)]; ok {
				queue = append(queue, queued{m, prev})
			}
		}
	}
	var ids []uint32
	for _, s := range symbols {
		if s.length > 0 {
			ids = append(ids, uint32(s.id))
		}
	}
	return ids
}

// drawSpec makes a vocabulary of a few letters and of characters that share bytes, with merges
// in any order: of parts that exist, of parts that are made later, the same token from several
// pairs, tokens that no merge makes.
func drawSpec(t *rapid.T) *vocab.Spec {
	s := &vocab.Spec{Kind: pretoken.Qwen2, Whole: rapid.Bool().Draw(t, "whole")}
	known := map[string]bool{}
	for b := range 256 {
		s.Tokens = append(s.Tokens, []byte{byte(b)})
		known[string([]byte{byte(b)})] = true
	}
	pool := []uint32{'a', 'b', 'c'}
	if rapid.Bool().Draw(t, "characters") {
		pool = []uint32{'a', 0xe4, 0xb8, 0xad, 0x81} // the bytes of two ideographs
	}
	for range rapid.IntRange(0, 30).Draw(t, "merges") {
		pair := [2]uint32{rapid.SampledFrom(pool).Draw(t, "left"), rapid.SampledFrom(pool).Draw(t, "right")}
		joined := string(s.Tokens[pair[0]]) + string(s.Tokens[pair[1]])
		if len(joined) > 12 {
			continue
		}
		if !known[joined] {
			known[joined] = true
			pool = append(pool, uint32(len(s.Tokens)))
			s.Tokens = append(s.Tokens, []byte(joined))
		}
		if rapid.IntRange(0, 9).Draw(t, "unmerged") > 0 {
			s.Merges = append(s.Merges, pair)
		}
	}
	if rapid.Bool().Draw(t, "shuffled") {
		s.Merges = rapid.Permutation(s.Merges).Draw(t, "order")
	}
	return s
}

func TestMergingByBytesIsMergingByPairsWhateverTheOrderOfTheMerges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		e := New(vocabtest.Compile(t, s), Config{CacheEntries: 16})
		for range 20 {
			// Words of one pre-token: letters and ideographs, at times longer than what is
			// merged by scanning.
			n := rapid.SampledFrom([]int{2, 3, 5, 8, 30, 120}).Draw(t, "length")
			letters := rapid.SampledFrom([]string{"ab", "aabbbc中丁", "a中丁"}).Draw(t, "letters")
			word := rapid.StringOfN(rapid.SampledFrom([]rune(letters)), n, n, -1).Draw(t, "word")
			want := oracle(s, word)
			// Long pieces are merged in blocks: the smaller they are, the more joints.
			e.long.block = rapid.SampledFrom([]int{4, 5, 7, 16, 64}).Draw(t, "block")
			if got := e.mergeLong(nil, []byte(word)); !equal(got, want) {
				t.Fatalf("%q in blocks of %d is %v, by pairs %v", word, e.long.block, got, want)
			}
			for range 2 { // the second time from the cache
				got, r := e.Encode(nil, []byte(word), Options{})
				if !equal(got, want) || r.Covered != len(word) {
					t.Fatalf("%q is %v (covered %d), by pairs %v", word, got, r.Covered, want)
				}
			}
		}
	})
}

func equal(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
