package virtual

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
)

// Scenario is a workload on a fleet, with figures that are committed.
type Scenario struct {
	Name    string
	About   string
	Workers int
	Params  engine.Params
	Engine  string // the preset that it is played with, empty for the scenario's own engine
	Speed   []float64
	Rate    float64 // requests a second at which it is played unless told otherwise
	// Saturation is the highest rate at which the reference meets the SLO for
	// 90 % of the requests, as "warmpath sim saturation" measured it (seeds 1 to
	// 5); 0 for not measured.
	Saturation float64
	Requests   int
	Source     func(seed uint64, rate float64, n int) Source
	// Recorded is true where the source is a trace, which is not part of the
	// repository: WithTrace gives it.
	Recorded bool
	// Most is how many requests the source has; 0 for no end.
	Most int
	// Settle is how long the workload takes to reach its rate: so much is left
	// out of the figures at least.
	Settle time.Duration
	Faults []Fault
	Delays func(d *Delays)
}

// h200Pair is Llama-3.1-70B in FP8 on two H200 SXM (tensor parallel), derived as
// engine.Params tells for two H100: 2 x 141 GB x 0.75, less 70.6 GB of weights
// and 9 GB of activations, leaves 132 GB for KV of 328 KB a token; memory at 4.8
// instead of 3.35 TB/s; the same compute.
func h200Pair(change ...func(p *engine.Params)) engine.Params {
	p := engine.DefaultParams()
	p.CapacityBlocks = 25_150
	p.StepBase, p.DecodePerKVToken = 10_500*time.Microsecond, 49*time.Nanosecond
	p.MaxRunning, p.MaxQueued = 256, -1
	for _, f := range change {
		f(&p)
	}
	return p
}

// seed16 is the reference workload: prompts of 3,500 tokens on average.
func seed16() *Chat {
	return &Chat{
		Tenants: 400, Zipf: 0.6, System: Lengths{Mean: 2050, CV: 0.5, Min: 200, Max: 8000}, MinTurns: 3, MaxTurns: 12,
		First: Lengths{Mean: 150, CV: 0.5, Min: 8, Max: 2000}, User: Lengths{Mean: 150, CV: 0.5, Min: 8, Max: 2000},
		Answer: Lengths{Mean: 250, CV: 0.5, Min: 8, Max: 2000}, Think: 10 * time.Second, ThinkCV: 0.5,
	}
}

// chat is a scenario of conversations on 16 nodes.
func chat(name, about string, rate float64, changes ...func(c *Chat)) Scenario {
	c := seed16()
	for _, change := range changes {
		change(c)
	}
	return Scenario{Name: name, About: about, Workers: 16, Params: h200Pair(), Rate: rate, Requests: 24_000, Source: c.Source, Settle: c.Settle()}
}

func (s Scenario) with(change func(s *Scenario)) Scenario {
	change(&s)
	return s
}

// WithEngine plays the scenario on another engine, cache and SLO included. Its saturation is then not
// known.
func (s Scenario) WithEngine(p engine.Preset) Scenario {
	s.Params, s.Engine, s.Saturation = p.Params(), p.Name, 0
	return s
}

// FindScenario returns the one of a name.
func FindScenario(name string) (Scenario, error) {
	all := Scenarios()
	names := make([]string, len(all))
	for i, s := range all {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	return Scenario{}, fmt.Errorf("no scenario %q; there are %v", name, names)
}

// mishap tells whether something happens in the scenario: it is held against seed-16, where
// nothing does.
func (s *Scenario) mishap() bool {
	return len(s.Faults) > 0 || s.Delays != nil || s.Speed != nil || strings.HasPrefix(s.Name, "hot-prefix")
}

// leastSpan is how long a run lasts at least, in virtual time, once the workload
// has its rate; afterFault how long after the last fault.
const leastSpan, afterFault = 4 * time.Minute, 2 * time.Minute

// span is how long so many requests last, and long enough for the scenario.
func (s *Scenario) span(rate float64, requests int) time.Duration {
	span := max(time.Duration(float64(requests)/rate*float64(time.Second)), s.Settle+leastSpan)
	for _, f := range s.Faults {
		span = max(span, f.At+afterFault)
	}
	return span
}

// Play is how a scenario is run.
type Play struct {
	Seed     uint64
	Rate     float64 // 0: the scenario's
	Requests int     // 0: the scenario's
	Gateways int     // 0: 2
	Delays   Delays  // zero: the defaults
	Policy   string  // a name of Policies
	Tune     func(p *policy.Policy)
	Engine   func(p *engine.Params) // changes the scenario's engine
	Skip     float64                // share of the run left out at its beginning; 0: 0.2
	Pooled   bool                   // also play the requests through one cache of the fleet's size
	GiveUp   bool                   // end the run when its queue only grows (Result.Saturated)
	Progress func(done, all int)
}

// PolicyKind is a named way of choosing.
type PolicyKind struct {
	Name, About string
	rule        policy.Name
	make        RuleMaker
}

func ours(*Fleet) Rule { return routeRule{} }

// Policies are the rules that a scenario can be played with.
func Policies() []PolicyKind {
	return []PolicyKind{
		{"cost", "least seconds of anybody's time (the proxy module's rule)", policy.Cost, ours},
		{"threshold", "least loaded holder of the longest match, else the ring (the module's rule)", policy.Threshold, ours},
		{"weighted", "cached share against queue and use, 3:1 (the module's rule)", policy.Weighted, ours},
		{"round_robin", "one after the other", policy.RoundRobin, ours},
		{"random", "any worker", policy.Random, ours},
		{"least_load", "the least loaded", policy.LeastLoad, ours},
		{"session_hash", "consistent hash of the conversation", policy.SessionHash, ours},
		{"chwbl", "consistent hash of the prefix with bounded loads (KubeAI)", policy.CHWBL, ours},
		{"reference", "the rule cost with exact state, no delay and the best weights of a grid", policy.Cost, Reference},
	}
}

// FindPolicy returns the one of a name.
func FindPolicy(name string) (PolicyKind, error) {
	all := append(Policies(), Peers()...)
	if at := slices.IndexFunc(all, func(p PolicyKind) bool { return p.Name == name }); at >= 0 {
		return all[at], nil
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return PolicyKind{}, fmt.Errorf("no policy %q; there are %v", name, names)
}

// requests is how many the scenario plays at a rate.
func (s *Scenario) requests(rate float64) int {
	return s.atMost(int(rate * s.span(rate, s.Requests).Seconds()))
}

func (s *Scenario) atMost(n int) int {
	if s.Most > 0 {
		n = min(n, s.Most)
	}
	return n
}

// WithTrace plays a recorded workload.
func (s Scenario) WithTrace(t *Trace) Scenario {
	s.Source, s.Most, s.Requests = t.Source, len(t.lines), len(t.lines)
	return s
}

// errNoTrace is what a recorded scenario says without its trace.
func (s *Scenario) errNoTrace() error {
	return fmt.Errorf("%s plays a recorded trace in Mooncake's format, which is not part of this repository: give it with --trace FILE", s.Name)
}

// Run plays a scenario.
func (s Scenario) Run(p Play) (*Result, error) {
	kind, err := FindPolicy(p.Policy)
	if err != nil {
		return nil, err
	}
	if s.Source == nil {
		return nil, s.errNoTrace()
	}
	if p.Engine != nil {
		p.Engine(&s.Params)
		if err := s.Params.Validate(); err != nil {
			return nil, err
		}
	}
	if p.Rate <= 0 {
		p.Rate = s.Rate
	}
	if p.Requests <= 0 {
		p.Requests = s.requests(p.Rate)
	}
	if p.Gateways <= 0 {
		p.Gateways = 2
	}
	if p.Delays == (Delays{}) {
		p.Delays = DefaultDelays()
	}
	p.Delays.ReportEvery = reportEvery(p.Delays.ReportEvery, s.Workers)
	if s.Delays != nil {
		s.Delays(&p.Delays)
	}
	if p.Skip == 0 {
		p.Skip = 0.2
	}
	rule := policy.Default(kind.rule)
	if p.Policy == "reference" {
		grid, err := CommittedGrid()
		if err != nil {
			return nil, err
		}
		rule.Sample = 1
		grid.apply(&s, &rule)
	}
	if p.Tune != nil {
		p.Tune(&rule)
	}
	span := float64(p.Requests) / p.Rate * float64(time.Second)
	skip := max(time.Duration(p.Skip*span), min(s.Settle, time.Duration(span/2)))
	c := newCollector(s.Workers, SLO{s.Params}, skip)
	began := time.Now()
	cfg := Config{
		Seed: p.Seed, Workers: s.Workers, Gateways: p.Gateways, Params: s.Params, Speed: s.Speed, Delays: p.Delays,
		Source: s.Source(p.Seed, p.Rate, p.Requests), Policy: rule, Rule: kind.make, Faults: s.Faults, BusyFrom: skip, Record: c.record, Sampled: c.sample,
	}
	if p.Progress != nil {
		cfg.Progress = func(done int) { p.Progress(done, p.Requests) }
	}
	var ceiling *ceiling
	if p.Pooled {
		ceiling = newCeiling(s.Workers, s.Params.CapacityBlocks, c.skip)
		cfg.Arrived = ceiling.asked
		cfg.Record = func(o Outcome) {
			ceiling.ended(o)
			c.record(o)
		}
		cfg.Sampled = func(s Sample, now time.Duration) {
			ceiling.pool.decodes(s.Worker, s.Answers)
			c.sample(s, now)
		}
	}
	if p.GiveUp {
		cfg.Overload = newOverload(skip, p.Rate, min(leastArrivals, p.Requests))
	}
	f, err := Run(cfg)
	if err != nil {
		return nil, err
	}
	r := c.finish(f.Busy(), f.Now())
	if ceiling != nil {
		r.PooledHitRate = share(ceiling.hit, ceiling.prompt)
	}
	r.Counts = f.Counts()
	if f.Saturated() {
		r.Saturated = 1
	}
	r.WallSeconds = time.Since(began).Seconds()
	return r, nil
}

// leastArrivals is how many requests come, if a run has so many, before it is given up.
const leastArrivals = 12_000

// ceiling plays a run's requests through the pooled cache.
type ceiling struct {
	pool        *pool
	skip        time.Duration
	prompt, hit int
}

func newCeiling(workers, blocks int, skip time.Duration) *ceiling {
	return &ceiling{pool: newPool(workers*blocks, workers), skip: skip}
}

func (c *ceiling) asked(r *Request, now time.Duration) {
	hit := c.pool.asked(r)
	if now >= c.skip {
		c.prompt += r.Prompt
		c.hit += hit * engine.BlockTokens
	}
}

func (c *ceiling) ended(o Outcome) {
	if !o.Failed && !o.Refused && !o.Waiting {
		c.pool.answered(o.Request, o.Worker)
	}
}
