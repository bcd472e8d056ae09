package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTouchFollowsTheDumbLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
		lru := NewLRU(capacity)
		var list []BlockHash // oldest first
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			var path []int // a few straight parts
			for _, part := range rapid.SliceOfN(rapid.IntRange(0, 29), 1, 4).Draw(t, "path") {
				path = append(path, slices.Repeat([]int{part % 2}, 1+part/2)...)
			}
			chain := countedChainOf(path)
			held := slices.IndexFunc(chain, func(h BlockHash) bool { return !slices.Contains(list, h) })
			if held < 0 {
				held = len(chain)
			}
			if got := lru.Holds(chain); got != held {
				t.Fatalf("holds %d of %d, want %d", got, len(chain), held)
			}
			lru.Touch(chain)
			for _, h := range slices.Backward(chain) {
				if at := slices.Index(list, h); at >= 0 {
					list = slices.Delete(list, at, at+1)
				} else if len(list) == capacity {
					list = list[1:]
				}
				list = append(list, h)
			}
			var got []BlockHash
			for at := lru.head; at != none; at = lru.all[at].next {
				for h := lru.all[at].end(); h > lru.all[at].first; h-- {
					got = append(got, h-1)
				}
			}
			if !slices.Equal(got, list) || lru.resident != len(list) {
				t.Fatalf("%x, want %x", got, list)
			}
		}
	})
}
