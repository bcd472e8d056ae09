package recent

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/texthash"
)

// made is what was put last under a key.
type made struct {
	note  int
	items []uint32
}

func TestWhatIsFoundIsWhatWasPutLast(t *testing.T) {
	found, gone := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := New[int, uint32](rapid.IntRange(1, 40).Draw(t, "entries"), 100)
		room := [2]int{len(s.entries), len(s.items)}
		put := map[texthash.Sum]made{}
		for n := range rapid.IntRange(1, 200).Draw(t, "puts") {
			// Few places in the table, so that they are fought for.
			key := texthash.Sum{Low: rapid.Uint64Range(0, 9).Draw(t, "low"), High: rapid.Uint64Range(0, 1).Draw(t, "high")}
			m := made{note: n, items: make([]uint32, rapid.IntRange(0, 30).Draw(t, "items"))}
			for i := range m.items {
				m.items[i] = uint32(1000*n + i)
			}
			before, known := s.Get(key)
			s.Put(key, &m.note, m.items)
			if len(m.items) <= 25 {
				put[key] = m
				if _, ok := s.Get(key); !ok {
					t.Fatalf("%v is not there after it was put", key)
				}
			} else if _, ok := s.Get(key); ok != known || ok && before.Note == nil {
				t.Fatalf("%v is too large, and what was known of it is %v", key, ok)
			}
			for key, want := range put {
				r, ok := s.Get(key)
				if !ok {
					gone++
					continue
				}
				found++
				if got := slices.Concat(r.First, r.Rest); *r.Note != want.note || !slices.Equal(got, want.items) {
					t.Fatalf("%v holds %d %v, want %d %v", key, *r.Note, got, want.note, want.items)
				}
			}
		}
		if room != [2]int{len(s.entries), len(s.items)} {
			t.Fatalf("the store has grown from %v", room)
		}
	})
	if found < 1000 || gone < 1000 {
		t.Errorf("found %d times and gone %d times: nothing was tested", found, gone)
	}
}

func TestWhatIsPutAgainStays(t *testing.T) {
	s := New[struct{}, byte](1024, 1000)
	kept := texthash.Sum{Low: 1}
	s.Put(kept, &struct{}{}, make([]byte, 10))
	for i := range 2000 {
		s.Put(texthash.Sum{Low: uint64(i+2) * 4}, &struct{}{}, make([]byte, 10))
		r, ok := s.Get(kept)
		if !ok {
			t.Fatalf("gone after %d others", i+1)
		}
		if r.Old {
			s.Put(kept, &struct{}{}, slices.Concat(r.First, r.Rest))
		}
	}
	if _, ok := s.Get(texthash.Sum{Low: 8}); ok {
		t.Error("what nobody asked for is still there")
	}
}

func TestTheZeroStoreTakesNothing(t *testing.T) {
	var s Store[int, int]
	if s.Takes() {
		t.Error("it takes something")
	}
}
