package virtual

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
)

// Matrix is everything that the routing rules are judged by: comparisons, and
// figures drawn from them beside what they should be.
type Matrix struct {
	Quick   bool          `json:"quick"`
	Seeds   []uint64      `json:"seeds"`
	Runs    []*Comparison `json:"runs"`
	Checks  []Check       `json:"checks"`
	Summary []Figure      `json:"summary"`
}

// MatrixPlan says what to play.
type MatrixPlan struct {
	// Quick plays one load, one seed and the module's own rules.
	Quick bool
	Seeds []uint64
	// Traces by scenario; recorded scenarios without one are left out.
	Traces map[string]*Trace
	// Only, if not empty, are the scenarios to play, and Loads the shares of saturation.
	Only  []string
	Loads []float64
	// Tune changes policies, by name.
	Tune map[string]func(p *policy.Policy)
	// Engine changes the engine of every scenario; nil for none.
	Engine func(p *engine.Params)
	// Delays of the live system; zero: the defaults.
	Delays Delays
	// Kept has the runs that need not be played again, and takes those that are; nil for none.
	Kept *Kept
	// Progress is told after each run.
	Progress func(p MatrixProgress)
}

// MatrixProgress is how far a matrix is.
type MatrixProgress struct {
	Done, All, Kept int           // runs; of those done, the ones that were kept from before
	Left            time.Duration // until the end, as it looks now
	What            string        // was played last
}

func (p *MatrixPlan) plays(name string) bool {
	return len(p.Only) == 0 || slices.Contains(p.Only, name)
}

// comparisons lists what is to be played.
func (p *MatrixPlan) comparisons() (all []toPlay) {
	loads := []float64{0.5, 0.7, 0.85, 0.95}
	policies := []string{"cost", "weighted", "threshold", "session_hash", "chwbl", "smg", "llm-d", "lmetric", "reference"}
	if p.Quick {
		loads, policies = []float64{0.85}, []string{"cost", "weighted", "threshold", "reference"}
	}
	if len(p.Loads) > 0 {
		loads = p.Loads
	}
	add := func(s Scenario, rate float64, gateways int, names []string) {
		play := Play{Rate: rate, Gateways: gateways, Delays: p.Delays, Engine: p.Engine, Pooled: true, GiveUp: !s.mishap()}
		all = append(all, toPlay{s.comparison(names, p.Seeds, play), s, play})
	}
	var beside []float64 // loads at which something happens to seed-16: compared with the run without
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
		case strings.HasPrefix(s.Name, "hot-prefix"): // the curve
			at, names = []float64{0.5}, []string{"cost", "reference"}
		case s.mishap():
			at, names = []float64{0.7}, []string{"cost", "threshold", "reference"}
		}
		if s.mishap() && len(p.Loads) > 0 {
			at = p.Loads
		}
		for _, load := range at {
			names := names
			if load == 0.5 && !s.mishap() && !p.Quick { // above it has no end
				names = append(slices.Clone(names), "round_robin")
			}
			add(s, load*s.Saturation, 2, names)
			if s.mishap() {
				beside = append(beside, load)
			}
		}
		switch s.Name {
		case "seed-16":
			add(s, 25, 2, []string{"cost", "round_robin"})
		case "zipf-32":
			for _, gateways := range []int{1, 8, 64} {
				add(s, 0.85*s.Saturation, gateways, []string{"cost", "reference"})
			}
		}
	}
	calm, err := FindScenario("seed-16")
	if err != nil {
		panic(err) // it is built in
	}
	for _, load := range beside {
		if !slices.ContainsFunc(all, func(c toPlay) bool { return c.is("seed-16", load, 2) }) {
			add(calm, load*calm.Saturation, 2, []string{"cost"})
		}
	}
	return all
}

// toPlay is a comparison that is to be played.
type toPlay struct {
	*Comparison
	scenario Scenario
	play     Play
}

// Play plays the whole matrix.
func (p MatrixPlan) Play(ctx context.Context) (*Matrix, error) {
	return p.play(ctx, p.comparisons())
}

func (p *MatrixPlan) play(ctx context.Context, all []toPlay) (*Matrix, error) {
	m := &Matrix{Quick: p.Quick, Seeds: p.Seeds}
	var jobs []job
	var cells []cell
	results := map[cell]*Result{}
	work, kept := 0, 0 // requests still to be played; runs that need not be
	for _, c := range all {
		for _, seed := range p.Seeds {
			for _, name := range c.Order {
				at := cell{c.Scenario, c.Rate, c.Gateways, c.Requests, name, seed}
				if r := p.Kept.find(at); r != nil {
					results[at] = r
					kept++
					continue
				}
				play := c.play
				play.Seed, play.Policy, play.Tune = seed, name, p.Tune[name]
				jobs, cells = append(jobs, job{c.scenario, play}), append(cells, at)
				work += c.Requests
			}
		}
	}
	began, done, worked := time.Now(), 0, 0
	tell := func(what string) {
		if p.Progress == nil {
			return
		}
		left := time.Duration(0)
		if worked > 0 {
			left = time.Duration(float64(time.Since(began)) * float64(work-worked) / float64(worked))
		}
		p.Progress(MatrixProgress{Done: kept + done, All: kept + len(jobs), Kept: kept, Left: left, What: what})
	}
	tell("")
	err := playAll(ctx, jobs, func(i int, r *Result) error {
		policy := jobs[i].play.Policy
		r.forget(jobs[i].scenario.mishap() && (policy == "cost" || policy == "reference"))
		at := cells[i]
		results[at] = r
		done++
		worked += at.Requests
		tell(fmt.Sprintf("%s at %.1f/s, %d gateways, %s, seed %d", at.Scenario, at.Rate, at.Gateways, at.Policy, at.Seed))
		return p.Kept.add(at, r)
	})
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		runs := map[string][]*Result{}
		for _, name := range c.Order {
			for _, seed := range p.Seeds {
				runs[name] = append(runs[name], results[cell{c.Scenario, c.Rate, c.Gateways, c.Requests, name, seed}])
			}
		}
		c.add(runs)
		m.Runs = append(m.Runs, c.Comparison)
	}
	m.Checks = m.checkSeeds()
	m.Summary = summarise(m.Checks)
	return m, nil
}

// is tells whether this is the comparison of a scenario at a load.
func (c *Comparison) is(name string, load float64, gateways int) bool {
	return c.Scenario == name && c.Gateways == gateways && c.Load > load-0.005 && c.Load < load+0.005
}

// find returns the comparison of a scenario at a load, or nil.
func (m *Matrix) find(name string, load float64, gateways int) *Comparison {
	for _, c := range m.Runs {
		if c.is(name, load, gateways) {
			return c
		}
	}
	return nil
}
