package table

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// dumb is the oracle: fingerprint -> the refs that hold it.
type dumb map[uint64]map[uint16]bool

// longest returns the longest match of every worker by asking for every checkpoint.
func (d dumb) longest(cps []fingerprint.Checkpoint) []Match {
	best := map[uint16]uint32{}
	for _, cp := range cps {
		for ref := range d[cp.Fingerprint] {
			best[ref] = max(best[ref], cp.End)
		}
	}
	var out []Match
	for ref, units := range best {
		out = append(out, Match{Ref: ref, Units: units})
	}
	slices.SortFunc(out, func(a, b Match) int {
		if a.Units != b.Units {
			return int(b.Units) - int(a.Units)
		}
		return int(a.Ref) - int(b.Ref)
	})
	return out
}

// fixture is the same table three times: as a map, as pages, as overflow sets.
type fixture struct {
	oracle dumb
	bits   uint8
	pages  map[uint32]Page
	sets   map[uint32][]byte
	gets   map[uint32]int
	shared [PageBytes]byte // what get returns: overwritten by the next get
}

func newFixture(bits uint8) *fixture {
	return &fixture{oracle: dumb{}, bits: bits, pages: map[uint32]Page{}, sets: map[uint32][]byte{}, gets: map[uint32]int{}}
}

// put adds an entry; more holders than fit inline go into a set. It tells whether the page
// had room.
func (x *fixture) put(f uint64, refs ...uint16) bool {
	index := PageIndex(f, x.bits)
	if x.pages[index] == nil {
		x.pages[index] = make(Page, PageBytes)
		x.pages[index].Init(x.bits, index)
	}
	e := Entry{Fingerprint: f}
	copy(e.Refs[:], refs)
	if len(refs) > InlineRefs {
		id := uint32(len(x.sets) + 1)
		bitmap := make([]byte, int(slices.Max(refs))/8+1)
		for _, r := range refs {
			bitmap[r/8] |= 1 << (r % 8)
		}
		for have, other := range x.sets { // equal sets are one
			if bytes.Equal(other, bitmap) {
				id = have
			}
		}
		x.sets[id] = bitmap
		e.SetOverflow(id)
	}
	if !x.pages[index].Put(&e) {
		return false
	}
	x.oracle[f] = map[uint16]bool{}
	for _, r := range refs {
		x.oracle[f][r] = true
	}
	return true
}

func (x *fixture) get(page uint32) Page {
	x.gets[page]++
	p := x.pages[page]
	if p == nil {
		return nil
	}
	copy(x.shared[:], p)
	return x.shared[:]
}

func (x *fixture) lookup() *Lookup {
	return &Lookup{Bits: x.bits, Set: func(id uint32) []byte { return x.sets[id] }}
}

// drawCheckpoints draws a prompt's checkpoints.
func drawCheckpoints(t *rapid.T) []fingerprint.Checkpoint {
	n := rapid.IntRange(0, fingerprint.MaxCheckpoints).Draw(t, "checkpoints")
	seed := rapid.Uint64().Draw(t, "seed")
	turns := rapid.Uint64Range(1, 300).Draw(t, "turn every")
	cps := make([]fingerprint.Checkpoint, n)
	end := uint32(0)
	for i := range cps {
		random := mix(seed + uint64(i))
		end += 1 + uint32(random%64)
		cps[i] = fingerprint.Checkpoint{Fingerprint: random, End: end, TurnEnd: random>>8%turns == 0}
	}
	return cps
}

// An engine evicts leaf first, so the workers of a checkpoint are a superset of the workers of
// any deeper one; what is missing are whole entries.
func TestLookupEqualsTheOracleWithHolesInAnyPlace(t *testing.T) {
	var l Lookup // reused
	rapid.Check(t, func(t *rapid.T) {
		x := newFixture(rapid.SampledFrom([]uint8{6, 8, 16}).Draw(t, "bits"))
		cps := drawCheckpoints(t)
		depth := map[uint16]int{} // by worker: checkpoints it holds
		for range rapid.IntRange(0, 40).Draw(t, "workers") {
			depth[rapid.Uint16Range(1, 600).Draw(t, "ref")] = rapid.IntRange(0, len(cps)).Draw(t, "depth")
		}
		order := rapid.Permutation(refsOf(depth)).Draw(t, "order")
		holes := rapid.SampledFrom([]int{0, 1, 5, 9}).Draw(t, "holes of 10")
		for i, cp := range cps {
			if int(cp.Fingerprint>>20%10) < holes {
				continue
			}
			var refs []uint16
			for _, r := range order {
				if depth[r] > i {
					refs = append(refs, r)
				}
			}
			if len(refs) > 0 {
				x.put(cp.Fingerprint, refs...)
			}
		}
		others := rapid.SampledFrom([]int{0, 100, 3000}).Draw(t, "others")
		for i := range others { // full pages included
			x.put(mix(1<<60+uint64(i)), 601)
		}

		l.Bits, l.Set = x.bits, x.lookup().Set
		got := l.Find(cps, x.get, 2*len(cps), []Match{{Ref: 9999, Units: 1}})
		if len(got) == 0 || got[0] != (Match{Ref: 9999, Units: 1}) {
			t.Fatalf("what was in out is gone: %v", got)
		}
		if diff := cmp.Diff(x.oracle.longest(cps), slices.Clone(got[1:])); diff != "" && len(got) > 1 {
			t.Fatalf("matches differ (-oracle +lookup):\n%s", diff)
		} else if len(got) == 1 && len(x.oracle.longest(cps)) > 0 {
			t.Fatal("nothing found")
		}
		for page, n := range x.gets {
			if n > 1 {
				t.Fatalf("page %d was asked for %d times", page, n)
			}
		}
	})
}

// Lost events leave holes of single workers too. Then every match that is returned is true,
// and the deepest present checkpoint is found with all its holders.
func TestDeepestPresentCheckpointIsFoundPastAnyHoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newFixture(10)
		cps := drawCheckpoints(t)
		sparse := rapid.Uint64Range(0, 10).Draw(t, "present of 10")
		var deepest fingerprint.Checkpoint
		for _, cp := range cps {
			var refs []uint16
			for i := range cp.Fingerprint >> 20 % 13 {
				refs = append(refs, uint16(1+mix(cp.Fingerprint+i)%50))
			}
			slices.Sort(refs)
			refs = slices.Compact(refs)
			if len(refs) > 0 && cp.Fingerprint>>40%10 < sparse && x.put(cp.Fingerprint, refs...) {
				deepest = cp
			}
		}
		l := x.lookup()
		got := l.Find(cps, x.get, 2*len(cps), nil)
		if l.Deepest() != deepest.End {
			t.Fatalf("deepest %d, want %d", l.Deepest(), deepest.End)
		}
		best := map[uint16]uint32{}
		for _, m := range x.oracle.longest(cps) {
			best[m.Ref] = m.Units
		}
		found := map[uint16]uint32{}
		for _, m := range got {
			found[m.Ref] = m.Units
			at := slices.IndexFunc(cps, func(cp fingerprint.Checkpoint) bool { return cp.End == m.Units })
			if at < 0 || !x.oracle[cps[at].Fingerprint][m.Ref] {
				t.Fatalf("worker %d does not hold unit %d", m.Ref, m.Units)
			}
		}
		for ref := range x.oracle[deepest.Fingerprint] {
			if found[ref] != deepest.End {
				t.Fatalf("worker %d holds the deepest checkpoint %d, found %d", ref, deepest.End, found[ref])
			}
		}
	})
}

func TestBudgetIsKeptAndEveryMatchIsTrueWithinIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newFixture(16)
		cps := drawCheckpoints(t)
		for i, cp := range cps {
			if cp.Fingerprint>>40%2 == 0 {
				x.put(cp.Fingerprint, uint16(1+i%7))
			}
		}
		budget := rapid.IntRange(0, 40).Draw(t, "budget")
		l := x.lookup()
		for _, m := range l.Find(cps, x.get, budget, nil) {
			at := slices.IndexFunc(cps, func(cp fingerprint.Checkpoint) bool { return cp.End == m.Units })
			if at < 0 || !x.oracle[cps[at].Fingerprint][m.Ref] {
				t.Fatalf("worker %d does not hold unit %d", m.Ref, m.Units)
			}
		}
		total := 0
		for _, n := range x.gets {
			total += n
		}
		if total > budget || total != l.Gets() {
			t.Fatalf("%d gets with a budget of %d, Gets() = %d", total, budget, l.Gets())
		}
	})
}

// prompt returns n evenly spaced checkpoints; the last ones of each tenth end a turn.
func prompt(n int, seed uint64) []fingerprint.Checkpoint {
	cps := make([]fingerprint.Checkpoint, n)
	for i := range cps {
		cps[i] = fingerprint.Checkpoint{Fingerprint: mix(seed<<32 + uint64(i) + 1), End: uint32(4 * (i + 1)), TurnEnd: i%10 == 9}
	}
	return cps
}

func TestFollowUpTurnIsFoundInThreeGets(t *testing.T) {
	x := newFixture(16)
	cps := prompt(100, 1)
	for _, cp := range cps[:90] { // the turn before ended at checkpoint 89
		x.put(cp.Fingerprint, 7)
	}
	l := x.lookup()
	got := l.Find(cps, x.get, 3, nil)
	if diff := cmp.Diff([]Match{{Ref: 7, Units: 360}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestShortSharedPrefixUnderALongNewTextIsFoundWithASmallBudget(t *testing.T) {
	x := newFixture(16)
	cps := prompt(250, 2)
	for i := range cps {
		cps[i].TurnEnd = i == 249
	}
	for _, cp := range cps[:25] {
		x.put(cp.Fingerprint, 3)
	}
	l := x.lookup()
	got := l.Find(cps, x.get, 40, nil)
	if diff := cmp.Diff([]Match{{Ref: 3, Units: 100}}, got); diff != "" {
		t.Error(diff)
	}
	if l.Gets() > 40 {
		t.Errorf("%d gets", l.Gets())
	}
}

// A budget of 24 is what a request has, 60 checkpoints are a prompt of 12,000 tokens.
func TestAPrefixOfAnyLengthIsFoundWholeWithASmallBudget(t *testing.T) {
	for n := 1; n <= 60; n++ {
		cps := prompt(n, 10)
		for held := range n + 1 {
			x := newFixture(16)
			for _, cp := range cps[:held] {
				x.put(cp.Fingerprint, 7)
			}
			l := x.lookup()
			var want []Match
			if held > 0 {
				want = []Match{{Ref: 7, Units: cps[held-1].End}}
			}
			if diff := cmp.Diff(want, l.Find(cps, x.get, 24, nil)); diff != "" {
				t.Fatalf("%d of %d checkpoints are held (-want +got):\n%s", held, n, diff)
			}
		}
	}
}

// A prompt that nobody has, of any length: its first checkpoint says that it is one, and a few samples
// confirm that.
func TestAPromptThatNobodyHasCostsFewGets(t *testing.T) {
	others := newFixture(16)
	for _, cp := range prompt(200, 11) {
		others.put(cp.Fingerprint, 7)
	}
	for n := range fingerprint.MaxCheckpoints + 1 {
		l := others.lookup()
		if got := l.Find(prompt(n, 12), others.get, 24, nil); len(got) > 0 || l.Gets() > 15 || n <= 80 && l.Gets() > 12 {
			t.Errorf("%d checkpoints cost %d gets: %v", n, l.Gets(), got)
		}
	}
}

// Of two checkpoints the second is a witness, and the last.
func TestThePromptMayEndWithinTheWitnesses(t *testing.T) {
	for n := range 5 {
		for held := range n + 1 {
			for budget := range 7 {
				x := newFixture(16)
				cps := prompt(n, 13)
				for _, cp := range cps[held/2 : held] { // the first ones are lost
					x.put(cp.Fingerprint, 7)
				}
				l := x.lookup()
				if got := l.Find(cps, x.get, budget, nil); budget >= 2*n && l.Deepest() != uint32(4*held) || len(got) > 1 {
					t.Errorf("%d of %d checkpoints with a budget of %d: %v", held, n, budget, got)
				}
			}
		}
	}
}

// Samples and what is between them may be missing, as events get lost.
func TestMissingEntriesHideLittleFromASmallBudget(t *testing.T) {
	for _, c := range []struct {
		lost uint64 // of 10
		n    int    // checkpoints at least
		want float64
	}{{1, 30, 0.995}, {1, 10, 0.995}, {3, 30, 0.98}, {3, 10, 0.98}} {
		held, found := uint32(0), uint32(0)
		for seed := range uint64(800) {
			cps := prompt(c.n+int(seed)%(2*c.n), 100+seed)
			x := newFixture(16)
			deepest := uint32(0)
			for i, cp := range cps[:mix(seed)%uint64(len(cps))] {
				if mix(seed*1000+uint64(i))%10 >= c.lost {
					x.put(cp.Fingerprint, 7)
					deepest = cp.End
				}
			}
			l := x.lookup()
			l.Find(cps, x.get, 24, nil)
			held, found = held+deepest, found+l.Deepest()
		}
		if float64(found) < c.want*float64(held) {
			t.Errorf("%d of 10 lost in prompts of %d checkpoints and more: %d units found of %d", c.lost, c.n, found, held)
		}
	}
}

// The common case of a hot system prompt: its holders are found by bisection, not step by step.
func TestHoldersOfASharedSystemPromptCostFewGets(t *testing.T) {
	x := newFixture(16)
	cps := prompt(120, 3)
	everyone := make([]uint16, 16)
	for i := range everyone {
		everyone[i] = uint16(i + 1)
	}
	for i, cp := range cps {
		switch {
		case i < 40:
			x.put(cp.Fingerprint, everyone...)
		case i < 110:
			x.put(cp.Fingerprint, 5)
		}
	}
	l := x.lookup()
	got := l.Find(cps, x.get, 120, nil)
	if diff := cmp.Diff(x.oracle.longest(cps), got); diff != "" {
		t.Error(diff)
	}
	if l.Gets() > 24 {
		t.Errorf("%d gets", l.Gets())
	}
}

func TestUniversalEntryStandsForThePoolUnlessASetSaysWho(t *testing.T) {
	cps := prompt(1, 4)
	page := Page(make([]byte, PageBytes))
	page.Init(6, PageIndex(cps[0].Fingerprint, 6))
	e := Entry{Fingerprint: cps[0].Fingerprint, Refs: [6]uint16{9}}
	e.SetUniversal(true)
	for _, c := range []struct {
		name string
		set  uint32
		pool []uint16
		want []Match
	}{
		{"pool known", 0, []uint16{1, 2, 9}, []Match{{1, 4}, {2, 4}, {9, 4}}},
		{"pool not known", 0, nil, []Match{{9, 4}}},
		{"set known", 1, []uint16{1, 2, 9}, []Match{{2, 4}, {9, 4}}},
		{"set not known", 2, []uint16{1, 9}, []Match{{1, 4}, {9, 4}}},
	} {
		e.SetOverflow(c.set)
		page.Put(&e)
		l := Lookup{Bits: 6, Pool: c.pool, Set: func(id uint32) []byte {
			if id == 1 {
				return []byte{1<<2 | 1} // ref 2; bit 0 is ref 0: nobody
			}
			return nil
		}}
		got := l.Find(cps, func(uint32) Page { return page }, 9, nil)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestEmptyPromptAndUnknownSizeClassAskForNothing(t *testing.T) {
	get := func(uint32) Page { t.Fatal("asked"); return nil }
	l := Lookup{Bits: 8}
	if got := l.Find(nil, get, 9, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
	l.Bits = 0
	if got := l.Find(prompt(3, 1), get, 9, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestLookupDoesNotAllocateOnceWarm(t *testing.T) {
	x := newFixture(8)
	cps := prompt(100, 5)
	for i, cp := range cps[:90] {
		x.put(cp.Fingerprint, uint16(i%5+1), 400)
	}
	l := x.lookup()
	out := make([]Match, 0, 16)
	get := func(page uint32) Page { return x.pages[page] }
	if n := testing.AllocsPerRun(10, func() { l.Find(cps, get, 64, out) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func refsOf(m map[uint16]int) []uint16 {
	var refs []uint16
	for r := range m {
		refs = append(refs, r)
	}
	slices.Sort(refs)
	return refs
}

func BenchmarkLookup(b *testing.B) {
	x := newFixture(12)
	hit, miss := prompt(60, 6), prompt(60, 7)
	everyone := make([]uint16, 12)
	for i := range everyone {
		everyone[i] = uint16(i + 1)
	}
	for i, cp := range hit[:50] {
		if i < 20 {
			x.put(cp.Fingerprint, everyone...)
		} else {
			x.put(cp.Fingerprint, 5)
		}
	}
	for i := range 100_000 {
		x.put(mix(uint64(i)+1<<50), 1)
	}
	get := func(page uint32) Page { return x.pages[page] }
	for _, c := range []struct {
		name string
		cps  []fingerprint.Checkpoint
	}{{"follow-up", hit}, {"miss", miss}} {
		for _, budget := range []int{16, 64} {
			b.Run(c.name+"/budget="+strconv.Itoa(budget), func(b *testing.B) {
				l := x.lookup()
				out := make([]Match, 0, 64)
				b.ReportAllocs()
				for b.Loop() {
					out = l.Find(c.cps, get, budget, out[:0])
				}
				b.ReportMetric(float64(l.Gets()), "gets/op")
			})
		}
	}
}

// Most of the others hold the system prompt and nothing more: its end is where
// the search for them begins.
func TestHoldersOfTheFirstTurnAloneCostTwoGetsMore(t *testing.T) {
	x := newFixture(16)
	cps := prompt(120, 8)
	for i, cp := range cps[:110] {
		if i <= 9 { // the first turn ends at checkpoint 9
			x.put(cp.Fingerprint, 1, 2, 3, 5)
		} else {
			x.put(cp.Fingerprint, 5)
		}
	}
	l := x.lookup()
	got := l.Find(cps, x.get, 120, nil)
	if diff := cmp.Diff(x.oracle.longest(cps), got); diff != "" {
		t.Error(diff)
	}
	// The last turn of the prompt, the one found, those between, the first
	// checkpoint, and the two.
	if l.Gets() != 14 {
		t.Errorf("%d gets", l.Gets())
	}
}

// A system prompt that 300 workers hold, a conversation that one does.
func BenchmarkLookupOfWhat300WorkersHold(b *testing.B) {
	x := newFixture(12)
	cps := prompt(60, 9)
	var everyone []uint16
	for i := range 300 {
		everyone = append(everyone, uint16(i+1))
	}
	for i, cp := range cps[:50] {
		if i < 30 {
			x.put(cp.Fingerprint, everyone...)
		} else {
			x.put(cp.Fingerprint, 5)
		}
	}
	l := x.lookup()
	out := make([]Match, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		out = l.Find(cps, func(page uint32) Page { return x.pages[page] }, 24, out[:0])
	}
	b.ReportMetric(float64(l.Gets()), "gets/op")
}
