package virtual

import "slices"

// checkMishap looks at what goes wrong in a scenario. What is called steady are the seconds 200 to
// 295, before anything does.
func (m *Matrix) checkMishap(c *Comparison) {
	where, cost := c.where(), c.Policies["cost"]
	calm := m.find("seed-16", c.Load, c.Gateways)
	if calm == nil {
		return
	}
	alone, steady := calm.Policies["cost"], cost.p99(200, 295)
	switch c.Scenario {
	case "hot-prefix-copied", "hot-prefix-copied-30", "hot-prefix-copied-15", "hot-prefix-copied-brief":
		if r := c.Policies["reference"]; r != nil {
			m.most(r.ByGroup["background"].TTFT.P99/alone.TTFT.P99, 1.75, "%s: background p99 of the reference to the run without", where)
		}
	case "hot-prefix", "hot-prefix-30", "hot-prefix-15", "hot-prefix-brief":
		m.most(cost.ByGroup["hot"].TTFT.P99, 300, "%s: hot p99 of cost from second 3 on, ms", where)
		m.most(cost.ByGroup["background"].TTFT.P99/alone.TTFT.P99, 1.75, "%s: background p99 of cost to the run without", where)
		m.most(cost.ByGroup["background"].TTFT.P99/cost.ByGroup["background before and after"].TTFT.P99, 1.75, "%s: background p99 of cost to that before and after", where)
		from, until := cost.Runs[0].HotFrom, cost.Runs[0].HotUntil
		m.least(float64(cost.homes(from+2)), 1, "%s: hot prefixes with homes after 2 s", where)
		m.most(float64(cost.homes(until+15)), 0, "%s: hot prefixes with homes 15 s after the last hot request", where)
	case "deaths":
		after := cost.p99(310, 320)
		m.most(after/steady, 1.5, "%s: p99 TTFT of cost 10 to 20 s after the deaths to steady", where)
		m.most(after/cost.floor99(310, 320), 2, "%s: p99 TTFT of cost 10 to 20 s after the deaths to an idle engine's for what no survivor held", where)
		if r := c.Policies["reference"]; r != nil {
			m.most(after/r.p99(310, 320), 1.1, "%s: p99 TTFT of cost 10 to 20 s after the deaths to the reference's then", where)
		}
		m.least(cost.ByGroup[homeKept].HitRate/alone.FollowupHitRate, 0.95, "%s: hits of later turns whose home survived, to the run without", where)
		m.least(cost.shareOf([]int{2, 7, 11}, 505, 510), 0.6, "%s: share of the returned in seconds 5 to 10, of a fair one", where)
		m.most(cost.p99(500, 520)/steady, 3, "%s: p99 TTFT of cost in the 20 s after the return to steady", where)
	case "doubling":
		late := make([]int, 16)
		for i := range late {
			late[i] = 16 + i
		}
		m.least(cost.workOf(late, 410, 420), 0.8, "%s: work of the new half in seconds 10 to 20, of a fair share", where)
		m.most(cost.workOf(late, 410, 420), 1.25, "%s: work of the new half in seconds 10 to 20 at most, of a fair share", where)
		m.least(cost.shareOf(late, 410, 420), 0.8, "%s: requests of the new half in seconds 10 to 20, of a fair share", where)
		m.most(cost.p99(400, 420)/steady, 3, "%s: p99 TTFT of cost in the 20 s after to steady", where)
	case "slow-node":
		m.most(cost.TTFT.P99/alone.TTFT.P99, 1.6, "%s: p99 TTFT of cost to the run without", where)
	case "evictions":
		m.most(float64(cost.recovery(400, 460, 2*cost.queue(200, 390))), 3, "%s: seconds until no queue is longer than twice the longest before", where)
		m.most(cost.p99(403, 413)/cost.floor99(403, 413), 2, "%s: p99 TTFT of cost 3 to 13 s after to an idle engine's for what nobody held", where)
	case "evictions-announced":
		m.most(cost.queue(390, 460)/cost.queue(200, 390), 2, "%s: longest queue from the notice on to steady, in requests without a first token", where)
		m.most(cost.queueTokens(390, 460)/cost.queueTokens(200, 390), 2, "%s: longest queue from the notice on to steady, in tokens to be computed", where)
	case "lost-events":
		m.most(alone.HitRate-cost.HitRate, 0.01, "%s: hits lost by cost", where)
	case "lost-events-10", "old-table", "old-table-2":
		m.most(alone.HitRate-cost.HitRate, 0.005, "%s: hits lost by cost", where)
	}
}

// seconds calls f for some seconds of every seed's run.
func (s *Summed) seconds(from, to int, f func(b *Bucket)) {
	for _, r := range s.Runs {
		for i := range r.Timeline {
			if b := &r.Timeline[i]; b.Second >= from && b.Second < to {
				f(b)
			}
		}
	}
}

// p99 of the requests that arrived in some seconds, in ms.
func (s *Summed) p99(from, to int) float64 {
	return s.p99Of(from, to, func(b *Bucket) []float64 { return b.TTFT })
}

// floor99 is the p99 of what an idle engine would have taken for what nobody held.
func (s *Summed) floor99(from, to int) float64 {
	return s.p99Of(from, to, func(b *Bucket) []float64 { return b.Floors })
}

func (s *Summed) p99Of(from, to int, times func(b *Bucket) []float64) float64 {
	var all []float64
	s.seconds(from, to, func(b *Bucket) { all = append(all, times(b)...) })
	slices.Sort(all)
	return quantiles(all).P99
}

// queue is the longest of a worker in some seconds, in requests without a first token, the mean of
// a second; queueTokens the same in prompt tokens to be computed.
func (s *Summed) queue(from, to int) (longest float64) {
	s.seconds(from, to, func(b *Bucket) { longest = max(longest, b.Waiting) })
	return longest
}

func (s *Summed) queueTokens(from, to int) (longest float64) {
	s.seconds(from, to, func(b *Bucket) { longest = max(longest, b.Queue) })
	return longest
}

// recovery is how many seconds pass until no worker's queue is longer than a limit any more.
func (s *Summed) recovery(from, to int, limit float64) (seconds int) {
	s.seconds(from, to, func(b *Bucket) {
		if b.Waiting > limit {
			seconds = max(seconds, b.Second+1-from)
		}
	})
	return seconds
}

// workOf is how much of the work some workers did, 1 for a fair share.
func (s *Summed) workOf(workers []int, from, to int) float64 {
	did := func(r *Result) (theirs, all float64) {
		for _, b := range r.Timeline {
			sign := 0.0
			switch b.Second {
			case from - 1:
				sign = -1
			case to - 1:
				sign = 1
			default:
				continue
			}
			for i, work := range b.Work {
				all += sign * work
				if slices.Contains(workers, i) {
					theirs += sign * work
				}
			}
		}
		return theirs * float64(len(r.Timeline[0].Work)) / float64(len(workers)), all
	}
	theirs, all := 0.0, 0.0
	for _, r := range s.Runs {
		x, y := did(r)
		theirs, all = theirs+x, all+y
	}
	return theirs / all
}

// homes is the greatest number of hot prefixes with homes at the end of a second.
func (s *Summed) homes(second int) (most int) {
	s.seconds(second, second+1, func(b *Bucket) { most = max(most, b.Homes) })
	return most
}

// shareOf is how much of the arrivals some workers had, 1 for a fair share.
func (s *Summed) shareOf(workers []int, from, to int) float64 {
	had, all, n := 0, 0, 0
	s.seconds(from, to, func(b *Bucket) {
		n = len(b.Arrivals)
		for _, k := range b.Arrivals {
			all += k
		}
		for _, w := range workers {
			had += b.Arrivals[w]
		}
	})
	return share(had*n, all*len(workers))
}
