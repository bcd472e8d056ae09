package homes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// path is a prompt of so many checkpoints (100 units apart): the first shared of them are named
// after the prefix, the others are its own.
func path(prefix uint64, shared, all int, own uint64) (p []fingerprint.Checkpoint) {
	for i := range all {
		fp := prefix<<32 + uint64(i) + 1
		if i >= shared {
			fp = own<<16 + uint64(i) + 1<<60
		}
		p = append(p, fingerprint.Checkpoint{Fingerprint: fp, End: uint32(100 * (i + 1))})
	}
	return p
}

func workers(n, inFlight int) (all []Worker) {
	for i := range n {
		all = append(all, Worker{Ref: uint16(i + 1), InFlight: inFlight})
	}
	return all
}

func nobody(uint64, uint16) bool { return false }

// unknown is what a planner is shown that nobody has told of dispatches.
func unknown(func(Begins)) {}

// underWay shows so many requests that begin with each of some prefixes, and others that begin with
// none.
func underWay(others int, each map[uint64]int) func(func(Begins)) {
	return func(show func(Begins)) {
		for range others {
			show(func(uint64, uint32) bool { return false })
		}
		for prefix, n := range each {
			for range n {
				show(func(fingerprint uint64, _ uint32) bool { return fingerprint == prefix })
			}
		}
	}
}

// traffic is requests a second by prefix; prefix 0 shares nothing.
type traffic struct {
	p    *Planner
	now  time.Duration
	seq  uint64
	rate map[uint64]int
}

// play adds the requests of a time, evenly.
func (f *traffic) play(d time.Duration) {
	prefixes := []uint64{}
	for prefix := range f.rate {
		prefixes = append(prefixes, prefix)
	}
	slices.Sort(prefixes)
	for range d / (10 * time.Millisecond) {
		f.now += 10 * time.Millisecond
		for _, prefix := range prefixes {
			for range f.rate[prefix] / 100 {
				f.seq++
				shared := 8
				if prefix == 0 {
					shared = 0
				}
				f.p.Heat.Add(path(prefix, shared, 10, f.seq), f.now)
			}
		}
	}
}

func TestAHotPrefixHasHomesWithinTwoSecondsAndLosesThemWhenItCools(t *testing.T) {
	f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 300}}
	f.play(20 * time.Second)
	if plan := f.p.Plan(f.now, workers(16, 20), nil, unknown, nobody); len(plan) != 0 {
		t.Fatalf("homes for what nobody shares: %+v", plan)
	}
	f.rate[7] = 100
	f.play(500 * time.Millisecond)
	first := slices.Clone(f.p.Plan(f.now, workers(16, 20), nil, unknown, nobody))
	f.play(500 * time.Millisecond)
	plan := f.p.Plan(f.now, workers(16, 20), nil, unknown, nobody)
	if len(first) != 1 || len(plan) != 1 {
		t.Fatalf("after 0.5 s %+v, after 1 s %+v", first, plan)
	}
	got := plan[0]
	want := (1 - math.Exp(-1)) / (3 + 1 - math.Exp(-1)) // a third of what comes beside, for a second
	if got.Fingerprint != 7<<32+8 || got.Units != 800 || math.Abs(got.Share-want) > 0.01 || len(got.Homes) != int(math.Ceil(spread*want*16)) {
		t.Errorf("%+v, want the deepest shared checkpoint and a share of %.3f", got, want)
	}
	for _, ref := range first[0].Homes {
		if !slices.Contains(got.Homes, ref) {
			t.Errorf("home %d is gone half a second later: %v, then %v", ref, first[0].Homes, got.Homes)
		}
	}
	f.rate[7] = 0
	f.play(8 * time.Second)
	if plan := f.p.Plan(f.now, workers(16, 20), nil, unknown, nobody); len(plan) != 0 {
		t.Errorf("cooled for 8 s: %+v", plan)
	}
}

func TestHomesComeNotAndGoWithTheNoise(t *testing.T) {
	p, rng := NewPlanner(), rand.New(rand.NewPCG(1, 1))
	var now time.Duration
	changes, last := 0, []uint16(nil)
	for step := range 20_000 { // 100/s, a quarter of them of one prefix
		now += time.Duration(rng.ExpFloat64() * float64(10*time.Millisecond))
		prefix, shared := uint64(7), 8
		if rng.Float64() > 0.25 {
			prefix, shared = 0, 0
		}
		p.Heat.Add(path(prefix, shared, 10, uint64(step)), now)
		if step%50 != 0 || step < 1000 {
			continue
		}
		plan := p.Plan(now, workers(16, 20), nil, unknown, nobody)
		if len(plan) != 1 {
			t.Fatalf("step %d: %+v", step, plan)
		}
		if last != nil && !slices.Equal(plan[0].Homes, last) {
			changes++
		}
		last = slices.Clone(plan[0].Homes)
	}
	if changes > 20 {
		t.Errorf("the homes changed %d times in 380 plans", changes)
	}
}

func TestThoseWithACopyAreHomesFirstThenTheLeastLoaded(t *testing.T) {
	f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 500, 7: 100}}
	f.play(20 * time.Second)
	all := workers(16, 20)
	all[3].InFlight, all[9].InFlight = 5, 6
	plan := f.p.Plan(f.now, all, nil, unknown, func(fp uint64, ref uint16) bool { return fp == 7<<32+8 && (ref == 2 || ref == 16) })
	if len(plan) != 1 || len(plan[0].Homes) != 8 {
		t.Fatalf("%+v", plan)
	}
	for _, ref := range []uint16{2, 16, 4, 10} {
		if !slices.Contains(plan[0].Homes, ref) {
			t.Errorf("%d isn't a home: %v", ref, plan[0].Homes)
		}
	}
	all = slices.Delete(all, 1, 2) // worker 2 is gone
	if plan := f.p.Plan(f.now, all, nil, unknown, nobody); slices.Contains(plan[0].Homes, 2) || len(plan[0].Homes) != 8 {
		t.Errorf("after worker 2 went: %v", plan[0].Homes)
	}
}

func TestAQuietFleetNeedsFewHomes(t *testing.T) {
	f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 300, 7: 300}}
	f.play(20 * time.Second)
	if plan := f.p.Plan(f.now, workers(16, 2), nil, unknown, nobody); len(plan) != 1 || len(plan[0].Homes) != 4 {
		t.Errorf("%+v, want a home for every 4 of its 16 requests on their way", plan)
	}
	if plan := NewPlanner().Plan(f.now, workers(16, 2), nil, unknown, nobody); plan != nil {
		t.Errorf("without requests: %+v", plan)
	}
	f.p.Heat.Add(path(9, 8, 10, 1), f.now+time.Hour)
	if plan := f.p.Plan(f.now+time.Hour, workers(16, 20), nil, unknown, nobody); plan != nil {
		t.Errorf("one request in an hour: %+v", plan)
	}
}

func TestAPrefixHasHomesForItsOwnRequestsUnderWay(t *testing.T) {
	const hot = 7<<32 + 8
	for _, c := range []struct {
		what          string
		others, own   int
		homes, perAll int
	}{
		{"short answers: half of what comes, a twentieth of what is on its way", 190, 10, 4, 20},
		{"long answers: half of both", 50, 50, 16, 20},
		{"a part of the requests is known: their share counts", 19, 1, 4, 20},
		{"in a quiet fleet one is enough", 9, 1, 0, 2},
	} {
		f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 300, 7: 300}}
		f.play(20 * time.Second)
		homes := 0
		for _, x := range f.p.Plan(f.now, workers(16, c.perAll), nil, underWay(c.others, map[uint64]int{hot: c.own}), nobody) {
			homes += len(x.Homes)
		}
		if homes != c.homes {
			t.Errorf("%s: %d homes, want %d", c.what, homes, c.homes)
		}
	}
}

func TestARequestUnderWayCountsForTheDeepestPrefix(t *testing.T) {
	list := []hot{{fingerprint: 1, units: 300, requests: 8}, {fingerprint: 2, units: 800, requests: 2}}
	both := func(show func(Begins)) {
		for range 3 {
			show(func(uint64, uint32) bool { return true })
		}
		show(func(fingerprint uint64, _ uint32) bool { return fingerprint == 1 })
	}
	if parts := partsOf(list, 10, both); !slices.Equal(parts, []float64{0.25, 0.75}) {
		t.Errorf("parts %v, want a quarter and three", parts)
	}
	if parts := partsOf(list, 10, unknown); !slices.Equal(parts, []float64{0.8, 0.2}) {
		t.Errorf("where nothing is known %v, want the shares of what came", parts)
	}
}

func TestOfNestedPrefixesEachHasHomesForItsOwnRequests(t *testing.T) {
	p := NewPlanner()
	var now time.Duration
	for i := range 4000 {
		now += 10 * time.Millisecond
		own := path(7, 3, 10, uint64(i)) // all share 3 checkpoints
		if i%2 == 0 {                    // half of them 5 more
			own = path(7, 8, 10, uint64(i))
		}
		p.Heat.Add(own, now)
	}
	plan := p.Plan(now, workers(16, 20), nil, unknown, nobody)
	if len(plan) != 2 || math.Abs(plan[0].Share-0.5) > 0.02 || math.Abs(plan[1].Share-0.5) > 0.02 {
		t.Fatalf("%+v", plan)
	}
	units := []uint32{plan[0].Units, plan[1].Units}
	if slices.Sort(units); !slices.Equal(units, []uint32{300, 800}) {
		t.Errorf("prefixes of %v units", units)
	}
}

func TestHeatIsBoundedAndKeepsWhatIsHot(t *testing.T) {
	h := NewHeat()
	var now time.Duration
	for i := range 20_000 {
		now += time.Millisecond
		shared := 8
		if i%10 != 0 {
			shared = 0
		}
		h.Add(path(7, shared, 20, uint64(i)), now)
		if len(h.counters) > maxCounters {
			t.Fatalf("%d counters after %d requests", len(h.counters), i+1)
		}
	}
	want := 100 * fadeFor.Seconds()
	if got := h.counters[h.index[7<<32+8]].weight / h.weigh(now); math.Abs(got/want-1) > 0.02 {
		t.Errorf("%v recent requests, want %v", got, want)
	}
	now += time.Hour // far beyond what one weight can tell
	h.Add(path(7, 8, 20, 1<<20), now)
	if got := h.Requests(now); math.Abs(got-1) > 1e-9 {
		t.Errorf("%v recent requests after an hour, want 1", got)
	}
}

func BenchmarkPlan(b *testing.B) {
	f := &traffic{p: NewPlanner(), rate: map[uint64]int{0: 700, 7: 200, 8: 100}}
	f.play(4 * time.Second)
	all := workers(64, 20)
	for b.Loop() {
		f.p.Plan(f.now, all, nil, unknown, nobody)
	}
}

func BenchmarkHeat(b *testing.B) {
	h := NewHeat()
	var now time.Duration
	own := uint64(0)
	for b.Loop() {
		own++
		now += time.Millisecond
		h.Add(path(7, 20, 40, own), now)
	}
}
