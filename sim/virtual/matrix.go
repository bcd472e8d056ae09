package virtual

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Matrix is everything that the routing rules are judged by: comparisons, and
// figures drawn from them beside what they should be.
type Matrix struct {
	Quick  bool          `json:"quick"`
	Runs   []*Comparison `json:"runs"`
	Checks []Check       `json:"checks"`
}

// Check is one figure and its target.
type Check struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Target is the least value if AtLeast, else the greatest.
	Target  float64 `json:"target"`
	AtLeast bool    `json:"at_least"`
	Holds   bool    `json:"holds"`
}

// MatrixPlan says what to play.
type MatrixPlan struct {
	// Quick plays one load, one seed and the module's own rules.
	Quick bool
	Seeds []uint64
	// Traces by scenario; recorded scenarios without one are left out.
	Traces map[string]*Trace
	// Only, if not empty, are the scenarios to play.
	Only []string
	// Progress is told before each comparison.
	Progress func(what string)
}

func (p *MatrixPlan) plays(name string) bool {
	return len(p.Only) == 0 || slices.Contains(p.Only, name)
}

// Play plays the whole matrix.
func (p MatrixPlan) Play(ctx context.Context) (*Matrix, error) {
	m := &Matrix{Quick: p.Quick}
	loads := []float64{0.5, 0.7, 0.85, 0.95}
	policies := []string{"cost", "weighted", "threshold", "session_hash", "chwbl", "smg", "llm-d", "lmetric", "reference"}
	if p.Quick {
		loads, policies = []float64{0.85}, []string{"cost", "weighted", "threshold", "reference"}
	}
	for _, s := range Scenarios() {
		if !p.plays(s.Name) || s.Saturation == 0 {
			continue
		}
		if s.Recorded {
			t := p.Traces[s.Name]
			if t == nil {
				continue
			}
			s = s.WithTrace(t)
		}
		at, names := loads, policies
		switch {
		case s.Name == "hot-prefix":
			at, names = []float64{0.5}, []string{"cost", "weighted", "threshold", "reference"}
		case len(s.Faults) > 0 || s.Delays != nil || s.Speed != nil:
			at, names = []float64{0.7}, []string{"cost", "threshold", "reference"}
		}
		for _, load := range at {
			if err := p.compare(ctx, m, s, load, 2, names); err != nil {
				return nil, err
			}
		}
		switch s.Name {
		case "seed-16":
			if err := p.compare(ctx, m, s, 25/s.Saturation, 2, []string{"cost", "round_robin"}); err != nil {
				return nil, err
			}
		case "zipf-32":
			for _, gateways := range []int{1, 8, 64} {
				if err := p.compare(ctx, m, s, 0.85, gateways, []string{"cost", "reference"}); err != nil {
					return nil, err
				}
			}
		}
	}
	m.check()
	return m, nil
}

func (p *MatrixPlan) compare(ctx context.Context, m *Matrix, s Scenario, load float64, gateways int, names []string) error {
	if p.Progress != nil {
		p.Progress(fmt.Sprintf("%s at %.2f, %d gateways", s.Name, load, gateways))
	}
	c, err := s.Compare(ctx, names, p.Seeds, Play{Rate: load * s.Saturation, Gateways: gateways, Pooled: true}, nil, nil)
	if err != nil {
		return fmt.Errorf("%s at %.2f of saturation: %w", s.Name, load, err)
	}
	m.Runs = append(m.Runs, c)
	return nil
}

// find returns the comparison of a scenario at a load, or nil.
func (m *Matrix) find(name string, load float64, gateways int) *Comparison {
	for _, c := range m.Runs {
		if c.Scenario == name && c.Gateways == gateways && c.Load > load-0.005 && c.Load < load+0.005 {
			return c
		}
	}
	return nil
}

func (m *Matrix) most(value, target float64, format string, args ...any) {
	m.Checks = append(m.Checks, Check{Name: fmt.Sprintf(format, args...), Value: value, Target: target, Holds: value <= target})
}

func (m *Matrix) least(value, target float64, format string, args ...any) {
	m.Checks = append(m.Checks, Check{Name: fmt.Sprintf(format, args...), Value: value, Target: target, AtLeast: true, Holds: value >= target})
}

// check draws the figures.
func (m *Matrix) check() {
	for _, c := range m.Runs {
		m.checkRun(c)
	}
	m.checkGateways()
	for name, lost := range map[string]float64{"lost-events": 0.01, "old-table": 0.005} {
		if c, whole := m.find(name, 0.7, 2), m.find("seed-16", 0.7, 2); c != nil && whole != nil {
			m.most(whole.Policies["cost"].HitRate-c.Policies["cost"].HitRate, lost, "%s: hits lost by cost", name)
		}
	}
	slices.SortStableFunc(m.Checks, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })
}

func (m *Matrix) checkRun(c *Comparison) {
	where := fmt.Sprintf("%s at %.2f, %d gateways", c.Scenario, c.Load, c.Gateways)
	cost, reference := c.Policies["cost"], c.Policies["reference"]
	if reference != nil {
		best := cost.TTFT.Mean
		for name, p := range c.Policies {
			if name != "reference" {
				best = min(best, p.TTFT.Mean)
			}
		}
		m.most(cost.TTFT.Mean/best, 1.05, "%s: mean TTFT of cost to the best rule's", where)
		m.most(cost.TTFT.Mean/reference.TTFT.Mean, 1.2, "%s: mean TTFT of cost to the reference's", where)
		m.most(cost.TTFT.P99/reference.TTFT.P99, 1.25, "%s: p99 TTFT of cost to the reference's", where)
		m.least(cost.Goodput/reference.Goodput, 0.95, "%s: goodput of cost to the reference's", where)
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
	case "hot-prefix":
		m.most(cost.ByGroup["hot"].TTFT.P99, 300, "%s: hot p99 of cost from second 3 on, ms", where)
		m.most(cost.ByGroup["background"].TTFT.P99/cost.ByGroup["background before and after"].TTFT.P99, 1.75, "%s: background p99 of cost to that before and after", where)
	case "deaths":
		steady, failed := cost.p99(200, 295), cost.p99(310, 320)
		m.most(failed/steady, 1.5, "%s: p99 TTFT of cost 10 to 20 s after the deaths to steady", where)
		m.least(cost.shareOf([]int{2, 7, 11}, 505, 510), 0.6, "%s: share of the returned in seconds 5 to 10, of a fair one", where)
		m.most(cost.p99(500, 520)/steady, 3, "%s: p99 TTFT of cost in the 20 s after the return to steady", where)
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

// p99 of the requests that arrived in some seconds of the first seed's run, in ms.
func (s *Summed) p99(from, to int) float64 {
	var all []float64
	for _, b := range s.Runs[0].Timeline {
		if b.Second >= from && b.Second < to {
			all = append(all, b.TTFT...)
		}
	}
	slices.Sort(all)
	return quantiles(all).P99
}

// shareOf is how much of the arrivals some workers had, 1 for a fair share.
func (s *Summed) shareOf(workers []int, from, to int) float64 {
	had, all, n := 0, 0, 0
	for _, b := range s.Runs[0].Timeline {
		if b.Second < from || b.Second >= to {
			continue
		}
		n = len(b.Arrivals)
		for _, k := range b.Arrivals {
			all += k
		}
		for _, w := range workers {
			had += b.Arrivals[w]
		}
	}
	return share(had*n, all*len(workers))
}
