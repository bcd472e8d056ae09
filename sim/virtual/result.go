package virtual

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/spread"
)

// Quantiles of a duration, in milliseconds.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Result is what a run showed, its beginning left out.
type Result struct {
	Requests        int       `json:"requests"`
	HitRate         float64   `json:"hit_rate"`          // cached of all prompt tokens
	FirstHitRate    float64   `json:"first_hit_rate"`    // of first turns
	FollowupHitRate float64   `json:"followup_hit_rate"` // of later turns
	PooledHitRate   float64   `json:"pooled_hit_rate"`   // of one LRU cache of the fleet's size, same requests
	CameTrue        float64   `json:"came_true"`         // of the predicted tokens, those that were cached
	TTFT            Quantiles `json:"ttft_ms"`
	TPOT            Quantiles `json:"tpot_ms"`
	Goodput         float64   `json:"goodput"`      // share of requests that met the SLO
	GoodputRate     float64   `json:"goodput_rate"` // of those, a second
	BusyCoV         float64   `json:"busy_cov"`
	RequestCoV      float64   `json:"request_cov"`
	MeanBusy        float64   `json:"mean_busy"` // share of the time that workers worked
	Refused         int       `json:"refused"`
	Failed          int       `json:"failed"`
	// Saturated runs were given up because their queue only grew: TTFT counts how long those that
	// waited had waited, so it is a lower bound, and they count as requests that missed the SLO.
	Saturated   int     `json:"saturated,omitempty"`
	Seconds     float64 `json:"seconds"` // virtual
	Counts      Counts  `json:"counts"`  // the whole run, its beginning included
	WallSeconds float64 `json:"-"`       // the machine's: the only figure that differs from run to run

	TTFTs    []float64               `json:"-"` // sorted, ms
	ByTier   map[string]*TierResult  `json:"by_tier"`
	ByGroup  map[string]*GroupResult `json:"by_group,omitempty"`
	Timeline []Bucket                `json:"-"`
	// HotFrom and HotUntil are the first and last second in which hot requests came.
	HotFrom  int `json:"hot_from_second,omitempty"`
	HotUntil int `json:"hot_until_second,omitempty"`
}

// forget keeps the figures and, if asked for, the timeline.
func (r *Result) forget(keepTimeline bool) {
	r.TTFTs = nil
	if !keepTimeline {
		r.Timeline = nil
	}
}

// TierResult is the hit rate of prompts of one length.
type TierResult struct {
	Requests     int     `json:"requests"`
	HitRate      float64 `json:"hit_rate"`
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
}

// GroupResult is one part of a mixed workload.
type GroupResult struct {
	Requests int       `json:"requests"`
	HitRate  float64   `json:"hit_rate"`
	TTFT     Quantiles `json:"ttft_ms"`
}

// Bucket is one second of the run.
type Bucket struct {
	Second   int
	Arrivals []int // by worker
	TTFT     []float64
	Floors   []float64 // soon after a fault: an idle engine's time for what nobody held, ms
	// Queue is the greatest mean of prompt tokens to be computed at a worker, Waiting that of
	// requests without a first token; Homes how many hot prefixes have homes at the end.
	Queue, Waiting float64
	Homes          int
	// Work is what each worker's requests have cost it so far, in seconds, as of its last report.
	Work []float64

	queued, waiting, samples []int // by worker
}

// SLO is what a request has to meet to count: a first token within
// max(1 s, 4 x the cold prefill of its prompt), and 50 ms a token after that.
type SLO struct{ Params engine.Params }

// InTime tells whether a first token came, or may yet come, soon enough.
func (s SLO) InTime(o *Outcome) bool {
	return o.TTFT <= max(time.Second, 4*s.Params.PrefillTime(o.Prompt))
}

// Met tells whether an answered request was good enough.
func (s SLO) Met(o *Outcome) bool { return s.InTime(o) && o.TPOT <= 50*time.Millisecond }

var tiers = []struct {
	name  string
	below int
}{{"lt1k", 1024}, {"1k_4k", 4096}, {"4k_16k", 16384}, {"gt16k", math.MaxInt}}

// collector adds outcomes up.
type collector struct {
	r                        *Result // apart: it is kept for long, and the rest is not
	slo                      SLO
	skip                     time.Duration // arrivals before are left out
	workers                  int
	prompt, cached           int
	firstPrompt, firstCached int
	laterPrompt, laterCached int
	predicted, true_         int
	met                      int
	tpots                    []float64
	byWorker                 []int
	first, last              time.Duration
	buckets                  map[int]*Bucket            // by second
	groups                   map[string]*groupCollector // of a mixed workload
}

type groupCollector struct {
	prompt, cached int
	ttfts          []float64
}

func newCollector(workers int, slo SLO, skip time.Duration) *collector {
	return &collector{
		slo: slo, skip: skip, workers: workers, byWorker: make([]int, workers),
		r: &Result{ByTier: map[string]*TierResult{}}, buckets: map[int]*Bucket{}, groups: map[string]*groupCollector{},
	}
}

// bucket is the second of the run that a time is in.
func (c *collector) bucket(at time.Duration) *Bucket {
	second := int(at / time.Second)
	b := c.buckets[second]
	if b == nil {
		b = &Bucket{Second: second, Arrivals: make([]int, c.workers), Work: make([]float64, c.workers), queued: make([]int, c.workers), waiting: make([]int, c.workers), samples: make([]int, c.workers)}
		c.buckets[second] = b
	}
	return b
}

// sample takes what a report said.
func (c *collector) sample(s Sample, now time.Duration) {
	b := c.bucket(now)
	b.queued[s.Worker] += s.Uncached
	b.waiting[s.Worker] += s.Waiting
	b.samples[s.Worker]++
	b.Work[s.Worker] = s.Work.Seconds()
	b.Homes = s.Homes
}

func (c *collector) record(o Outcome) {
	if o.Waiting {
		if !c.slo.InTime(&o) && o.Arrived >= c.skip {
			c.r.Requests++
			c.r.TTFTs = append(c.r.TTFTs, ms(o.TTFT))
		}
		return
	}
	bucket := c.bucket(o.Arrived)
	if !o.Refused {
		bucket.Arrivals[o.Worker]++
	}
	if !o.Refused && !o.Failed {
		bucket.TTFT = append(bucket.TTFT, ms(o.TTFT))
		if o.Held > 0 {
			bucket.Floors = append(bucket.Floors, ms(c.slo.Params.PrefillTime(max(1, o.Prompt-o.Held))))
		}
	}
	if strings.HasPrefix(o.Group, "hot") {
		if c.r.HotUntil == 0 {
			c.r.HotFrom = bucket.Second
		}
		c.r.HotFrom, c.r.HotUntil = min(c.r.HotFrom, bucket.Second), max(c.r.HotUntil, bucket.Second)
	}
	if o.Arrived < c.skip {
		return
	}
	if c.r.Requests == 0 || o.Arrived < c.first {
		c.first = o.Arrived
	}
	c.last = max(c.last, o.Arrived)
	c.r.Requests++
	switch {
	case o.Refused:
		c.r.Refused++
		return
	case o.Failed:
		c.r.Failed++
		return
	}
	c.prompt += o.Prompt
	c.cached += o.Cached
	c.predicted += o.Predicted
	c.true_ += min(o.Predicted, o.Cached)
	if o.Turn == 0 {
		c.firstPrompt += o.Prompt
		c.firstCached += o.Cached
	} else {
		c.laterPrompt += o.Prompt
		c.laterCached += o.Cached
	}
	for _, t := range tiers {
		if o.Prompt < t.below {
			tier := c.r.ByTier[t.name]
			if tier == nil {
				tier = &TierResult{}
				c.r.ByTier[t.name] = tier
			}
			tier.Requests++
			tier.PromptTokens += o.Prompt
			tier.CachedTokens += o.Cached
			break
		}
	}
	if o.Group != "" {
		g := c.groups[o.Group]
		if g == nil {
			g = &groupCollector{}
			c.groups[o.Group] = g
		}
		g.prompt += o.Prompt
		g.cached += o.Cached
		g.ttfts = append(g.ttfts, ms(o.TTFT))
	}
	c.r.TTFTs = append(c.r.TTFTs, ms(o.TTFT))
	if o.TPOT > 0 {
		c.tpots = append(c.tpots, ms(o.TPOT))
	}
	if c.slo.Met(&o) {
		c.met++
	}
	c.byWorker[o.Worker]++
}

// finish works the sums out.
func (c *collector) finish(busy []time.Duration, total time.Duration) *Result {
	r := c.r
	slices.Sort(r.TTFTs)
	slices.Sort(c.tpots)
	r.TTFT, r.TPOT = quantiles(r.TTFTs), quantiles(c.tpots)
	r.HitRate, r.FirstHitRate, r.FollowupHitRate = share(c.cached, c.prompt), share(c.firstCached, c.firstPrompt), share(c.laterCached, c.laterPrompt)
	r.CameTrue = share(c.true_, c.predicted)
	for _, t := range r.ByTier {
		t.HitRate = share(t.CachedTokens, t.PromptTokens)
	}
	if len(c.groups) > 0 {
		r.ByGroup = map[string]*GroupResult{}
		for name, g := range c.groups {
			slices.Sort(g.ttfts)
			r.ByGroup[name] = &GroupResult{Requests: len(g.ttfts), HitRate: share(g.cached, g.prompt), TTFT: quantiles(g.ttfts)}
		}
	}
	r.Goodput = share(c.met, r.Requests)
	if span := (c.last - c.first).Seconds(); span > 0 {
		r.GoodputRate = float64(c.met) / span
	}
	r.BusyCoV = spread.CoV(floats(busy))
	r.RequestCoV = spread.CoV(floats(c.byWorker))
	sum := time.Duration(0)
	for _, b := range busy {
		sum += b
	}
	r.MeanBusy = sum.Seconds() / max(total-c.skip, 1).Seconds() / float64(len(busy))
	r.Seconds = total.Seconds()
	for _, b := range c.buckets {
		for i, n := range b.samples {
			b.Queue = max(b.Queue, float64(b.queued[i])/float64(max(n, 1)))
			b.Waiting = max(b.Waiting, float64(b.waiting[i])/float64(max(n, 1)))
		}
		r.Timeline = append(r.Timeline, *b)
	}
	slices.SortFunc(r.Timeline, func(a, b Bucket) int { return a.Second - b.Second })
	return r
}

func floats[T ~int | ~int64](values []T) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantiles of sorted values.
func quantiles(sorted []float64) Quantiles {
	if len(sorted) == 0 {
		return Quantiles{}
	}
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	at := func(q float64) float64 { return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))] }
	return Quantiles{Mean: sum / float64(len(sorted)), P50: at(.5), P90: at(.9), P99: at(.99), Max: sorted[len(sorted)-1]}
}
