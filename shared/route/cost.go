package route

import (
	"math"
	"time"
)

// defaultPrefillRate stands in for a worker whose rate nobody knows, in a pool where none is
// known, in tokens/s. Only its ratio to the other terms matters.
const defaultPrefillRate = 10_000

// cost picks the worker where the request costs the least, in seconds of somebody's time:
//
//	wait    uncached tokens sent there and not yet answered / prefill rate
//	miss    (1 + miss_weight) x own uncached tokens / prefill rate
//	decode  decode_weight x output_tokens x (time of a token there + harm to those decoding)
//	evict   evict_weight x tokens pushed out / prefill rate x exp(-age of what goes next / tail_decay)
//	spread  spread_weight x (recent work / the pool's mean - 1)
//
// but for the homes of hot prefixes and for workers that have just come, see miss.
//
// Every term is continuous: no switch, so no herd at a switch's edge. Candidates are a random part
// of the holders of the longest match, of one or two both, and a random part of the others: many
// gateways that see the same best worker, a moment late, all send there.
func (c *chooser) cost() (int, Why) {
	if !c.priced { // else the second choice
		c.priced = true
		c.hot = c.markHomes()
		c.draw()
		c.price()
	}
	best := c.cheapest(c.underWatermark)
	if best < 0 {
		best = c.cheapest(func(int) bool { return true })
	}
	if best < 0 { // none was drawn: the second choice of a small pool
		return c.leastLoad(), WhyLeastLoad
	}
	if c.d.seen[best].credited > 0 {
		return best, WhyCost
	}
	return best, WhyCostMiss
}

// draw marks the candidates: young workers, homes without a copy, and by chance a part of those
// with the longest match and of the others.
func (c *chooser) draw() {
	order := c.byRef()
	top := c.longest(math.MaxInt)
	holders, rest := 0, len(order) // order[:holders] and order[rest:], what is marked between them
	for at := 0; at < rest; {
		i := order[at]
		s := &c.d.seen[i]
		longest := top > 0 && s.credited == top
		s.terms = Terms{Seen: s.home && !longest || c.youth(int(i)) > 0}
		switch {
		case s.terms.Seen:
			at++
		case longest:
			order[holders], order[at] = order[at], order[holders]
			holders++
			at++
		default:
			rest--
			order[rest], order[at] = order[at], order[rest]
		}
	}
	c.drawPart(order[:holders])
	c.drawPart(order[rest:])
}

// drawPart marks a part of the workers by chance, two at least: one is no choice.
func (c *chooser) drawPart(workers []int32) {
	n := len(workers)
	want := min(n, max(2, int(math.Ceil(c.rule.Sample*float64(n)))))
	for k := range want {
		if want < n {
			at := k + c.rng.IntN(n-k)
			workers[k], workers[at] = workers[at], workers[k]
		}
		c.d.seen[workers[k]].terms.Seen = true
	}
}

// price fills in what each candidate would cost.
func (c *chooser) price() {
	meanRate, meanRecent := c.meanWork()
	for i := range c.d.seen {
		s, w := &c.d.seen[i], &c.view.Workers[i]
		if !s.in || !s.terms.Seen {
			continue
		}
		rate := w.PrefillRate
		if !(rate > 0) {
			rate = meanRate
		}
		uncached := float64(max(0, c.req.PromptTokens-s.credited))
		t := &s.terms
		t.Wait = float64(max(0, w.UncachedTokens)) / rate
		t.Miss = c.miss(i, t.Wait, uncached/rate, rate)
		step := c.rule.DecodeStep.Seconds()
		others := float64(s.requests)
		own := max(w.DecodeSeconds, others*step) + step
		t.Decode = c.rule.DecodeWeight * float64(c.rule.OutputTokens) * (own + others*step)
		if w.TailAge > 0 {
			pushed := max(0, uncached+float64(c.rule.OutputTokens)-float64(max(0, w.FreeTokens)))
			age := w.TailAge + max(0, s.age) // it has aged since the report
			t.Evict = c.rule.EvictWeight * pushed / rate * math.Exp(-float64(age)/float64(max(c.rule.TailDecay, time.Millisecond)))
		}
		if meanRecent > 0 {
			t.Spread = (1 - c.youth(i)) * c.rule.SpreadWeight.Seconds() * (w.RecentTokens/meanRecent - 1)
		}
		t.Cost = t.Wait + t.Miss + t.Decode + t.Evict + t.Spread
	}
}

// meanWork is the mean of the known prefill rates and of the recent work, summed in the order of
// refs: the order of the workers must not show.
func (c *chooser) meanWork() (rate, recent float64) {
	known, n := 0, 0
	for _, i := range c.byRef() {
		w := &c.view.Workers[i]
		if w.PrefillRate > 0 {
			rate += w.PrefillRate
			known++
		}
		recent += max(0, w.RecentTokens)
		n++
	}
	if known > 0 {
		rate /= float64(known)
	} else {
		rate = defaultPrefillRate
	}
	return rate, recent / float64(max(n, 1))
}

// sameCost is the difference in seconds below which two costs are equal and the session decides.
const sameCost = 0.0005

// cheapest picks the candidate of least cost; of nearly equal ones the one that the session, or
// the prefix, prefers, so that a conversation without a match in the table stays where it was.
func (c *chooser) cheapest(ok func(i int) bool) int {
	least := math.Inf(1)
	for i := range c.d.seen {
		if s := &c.d.seen[i]; c.in(i) && s.terms.Seen && ok(i) {
			least = min(least, s.terms.Cost)
		}
	}
	return c.preferred(func(i int) bool {
		s := &c.d.seen[i]
		return s.terms.Seen && ok(i) && s.terms.Cost <= least+sameCost
	})
}
