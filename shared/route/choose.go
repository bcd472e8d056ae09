package route

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
)

// Choose fills d with the best and the second best worker for req.
//
// Workers that are excluded, down or draining never take part. Workers silent for longer than
// their lease, or marked to be avoided, take part only when no other is left: better to try
// than to refuse. An old load is drawn linearly to the fleet's mean and reaches it after
// Policy.LoadDecay. now is on the clock of view.At.
//
// With 64 workers a call takes about 1.7 us, 5 in V8 and 10 in wazero (make bench-choose), with 1,000
// ten times as much; it allocates only while d grows.
func Choose(req *Request, view *View, now time.Duration, rng *Rand, d *Decision) {
	d.Best, d.Second, d.Ranked, d.MatchedTokens, d.HeldTokens, d.SlowTokens, d.Why = 0, 0, false, 0, 0, 0, WhyNone
	c := chooser{req: req, view: view, rng: rng, d: d, rule: &view.Pool.Policy, skip: -1}
	key := req.SessionKey
	if key == 0 {
		key = req.RingKey
	}
	if d.Control = view.Pool.Control.Has(key); d.Control {
		c.rule = &view.Pool.Control.Policy
	}
	if c.name = c.rule.Name; c.name == policy.Custom && view.Score == nil {
		c.name = policy.Threshold
	}
	c.enter(now)
	if best, why := c.pick(); best >= 0 {
		d.Best, d.Why = view.Workers[best].Ref, why
		d.MatchedTokens, d.HeldTokens = d.seen[best].matched, c.promised(best)
		d.SlowTokens = d.MatchedTokens - d.seen[best].held
		c.skip = best
		second := c.second(best)
		if second >= 0 {
			d.Second = view.Workers[second].Ref
		}
		rank := view.Workers[best].Rank
		d.Ranked = rank != 0 && (second < 0 || view.Workers[second].Rank == rank)
	}
	d.Candidates = d.Candidates[:0]
	if d.Explain {
		c.explain()
	}
}

// chooser is one call of Choose.
type chooser struct {
	req  *Request
	view *View
	rng  *Rand
	d    *Decision
	rule *policy.Policy
	name policy.Name // the rule that decides
	skip int         // index of the best worker while the second is sought, else -1
	// elapsed since View.At.
	elapsed time.Duration
	// hot is the length of the request's hot prefix in tokens, 0 for none; homes of it may be picked.
	hot, homes int
	// top is the longest credited match, in tokens.
	top int
	// pending is how many tokens of the prompt a worker is just computing.
	pending int
	// priced: rule cost, the candidates have their prices. They are d.order[:drawn].
	priced   bool
	drawn    int
	young    float64 // share of the pool that is young
	soonest  float64 // seconds until the first token at the candidate where it comes first
	meanRate float64 // tokens/s
	requests float64 // of a worker, on average
	memory   float64 // share of KV blocks that requests hold, on average
	heldUp   float64 // what a second of prefill counts to each of a worker's requests
	// sorted: the workers come by ref. indexed: d.index has been looked after.
	sorted, indexed bool
	// weighed: loads and watermarks are brought to now.
	weighed bool
}

// in tells whether worker i may be picked.
func (c *chooser) in(i int) bool { return c.d.seen[i].in && i != c.skip }

// second picks who takes the request over should the best worker fail, -1 for nobody. Ranks
// behind the best worker's port fail with it, and of the others those of its rank go first: the
// header that names the rank is the same for both.
func (c *chooser) second(best int) int {
	if c.view.Workers[best].Rank == 0 {
		return c.another()
	}
	for _, sameRank := range [...]bool{true, false} {
		c.setApart(best, sameRank)
		if second := c.another(); second >= 0 {
			return second
		}
	}
	return -1
}

// another picks the second best, of those left out for a while where there is no other.
func (c *chooser) another() int {
	second, _ := c.pick()
	for _, left := range [...]Left{LeftAvoid, LeftSilent} {
		if second < 0 && c.readmit(left) {
			second, _ = c.pick()
		}
	}
	return second
}

// setApart takes the workers from the choice that share the best one's port, or have another rank.
func (c *chooser) setApart(best int, sameRank bool) {
	b := &c.view.Workers[best]
	for i := range c.view.Workers {
		w, s := &c.view.Workers[i], &c.d.seen[i]
		apart := i != best && (samePort(w.Address, b.Address) || sameRank && w.Rank != b.Rank)
		if apart != s.apart {
			s.apart = apart
			s.in, s.wasIn = s.wasIn && !apart, s.in
		}
	}
}

// samePort tells whether two addresses differ by their rank at most.
func samePort(a, b string) bool {
	return port(a) == port(b)
}

func port(address string) string {
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return address[:i]
	}
	return address
}

// at returns the index of the worker with a ref, or -1.
func (c *chooser) at(ref uint16) int {
	i := c.found(ref)
	if i < 0 && !c.indexed {
		c.indexed = true
		c.index()
		i = c.found(ref)
	}
	return i
}

// found looks up what the index says, which may be of other workers: -1 then.
func (c *chooser) found(ref uint16) int {
	if int(ref) >= len(c.d.index) {
		return -1
	}
	if i := int(c.d.index[ref]) - 1; i >= 0 && i < len(c.view.Workers) && c.view.Workers[i].Ref == ref {
		return i
	}
	return -1
}

// pick returns the index of the best worker, -1 for none.
func (c *chooser) pick() (int, Why) {
	if c.skip < 0 && c.rule.Explore > 0 && c.rng.Float64() < c.rule.Explore {
		if i := c.random(); i >= 0 && c.underWatermark(i) {
			return i, WhyExplore
		}
	}
	switch c.name {
	case policy.RoundRobin:
		return c.roundRobin(), WhyRoundRobin
	case policy.Random:
		return c.random(), WhyRandom
	case policy.LeastLoad:
		return c.leastLoad(), WhyLeastLoad
	case policy.SessionHash:
		if c.req.SessionKey == 0 {
			return c.random(), WhyRandom
		}
		return c.onRing(c.req.SessionKey, ring.Bound{}, c.in), WhySession
	case policy.CHWBL:
		if c.req.RingKey == 0 {
			return c.leastLoad(), WhyNoKey
		}
		return c.bounded(), WhyHash
	case policy.Cost:
		return c.cost()
	case policy.Weighted:
		return c.weighted()
	case policy.Custom:
		return c.custom()
	}
	return c.threshold()
}

// threshold: the least loaded holder of the longest match that is under the limits; else the
// holders of the next shorter match; else the ring. Prompts too short to be worth it, and
// those without a key, go to the least load.
func (c *chooser) threshold() (int, Why) {
	if c.req.RingKey == 0 && len(c.req.Matches) == 0 {
		return c.leastLoad(), WhyNoKey
	}
	if c.req.PromptTokens > 0 && c.req.PromptTokens < c.rule.MinMatchTokens {
		return c.leastLoad(), WhyShort
	}
	c.weigh()
	holders, within := false, c.limits()
	within.requests = c.holderBound()
	for below := math.MaxInt; ; {
		top := c.longest(below)
		if top == 0 || top < c.rule.MinMatchTokens {
			break
		}
		floor := top - int(float64(top)*sameLevel)
		// Holders of more are over the limits, or they would have been picked: no upper bound.
		within.credited = floor
		if best := c.least(within, c.tieKey()); best >= 0 {
			if holders {
				return best, WhyNextHolder
			}
			return best, WhyHolder
		}
		holders = true
		below = floor
	}
	switch {
	case holders:
		return c.bounded(), WhySpill
	case c.req.RingKey == 0:
		return c.leastLoad(), WhyNoKey
	}
	return c.bounded(), WhyRing
}

// longest returns the longest credited match shorter than below, 0 for none.
func (c *chooser) longest(below int) int {
	top, skip := 0, c.skip
	for i := range c.d.seen {
		if s := &c.d.seen[i]; s.credited > top && s.credited < below && s.in && i != skip {
			top = s.credited
		}
	}
	return top
}

// limits bound the workers that are picked from.
type limits struct {
	credited   int   // at least
	requests   int   // at most
	load, mark int64 // below
}

// noLimits lets all in.
var noLimits = limits{requests: math.MaxInt, load: math.MaxInt64, mark: math.MaxInt64}

func (l *limits) allow(s *seen) bool {
	return s.credited >= l.credited && s.requests <= l.requests && s.load < l.load && s.mark < l.mark
}

// belowWatermark lets in who has KV blocks to spare.
func (c *chooser) belowWatermark() limits {
	within := noLimits
	within.mark = fixed(c.rule.Watermark)
	return within
}

// limits lets in who has that and is below the load limit, too.
func (c *chooser) limits() limits {
	within := c.belowWatermark()
	within.load = fixed(c.rule.LoadLimit)
	return within
}

// holderSlack is how many requests a holder may have beyond its bound: near idle the mean says
// little.
const holderSlack = 2

// holderBound is the number of requests above which a holder has its share: far more than the
// pool's mean.
func (c *chooser) holderBound() int {
	mean, _ := c.meanRequests()
	return int(c.rule.HolderBound*mean) + holderSlack
}

// meanRequests is the mean number of requests of the workers that may be picked, and how many
// these are.
func (c *chooser) meanRequests() (mean float64, members int) {
	total, skip := 0, c.skip
	for i := range c.d.seen {
		if s := &c.d.seen[i]; s.in && i != skip {
			total += s.requests
			members++
		}
	}
	if members == 0 {
		return 0, 0
	}
	return float64(total) / float64(members), members
}

func (c *chooser) underWatermark(i int) bool {
	c.weigh()
	return c.d.seen[i].mark < fixed(c.rule.Watermark)
}

// tieKey orders equals: by the prefix, so that every gateway prefers the same worker for the
// same prefix and others for others; by chance where there is no key.
func (c *chooser) tieKey() uint64 {
	if c.req.RingKey != 0 {
		return c.req.RingKey
	}
	return c.rng.Uint64()
}

// leastLoad picks the least loaded worker, below the watermark if there is one.
func (c *chooser) leastLoad() int {
	c.weigh()
	key := c.tieKey()
	if best := c.least(c.belowWatermark(), key); best >= 0 {
		return best
	}
	return c.least(noLimits, key)
}

// least picks the best of the workers within limits: least load in steps, least uncached
// tokens, first by key, lowest ref.
func (c *chooser) least(within limits, key uint64) int {
	best, skip := -1, c.skip
	for i := range c.d.seen {
		if s := &c.d.seen[i]; s.in && i != skip && within.allow(s) && (best < 0 || c.before(i, best, key)) {
			best = i
		}
	}
	return best
}

func (c *chooser) before(i, j int, key uint64) bool {
	a, b := &c.d.seen[i], &c.d.seen[j]
	v, w := &c.view.Workers[i], &c.view.Workers[j]
	switch {
	case a.step != b.step:
		return a.step < b.step
	case v.UncachedTokens != w.UncachedTokens:
		return v.UncachedTokens < w.UncachedTokens
	}
	if r, s := ring.Rank(key, c.addressKey(i)), ring.Rank(key, c.addressKey(j)); r != s {
		return r < s
	}
	return v.Ref < w.Ref
}

func (c *chooser) addressKey(i int) uint64 {
	w := &c.view.Workers[i]
	if w.AddressKey == 0 {
		return ring.Key(w.Address)
	}
	return w.AddressKey
}

// bounded walks the ring from the prefix with bounded loads: first among the workers under the
// limits, then among all.
func (c *chooser) bounded() int {
	mean, members := c.meanRequests()
	if members == 0 {
		return -1
	}
	bound := ring.Bound{
		Factor: c.rule.LoadBound, Mean: mean, Members: members,
		Load: func(ref uint16) int {
			if i := c.at(ref); i >= 0 {
				return c.d.seen[i].requests
			}
			return 0
		},
	}
	c.weigh()
	within := c.limits()
	if c.name != policy.Threshold {
		within = c.belowWatermark()
	}
	if best := c.walk(c.req.RingKey, bound, func(i int) bool { return c.in(i) && within.allow(&c.d.seen[i]) }); best >= 0 {
		return best
	}
	return c.onRing(c.req.RingKey, bound, c.in)
}

// onRing is walk, or the least load where the ring does not know the workers yet.
func (c *chooser) onRing(key uint64, bound ring.Bound, ok func(i int) bool) int {
	if best := c.walk(key, bound, ok); best >= 0 {
		return best
	}
	return c.leastLoad()
}

func (c *chooser) walk(key uint64, bound ring.Bound, ok func(i int) bool) int {
	ref, _ := c.view.Ring.Pick(key, func(ref uint16) bool {
		i := c.at(ref)
		return i >= 0 && ok(i)
	}, bound)
	if ref == 0 {
		return -1
	}
	return c.at(ref)
}

// byRef fills d.order with the workers that take part, the skipped one included, by ref.
func (c *chooser) byRef() []int32 {
	if cap(c.d.order) < len(c.d.seen) {
		c.d.order = make([]int32, 0, cap(c.d.seen))
	}
	order, n := c.d.order[:len(c.d.seen)], 0
	for i := range c.d.seen {
		if c.d.seen[i].in {
			order[n] = int32(i)
			n++
		}
	}
	c.d.order = order[:n]
	if !c.sorted { // a roster comes in this order
		slices.SortFunc(c.d.order, func(i, j int32) int { return int(c.view.Workers[i].Ref) - int(c.view.Workers[j].Ref) })
	}
	return c.d.order
}

func (c *chooser) roundRobin() int {
	order := c.byRef()
	for n := range order {
		i := int(order[(c.req.Sequence+uint64(n))%uint64(len(order))])
		if i != c.skip {
			return i
		}
	}
	return -1
}

func (c *chooser) random() int {
	order := c.byRef()
	if c.skip >= 0 {
		order = slices.DeleteFunc(order, func(i int32) bool { return int(i) == c.skip })
	}
	if len(order) == 0 {
		return -1
	}
	return int(order[c.rng.IntN(len(order))])
}
