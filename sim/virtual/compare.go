package virtual

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/shared/policy"
)

// Comparison is several policies on one scenario over several seeds.
type Comparison struct {
	Scenario string             `json:"scenario"`
	Engine   string             `json:"engine,omitempty"` // another than the scenario's own
	Rate     float64            `json:"rate"`
	Load     float64            `json:"load,omitempty"` // share of saturation
	Gateways int                `json:"gateways"`
	Requests int                `json:"requests"`
	Seeds    []uint64           `json:"seeds"`
	Policies map[string]*Summed `json:"policies"`
	Order    []string           `json:"-"`
}

// Summed is a policy's figures: means over the seeds, and their spread (the
// standard deviation between seeds).
type Summed struct {
	Result
	Spread SpreadOf  `json:"spread"`
	Runs   []*Result `json:"-"`
}

// SpreadOf is the standard deviation over the seeds.
type SpreadOf struct {
	HitRate         float64 `json:"hit_rate"`
	FollowupHitRate float64 `json:"followup_hit_rate"`
	MeanTTFT        float64 `json:"ttft_ms_mean"`
	P99TTFT         float64 `json:"ttft_ms_p99"`
	Goodput         float64 `json:"goodput"`
	BusyCoV         float64 `json:"busy_cov"`
}

// Compare plays every policy with every seed, as many at once as there are
// cores. progress, if any, is told now and then how many of all runs' requests are done.
func (s Scenario) Compare(ctx context.Context, names []string, seeds []uint64, p Play, tune map[string]func(*policy.Policy), progress func(done, all int)) (*Comparison, error) {
	for _, name := range names {
		if _, err := FindPolicy(name); err != nil {
			return nil, err
		}
	}
	c := s.comparison(names, seeds, p)
	var jobs []job
	far := &farness{runs: make([]int, len(seeds)*len(names)), each: c.Requests, tell: progress}
	for _, seed := range seeds {
		for _, name := range names {
			one, i := p, len(jobs)
			one.Seed, one.Policy, one.Tune, one.Progress = seed, name, tune[name], nil
			if progress != nil {
				one.Progress = func(done, _ int) { far.is(i, done) }
			}
			jobs = append(jobs, job{s, one})
		}
	}
	runs := map[string][]*Result{}
	done := make([]*Result, len(jobs))
	err := playAll(ctx, jobs, func(i int, r *Result) error {
		done[i] = r
		far.is(i, c.Requests)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, r := range done {
		runs[jobs[i].play.Policy] = append(runs[jobs[i].play.Policy], r)
	}
	c.add(runs)
	return c, nil
}

// farness is how far several runs are that are played at once.
type farness struct {
	each int // requests of a run
	tell func(done, all int)

	mu   sync.Mutex
	runs []int // requests done
	done int
}

// is takes that so many requests of a run are done, and tells of all.
func (f *farness) is(run, done int) {
	if f.tell == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	done = min(done, f.each)
	f.done += done - f.runs[run]
	f.runs[run] = done
	f.tell(f.done, f.each*len(f.runs))
}

// comparison is one that is to be played.
func (s *Scenario) comparison(names []string, seeds []uint64, p Play) *Comparison {
	c := &Comparison{Scenario: s.Name, Engine: s.Engine, Rate: p.Rate, Gateways: p.Gateways, Requests: p.Requests, Seeds: seeds, Policies: map[string]*Summed{}, Order: names}
	if c.Rate <= 0 {
		c.Rate = s.Rate
	}
	if c.Gateways <= 0 {
		c.Gateways = 2
	}
	if c.Requests <= 0 {
		c.Requests = s.requests(c.Rate)
	}
	if s.Saturation > 0 {
		c.Load = c.Rate / s.Saturation
	}
	return c
}

// add takes the runs of each policy, in the order of the seeds.
func (c *Comparison) add(runs map[string][]*Result) {
	for name, r := range runs {
		c.Policies[name] = sum(r)
	}
}

// job is one run that is to be played.
type job struct {
	scenario Scenario
	play     Play
}

// playAll plays runs, as many at once as there are cores. played is told of each as it ends, one
// at a time.
func playAll(ctx context.Context, jobs []job, played func(i int, r *Result) error) error {
	group, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	group.Go(func() error {
		defer close(next)
		for i := range jobs {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var mu sync.Mutex
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		group.Go(func() error {
			for i := range next {
				r, err := jobs[i].scenario.Run(jobs[i].play)
				if err != nil {
					return fmt.Errorf("play %s under %s with seed %d: %w", jobs[i].scenario.Name, jobs[i].play.Policy, jobs[i].play.Seed, err)
				}
				mu.Lock()
				err = played(i, r)
				mu.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// sum averages the runs of one policy.
func sum(runs []*Result) *Summed {
	out := &Summed{Runs: runs}
	over := func(of func(r *Result) *float64) (mean, deviation float64) {
		values := make([]float64, len(runs))
		for i, r := range runs {
			values[i] = *of(r)
		}
		return meanAndDeviation(values)
	}
	fields := []func(r *Result) *float64{
		func(r *Result) *float64 { return &r.PooledHitRate }, func(r *Result) *float64 { return &r.FirstHitRate },
		func(r *Result) *float64 { return &r.CameTrue }, func(r *Result) *float64 { return &r.GoodputRate },
		func(r *Result) *float64 { return &r.RequestCoV },
		func(r *Result) *float64 { return &r.MeanBusy }, func(r *Result) *float64 { return &r.Seconds }, func(r *Result) *float64 { return &r.WallSeconds },
		func(r *Result) *float64 { return &r.TTFT.P50 }, func(r *Result) *float64 { return &r.TTFT.P90 }, func(r *Result) *float64 { return &r.TTFT.Max },
		func(r *Result) *float64 { return &r.TPOT.Mean }, func(r *Result) *float64 { return &r.TPOT.P50 }, func(r *Result) *float64 { return &r.TPOT.P90 },
		func(r *Result) *float64 { return &r.TPOT.P99 }, func(r *Result) *float64 { return &r.TPOT.Max },
	}
	for _, of := range fields {
		*of(&out.Result), _ = over(of)
	}
	out.HitRate, out.Spread.HitRate = over(func(r *Result) *float64 { return &r.HitRate })
	out.TTFT.Mean, out.Spread.MeanTTFT = over(func(r *Result) *float64 { return &r.TTFT.Mean })
	out.TTFT.P99, out.Spread.P99TTFT = over(func(r *Result) *float64 { return &r.TTFT.P99 })
	out.Goodput, out.Spread.Goodput = over(func(r *Result) *float64 { return &r.Goodput })
	out.FollowupHitRate, out.Spread.FollowupHitRate = over(func(r *Result) *float64 { return &r.FollowupHitRate })
	out.BusyCoV, out.Spread.BusyCoV = over(func(r *Result) *float64 { return &r.BusyCoV })
	out.ByTier = map[string]*TierResult{}
	for _, r := range runs {
		out.Requests += r.Requests
		out.Refused += r.Refused
		out.Failed += r.Failed
		out.Saturated += r.Saturated
		out.Counts.Arrived += r.Counts.Arrived
		out.Counts.Answered += r.Counts.Answered
		out.Counts.Refused += r.Counts.Refused
		out.Counts.Failed += r.Counts.Failed
		out.Counts.Open += r.Counts.Open
		out.Counts.Preemptions += r.Counts.Preemptions
		out.Counts.RecomputedTokens += r.Counts.RecomputedTokens
		out.Counts.Copies += r.Counts.Copies
		out.Counts.Slices += r.Counts.Slices
		for name, t := range r.ByTier {
			o := out.ByTier[name]
			if o == nil {
				o = &TierResult{}
				out.ByTier[name] = o
			}
			o.Requests += t.Requests
			o.PromptTokens += t.PromptTokens
			o.CachedTokens += t.CachedTokens
		}
	}
	out.ByGroup = sumGroups(runs)
	for _, t := range out.ByTier {
		t.HitRate = share(t.CachedTokens, t.PromptTokens)
	}
	return out
}

func meanAndDeviation(values []float64) (mean, deviation float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / n
	}
	return mean, math.Sqrt(deviation)
}

// sumGroups averages the parts of a mixed workload.
func sumGroups(runs []*Result) map[string]*GroupResult {
	out := map[string]*GroupResult{}
	for _, r := range runs {
		for name, g := range r.ByGroup {
			o := out[name]
			if o == nil {
				o = &GroupResult{}
				out[name] = o
			}
			n := float64(len(runs))
			o.Requests += g.Requests
			o.HitRate += g.HitRate / n
			o.TTFT.Mean += g.TTFT.Mean / n
			o.TTFT.P50 += g.TTFT.P50 / n
			o.TTFT.P90 += g.TTFT.P90 / n
			o.TTFT.P99 += g.TTFT.P99 / n
			o.TTFT.Max += g.TTFT.Max / n
		}
	}
	return out
}
