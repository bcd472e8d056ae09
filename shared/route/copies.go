package route

import (
	"cmp"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
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
// is ramp_first.
const youngPrice = 4

// miss is the price of own seconds of prefill behind wait seconds of others'. A home pays homePrice
// for the copy that it is to get, which others will use. A young worker has room for copies, so what
// counts there is by how much later the first token comes for not going where most of the prompt is
// held: less than RampFirst is nearly free, more is as good as refused (the price grows with the sixth
// power), so that a young worker gets what it answers soon, and no queue. What nobody holds has to be
// computed wherever it goes, and costs the same everywhere. All that a young worker gets is work, so
// its recent work says nothing. What a worker computes that is about to lose its cache has to be
// computed once more.
func (c *chooser) miss(i int, wait, own, rate float64) float64 {
	s := &c.d.seen[i]
	price := s.prefill * own
	if s.home {
		price -= (s.prefill - homePrice) * float64(max(0, min(c.hot, c.req.PromptTokens)-s.credited)) / rate
	}
	if c.pending > s.credited && !s.home {
		price -= (1 - siblingShare) * (s.prefill - 1) * float64(c.pending-s.credited) / rate
	}
	if youth := c.youth(i); youth > 0 {
		anyway := min(own, float64(max(0, c.req.PromptTokens-c.top))/rate)
		later := wait + own - anyway
		part := later / c.rule.RampFirst.Seconds()
		price += youth * (s.prefill*anyway + youngPrice*later*part*part*part*part*part - wait - price)
	}
	if left := c.view.Workers[i].EvictFor - c.elapsed; left > 0 && left < evictNotice {
		price += min(max(c.view.Workers[i].EvictShare, 0), 1) * s.prefill * own
	}
	return price
}

// youngDecode is how much more decoding counts for all while a worker is quite young. Batches that
// differ by chance are alike again within an answer; a young worker's is short until conversations
// move there. In the simulator a returned worker has 0.67 of its share in seconds 5 to 10 and a p99
// of 2.8 times steady, at 1 0.65 and 3.3 times.
const youngDecode = 0.5

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
		}
	}
	return int(hot.Units) * fingerprint.UnitTokens
}

// begins tells whether the prompt begins with a prefix.
func (c *chooser) begins(h *Home) bool {
	i, ok := slices.BinarySearchFunc(c.req.Checkpoints, h.Units, func(at fingerprint.Checkpoint, units uint32) int { return cmp.Compare(at.End, units) })
	return ok && c.req.Checkpoints[i].Fingerprint == h.Fingerprint
}
