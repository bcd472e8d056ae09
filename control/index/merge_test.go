package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// replica is an index that hears of requests, or misses them.
func (x *Index) hears(ref uint16, id uint64, text string, now time.Time) {
	r := RequestID{Gateway: 1, ID: id}
	x.Dispatch(Dispatch{Request: r, Chosen: ref, PromptUnits: uint32(len(text)) * 4, Path: pathOf(text)}, now)
	if id%3 != 0 { // some are not done yet
		x.Done(complete(r, ref), now)
	}
}

// heldBy is who holds what, with the proof.
func heldBy(x *Index) map[string]bool {
	out := map[string]bool{}
	var all []uint64
	x.Each(func(c Change) { all = append(all, c.Fingerprint) })
	x.Entries(all, func(e *Entry) {
		for _, h := range e.Holders {
			out[fmt.Sprintf("%x %d at %d %v", e.Fingerprint, h.Ref, e.Units, h.Proof)] = true
		}
	})
	return out
}

func TestAReplicaThatMissedReportsHasThemAfterAMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	large := func() *Index {
		x := New(Config{})
		for ref := uint16(1); ref <= 4; ref++ {
			x.AddWorker(WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 10_000_000, BlockTokens: 16})
		}
		return x
	}
	whole, gaps, empty := large(), large(), large()
	for id := uint64(1); id < 2000; id++ {
		text := make([]byte, 1+rng.IntN(12))
		for i := range text {
			text[i] = byte('a' + rng.IntN(3))
		}
		ref := uint16(1 + rng.IntN(4))
		whole.hears(ref, id, string(text), epoch)
		if id/100%4 != 2 {
			gaps.hears(ref, id, string(text), epoch)
		}
	}
	want := heldBy(whole)
	if len(heldBy(gaps)) == len(want) {
		t.Fatal("nothing is missing: the test tests nothing")
	}
	snapshot := whole.AppendSnapshot(nil)
	for name, x := range map[string]*Index{"after gaps": gaps, "new": empty} {
		before := len(heldBy(x))
		added, err := x.Merge(snapshot, epoch)
		if err != nil {
			t.Fatal(err)
		}
		got := heldBy(x)
		missing := 0
		for k := range want {
			if !got[k] {
				missing++
			}
		}
		// What the gaps' index holds of later requests is as it was.
		if missing > 0 || len(got) != len(want) || added == 0 {
			t.Errorf("%s: %d before, %d added, %d now, %d of %d missing", name, before, added, len(got), missing, len(want))
		}
		if added, _ = x.Merge(snapshot, epoch); added != 0 {
			t.Errorf("%s: a second merge adds %d", name, added)
		}
	}
}

func TestAMergeKeepsTheOrderOfUse(t *testing.T) {
	// Room for 10 paths of 100 units.
	filled := func(texts ...string) *Index {
		x := fleet(1)
		for i, text := range texts {
			x.hears(1, uint64(1+3*i), text, epoch)
		}
		return x
	}
	there := filled("a", "b", "c")
	here := filled("d")
	if _, err := here.Merge(there.AppendSnapshot(nil), epoch); err != nil {
		t.Fatal(err)
	}
	var order []uint64
	m := here.models[1]
	for id := m.oldest; id != 0; id = m.node(id).newer {
		order = append(order, m.node(id).fingerprint)
	}
	want := []uint64{fingerprintOf("d"), fingerprintOf("a"), fingerprintOf("b"), fingerprintOf("c")}
	if fmt.Sprint(order) != fmt.Sprint(want) {
		t.Errorf("%x, want %x", order, want)
	}
}

func TestASnapshotThatIsDamagedIsNotMerged(t *testing.T) {
	x := fleet(1)
	x.hears(1, 1, "abc", epoch)
	snapshot := x.AppendSnapshot(nil)
	y := fleet(1)
	for n := range len(snapshot) {
		if n == len(snapshot)-4-snapshotHeatBytes {
			continue // without heats, as an older one is
		}
		if _, err := y.Merge(snapshot[:n], epoch); err == nil {
			t.Fatalf("%d of %d bytes are taken", n, len(snapshot))
		}
	}
}
