package route

import (
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// seen is a worker as this decision sees it: brought to now.
type seen struct {
	in       bool // may be picked
	apart    bool // not as the second: see setApart
	wasIn    bool // before it was set apart
	home     bool // of the request's hot prefix
	drawn    bool // rules cost, weighted and custom: it has a price or a score
	whole    bool // rule cost: the price has its eviction term, which is left to the last
	left     Left // why not
	matched  int
	held     int // of matched, without what slow ones are worth
	credited int
	requests int
	age      time.Duration
	stale    int64   // 0 fresh .. staleOne worth nothing
	load     int64   // in loadUnits, once weighed
	step     int64   // load in loadSteps, once weighed
	mark     int64   // watermark in loadUnits, once weighed
	youth    float64 // rule cost: see youth
	detour   float64 // rule cost: seconds that a young worker costs more, see markYoung
	prefill  float64 // rule cost: the price of a second of prefill there
	// The parts of the price, see price, and their sum; or the score.
	wait, miss, decode, evict, spread, value float64
}

const (
	// staleOne is the full weight of staleness. Weights and loads are summed as integers: the sum
	// must not depend on the order of the workers. Loads are in millionths, so that 0.85 is 0.85.
	staleOne  = 1 << 10
	loadUnits = 1_000_000
	maxLoad   = 1_000
	// loadStep (10,000 millionths, 0.01) is the difference below which two loads count as equal:
	// one request at a worker that runs 100. Ties are then broken by uncached tokens and by the
	// key, which differ between gateways and requests where the reported load is the same for all.
	loadStep = loadUnits / 100
)

// enter brings all workers to now and decides who takes part. Like all that is done for every
// worker it is one flat loop: in a VM of Go a call costs as much as the arithmetic on a worker, and
// so does min or max of floats, a division of signed integers or a Duration's Seconds.
func (c *chooser) enter(now time.Duration) {
	workers, d := c.view.Workers, c.d
	if cap(d.seen) < len(workers) {
		d.seen = make([]seen, len(workers), len(workers)+len(workers)/4)
	}
	d.seen = d.seen[:len(workers)]
	c.elapsed = max(now-c.view.At, 0)
	elapsed, fresh, exclude := c.elapsed, c.view.Fresh, c.req.Exclude
	decay, lease := max(c.rule.LoadDecay, 1), c.rule.Lease
	able, sorted, last := 0, true, -1
	for i := range workers {
		w, s := &workers[i], &d.seen[i]
		age, stale := Never, int64(staleOne)
		if w.Age >= 0 {
			if age = w.Age + elapsed; age < decay {
				stale = int64(float64(staleOne) * float64(age) / float64(decay))
			}
		}
		left := LeftNot
		switch {
		case w.Ref == 0 || len(exclude) > 0 && slices.Contains(exclude, w.Ref):
			left = LeftExcluded
		case w.State == Down:
			left = LeftDown
		case w.State == Draining:
			left = LeftDraining
		case fresh && age > lease:
			left = LeftSilent
		case w.AvoidFor > elapsed:
			left = LeftAvoid
		default:
			able++
		}
		s.in, s.left, s.home, s.drawn, s.whole = left == LeftNot, left, false, false, false
		s.age, s.stale, s.matched, s.held, s.credited, s.mark = age, stale, 0, 0, 0, 0
		s.apart, s.wasIn = false, false
		s.youth, s.detour = 0, 0
		requests := max(w.InFlight, 0)
		if reported := int(int64(w.Running+w.Waiting) * (staleOne - stale) / staleOne); reported > requests {
			requests = reported
		}
		s.requests = requests
		sorted = sorted && int(w.Ref) > last
		last = int(w.Ref)
	}
	c.sorted = sorted
	if able == 0 {
		c.readmitIfNobody()
	}
	c.credit()
}

// index makes every worker findable by its ref. Decisions about the same workers find it as they
// left it.
func (c *chooser) index() {
	for i := range c.view.Workers {
		ref := int(c.view.Workers[i].Ref)
		if ref >= len(c.d.index) {
			grown := make([]int32, max(ref+1, 2*len(c.d.index)))
			copy(grown, c.d.index)
			c.d.index = grown
		}
		c.d.index[ref] = int32(i) + 1
	}
}

func (c *chooser) readmitIfNobody() {
	for _, left := range [...]Left{LeftAvoid, LeftSilent} {
		if c.readmit(left) {
			return
		}
	}
}

// readmit lets the workers that were left out for one reason take part after all. It tells
// whether there were any.
func (c *chooser) readmit(left Left) bool {
	any := false
	for i := range c.d.seen {
		if s := &c.d.seen[i]; s.left == left && !s.in && !s.apart {
			s.in, any = true, true
		}
	}
	return any
}

// weigh draws load and watermark to the fleet's mean by the age of the report. What this
// gateway has in flight is never old, so the load is at least that.
func (c *chooser) weigh() {
	if c.weighed {
		return
	}
	c.weighed = true
	workers := c.view.Workers
	var load, mark, weight, plainLoad, plainMark, n int64
	for i := range workers {
		w, s := &workers[i], &c.d.seen[i]
		s.load, s.mark = fixed(w.Load), fixed(w.Watermark)
		if w.State == Down || w.Ref == 0 || w.Age < 0 {
			continue
		}
		fresh := staleOne - s.stale
		load, mark, weight = load+s.load*fresh, mark+s.mark*fresh, weight+fresh
		plainLoad, plainMark, n = plainLoad+s.load, plainMark+s.mark, n+1
	}
	switch {
	case weight > 0:
		load, mark = load/weight, mark/weight
	case n > 0:
		load, mark = plainLoad/n, plainMark/n
	}
	for i := range workers {
		w, s := &workers[i], &c.d.seen[i]
		s.load += (load - s.load) * s.stale / staleOne
		s.mark += (mark - s.mark) * s.stale / staleOne
		if w.MaxRunning > 0 {
			s.load = max(s.load, fixed(float64(w.InFlight)/float64(w.MaxRunning)))
		}
		s.step = int64(uint64(s.load+loadStep/2) / loadStep)
	}
}

// fixed is a load or share in loadUnits.
func fixed(f float64) int64 {
	if !(f > 0) { // NaN counts as nothing
		return 0
	}
	if f > maxLoad {
		f = maxLoad
	}
	return int64(f*loadUnits + 0.5)
}

// credit fills in the usable match of every worker, and what it is worth by trust and by what is
// announced to go. A token in slower memory counts as a part of one.
func (c *chooser) credit() {
	if len(c.req.Matches)+len(c.req.SlowMatches) == 0 {
		return
	}
	c.readTurns()
	for _, m := range c.req.Matches {
		if i := c.at(m.Ref); i >= 0 && m.Ref != 0 {
			s := &c.d.seen[i]
			s.matched = max(s.matched, c.usable(i, c.withAnswer(m.Units)))
			s.held = s.matched
		}
	}
	for _, m := range c.req.SlowMatches {
		if i := c.at(m.Ref); i >= 0 && m.Ref != 0 {
			s := &c.d.seen[i]
			s.matched += int(c.view.Pool.SlowCredit * float64(max(0, c.usable(i, m.Units)-s.matched)))
		}
	}
	table := 1.0
	if !c.view.Fresh {
		table = max(0, 1-float64(c.elapsed)/float64(staleTrust))
	}
	for i := range c.d.seen {
		s := &c.d.seen[i]
		if s.matched == 0 {
			continue
		}
		w := &c.view.Workers[i]
		trust := w.Trust * table
		if left := w.EvictFor - c.elapsed; left > 0 {
			near := 1 - min(float64(left)/float64(evictLast), 1)
			trust *= 1 - min(max(w.EvictShare, 0), 1)*near
		}
		if trust > 0 {
			s.credited = int(float64(s.matched) * min(trust, 1))
		}
	}
}

// usable is how much of a match worker i need not compute.
func (c *chooser) usable(i int, units uint32) int {
	return usable(units, c.req.PromptTokens, c.view.Workers[i].BlockTokens)
}

// explain writes one record per worker.
func (c *chooser) explain() {
	c.weigh()
	c.skip = -1 // the bound was of all
	bound := c.holderBound()
	for i := range c.view.Workers {
		w, s := &c.view.Workers[i], &c.d.seen[i]
		left := s.left
		if left == LeftNot {
			switch {
			case c.usesWatermark() && !c.underWatermark(i):
				left = LeftWatermark
			case c.name == policy.Threshold && (s.load >= fixed(c.rule.LoadLimit) || s.requests > bound):
				left = LeftLoad
			}
		}
		c.d.Candidates = append(c.d.Candidates, Candidate{
			Ref: w.Ref, Left: left, MatchedTokens: s.matched, CreditedTokens: s.credited,
			Load: float64(s.load) / loadUnits, ReportedLoad: w.Load, Watermark: float64(s.mark) / loadUnits,
			UncachedTokens: w.UncachedTokens, InFlight: w.InFlight, Age: s.age, Home: s.home, Terms: c.terms(i),
		})
	}
	c.explainSent()
	c.d.Price = Price{}
	if c.priced {
		c.d.Price = Price{Base: 1 + c.rule.MissWeight, Each: c.heldUp, Memory: c.memory, Tight: c.tightness()}
	}
}

// terms are the parts of worker i's price or score.
func (c *chooser) terms(i int) Terms {
	s := &c.d.seen[i]
	if !s.drawn {
		return Terms{}
	}
	switch c.name {
	case policy.Cost:
		c.addEviction(i)
		t := Terms{Seen: true, Wait: s.wait, Miss: s.miss, Decode: s.decode, Evict: s.evict, Spread: s.spread, Cost: s.value}
		rate := c.rateOf(i)
		t.Own, t.Prefill, t.HeldUp = float64(max(0, c.req.PromptTokens-s.credited))/rate, s.prefill, c.held(s.requests)
		c.miss(i, t.Own, rate, &t)
		return t
	case policy.Weighted:
		t := Terms{Seen: true, Sum: s.value}
		t.CachedShare, t.Queue, t.Utilization = c.parts(i)
		return t
	}
	return Terms{Seen: true, Sum: s.value}
}

func (c *chooser) usesWatermark() bool {
	switch c.name {
	case policy.Threshold, policy.LeastLoad, policy.CHWBL, policy.Weighted, policy.Custom:
		return true
	}
	return false
}
