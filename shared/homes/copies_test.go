package homes

import (
	"slices"
	"testing"
	"time"
)

const (
	hotFingerprint = 7<<32 + 8 // of the prefix that traffic shares
	// patient is the number of plans in which a copy of it, 800 units, is being made if it doesn't come.
	patient = 10
)

// copying is a pool of 16 whose prefix 7 is a third of the traffic, with gateways that make copies.
type copying struct {
	*traffic
	t       *testing.T
	makers  []uint64
	workers []Worker
	has     map[uint16]bool
}

func newCopying(t *testing.T, makers ...uint64) *copying {
	f := &copying{&traffic{p: NewPlanner(), rate: map[uint64]int{0: 200, 7: 100}}, t, makers, workers(16, 20), map[uint16]bool{3: true}}
	f.play(3 * time.Second)
	return f
}

// plan plays half a second and returns the one prefix of the plan.
func (f *copying) plan() Prefix {
	f.t.Helper()
	f.play(500 * time.Millisecond)
	all := f.p.Plan(f.now, f.workers, f.makers, unknown, func(fp uint64, ref uint16) bool { return fp == hotFingerprint && f.has[ref] })
	if len(all) != 1 || !slices.IsSorted(all[0].Homes) || !slices.IsSortedFunc(all[0].Copies, func(a, b Copy) int { return int(a.Ref) - int(b.Ref) }) {
		f.t.Fatalf("%+v", all)
	}
	for _, c := range all[0].Copies {
		if slices.Contains(all[0].Homes, c.Ref) {
			f.t.Fatalf("%d is a home and shall get a copy: %+v", c.Ref, all[0])
		}
		if !slices.Contains(f.makers, c.Maker) {
			f.t.Fatalf("nobody called %d makes copies: %+v", c.Maker, all[0])
		}
	}
	return all[0]
}

// wait lets a time pass without a plan, at whose end the prefix is as hot as before.
func (f *copying) wait(d time.Duration) {
	f.now += d - 3*time.Second
	f.play(3 * time.Second)
}

// counts fails the test unless so many homes and copies are in the plan.
func (f *copying) counts(x Prefix, homes, copies int) {
	f.t.Helper()
	if len(x.Homes) != homes || len(x.Copies) != copies {
		f.t.Fatalf("homes %v, copies %v; want %d and %d", x.Homes, x.Copies, homes, copies)
	}
}

func TestACopyIsMadeInSlicesBeforeItsWorkerIsAHome(t *testing.T) {
	f := newCopying(t, 11, 12)
	first := slices.Clone(f.plan().Copies)
	f.counts(Prefix{Homes: []uint16{3}, Copies: first}, 1, 15)
	makers := map[uint64]int{}
	for _, c := range first {
		makers[c.Maker]++
	}
	if len(makers) != 2 {
		t.Errorf("copies by maker %v: two gateways share them", makers)
	}
	x := f.plan()
	if !slices.Equal(x.Copies, first) {
		t.Errorf("half a second later other copies are made, or by others: %v, then %v", first, x.Copies)
	}
	// One is told of by its maker, one shows in the table, and both are homes.
	told, shown := first[4], first[9]
	if f.p.Made(hotFingerprint, told.Ref, 99) || !f.p.Made(hotFingerprint, told.Ref, told.Maker) {
		t.Error("a copy is its maker's to tell of, and nobody else's")
	}
	f.has[shown.Ref] = true
	x = f.plan()
	f.counts(x, 3, 13)
	if !slices.Contains(x.Homes, told.Ref) || !slices.Contains(x.Homes, shown.Ref) {
		t.Errorf("homes %v, want %d and %d", x.Homes, told.Ref, shown.Ref)
	}
	// The table often knows before the maker has told.
	for range 2 {
		if !f.p.Made(hotFingerprint, shown.Ref, shown.Maker) {
			t.Error("a copy that shows already isn't its maker's")
		}
	}
	if got := f.p.Counts(); got != (Counts{Begun: 15, Made: 2}) {
		t.Errorf("%+v, want 15 begun and 2 made", got)
	}
	// Nobody can tell that it is there: it stays a home, and isn't made again and again.
	for range 20 {
		if x = f.plan(); slices.ContainsFunc(x.Copies, func(c Copy) bool { return c.Ref == told.Ref }) {
			t.Fatalf("made again: %v", x.Copies)
		}
	}
}

func TestACopyThatDoesntComeIsLeftToRequests(t *testing.T) {
	f := newCopying(t, 11)
	for i := range patient {
		if x := f.plan(); i == 0 {
			f.counts(x, 1, 15)
			f.p.Made(hotFingerprint, x.Copies[0].Ref, 11) // slices do work here
		} else {
			f.counts(x, 2, 14)
		}
	}
	for range 20 {
		f.counts(f.plan(), 16, 0)
	}
	if got := f.p.Counts(); got != (Counts{Begun: 15, Made: 1, Failed: 14}) {
		t.Errorf("%+v, want one of 15 made and all others failed", got)
	}
	// 14 are begun before the one was made: it proves that slices work, so they aren't left alone.
	if _, alone := f.p.LeftAlone(); alone {
		t.Error("slices are left alone though one copy was made meanwhile")
	}
	// One that a request has made and that is evicted a minute later is made in slices again.
	f.has[7] = true
	f.counts(f.plan(), 16, 0)
	for range 2 * soonGone / time.Second {
		f.counts(f.plan(), 16, 0)
	}
	f.has[7] = false
	f.counts(f.plan(), 16, 0) // for a moment says nothing
	if x := f.plan(); len(x.Copies) != 1 || x.Copies[0].Ref != 7 {
		t.Errorf("copies %v, want one at 7", x.Copies)
	}
}

func TestAnEvictedCopyIsMadeAnewUnlessItIsGoneAtOnce(t *testing.T) {
	f := newCopying(t, 11)
	f.plan()
	for ref := range uint16(17) {
		f.has[ref] = true
	}
	for range 2 * soonGone / time.Second {
		f.counts(f.plan(), 16, 0)
	}
	f.has[5] = false
	f.counts(f.plan(), 16, 0)
	f.has[5] = true // it was only a prediction that was taken back
	f.counts(f.plan(), 16, 0)
	f.has[5] = false
	f.counts(f.plan(), 16, 0)
	f.counts(f.plan(), 15, 1)
	f.has[5] = true
	f.counts(f.plan(), 16, 0)
	f.has[5] = false // whoever loses it so soon after isn't short of room
	for range 20 {
		f.counts(f.plan(), 16, 0)
	}
}

func TestSlicesAreLeftAloneAfterFailuresWithoutASuccess(t *testing.T) {
	f := newCopying(t, 11)
	for range patient {
		f.counts(f.plan(), 1, 15)
	}
	f.counts(f.plan(), 16, 0)
	until, alone := f.p.LeftAlone()
	if got := f.p.Counts(); !alone || until != f.now+leaveAlone || got.Failed != tolerated {
		t.Fatalf("%+v, alone %v until %v at %v", got, alone, until, f.now)
	}
	for range 4 {
		f.wait(leaveAlone/4 - 2*time.Second)
		f.counts(f.plan(), 16, 0)
	}
	for f.now+500*time.Millisecond < until {
		f.counts(f.plan(), 16, 0)
	}
	f.counts(f.plan(), tolerated+1, 16-tolerated-1) // those that failed are left to requests
	// One more failure is enough now.
	for range patient {
		f.plan()
	}
	if _, alone := f.p.LeftAlone(); !alone || f.p.Counts().Failed != tolerated+1 {
		t.Errorf("%+v, alone %v: want one more failure", f.p.Counts(), alone)
	}
	f.wait(leaveAlone)
	// A success forgives all.
	x := f.plan()
	f.p.Made(hotFingerprint, x.Copies[0].Ref, 11)
	for range patient {
		f.plan()
	}
	if _, alone := f.p.LeftAlone(); alone {
		t.Error("left alone though a copy was made")
	}
}

func TestAnotherMakerTakesOverWhenOneLeaves(t *testing.T) {
	f := newCopying(t, 11, 12, 13)
	before := slices.Clone(f.plan().Copies)
	f.makers = []uint64{11, 13}
	after := slices.Clone(f.plan().Copies)
	f.counts(Prefix{Copies: after}, 0, 15)
	for i := range before {
		if before[i].Maker != 12 && after[i] != before[i] {
			t.Errorf("%v became %v: its maker didn't leave", before[i], after[i])
		}
	}
	f.makers = append(f.makers, 12)
	if again := f.plan().Copies; !slices.Equal(again, after) {
		t.Errorf("%v became %v when a gateway came", after, again)
	}
	// Who takes over has time of its own, but nobody takes over for ever.
	begun := f.now - time.Second
	for i := uint64(0); len(f.plan().Copies) > 0; i++ {
		f.makers = []uint64{20 + i}
		if f.now > begun+time.Minute {
			t.Fatal("makers come and go, and the copies are never given up")
		}
	}
	if took := f.now - begun; took < patienceFor(800)+time.Second || took > 2*patienceFor(800)+time.Second {
		t.Errorf("given up after %v", took)
	}
	if got := f.p.Counts(); got.Begun != 15 {
		t.Errorf("%+v: a copy that changes its maker is begun once", got)
	}
}

func TestWithoutMakersRequestsMakeTheCopies(t *testing.T) {
	f := newCopying(t)
	for range 20 {
		f.counts(f.plan(), 16, 0)
	}
	f.makers = []uint64{11} // a gateway comes, and some copies weren't made
	f.counts(f.plan(), 16, 0)
	f.counts(f.plan(), 1, 15)
	f.makers = nil // and leaves
	f.counts(f.plan(), 16, 0)
	if got := f.p.Counts(); got != (Counts{Begun: 15}) {
		t.Errorf("%+v: nobody failed", got)
	}
}

func TestNothingIsMadeForAPrefixThatCooledOrAWorkerThatLeft(t *testing.T) {
	f := newCopying(t, 11)
	x := f.plan()
	gone := x.Copies[2].Ref
	f.workers = slices.DeleteFunc(f.workers, func(w Worker) bool { return w.Ref == gone })
	f.counts(f.plan(), 1, 14)
	f.workers = append(f.workers, Worker{Ref: gone, InFlight: 20}) // and comes back: that is another copy
	f.counts(f.plan(), 1, 15)
	if got := f.p.Counts().Begun; got != 16 {
		t.Errorf("%d copies begun, want 16", got)
	}
	f.rate[7] = 0
	f.play(8 * time.Second)
	if all := f.p.Plan(f.now, f.workers, f.makers, unknown, nobody); len(all) != 0 || len(f.p.copies.entries) != 0 {
		t.Errorf("cooled for 8 s: %+v, %d copies known", all, len(f.p.copies.entries))
	}
	if f.p.Made(hotFingerprint, x.Copies[0].Ref, 11) {
		t.Error("the copy of a prefix that has cooled is somebody's to make")
	}
	if got := f.p.Counts(); got.Failed != 0 {
		t.Errorf("%+v: what nobody wants any more hasn't failed", got)
	}
}

func TestAMakerHasABoundedNumberOfCopiesToMake(t *testing.T) {
	f := newCopying(t, 11, 12)
	f.workers = workers(100, 20)
	x := f.plan()
	f.counts(x, 100-2*MaxMaking, 2*MaxMaking)
	for _, c := range x.Copies {
		f.has[c.Ref] = true
	}
	f.plan()
	f.counts(f.plan(), 1+2*MaxMaking, 99-2*MaxMaking)
	// Many gateways have together what their table may tell of.
	f = newCopying(t)
	f.workers = workers(1000, 20)
	for maker := range uint64(100) {
		f.makers = append(f.makers, maker+1)
	}
	if x = f.plan(); len(x.Copies) != maxCopies || len(x.Homes)+len(x.Copies) != 1000 {
		t.Errorf("%d copies, %d homes", len(x.Copies), len(x.Homes))
	}
}

func TestALongerPrefixHasMoreTime(t *testing.T) {
	for units, want := range map[uint32]time.Duration{
		16: patience, 500: patience, patienceUnits: patience, 2 * patienceUnits: 2 * patience, maxUnits: 24 * time.Second, // of 86 slices, 280 ms each
	} {
		if got := patienceFor(units); got != want {
			t.Errorf("%d units: %v, want %v", units, got, want)
		}
	}
}

// Whoever has given up on slices and then follows another has no say any more.
func TestWhoAdoptsAPlanLeavesSlicesAloneNoMore(t *testing.T) {
	f := newCopying(t, 11)
	for range patient + 1 {
		f.plan()
	}
	if _, alone := f.p.LeftAlone(); !alone {
		t.Fatal("slices aren't left alone")
	}
	f.p.Adopt(nil)
	if _, alone := f.p.LeftAlone(); alone {
		t.Error("left alone by one that doesn't plan")
	}
	f.counts(f.plan(), 1, 15)
}

// One that takes a plan over goes on from it, as if it had been its own.
func TestAnAdoptedPlanGoesOn(t *testing.T) {
	leader, next := newCopying(t, 11, 12), newCopying(t, 11, 12)
	leader.has[5], next.has[5] = true, true
	plan := leader.plan()
	next.p.Adopt([]Prefix{{Fingerprint: plan.Fingerprint, Units: plan.Units, Share: plan.Share, Homes: slices.Clone(plan.Homes), Copies: slices.Clone(plan.Copies)}})
	if got := next.p.Prefixes(); len(got) != 1 || !slices.Equal(got[0].Copies, plan.Copies) {
		t.Fatalf("adopted %+v of %+v", got, plan)
	}
	want := Prefix{Homes: slices.Clone(plan.Homes), Copies: slices.Clone(plan.Copies)}
	got := next.plan()
	if !slices.Equal(got.Homes, want.Homes) || !slices.Equal(got.Copies, want.Copies) {
		t.Errorf("homes %v, copies %v became %v, %v", want.Homes, want.Copies, got.Homes, got.Copies)
	}
}

func TestTheLongestPrefixesAreCopiedByRequests(t *testing.T) {
	for units, want := range map[uint32]int{maxUnits: 3, maxUnits + 1: 0} {
		b := newCopyBook()
		b.begin(0, nil, []uint64{11})
		homes, copies := b.divide(&hot{fingerprint: 1, units: units}, []uint16{1, 2, 3}, nil, func(uint16) bool { return false })
		if len(copies) != want || len(homes) != 3-want {
			t.Errorf("%d units: homes %v, copies %v", units, homes, copies)
		}
	}
}

// TestAWorkerWithSeveralCachesGetsItsCopyByRequests: a slice of another would not be found.
func TestAWorkerWithSeveralCachesGetsItsCopyByRequests(t *testing.T) {
	f := newCopying(t, 11)
	f.workers[8].Spread = true
	x := f.plan()
	f.counts(x, 2, 14)
	if !slices.Contains(x.Homes, f.workers[8].Ref) {
		t.Errorf("homes %v", x.Homes)
	}
	// One whose engine turns out to be so while its copy is being made.
	f.workers[9].Spread = true
	f.counts(f.plan(), 3, 13)
	if got := f.p.Counts(); got != (Counts{Begun: 14}) {
		t.Errorf("%+v", got)
	}
}
