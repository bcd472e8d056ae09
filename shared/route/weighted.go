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
	top := math.Inf(-1)
	best := -1
	for _, below := range [...]func(int) bool{c.underWatermark, func(int) bool { return true }} {
		for i := range c.d.seen {
			if c.in(i) && below(i) {
				top = max(top, c.score(i))
			}
		}
		best = c.preferred(func(i int) bool { return below(i) && c.d.seen[i].terms.Sum >= top-sameScore })
		if best >= 0 {
			return best, WhyScore
		}
	}
	return best, WhyNone
}

// defaultMaxRunning stands in for the batch limit of a worker that doesn't tell it.
const defaultMaxRunning = 64

// sameScore is the difference below which two scores are equal.
const sameScore = 1e-6

func (c *chooser) score(i int) float64 {
	s := &c.d.seen[i]
	t := Terms{Seen: true}
	batch := defaultMaxRunning
	if n := c.view.Workers[i].MaxRunning; n > 0 {
		batch = n
	}
	queue := float64(s.requests) / float64(batch)
	if c.req.PromptTokens > 0 && queue <= c.rule.QueueBreaker {
		t.CachedShare = min(1, float64(s.credited)/float64(c.req.PromptTokens))
	}
	t.Queue = min(1, queue/c.rule.MaxQueue)
	t.Utilization = float64(s.load) / loadUnits
	t.Sum = c.rule.CacheWeight*t.CachedShare - (t.Queue + 0.3*t.Utilization)
	s.terms = t
	return t.Sum
}

// preferred picks among equals: the worker that the session, else the prefix, prefers; by
// chance without either.
func (c *chooser) preferred(ok func(i int) bool) int {
	key := c.req.SessionKey
	if key == 0 {
		key = c.tieKey()
	}
	best := -1
	var rank uint64
	for i := range c.d.seen {
		if !c.in(i) || !ok(i) {
			continue
		}
		r := ring.Rank(key, c.addressKey(i))
		if best < 0 || r < rank || r == rank && c.view.Workers[i].Ref < c.view.Workers[best].Ref {
			best, rank = i, r
		}
	}
	return best
}
