package route

import (
	"cmp"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/ring"
)

// The rule cost charges what the cache doesn't save more than once, as a copy of a prefix pushes
// something else out. Three kinds of copies are cheaper: of a hot prefix at its homes, of one that a
// worker is just computing (siblingShare), and those that fill a cache which is empty.

// homePrice is what a home pays of a second of prefill that its copy takes. As long as a home lacks
// its copy it has none of the prefix's requests, all else drifts there, and conversations leave
// their caches for it: at 1 a home can stay so, and in the simulator's hot-prefix the p99 of all
// other requests was 5.7 times that without, 4.2 at a half. At 0 copies are made that few requests
// use: with short answers (hot-prefix-brief) 2.9 times, 2.6 at a half.
const homePrice = 0.5

// youngPrice is what a second costs by which the first token comes later at a young worker, where it
// is all that is allowed.
const youngPrice = 4

// youngPull is how many times spread_weight a young worker without requests is cheaper, and one that
// isn't the prefix's own dearer.
const youngPull = 5

// miss is the price of own seconds of prefill at worker i, behind those that wait there. A home pays
// homePrice for the copy that it is to get, which others will use. A young worker has room for copies, so
// what counts there is by how much later the first token comes for not going where most of the prompt is
// held: less than is allowed is nearly free, more is as good as refused, so that a young worker gets
// what it answers soon, and no queue. One that itself holds as much as anybody is left only for who is
// sooner, queues included: who leaves for a queue shorter than its prompt takes elsewhere has a later first
// token, and holds up others there. For a copy a queue at its holder doesn't count: it is over soon, and the
// copy is in the way of who lives here. What nobody holds has to be computed wherever it goes, and costs
// the same everywhere. RampFirst is allowed, and up to twice as much the more of the pool is young: of
// few, each is called by more of the traffic, and less is gained by filling them. Where half of the pool
// are homes a young one gets its copy as any home does: without, a worker that comes to a fleet in which
// all share a long system prompt has nothing to do until its youth is over. With fewer homes there is
// other work. What a worker computes that is about to lose its cache has to be computed once more. If t
// isn't nil, it is told of each.
func (c *chooser) miss(i int, own, rate float64, t *Terms) float64 {
	s := &c.d.seen[i]
	price := s.prefill * own
	hot, lacks := min(c.hot, c.req.PromptTokens), 0.0 // of a home: tokens of its copy
	if s.home {
		lacks = float64(max(0, hot-s.credited))
		less := (s.prefill - homePrice) * lacks / rate
		price -= less
		if t != nil {
			t.Home = -less
		}
	}
	if c.pending > s.credited && !s.home {
		less := (1 - siblingShare) * (s.prefill - 1) * float64(c.pending-s.credited) / rate
		price -= less
		if t != nil {
			t.Sibling = -less
		}
	}
	if s.youth > 0 {
		known, copied := c.top, 0.0
		if s.home && 2*c.homes >= len(c.d.order) {
			known, copied = max(known, hot), lacks/rate
		}
		anyway := float64(max(0, c.req.PromptTokens-known)) / rate
		allowed := c.rule.RampFirst.Seconds() * (1 + c.young)
		first := anyway + copied // seconds until the first token for going elsewhere
		if s.credited == c.top {
			first = max(first, c.soonest)
		}
		later := s.wait + own - first
		more := s.youth * (s.prefill*anyway + homePrice*copied + youngPrice*allowed*wall(later/allowed) + s.detour - s.wait - price)
		price += more
		if t != nil {
			t.Young, t.Youth, t.Later, t.Allowed, t.Detour = more, s.youth, later, allowed, s.detour
		}
	}
	if left := c.view.Workers[i].EvictFor - c.elapsed; left > 0 && left < evictNotice {
		more := min(max(c.view.Workers[i].EvictShare, 0), 1) * s.prefill * own
		price += more
		if t != nil {
			t.Gone = more
		}
	}
	return price
}

// priceYoung is the price of young workers, once it is known what the others offer.
func (c *chooser) priceYoung() {
	for _, i := range c.d.order[:c.drawn] {
		if s := &c.d.seen[i]; s.youth > 0 {
			rate := c.rateOf(int(i))
			s.miss = c.miss(int(i), float64(max(0, c.req.PromptTokens-s.credited))/rate, rate, nil)
			s.value = s.wait + s.miss + s.decode + s.evict + s.spread
		}
	}
}

// wall is nearly 0 below 1 and as good as endless above: the 16th power.
func wall(x float64) float64 {
	x *= x
	x *= x
	x *= x
	return x * x
}

// pull is what a young worker's requests make of its spread term, in spread weights. What it has
// computed lately says nothing, as that fills its cache; what is in flight says how much of its share
// it has.
func (c *chooser) pull(s *seen) float64 {
	requests := float64(s.requests)
	if requests >= c.requests {
		return 0
	}
	return youngPull * (requests/c.requests - 1)
}

// markYoung finds the young workers, and which of them is the prefix's own: the one that the prefix
// ranks first, and those that hold as much of the prompt as any of them. To the others it is a detour.
// All are idle at first, and of equals gateways that don't see each other's last dispatches would
// choose the same: two cold prompts then wait for each other. And a system prompt is computed once.
func (c *chooser) markYoung() {
	own, rank, longest, key := -1, uint64(0), 0, c.req.RingKey
	for _, i := range c.d.order { // by ref: the first of equals is the one of the lowest
		if c.view.Workers[i].CacheAge <= 0 {
			continue
		}
		s := &c.d.seen[i]
		if s.youth = c.youth(int(i)); s.youth == 0 {
			continue
		}
		c.young += s.youth
		longest = max(longest, s.credited)
		if r := ring.Rank(key, c.addressKey(int(i))); own < 0 || r < rank {
			own, rank = int(i), r
		}
	}
	if own < 0 {
		return
	}
	c.young /= float64(len(c.d.order))
	if key == 0 { // too short for a prefix: all are equal
		return
	}
	for _, i := range c.d.order {
		if s := &c.d.seen[i]; s.youth > 0 && int(i) != own && (longest == 0 || s.credited < longest) {
			s.detour = youngPull * c.rule.SpreadWeight.Seconds()
		}
	}
}

// youth is 1 for a worker whose cache was empty just now, and 0 once the ramp is over.
func (c *chooser) youth(i int) float64 {
	age := c.view.Workers[i].CacheAge
	if age <= 0 || c.rule.Ramp <= 0 {
		return 0
	}
	return max(0, 1-float64(age+c.elapsed)/float64(c.rule.Ramp))
}

// markHomes marks the homes of the request's hot prefix, the deepest if it has several, and
// returns how many tokens that prefix has.
func (c *chooser) markHomes() (hotTokens int) {
	var hot *Home
	for i := range c.view.Homes {
		h := &c.view.Homes[i]
		if (hot == nil || h.Units > hot.Units) && c.begins(h) {
			hot = h
		}
	}
	if hot == nil {
		return 0
	}
	for _, ref := range hot.Refs {
		if i := c.at(ref); i >= 0 {
			c.d.seen[i].home = true
			if c.d.seen[i].in {
				c.homes++
			}
		}
	}
	return int(hot.Units) * fingerprint.UnitTokens
}

// begins tells whether the prompt begins with a prefix.
func (c *chooser) begins(h *Home) bool {
	i, ok := slices.BinarySearchFunc(c.req.Checkpoints, h.Units, func(at fingerprint.Checkpoint, units uint32) int { return cmp.Compare(at.End, units) })
	return ok && c.req.Checkpoints[i].Fingerprint == h.Fingerprint
}
