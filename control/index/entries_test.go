package index

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAnEntryTellsWhyEachOfItsHoldersIsBelieved(t *testing.T) {
	x := fleet(3)
	x.request(1, "ab")
	x.Done(complete(x.request(2, "a"), 2), epoch)
	x.Reporting(3, true, epoch)
	x.Report(3, pathOf("a"), epoch)
	var got []Entry
	x.Entries([]uint64{fingerprintOf("a"), 99, fingerprintOf("ab")}, func(e *Entry) {
		kept := *e
		kept.Holders = slices.Clone(e.Holders)
		got = append(got, kept)
	})
	if len(got) != 2 || got[0].Units != 4 || got[0].Tokens != 64 || got[0].PoolSize != 3 || got[1].Units != 8 {
		t.Fatalf("%+v", got)
	}
	if want := []Holder{{3, Reported}, {2, Confirmed}, {1, Predicted}}; !slices.Equal(got[0].Holders, want) {
		t.Errorf("%v, want %v", got[0].Holders, want)
	}
}

func TestTheHottestAreThoseThatMostRequestsMatched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(Config{})
		for ref := uint16(1); ref <= 4; ref++ {
			x.AddWorker(WorkerSpec{Ref: ref, Pool: []string{"odd", "even"}[ref%2], CapacityTokens: 1 << 24})
		}
		now := epoch
		for i := range rapid.IntRange(0, 60).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "seconds")) * time.Second)
			text := rapid.StringMatching("[ab]{1,5}").Draw(t, "text")
			x.Dispatch(Dispatch{Request: RequestID{1, uint64(i)}, Chosen: rapid.Uint16Range(1, 4).Draw(t, "ref"), PromptUnits: 1, Path: pathOf(text)}, now)
		}
		pool := rapid.SampledFrom([]string{"", "odd", "nobody's"}).Draw(t, "pool")
		n := rapid.IntRange(1, 10).Draw(t, "n")
		var all []uint64
		for fp := range x.store.holders {
			all = append(all, fp)
		}
		var want []float64
		x.Entries(all, func(e *Entry) {
			if pool == "" || e.Pool == pool {
				want = append(want, e.Heat)
			}
		})
		slices.SortFunc(want, func(a, b float64) int { return cmp.Compare(b, a) })
		want = want[:min(n, len(want))]
		var got []float64
		for _, e := range x.Top(pool, n) {
			got = append(got, e.Heat)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
