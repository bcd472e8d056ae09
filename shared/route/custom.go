package route

import (
	"math"
	"time"
)

// Score says how good it is to send a request to a worker, under the rule custom: the highest
// score gets the request. Its unit is its own, only the order counts; workers of equal score are
// told apart by the session, else by the prefix, so that a conversation stays where it is.
//
// It is asked once for every worker that can take the request, in no particular order, and not for
// those that are down, draining, silent, excluded or to be avoided. NaN and -Inf say that the worker
// is unfit: it gets the request only when every other is too. Workers at or above the policy's
// watermark come after all others, whatever their score.
//
// It runs inside the proxy for every request and worker: it must not block, allocate or keep what
// its pointers point to, and should be a function of its arguments, or explanations will not tell
// what happened. A panic lets the request pass to the proxy's own balancer.
type Score func(req *Request, w *Worker, f *Facts) float64

// Facts is what a decision has worked out about a request at one worker. The loads in Worker are as
// reported, these are brought to now.
type Facts struct {
	// MatchedTokens of the prompt are cached there according to the table, in whole blocks.
	// CachedTokens is what of them counts, after trust; UncachedTokens, the rest of the prompt, is
	// what the worker would have to prefill.
	MatchedTokens, CachedTokens, UncachedTokens int
	// Load is the share of capacity in use, 0 and up; Watermark the share of KV blocks that running
	// requests hold, 0 to 1.
	Load, Watermark float64
	// Requests are those running or waiting there, of all gateways. MeanRequests is the mean of the
	// workers that can take the request.
	Requests     int
	MeanRequests float64
	// PrefillRate in tokens/s is the worker's, the mean of the known ones where it isn't known,
	// 10,000 where none is: never 0.
	PrefillRate float64
	// Age of the worker's last report, or Never.
	Age time.Duration
}

// custom picks the worker of the highest score.
func (c *chooser) custom() (int, Why) {
	c.weigh()
	c.askScores()
	for _, mark := range [...]int64{fixed(c.rule.Watermark), math.MaxInt64} {
		if c.fit(mark) {
			return c.highest(mark, 0), WhyCustom
		}
	}
	return c.leastLoad(), WhyLeastLoad // nobody, or nobody fit
}

// fit tells whether a worker whose watermark is below the limit has a score above -Inf.
func (c *chooser) fit(mark int64) bool {
	for i := range c.d.seen {
		if s := &c.d.seen[i]; c.in(i) && s.mark < mark && !math.IsInf(s.value, -1) {
			return true
		}
	}
	return false
}

// askScores fills in the scores of those that have none yet: all, and for the second choice those
// that were readmitted.
func (c *chooser) askScores() {
	meanRequests, _ := c.meanRequests()
	f := &c.d.facts // not on the stack: an unknown function takes its address
	for i := range c.d.seen {
		s, w := &c.d.seen[i], &c.view.Workers[i]
		if !s.in || s.drawn {
			continue
		}
		*f = Facts{
			MatchedTokens: s.matched, CachedTokens: s.credited, UncachedTokens: max(0, c.req.PromptTokens-s.credited),
			Load: float64(s.load) / loadUnits, Watermark: float64(s.mark) / loadUnits,
			Requests: s.requests, MeanRequests: meanRequests, PrefillRate: w.PrefillRate, Age: s.age,
		}
		if !(f.PrefillRate > 0) {
			if c.meanRate == 0 { // every other rate is known, most of the time
				c.meanRate, _, _ = c.meanWork()
			}
			f.PrefillRate = c.meanRate
		}
		score := c.view.Score(c.req, w, f)
		if score != score { // NaN
			score = math.Inf(-1)
		}
		s.drawn, s.value = true, score
	}
}
