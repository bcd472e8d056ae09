package route

import (
	"math"

	"github.com/warmpath/warmpath/shared/ring"
)

// weighted picks the worker of the highest score:
//
//	cache_weight x cached share of the prompt - (min(queue / max_queue, 1) + 0.3 x utilization)
//
// where the queue is the requests there as a share of the batch limit and utilization is the
// load. A worker whose queue is longer than queue_breaker gets nothing for its cache.
func (c *chooser) weighted() (int, Why) {
	c.weigh()
	for _, mark := range [...]int64{fixed(c.rule.Watermark), math.MaxInt64} {
		for i := range c.d.seen {
			if s := &c.d.seen[i]; c.in(i) && !s.drawn && s.mark < mark {
				c.score(i)
			}
		}
		if best := c.highest(mark, sameScore); best >= 0 {
			return best, WhyScore
		}
	}
	return -1, WhyNone
}

// highest picks the worker with the highest score among those whose watermark is below the limit;
// of equals, within a margin, the preferred one.
func (c *chooser) highest(mark int64, margin float64) int {
	top, skip := math.Inf(-1), c.skip
	for i := range c.d.seen {
		if s := &c.d.seen[i]; s.in && i != skip && s.mark < mark && s.value > top {
			top = s.value
		}
	}
	top -= margin
	t := c.tie()
	for i := range c.d.seen {
		if s := &c.d.seen[i]; s.in && i != skip && s.mark < mark && s.value >= top {
			c.offer(&t, i)
		}
	}
	return t.best
}

// defaultMaxRunning stands in for the batch limit of a worker that doesn't tell it.
const defaultMaxRunning = 64

// sameScore is the difference below which two scores are equal.
const sameScore = 1e-6

func (c *chooser) score(i int) {
	cached, queue, utilization := c.parts(i)
	s := &c.d.seen[i]
	s.drawn, s.value = true, c.rule.CacheWeight*cached-(queue+0.3*utilization)
}

// parts are what worker i's score is made of.
func (c *chooser) parts(i int) (cached, queue, utilization float64) {
	s := &c.d.seen[i]
	batch := c.view.Workers[i].MaxRunning
	if batch <= 0 {
		batch = defaultMaxRunning
	}
	queue = float64(s.requests) / float64(batch)
	if c.req.PromptTokens > 0 && queue <= c.rule.QueueBreaker {
		if cached = float64(s.credited) / float64(c.req.PromptTokens); cached > 1 {
			cached = 1
		}
	}
	if queue /= c.rule.MaxQueue; queue > 1 {
		queue = 1
	}
	return cached, queue, float64(s.load) / loadUnits
}

// tie is a choice among equals: the worker that the session, else the prefix, prefers; by chance
// without either.
type tie struct {
	key  uint64
	best int // -1 for none
	rank uint64
}

func (c *chooser) tie() tie {
	key := c.req.SessionKey
	if key == 0 {
		key = c.tieKey()
	}
	return tie{key: key, best: -1}
}

// offer lets worker i take part.
func (c *chooser) offer(t *tie, i int) {
	r := ring.Rank(t.key, c.addressKey(i))
	if t.best < 0 || r < t.rank || r == t.rank && c.view.Workers[i].Ref < c.view.Workers[t.best].Ref {
		t.best, t.rank = i, r
	}
}
