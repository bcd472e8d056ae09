package tiers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// TestTheTableHasWhatWasSaidLast compares with a plain set of pairs, over changes
// drained now and then.
func TestTheTableHasWhatWasSaidLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New()
		type pair struct {
			ref        uint16
			checkpoint uint64
		}
		said := map[pair]bool{}
		published := map[uint64][]uint16{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := pair{rapid.Uint16Range(1, 4).Draw(t, "ref"), rapid.Uint64Range(1, 6).Draw(t, "checkpoint")}
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				b.Forget(p.ref)
				for q := range said {
					if q.ref == p.ref {
						delete(said, q)
					}
				}
			case 1, 2, 3:
				b.Set(p.ref, p.checkpoint, false)
				delete(said, p)
			case 4:
				last := uint64(0)
				b.Drain(func(key uint64, holders []uint16) {
					if key <= last {
						t.Fatalf("%x after %x", key, last)
					}
					last = key
					if published[key] = slices.Clone(holders); len(holders) == 0 {
						delete(published, key)
					}
				})
				want := map[uint64][]uint16{}
				for q := range said {
					want[fingerprint.Slow(q.checkpoint)] = append(want[fingerprint.Slow(q.checkpoint)], q.ref)
				}
				got := map[uint64][]uint16{}
				for key, holders := range published {
					got[key] = slices.Sorted(slices.Values(holders))
				}
				for _, refs := range want {
					slices.Sort(refs)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatal(diff)
				}
				if n, _ := b.Stats(); n != len(want) {
					t.Fatalf("%d prefixes, want %d", n, len(want))
				}
			default:
				b.Set(p.ref, p.checkpoint, true)
				said[p] = true
			}
		}
	})
}

func TestWhatHasNoRoomIsCounted(t *testing.T) {
	b := New()
	for i := range uint64(MaxPrefixes + 3) {
		b.Set(1, i+1, true)
	}
	b.Set(2, 1, true) // known already
	if n, full := b.Stats(); n != MaxPrefixes || full != 3 {
		t.Errorf("%d prefixes, %d left out", n, full)
	}
}
