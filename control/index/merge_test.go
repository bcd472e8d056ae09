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

// full is an index of one worker with room for three letters.
func full(text string, now time.Time) *Index {
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 192, BlockTokens: 16})
	for i, letter := range text {
		x.hears(1, uint64(1+3*i), string(letter), now)
	}
	return x
}

// TestWhatAnEarlierVersionHoldsCountsAsUsedNow: it numbers uses from 1, so its
// numbers say nothing beside orders.
func TestWhatAnEarlierVersionHoldsCountsAsUsedNow(t *testing.T) {
	there, here := full("abc", epoch), full("def", epoch)
	m := there.models[1]
	for id, n := m.oldest, uint64(5_000_000); id != 0; id = m.node(id).newer {
		m.node(id).touched = n
		n++
	}
	there.seq = 5_000_010
	if _, err := here.Merge(there.AppendSnapshot(nil), epoch); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"a": 1, "b": 1, "c": 1, "d": 0} {
		if got := here.holders(text); len(got) != want {
			t.Errorf("%s is held by %v", text, got)
		}
	}
	checkModels(t, here)
}

// TestWhatAReplicaWithABrokenClockHoldsIsNotUsedLastForEver: its clock is two days
// ahead.
func TestWhatAReplicaWithABrokenClockHoldsIsNotUsedLastForEver(t *testing.T) {
	there, here := full("abc", epoch.Add(48*time.Hour)), full("def", epoch)
	if _, err := here.Merge(there.AppendSnapshot(nil), epoch); err != nil {
		t.Fatal(err)
	}
	for i, letter := range "ghi" {
		here.hears(1, uint64(100+3*i), string(letter), epoch.Add(time.Second))
	}
	for text, want := range map[string]int{"a": 0, "b": 0, "c": 0, "g": 1, "h": 1, "i": 1} {
		if got := here.holders(text); len(got) != want {
			t.Errorf("%s is held by %v", text, got)
		}
	}
	checkModels(t, here)
}

// TestWhatAMergeBringsToAReportingEngineHasItsTime: what the engine removed before
// anybody here listened is withdrawn by nobody.
func TestWhatAMergeBringsToAReportingEngineHasItsTime(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	there := fleet(1)
	there.Told(1, reportedPath(4, 8), at)
	here := fleet(1)
	here.Reporting(1, true, at)
	if _, err := here.Merge(there.AppendSnapshot(nil), at); err != nil || !holds(here, 8) {
		t.Fatal("nothing is merged", err)
	}
	here.Report(1, reportedPath(4), at)
	for range 3 {
		at = at.Add(unknownFor)
		here.Tick(at)
	}
	if !holds(here, 4) || holds(here, 8) {
		t.Errorf("what it reports is held: %v; what it never reported: %v", holds(here, 4), holds(here, 8))
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
