package virtual

import (
	"fmt"
	"slices"
	"strings"
)

func (m *Matrix) most(value, target float64, format string, args ...any) {
	m.Checks = append(m.Checks, Check{Name: fmt.Sprintf(format, args...), Value: value, Target: target})
}

func (m *Matrix) least(value, target float64, format string, args ...any) {
	m.Checks = append(m.Checks, Check{Name: fmt.Sprintf(format, args...), Value: value, Target: target, AtLeast: true})
}

// check draws the figures.
func (m *Matrix) check() {
	for _, c := range m.Runs {
		m.checkRun(c)
		m.checkMishap(c)
	}
	m.checkGateways()
	m.checkMean()
	slices.SortStableFunc(m.Checks, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })
}

func (c *Comparison) where() string {
	return fmt.Sprintf("%s at %.2f, %d gateways", c.Scenario, c.Load, c.Gateways)
}

// checkRun compares cost with the other rules, and looks at what is special of a workload.
func (m *Matrix) checkRun(c *Comparison) {
	where := c.where()
	cost, reference := c.Policies["cost"], c.Policies["reference"]
	if reference != nil {
		best, good := cost.TTFT.Mean, 0.0
		for name, p := range c.Policies {
			if name != "reference" {
				best, good = min(best, p.TTFT.Mean), max(good, p.Goodput)
			}
		}
		m.most(cost.TTFT.Mean/best, 1.05, "%s: mean TTFT of cost to the best rule's", where)
		m.most(cost.TTFT.Mean/reference.TTFT.Mean, 1.2, "%s: mean TTFT of cost to the reference's", where)
		m.most(cost.TTFT.P99/reference.TTFT.P99, 1.25, "%s: p99 TTFT of cost to the reference's", where)
		m.least(cost.Goodput/reference.Goodput, 0.95, "%s: goodput of cost to the reference's", where)
		m.least(cost.Goodput-good, 0, "%s: goodput of cost less the best rule's", where)
	}
	switch c.Scenario {
	case "seed-16":
		if rr := c.Policies["round_robin"]; rr != nil {
			m.least(rr.HitRate, 0.25, "%s: hits of round_robin", where)
			m.most(rr.HitRate, 0.35, "%s: hits of round_robin at most", where)
		}
		if reference != nil {
			m.least(cost.HitRate/reference.HitRate, 0.99, "%s: hits of cost to the reference's", where)
			m.least(cost.HitRate, 0.85, "%s: hits of cost", where)
			m.least(c.Policies["weighted"].HitRate, 0.85, "%s: hits of weighted", where)
			m.least(c.Policies["threshold"].HitRate, 0.80, "%s: hits of threshold", where)
		}
	case "one-tenant":
		m.least(cost.HitRate, 0.96, "%s: hits of cost", where)
		m.most(cost.BusyCoV, 0.06, "%s: busy CoV of cost", where)
	case "mooncake-conversation":
		m.least(cost.HitRate/cost.PooledHitRate, 0.88, "%s: hits of cost to the pooled cache's", where)
		if reference != nil {
			m.most(cost.TTFT.Mean/reference.TTFT.Mean, 1.10, "%s: mean TTFT of cost to the reference's on the trace", where)
		}
	}
}

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
	case "hot-prefix", "hot-prefix-30", "hot-prefix-brief":
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
		m.least(cost.ByGroup[homeKept].HitRate/alone.FollowupHitRate, 0.95, "%s: hits of later turns whose home survived, to the run without", where)
		m.least(cost.shareOf([]int{2, 7, 11}, 505, 510), 0.6, "%s: share of the returned in seconds 5 to 10, of a fair one", where)
		m.most(cost.p99(500, 520)/steady, 3, "%s: p99 TTFT of cost in the 20 s after the return to steady", where)
	case "doubling":
		late := make([]int, 16)
		for i := range late {
			late[i] = 16 + i
		}
		m.least(cost.shareOf(late, 410, 420), 0.8, "%s: share of the new half in seconds 10 to 20, of a fair one", where)
		m.most(cost.p99(400, 420)/steady, 3, "%s: p99 TTFT of cost in the 20 s after to steady", where)
	case "slow-node":
		m.most(cost.TTFT.P99/alone.TTFT.P99, 1.6, "%s: p99 TTFT of cost to the run without", where)
	case "evictions":
		m.most(cost.p99(403, 413)/steady, 2, "%s: p99 TTFT of cost 3 to 13 s after to steady", where)
		m.most(cost.p99(403, 413)/cost.floor99(403, 413), 2, "%s: p99 TTFT of cost 3 to 13 s after to an idle engine's for what nobody held", where)
	case "evictions-announced":
		m.most(cost.queue(390, 420)/cost.queue(200, 380), 2, "%s: longest queue of a worker from the notice on to steady", where)
	case "lost-events":
		m.most(alone.HitRate-cost.HitRate, 0.01, "%s: hits lost by cost", where)
	case "lost-events-10", "old-table", "old-table-2":
		m.most(alone.HitRate-cost.HitRate, 0.005, "%s: hits lost by cost", where)
	}
}

// checkMean averages the mean TTFT over the workloads.
func (m *Matrix) checkMean() {
	sum, n := map[float64]float64{}, map[float64]float64{}
	for _, c := range m.Runs {
		s, err := FindScenario(c.Scenario)
		reference := c.Policies["reference"]
		if err != nil || reference == nil || c.Gateways != 2 || s.mishap() {
			continue
		}
		load := float64(int(c.Load*100+0.5)) / 100
		sum[load] += c.Policies["cost"].TTFT.Mean / reference.TTFT.Mean
		n[load]++
	}
	for load := range sum {
		m.most(sum[load]/n[load], 1.05, "all workloads at %.2f: mean TTFT of cost to the reference's, averaged", load)
	}
}

// checkGateways looks at what more gateways change.
func (m *Matrix) checkGateways() {
	low, high := 1.0, 0.0
	for _, gateways := range []int{1, 2, 8, 64} {
		c := m.find("zipf-32", 0.85, gateways)
		if c == nil {
			return
		}
		cost := c.Policies["cost"]
		low, high = min(low, cost.FollowupHitRate), max(high, cost.FollowupHitRate)
		m.least(cost.FollowupHitRate-c.Policies["reference"].FollowupHitRate, -0.005, "zipf-32, %d gateways: hits of later turns less the reference's", gateways)
		m.most(cost.BusyCoV, 0.06, "zipf-32, %d gateways: busy CoV of cost", gateways)
	}
	m.most(high-low, 0.003, "zipf-32: hits of later turns from 1 to 64 gateways, greatest less least")
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
	var all []float64
	s.seconds(from, to, func(b *Bucket) { all = append(all, b.TTFT...) })
	slices.Sort(all)
	return quantiles(all).P99
}

// floor99 is the p99 of what an idle engine would have taken for what nobody held.
func (s *Summed) floor99(from, to int) float64 {
	var all []float64
	s.seconds(from, to, func(b *Bucket) { all = append(all, b.Floors...) })
	slices.Sort(all)
	return quantiles(all).P99
}

// queue is the longest of a worker in some seconds, in tokens to be computed, the mean of a second.
func (s *Summed) queue(from, to int) (longest float64) {
	s.seconds(from, to, func(b *Bucket) { longest = max(longest, b.Queue) })
	return longest
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
