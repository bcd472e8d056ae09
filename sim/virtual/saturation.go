package virtual

import (
	"context"
	"fmt"
	"math"
	"time"
)

// SaturationGoal is the share of requests within the SLO at saturation.
const SaturationGoal = 0.9

// Saturate finds the highest rate at which the reference meets the SLO for 90 % of the requests of
// all seeds together, within 3 %. Each try lasts two minutes beyond the time in which the workload
// reaches its rate, and at least five. One seed alone doesn't tell: near the limit some runs
// collapse and others don't.
func (s Scenario) Saturate(ctx context.Context, seeds []uint64, progress func(rate, goodput float64)) (float64, error) {
	if s.Source == nil {
		return 0, s.errNoTrace()
	}
	s.Requests, s.Faults = 0, nil
	met := func(rate float64) (bool, error) {
		span := max(s.Settle+2*time.Minute, 5*time.Minute)
		jobs := make([]job, len(seeds))
		for i, seed := range seeds {
			jobs[i] = job{s, Play{Seed: seed, Rate: rate, Requests: s.atMost(int(rate * span.Seconds())), Policy: "reference"}}
		}
		good, all := 0.0, 0.0
		err := playAll(ctx, jobs, func(_ int, r *Result) error {
			good += r.Goodput * float64(r.Requests)
			all += float64(r.Requests)
			return nil
		})
		if err != nil {
			return false, err
		}
		if progress != nil {
			progress(rate, good/all)
		}
		return good/all >= SaturationGoal, nil
	}
	if s.Saturation > 0 {
		return bisect(met, s.Saturation, 1.06)
	}
	return bisect(met, 2*s.Rate, 1.4)
}

// bisect brackets the limit from a first guess, in steps of a factor, and closes in on it.
func bisect(met func(float64) (bool, error), guess, factor float64) (float64, error) {
	low, high := 0.0, 0.0
	for low == 0 || high == 0 || high/low > 1.0301 {
		rate := guess
		switch {
		case low > 0 && high > 0:
			rate = math.Sqrt(low * high)
		case low > 0:
			rate = factor * low
		case high > 0:
			rate = high / factor
		}
		if far := rate / guess; far < 1e-3 || far > 1e3 {
			return 0, fmt.Errorf("no saturation between %.3g and %.3g requests/s: the reference meets the SLO at all of these rates or at none", guess/1e3, guess*1e3)
		}
		ok, err := met(rate)
		if err != nil {
			return 0, err
		}
		if ok {
			low = rate
		} else {
			high = rate
		}
		if low == 0 || high == 0 {
			factor *= factor
		}
	}
	return low, nil
}
