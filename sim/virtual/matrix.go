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
		var beside bool // what happens to seed-16 is compared with seed-16
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
		case strings.HasPrefix(s.Name, "hot-prefix"):
			at, names, beside = []float64{0.5}, []string{"cost", "weighted", "threshold", "reference"}, true
		case len(s.Faults) > 0 || s.Delays != nil || s.Speed != nil:
			at, names, beside = []float64{0.7}, []string{"cost", "threshold", "reference"}, true
		}
		for _, load := range at {
			if err := p.compare(ctx, m, s, load, 2, names); err != nil {
				return nil, err
			}
			if beside && m.find("seed-16", load, 2) == nil {
				calm, err := FindScenario("seed-16")
				if err == nil {
					err = p.compare(ctx, m, calm, load, 2, []string{"cost"})
				}
				if err != nil {
					return nil, err
				}
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
