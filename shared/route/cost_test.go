package route

import (
	"math"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// priced is a fleet of n idle workers under the rule cost, all of which are looked at.
func priced(n int) *View {
	v := fleet(n, policy.Cost, func(p *policy.Policy) { p.Sample = 1 })
	for i := range v.Workers {
		v.Workers[i].PrefillRate = 10_000
	}
	return v
}

func TestCostIsTheSumOfItsTermsInSeconds(t *testing.T) {
	v := priced(4)
	w := v.worker(1)
	w.UncachedTokens, w.Running, w.DecodeSeconds = 5000, 10, 0.02
	w.FreeTokens, w.TailAge, w.RecentTokens = 250, 20*time.Second, 8000
	v.worker(2).RecentTokens = 8000
	d := choose(long(holds(1, 2048)), v)
	var got Terms
	for _, c := range d.Candidates {
		if c.Ref == 1 {
			got = c.Terms
		}
	}
	want := Terms{
		Seen: true,
		Wait: 0.5, Miss: (4 + 0.1625) * 0.2048, // (1 + 3 + half of 0.13 x the mean of 2.5 requests) x 2,048 tokens at 10,000/s
		Decode: 0.13 * 250 * (0.02 + 0.0002 + 10*0.0002),
		Evict:  3 * 0.2048 * math.Exp(-1), // 2,048 + 250 tokens into room for 250
		Spread: 0.2 * (2 - 1),
	}
	want.Cost = want.Wait + want.Miss + want.Decode + want.Evict + want.Spread
	for name, pair := range map[string][2]float64{
		"wait": {got.Wait, want.Wait}, "miss": {got.Miss, want.Miss}, "decode": {got.Decode, want.Decode},
		"evict": {got.Evict, want.Evict}, "spread": {got.Spread, want.Spread}, "cost": {got.Cost, want.Cost},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("%s %v, want %v", name, pair[0], pair[1])
		}
	}
}

// What a cache doesn't save holds up those under way at the workers: the more there are, the longer a
// request waits for the worker that holds its prefix.
func TestACopyCostsMoreTheMoreIsUnderWay(t *testing.T) {
	for _, c := range []struct {
		underWay int // at each worker
		waits    bool
	}{{0, false}, {10, false}, {60, true}} {
		v := priced(4)
		v.worker(1).UncachedTokens = 11_000 // 1.1 s, and a copy of 2,048 tokens takes 0.2
		for i := range v.Workers {
			v.Workers[i].InFlight = c.underWay
		}
		if d := choose(long(holds(1, 2048)), v); d.Best == 1 != c.waits {
			t.Errorf("with %d requests at each worker %d has the request: %+v", c.underWay, d.Best, d.Candidates)
		}
	}
}

// Where nobody makes homes (control is away, or a prefix is not quite hot) a worker that lacks what all
// others hold would have no request at all, however many the others had.
func TestAnIdleWorkerDoesNotPayForWhatDecodesElsewhere(t *testing.T) {
	v := priced(4)
	for i := 1; i < len(v.Workers); i++ {
		v.Workers[i].InFlight = 60
	}
	req := long(holds(2, 2048), holds(3, 2048), holds(4, 2048))
	if d := choose(req, v); d.Best != 1 {
		t.Errorf("an idle worker that lacks the prefix of all lost to %d: %+v", d.Best, d.Candidates)
	}
}

// tight lets all workers hold a share of their memory for so many requests; worker 1 has so much ahead of
// it that its match is worth the wait only where memory is short.
func tight(v *View, use float64, running int) {
	for i := range v.Workers {
		v.Workers[i].Watermark, v.Workers[i].Running = use, running
	}
	v.worker(1).UncachedTokens = 18_000
}

// Where requests hold the pool's memory each second of prefill keeps all of it for a second longer, so
// conversations stay at their caches. It is the pool that counts: one full worker changes nothing.
func TestWhereMemoryIsShortConversationsStayAtTheirCaches(t *testing.T) {
	for _, c := range []struct {
		name  string
		use   float64
		price float64 // of a second of prefill, with 20 requests
		best  uint16
	}{
		{"roomy", 0.3, 4 + 20*0.065, 2},
		{"where it begins", 0.7 * 0.98, 4 + 20*0.065, 2},
		{"half way", 0.85 * 0.98, 4 + 20*(0.065+0.5*0.935), 1},
		{"full", 0.98, 4 + 20, 1},
		{"beyond the watermark nobody is left out", 1, 4 + 20, 1},
	} {
		v := priced(3)
		tight(v, c.use, 20)
		d := choose(long(holds(1, 2048)), v)
		if got := d.Candidates[0].Terms.Prefill; math.Abs(got-c.price) > 1e-5 {
			t.Errorf("%s: a second of prefill costs %v, want %v", c.name, got, c.price)
		}
		if stayed := d.Best == 1; stayed != (c.best == 1) {
			t.Errorf("%s: worker %d, want %d: %+v", c.name, d.Best, c.best, d.Candidates)
		}
	}
	v := priced(3)
	tight(v, 0.3, 20)
	v.worker(1).Watermark = 1
	if got := choose(long(holds(1, 2048)), v).Candidates[0].Terms.Prefill; got != 4+20*0.065 {
		t.Errorf("one full worker of a roomy pool: %v", got)
	}
	v.worker(2).Watermark, v.worker(3).Watermark = 1, 1
	v.worker(1).Watermark, v.worker(1).Age, v.worker(1).InFlight = 0, Never, 20 // not known, not empty
	if got := choose(long(holds(1, 2048)), v).Candidates[0].Terms.Prefill; got != 24 {
		t.Errorf("who has not reported counts as roomy: %v", got)
	}
}

// One worker that is full among roomy ones: a request would wait there until others end.
func TestAtAFullWorkerARequestWaitsForRoom(t *testing.T) {
	v := priced(2)
	w := v.worker(1)
	w.Watermark, w.Running, w.DecodeSeconds = 0.93, 18, 0.0398
	v.worker(2).Running, v.worker(2).DecodeSeconds = 18, 0.0398
	// Each of the 18 holds a 0.0517th; one more makes 0.9817, and 0.0017 have to go: a part of 0.93 of
	// answers of 250 tokens, 40 ms each.
	want := (0.93 + 0.93/18 - 0.98) / 0.93 * 250 * 0.04
	d := choose(long(), v)
	if got := d.Candidates[0].Terms.Wait; math.Abs(got-want) > 1e-9 || d.Best != 2 {
		t.Errorf("%v s and worker %d, want %v and the other", got, d.Best, want)
	}
	w.Watermark = 0.92 // 0.9711 with one more
	if got := choose(long(), v).Candidates[0].Terms.Wait; got != 0 {
		t.Errorf("%v s where there is room", got)
	}
	w.Watermark, w.InFlight = 0.7, 28 // ten more than reported, and the one
	want = (0.7*29/18 - 0.98) / 0.7 * 250 * 0.04
	if got := choose(long(), v).Candidates[0].Terms.Wait; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v s behind ten that were sent since, want %v", got, want)
	}
}

// A worker that was full when its last report came isn't full for ever: control may be away, or its
// metrics can't be read any more.
func TestAnOldReportSaysNothingOfRoom(t *testing.T) {
	for _, c := range []struct {
		age, after time.Duration
		waits      bool
	}{
		{0, 0, true},
		{4999 * time.Millisecond, 0, true},
		{2500 * time.Millisecond, 2499 * time.Millisecond, true},
		{5 * time.Second, 0, false},
		{2500 * time.Millisecond, 2500 * time.Millisecond, false},
		{Never, 0, false},
	} {
		v := priced(2)
		w := v.worker(1)
		w.Watermark, w.Running, w.InFlight, w.DecodeSeconds, w.Age = 1, 18, 18, 0.04, c.age
		if got := chooseAt(long(), v, c.after).Candidates[0].Terms.Wait; (got > 0) != c.waits {
			t.Errorf("a report %v old, %v later: %v s", c.age, c.after, got)
		}
	}
}

// Nor of whether the pool's memory is short: who was full when its metrics could last be read would make
// it look so for ever.
func TestAnOldReportSaysNothingOfThePoolsMemory(t *testing.T) {
	for _, c := range []struct {
		age, after time.Duration
		price      float64 // of a second of prefill, with 20 requests
	}{
		{0, 0, 4 + 20*(0.065+0.5*0.935)}, // all that they may on one of two, and 0.7 of it: half way
		{4999 * time.Millisecond, 0, 4 + 20*(0.065+0.5*0.935)},
		{5 * time.Second, 0, 4 + 20*0.065},
		{2500 * time.Millisecond, 2500 * time.Millisecond, 4 + 20*0.065},
		{Never, 0, 4 + 20*0.065},
	} {
		v := priced(2)
		tight(v, 0.7*0.98, 20)
		w := v.worker(1)
		w.Watermark, w.Age = 0.98, c.age
		w.InFlight, v.worker(2).InFlight = 20, 20
		if got := chooseAt(long(), v, c.after).Candidates[1].Terms.Prefill; math.Abs(got-c.price) > 1e-5 {
			t.Errorf("a full worker's report %v old, %v later: a second of prefill costs %v at the other, want %v", c.age, c.after, got, c.price)
		}
	}
	v := priced(2) // control is away
	tight(v, 0.98, 20)
	v.worker(1).InFlight, v.worker(2).InFlight = 20, 20
	if got := chooseAt(long(), v, 5*time.Second).Candidates[1].Terms.Prefill; got != 4+20*0.065 {
		t.Errorf("where all reports are old: %v", got)
	}
}

// Blocks that nobody's end will free are waited for nowhere: of what has been computed for another
// engine, or where an exporter counts cached blocks as used.
func TestWhereNobodyIsNoneIsWaitedFor(t *testing.T) {
	v := priced(2)
	w := v.worker(1)
	w.Watermark, w.DecodeSeconds = 0.95, 0.04
	if got := choose(long(), v).Candidates[0].Terms.Wait; got != 0 {
		t.Errorf("%v s where nobody is", got)
	}
	w.InFlight = 1
	if got := choose(long(), v).Candidates[0].Terms.Wait; math.Abs(got-0.92/0.95*250*0.0402) > 1e-9 {
		t.Errorf("%v s behind one that isn't reported yet", got)
	}
}

// One odd figure neither keeps its worker from being chosen nor shows in the others' prices.
func TestAnOddShareOfMemoryIsNone(t *testing.T) {
	for _, odd := range []float64{math.NaN(), -1, math.Inf(-1)} {
		v := priced(5) // four of them hold all that they may: memory is short, with one at 0 not quite
		tight(v, 0.98, 20)
		v.worker(3).Watermark, v.worker(3).Running = odd, 1
		d := choose(long(), v)
		roomy := *v.worker(3)
		roomy.Watermark = 0
		*v.worker(3) = roomy
		want := choose(long(), v)
		if d.Best != 3 || want.Best != 3 {
			t.Errorf("%v: %d has the request, %d where the share is 0", odd, d.Best, want.Best)
		}
		for i := range d.Candidates {
			if d.Candidates[i].Terms != want.Candidates[i].Terms {
				t.Errorf("%v: %+v, want %+v", odd, d.Candidates[i].Terms, want.Candidates[i].Terms)
			}
		}
	}
}

// With a decode_weight of more than two a second of prefill counts more than whole to each, and memory
// makes it no cheaper.
func TestShortMemoryMakesNothingCheaper(t *testing.T) {
	for _, use := range []float64{0.3, 0.98} {
		v := priced(3)
		v.Pool.Policy.DecodeWeight = 10
		tight(v, use, 20)
		if got := choose(long(), v).Candidates[0].Terms.Prefill; got != 4+20*5 {
			t.Errorf("where requests hold %v a second of prefill costs %v", use, got)
		}
	}
}

// Each parameter turns one decision between two workers into the other.
func TestEveryParameterOfCostChangesADecision(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(v *View) // worker 1 holds 2,048 of 4,096 tokens, worker 2 nothing
		set     func(p *policy.Policy)
	}{
		{"miss_weight", func(v *View) { v.worker(1).UncachedTokens = 5000 }, func(p *policy.Policy) { p.MissWeight = 0 }},
		{"decode_weight", func(v *View) { v.worker(1).Running = 100 }, func(p *policy.Policy) { p.DecodeWeight = 0.05 }},
		{"output_tokens", func(v *View) { v.worker(1).Running = 100 }, func(p *policy.Policy) { p.OutputTokens = 10 }},
		{"decode_step_us", func(v *View) { v.worker(1).Running = 100 }, func(p *policy.Policy) { p.DecodeStep = 0 }},
		{"evict_weight", func(v *View) {
			v.worker(1).TailAge, v.worker(1).UncachedTokens = time.Second, 3000
		}, func(p *policy.Policy) { p.EvictWeight = 0 }},
		{"tail_decay_ms", func(v *View) {
			v.worker(1).TailAge, v.worker(1).UncachedTokens = time.Second, 3000
		}, func(p *policy.Policy) { p.TailDecay = 100 * time.Millisecond }},
		{"spread_weight_ms", func(v *View) { v.worker(1).RecentTokens = 1000 }, func(p *policy.Policy) { p.SpreadWeight = 2 * time.Second }},
		{"watermark", func(v *View) { tight(v, 0.6, 20) }, func(p *policy.Policy) { p.Watermark = 0.65 }},
		{"lease_ms", func(v *View) { v.worker(1).Age = 20 * time.Second }, func(p *policy.Policy) { p.Lease = 10 * time.Second }},
	} {
		v := priced(2)
		c.prepare(v)
		req := long(holds(1, 2048))
		before := choose(req, v)
		c.set(&v.Pool.Policy)
		if after := choose(req, v); before.Best == after.Best {
			t.Errorf("%s: %d by %v before and after: %+v", c.name, before.Best, before.Why, after.Candidates)
		}
	}
}

func TestSampleIsHowManyWorkersAreLookedAtBesideTheHolders(t *testing.T) {
	for share, want := range map[float64]int{0.1: 4, 0.25: 7, 0.5: 12, 1: 22} {
		v := priced(22)
		v.Pool.Policy.Sample = share
		d := choose(long(holds(1, 2048), holds(2, 2048), holds(3, 1024)), v)
		seen := 0
		for _, c := range d.Candidates {
			if c.Terms.Seen {
				seen++
			}
		}
		if seen != want {
			t.Errorf("sample %v: %d of 22 looked at, want %d", share, seen, want)
		}
	}
}

func TestManyGatewaysDoNotHerdOntoTheSameBestWorker(t *testing.T) {
	v := priced(20)
	v.Pool.Policy.Sample = 0.5
	for i := range v.Workers {
		v.Workers[i].UncachedTokens = 1000 * (i + 1) // ref 1 is the best by far
	}
	count := map[uint16]int{}
	for gateway := range uint64(200) {
		var d Decision
		Choose(&Request{PromptTokens: 500, RingKey: gateway + 1}, v, 0, NewRand(gateway), &d)
		count[d.Best]++
	}
	if count[1] < 60 || count[1] > 140 {
		t.Errorf("%d of 200 gateways chose the best worker, want about half", count[1])
	}
}

func TestEqualCostsKeepASessionTogetherAndSpreadSessions(t *testing.T) {
	v := priced(8)
	count := map[uint16]int{}
	for session := range uint64(400) {
		var a, b Decision
		Choose(&Request{PromptTokens: 500, RingKey: 7, SessionKey: session + 1}, v, 0, NewRand(1), &a)
		Choose(&Request{PromptTokens: 900, RingKey: 8, SessionKey: session + 1}, v, 0, NewRand(2), &b)
		if a.Best != b.Best {
			t.Fatalf("session %d: %d, then %d", session, a.Best, b.Best)
		}
		count[a.Best]++
	}
	for ref := uint16(1); ref <= 8; ref++ {
		if count[ref] < 25 || count[ref] > 80 {
			t.Errorf("worker %d has %d of 400 sessions", ref, count[ref])
		}
	}
}

// Half a millisecond is nothing: a session stays where it was for as much, and not for more.
func TestNearlyEqualCostsAreEqualAndTheSessionDecides(t *testing.T) {
	v := priced(2)
	ask := func(session uint64) uint16 {
		req := long()
		req.SessionKey = session
		return choose(req, v).Best
	}
	home := map[uint64]uint16{}
	for session := range uint64(50) {
		home[session+1] = ask(session + 1)
	}
	for waiting, want := range map[int]bool{4: true, 6: false} { // tokens at 10,000/s: 0.4 and 0.6 ms
		for _, ref := range []uint16{1, 2} {
			v.worker(1).UncachedTokens, v.worker(2).UncachedTokens = 0, 0
			v.worker(ref).UncachedTokens = waiting
			for session, at := range home {
				if stays := ask(session) == at; at == ref && stays != want {
					t.Errorf("%d tokens before it at %d: session %d stays %v", waiting, at, session, stays)
				}
			}
		}
	}
}

func TestUnknownRatesAreThoseOfTheOthers(t *testing.T) {
	v := priced(3)
	v.worker(2).PrefillRate = 0
	v.worker(2).UncachedTokens = 2000
	for _, c := range choose(long(), v).Candidates {
		if c.Ref == 2 && math.Abs(c.Terms.Wait-0.2) > 1e-9 {
			t.Errorf("wait %v at an unknown rate, want 0.2 s", c.Terms.Wait)
		}
	}
}

func TestWeightedPrefersTheCacheUntilTheBreaker(t *testing.T) {
	v := fleet(4, policy.Weighted)
	w := v.worker(1)
	w.InFlight = 75
	if d := choose(long(holds(1, 2048)), v); d.Best != 1 || d.Why != WhyScore {
		t.Errorf("queue at the breaker: %d by %v", d.Best, d.Why)
	}
	w.InFlight = 76
	if d := choose(long(holds(1, 2048)), v); d.Best == 1 {
		t.Error("a queue above the breaker keeps its bonus")
	}
	for _, c := range []struct {
		name string
		set  func(p *policy.Policy)
	}{
		{"cache_weight", func(p *policy.Policy) { p.CacheWeight = 0.5 }},
		{"queue_breaker", func(p *policy.Policy) { p.QueueBreaker = 0.1 }},
		{"max_queue", func(p *policy.Policy) { p.MaxQueue, p.CacheWeight = 0.1, 1.5 }},
		{"watermark", func(p *policy.Policy) { p.Watermark = 0.5 }},
	} {
		v := fleet(4, policy.Weighted)
		v.worker(1).InFlight, v.worker(1).Watermark = 30, 0.6
		if d := choose(long(holds(1, 2048)), v); d.Best != 1 {
			t.Fatalf("%s: %d before", c.name, d.Best)
		}
		c.set(&v.Pool.Policy)
		if d := choose(long(holds(1, 2048)), v); d.Best == 1 {
			t.Errorf("%s changes nothing", c.name)
		}
	}
}

func BenchmarkChooseCost64(b *testing.B) {
	v := fleet(64, policy.Cost)
	for i := range v.Workers {
		w := &v.Workers[i]
		w.PrefillRate, w.UncachedTokens, w.TailAge, w.RecentTokens = 10_000, i*97%3000, 10*time.Second, float64(i)
	}
	req := spoken(1600, 2048, 3000, 3400, 4800, 5200)
	req.Matches = append(req.Matches, holds(3, 2048), holds(9, 2048), holds(40, 1024))
	v.Homes = []Home{{Fingerprint: 1, Units: 100, Refs: []uint16{3, 9, 11, 17}}, {Fingerprint: 99, Units: 50, Refs: []uint16{1, 2}}}
	v.Workers[7].CacheAge = time.Second
	rng := NewRand(1)
	var d Decision
	b.ReportAllocs()
	for b.Loop() {
		Choose(req, v, 0, rng, &d)
	}
}

// One holder, or two, are always looked at; of many a part, so that not all gateways send to the one
// that seemed best a moment ago.
func TestOfManyHoldersAPartIsLookedAt(t *testing.T) {
	for _, c := range []struct{ holders, want int }{{1, 1}, {2, 2}, {3, 2}, {20, 5}} {
		v := priced(40)
		v.Pool.Policy.Sample = 0.25
		req := long()
		for ref := range c.holders {
			req.Matches = append(req.Matches, holds(uint16(ref+1), 2048))
		}
		seen := 0
		for _, x := range choose(req, v).Candidates {
			if x.Terms.Seen && x.CreditedTokens > 0 {
				seen++
			}
		}
		if seen != c.want {
			t.Errorf("%d of %d holders are looked at, want %d", seen, c.holders, c.want)
		}
	}
}

// The price of what is pushed out is worked out last, and only where it can matter: among workers
// that are equal without it, it does.
func TestWhatAWorkerPushesOutCountsAmongEquals(t *testing.T) {
	for _, full := range []uint16{1, 2} {
		v := priced(2)
		v.worker(full).TailAge, v.worker(3-full).TailAge = time.Minute, time.Minute
		v.worker(3 - full).FreeTokens = 1 << 20
		for session := range uint64(20) {
			var d Decision
			Choose(&Request{PromptTokens: 500, SessionKey: session + 1}, v, 0, NewRand(1), &d)
			if d.Best == full {
				t.Fatalf("session %d goes to worker %d, which is full", session, full)
			}
		}
	}
}
