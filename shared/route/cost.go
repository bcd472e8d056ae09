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
//	wait    uncached tokens sent there and not yet answered / prefill rate, and until there is room for
//	        its blocks, see roomIn
//	miss    price of a second of prefill x own uncached tokens / prefill rate, see prefillPrice
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
		var recent float64
		c.meanRate, recent, c.memory = c.meanWork()
		c.requests, _ = c.meanRequests()
		c.heldUp = heldUp * c.rule.DecodeWeight
		c.heldUp += c.tightness() * max(0, 1-c.heldUp)
		c.markYoung()
		c.draw()
		c.price(recent)
	}
	best := c.cheapest()
	if best < 0 { // none was drawn: the second choice of a small pool
		return c.leastLoad(), WhyLeastLoad
	}
	if c.d.seen[best].credited > 0 {
		return best, WhyCost
	}
	return best, WhyCostMiss
}

// draw moves the candidates to the front of d.order: young workers, homes without a copy, and by
// chance a part of those with the longest match and of the others.
func (c *chooser) draw() {
	order, seen := c.d.order, c.d.seen
	c.top = c.longest(math.MaxInt)
	holders, rest := 0, len(order) // order[:holders] and order[rest:], the surely drawn between them
	for at := 0; at < rest; {
		i := order[at]
		s := &seen[i]
		longest := c.top > 0 && s.credited == c.top
		switch {
		case s.youth > 0:
			at++
		case s.home && !longest:
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
	drawn := c.drawPart(order[:holders])
	drawn += copy(order[drawn:], order[holders:rest])
	others := c.drawPart(order[rest:])
	c.drawn = drawn + copy(order[drawn:], order[rest:rest+others])
}

// drawPart moves a part of the workers, drawn by chance, to the front, two at least: one is no
// choice. It returns how many.
func (c *chooser) drawPart(workers []int32) int {
	n := len(workers)
	want := min(n, max(2, int(math.Ceil(c.rule.Sample*float64(n)))))
	if want < n {
		for k := range want {
			at := k + c.rng.IntN(n-k)
			workers[k], workers[at] = workers[at], workers[k]
		}
	}
	return want
}

// price fills in what each candidate would cost, but for the blocks that it pushes out: most have
// lost by then.
func (c *chooser) price(meanRecent float64) {
	step, spread := c.rule.DecodeStep.Seconds(), c.rule.SpreadWeight.Seconds()
	decode := c.rule.DecodeWeight * float64(c.rule.OutputTokens)
	prompt := c.req.PromptTokens
	c.findPending()
	workers, seen := c.view.Workers, c.d.seen
	c.soonest = math.Inf(1)
	for _, i := range c.d.order[:c.drawn] {
		s, w := &seen[i], &workers[i]
		rate := w.PrefillRate
		if !(rate > 0) {
			rate = c.meanRate
		}
		s.drawn = true
		others := float64(s.requests)
		token := others * step
		harm := token
		if w.DecodeSeconds > token {
			token = w.DecodeSeconds
		}
		s.wait = float64(max(0, w.UncachedTokens)) / rate
		if w.Watermark > 0 && s.stale < staleOne {
			s.wait += c.roomIn(w, s.requests, token+step)
		}
		own := float64(max(0, prompt-s.credited)) / rate
		s.prefill = c.prefillPrice(s.requests)
		if first := s.wait + own; first < c.soonest {
			c.soonest = first
		}
		s.miss = s.prefill * own
		if s.home || w.EvictFor > 0 || c.pending > s.credited {
			s.miss = c.miss(int(i), own, rate, nil)
		}
		s.decode = decode * (token + step + harm)
		s.spread = 0
		if meanRecent > 0 {
			s.spread = spread * (w.RecentTokens/meanRecent - 1)
		}
		if s.youth > 0 {
			s.spread += s.youth * (c.pull(s)*spread - s.spread)
		}
		s.evict, s.whole = 0, w.TailAge <= 0
		s.value = s.wait + s.miss + s.decode + s.evict + s.spread
	}
	if c.young > 0 {
		c.priceYoung()
	}
}

// roomIn is how many seconds a request waits until others have ended and there is a place for its
// blocks, where a token takes so long. All that are there and not counted in the report, and the
// request itself, are taken to hold as much as those that run; of these one part after another ends
// within an answer. Where nobody is, nobody's end can be waited for, whatever holds the blocks. A report
// older than LoadDecay says nothing of all this: a worker that was full when control went away, or whose
// metrics can't be read any more, isn't full for ever.
func (c *chooser) roomIn(w *Worker, requests int, token float64) float64 {
	use, running := min(w.Watermark, 1), w.Running
	if running <= 0 {
		running = requests
	}
	if running == 0 {
		return 0
	}
	beyond := use + use*float64(1+max(0, requests-running))/float64(running) - c.rule.Watermark
	if beyond <= 0 {
		return 0
	}
	return beyond / use * float64(c.rule.OutputTokens) * token
}

// prefillPrice is what a second of prefill costs at a worker with so many requests. The request itself
// waits for it. So does everybody who decodes there, as an engine computes prompts in the steps that
// decode. And it makes a copy that pushes something else out, and is in the way of what comes next:
// miss_weight. So a copy is cheap where there is room, and near saturation conversations stay where
// they are. Where the pool's memory is short it is dear, see tightness.
//
// More requests than the pool's mean don't count: the decode term has them already, and everything new
// would be drawn to the workers with fewer. Nor does an idle worker pay for what decodes elsewhere:
// where nobody makes homes, one that lacks a prefix of all would stay idle.
func (c *chooser) prefillPrice(requests int) float64 {
	return 1 + c.rule.MissWeight + c.heldUp*c.held(requests)
}

// held is how many requests a second of prefill is taken to hold up at a worker with so many.
func (c *chooser) held(requests int) float64 { return min(float64(requests), c.requests) }

// heldUp is the share of the requests at a worker to which a second of prefill there counts as a
// second of decoding: not to those that wait for their own, nor to those about to end. At 1 a
// conversation waits too long where it was for its p99 (seed-16 near saturation), at 0 fan-out drowns
// in copies (docs/experiments.md).
const heldUp = 0.5

// tightFrom is the part of the watermark that requests may hold, on average over the pool, before
// memory is short. In the simulator's workloads but pressure they hold 6 to 36 % of it at 0.95 of
// saturation, and 74 in a burst: at 0.6 the p99 of bursts was 7 % higher, and pressure at 16/s had half a
// point more in time.
const tightFrom = 0.7

// tightness is how far memory, and not time, bounds what the pool carries: 0 while requests hold
// less than tightFrom of the watermark, 1 where they hold all of it. Then a second of prefill keeps
// the memory of all that run there for a second longer, and somebody waits for each: it counts to
// them whole. What is left beside them is too little to hold who comes back, so each conversation
// that leaves its cache makes others lose theirs. It is the pool's mean and not the worker's own use:
// where all are short nobody gains by moving, and near the edge which worker is fuller says little.
// For the same reason a worker at the watermark isn't left out, as by other rules: what a request waits
// there is priced (roomIn), and elsewhere its whole prompt is computed (docs/experiments.md).
func (c *chooser) tightness() float64 {
	return min(1, max(0, (c.memory/c.rule.Watermark-tightFrom)/(1-tightFrom)))
}

// addEviction completes a candidate's price, which only rises by it.
func (c *chooser) addEviction(i int) {
	s, w := &c.d.seen[i], &c.view.Workers[i]
	if s.whole {
		return
	}
	s.whole = true
	pushed := float64(max(0, c.req.PromptTokens-s.credited)) + float64(c.rule.OutputTokens) - float64(max(0, w.FreeTokens))
	if pushed <= 0 {
		return
	}
	rate := c.rateOf(i)
	age := w.TailAge + max(0, s.age) // it has aged since the report
	s.evict = c.rule.EvictWeight * pushed / rate * math.Exp(-float64(age)/float64(max(c.rule.TailDecay, time.Millisecond)))
	s.value = s.wait + s.miss + s.decode + s.evict + s.spread
}

// rateOf is how many tokens of prompts worker i computes in a second.
func (c *chooser) rateOf(i int) float64 {
	if rate := c.view.Workers[i].PrefillRate; rate > 0 {
		return rate
	}
	return c.meanRate
}

// meanWork is the mean of the known prefill rates, of the recent work, and of the share of KV blocks
// that requests hold by reports that aren't older than LoadDecay, summed in the order of refs: the order
// of the workers must not show.
func (c *chooser) meanWork() (rate, recent, use float64) {
	known, order := 0, c.byRef()
	held, reported := int64(0), 0
	for _, i := range order {
		w := &c.view.Workers[i]
		if w.PrefillRate > 0 {
			rate += w.PrefillRate
			known++
		}
		if w.RecentTokens > 0 {
			recent += w.RecentTokens
		}
		if c.d.seen[i].stale < staleOne {
			held += fixed(w.Watermark)
			reported++
		}
	}
	if reported > 0 {
		use = float64(held) / loadUnits / float64(reported)
	}
	if known > 0 {
		rate /= float64(known)
	} else {
		rate = defaultPrefillRate
	}
	return rate, recent / float64(max(len(order), 1)), use
}

// sameCost is the difference in seconds below which two costs are equal and the session decides.
const sameCost = 0.0005

// cheapest picks the candidate of least cost; of nearly equal ones the one that the session, or the
// prefix, prefers, so that a conversation without a match in the table stays where it was.
func (c *chooser) cheapest() int {
	drawn, seen, skip := c.d.order[:c.drawn], c.d.seen, int32(c.skip)
	least := math.Inf(1)
	for _, i := range drawn {
		if s := &seen[i]; s.value < least && s.in && i != skip {
			if c.addEviction(int(i)); s.value < least {
				least = s.value
			}
		}
	}
	least += sameCost
	t := c.tie()
	for _, i := range drawn {
		if s := &seen[i]; s.value <= least && s.in && i != skip {
			if c.addEviction(int(i)); s.value <= least {
				c.offer(&t, int(i))
			}
		}
	}
	return t.best
}
