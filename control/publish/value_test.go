package publish

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/table"
)

// naivePages keeps what a table of one size may keep: of each page the most
// valuable, decided anew with each entry that comes.
type naivePages struct {
	value map[uint64]float64
	pages map[uint32]map[uint64]bool
}

func (n *naivePages) put(fp uint64) {
	page := n.pages[table.PageIndex(fp, 6)]
	if page == nil {
		page = map[uint64]bool{}
		n.pages[table.PageIndex(fp, 6)] = page
	}
	if page[fp] || len(page) < table.PageEntries {
		page[fp] = true
		return
	}
	least := fp
	for _, other := range slices.Sorted(maps.Keys(page)) {
		if n.value[other] < n.value[least] {
			least = other
		}
	}
	if least != fp {
		delete(page, least)
		page[fp] = true
	}
}

// Values change and entries come, go and come again; the pages are full, so the
// table is at its cap in bytes all the time.
func TestAtTheCapAPageKeepsWhatIsWorthMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Fingerprints of three pages, 40 more than fit into each.
		var all []uint64
		for fp := uint64(1); len(all) < 3*(table.PageEntries+40); fp++ {
			if h := fp * 0x9E3779B97F4A7C15; table.PageIndex(h, 6) < 3 {
				all = append(all, h)
			}
		}
		n := naivePages{value: map[uint64]float64{}, pages: map[uint32]map[uint64]bool{}}
		x := New(Config{MaxBytes: 64 * table.PageBytes, Value: func(fp uint64) float64 { return n.value[fp] }}, start)
		f := newFollower()
		seed := rapid.Uint64().Draw(t, "seed")
		var b Batch
		for i := range rapid.IntRange(1, 1500).Draw(t, "changes") {
			r := (seed + uint64(i)) * 0xD1342543DE82EF95
			r ^= r >> 29
			fp := all[r%uint64(len(all))]
			// Distinct, so that no order among equals is asked for.
			n.value[fp] = float64(r>>40%64) + float64(i)/1e6
			b.Reset()
			if r>>32%8 == 0 {
				b.Add(fp, nil, 0)
				delete(n.pages[table.PageIndex(fp, 6)], fp)
			} else {
				b.Add(fp, []uint16{1}, 2)
				n.put(fp)
			}
			x.Apply(&b, start)
		}
		f.catchUp(t, x, start)
		want := map[uint64]bool{}
		for _, page := range n.pages {
			maps.Copy(want, page)
		}
		if len(f.entries) != len(want) {
			t.Fatalf("%d entries, want %d", len(f.entries), len(want))
		}
		for fp := range want {
			if _, ok := f.entries[fp]; !ok {
				t.Fatalf("%x isn't there, worth %g", fp, n.value[fp])
			}
		}
		if s := x.Stats(); s.Bytes > 3*table.PageBytes {
			t.Fatalf("%d bytes of three pages", s.Bytes)
		}
	})
}
