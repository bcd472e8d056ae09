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

// peerBaselines are the rules of others, and those that need no table.
var peerBaselines = []string{"smg", "llm-d", "lmetric", "chwbl", "session_hash", "round_robin"}

// checkRun compares cost with the other rules, and looks at what is special of a workload.
func (m *Matrix) checkRun(c *Comparison) {
	where := c.where()
	cost, reference := c.Policies["cost"], c.Policies["reference"]
	if reference != nil {
		best, good := cost.TTFT.Mean, 0.0
		for name, p := range c.Policies {
			if name != "reference" {
				best = min(best, p.TTFT.Mean)
			}
			if slices.Contains(peerBaselines, name) {
				good = max(good, p.Goodput)
			}
		}
		m.most(cost.TTFT.Mean/best, 1.05, "%s: mean TTFT of cost to the best rule's", where)
		m.most(cost.TTFT.Mean/reference.TTFT.Mean, 1.2, "%s: mean TTFT of cost to the reference's", where)
		m.most(cost.TTFT.P99/reference.TTFT.P99, 1.25, "%s: p99 TTFT of cost to the reference's", where)
		m.least(cost.Goodput/reference.Goodput, 0.95, "%s: goodput of cost to the reference's", where)
		m.least(cost.Goodput-good, 0, "%s: goodput of cost less the best peer's", where)
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
