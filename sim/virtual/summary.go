package virtual

import (
	"math"
	"slices"
	"strings"
)

// Check is one figure and its target.
type Check struct {
	Name string `json:"name"`
	// Value is the mean over the seeds, Spread their standard deviation, Values are theirs.
	Value  float64   `json:"value"`
	Spread float64   `json:"spread"`
	Values []float64 `json:"values"`
	// Target is the least value if AtLeast, else the greatest.
	Target  float64 `json:"target"`
	AtLeast bool    `json:"at_least"`
	// Holds tells whether Value reaches Target; Missing that there is no value, as nothing was
	// there to measure.
	Holds   bool `json:"holds"`
	Missing bool `json:"missing,omitempty"`
}

// reaches tells whether a value is as it should be.
func (c *Check) reaches(value float64) bool {
	if c.AtLeast {
		return value >= c.Target
	}
	return value <= c.Target
}

// misses is how far a check is from its target, as a share of it: the greatest is the worst.
func (c *Check) misses() float64 {
	by := c.Value - c.Target
	if c.AtLeast {
		by = -by
	}
	if c.Target != 0 {
		by /= math.Abs(c.Target)
	}
	return by
}

// Figure is what is wanted of several scenarios or loads: how many have it, and the worst.
type Figure struct {
	What  string `json:"what"`
	Holds int    `json:"holds"`
	Of    int    `json:"of"`
	Worst Check  `json:"worst"`
}

// Where is the scenario of the worst.
func (f *Figure) Where() string {
	where, _, _ := strings.Cut(f.Worst.Name, ": ")
	return where
}

// summarise puts checks of the same thing together, in the order in which they come.
func summarise(checks []Check) []Figure {
	var all []Figure
	for _, c := range checks {
		_, what, _ := strings.Cut(c.Name, ": ")
		i := slices.IndexFunc(all, func(f Figure) bool { return f.What == what })
		if i < 0 {
			i = len(all)
			all = append(all, Figure{What: what, Worst: c})
		}
		f := &all[i]
		f.Of++
		if c.Holds {
			f.Holds++
		}
		if c.Missing || !f.Worst.Missing && c.misses() > f.Worst.misses() {
			f.Worst = c
		}
	}
	return all
}

// checkSeeds draws the figures of each seed, and from them the means and the spread.
func (m *Matrix) checkSeeds() []Check {
	var all []Check
	for i := range m.Seeds {
		one := &Matrix{}
		for _, c := range m.Runs {
			one.Runs = append(one.Runs, c.ofSeed(i))
		}
		one.check()
		for _, c := range one.Checks {
			at := slices.IndexFunc(all, func(other Check) bool { return other.Name == c.Name && other.AtLeast == c.AtLeast })
			if at < 0 {
				at = len(all)
				all = append(all, c)
			}
			known := &all[at]
			if known.Missing = known.Missing || math.IsNaN(c.Value) || math.IsInf(c.Value, 0); known.Missing {
				c.Value = 0 // JSON has no other
			}
			known.Values = append(known.Values, c.Value)
		}
	}
	for i := range all {
		c := &all[i]
		c.Value, c.Spread = meanAndDeviation(c.Values)
		c.Holds = !c.Missing && c.reaches(c.Value)
	}
	return all
}

// ofSeed is a comparison of one seed's runs.
func (c *Comparison) ofSeed(i int) *Comparison {
	one := *c
	one.Policies = map[string]*Summed{}
	for name, p := range c.Policies {
		one.Policies[name] = sum(p.Runs[i : i+1])
	}
	return &one
}
