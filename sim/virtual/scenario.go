package virtual

import (
	"fmt"
	"slices"
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
	Speed   []float64
	Rate    float64 // requests a second at which it is played unless told otherwise
	// Saturation is the highest rate at which the reference meets the SLO for
	// 90 % of the requests, as "warmpath sim saturation" measured it (seeds 1 to
	// 3); 0 for not measured.
	Saturation float64
	Requests   int
	Source     func(seed uint64, rate float64, n int) Source
	Faults     []Fault
	Delays     func(d *Delays)
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

func with(c *Chat, change func(c *Chat)) func(uint64, float64, int) Source {
	change(c)
	return c.Source
}

// Scenarios lists the built-in ones.
func Scenarios() []Scenario {
	tight := func(p *engine.Params) { p.CapacityBlocks = 12_288 }
	return []Scenario{
		{
			Name: "seed-16", About: "16 nodes, 400 tenants (Zipf 0.6), prompts of 3,500 tokens, 3 to 12 turns",
			Workers: 16, Params: h200Pair(), Rate: 25, Requests: 24_000, Source: seed16().Source,
		},
		{
			Name: "tight-16", About: "seed-16 with less than half of the cache",
			Workers: 16, Params: h200Pair(tight), Rate: 25, Requests: 24_000, Source: seed16().Source,
		},
		{
			Name: "zipf-32", About: "32 tenants with long system prompts, Zipf 1.1: few prefixes, very unequal",
			Workers: 16, Params: h200Pair(), Rate: 25, Requests: 24_000,
			Source: with(seed16(), func(c *Chat) { c.Tenants, c.Zipf, c.System.Mean = 32, 1.1, 3500 }),
		},
		{
			Name: "one-tenant", About: "everybody shares one system prompt",
			Workers: 16, Params: h200Pair(), Rate: 25, Requests: 24_000,
			Source: with(seed16(), func(c *Chat) { c.Tenants = 1 }),
		},
		{
			Name: "agents", About: "agents with tool loops: up to 40 turns, a second apart, long tool results",
			Workers: 16, Params: h200Pair(), Rate: 25, Requests: 24_000,
			Source: with(seed16(), func(c *Chat) {
				c.Tenants, c.Zipf, c.MinTurns, c.MaxTurns = 12, 0.8, 8, 40
				c.System, c.User = Lengths{Mean: 3000, CV: 0.3, Min: 500, Max: 8000}, Lengths{Mean: 500, CV: 1.2, Min: 16, Max: 6000}
				c.Answer, c.Think = Lengths{Mean: 120, CV: 0.8, Min: 8, Max: 1500}, time.Second
			}),
		},
		{
			Name: "documents", About: "half of the sessions paste a document of 20,000 tokens and ask about it",
			Workers: 16, Params: h200Pair(), Rate: 8, Requests: 24_000,
			Source: with(seed16(), func(c *Chat) {
				c.Share, c.Document, c.MinTurns, c.MaxTurns = 0.5, Lengths{Mean: 20_000, CV: 0.6, Min: 2000, Max: 90_000}, 2, 6
			}),
		},
		{
			Name: "bursts", About: "seed-16 with three times the rate in 5 of every 30 seconds",
			Workers: 16, Params: h200Pair(), Rate: 20, Requests: 24_000,
			Source: with(seed16(), func(c *Chat) { c.Burst = Burst{Period: 30 * time.Second, Length: 5 * time.Second, Factor: 3} }),
		},
		{
			Name: "pinned", About: "long sessions of 30 to 60 turns: most of a prompt is its own conversation",
			Workers: 16, Params: h200Pair(), Rate: 20, Requests: 24_000,
			Source: with(seed16(), func(c *Chat) { c.MinTurns, c.MaxTurns, c.System.Mean = 30, 60, 800 }),
		},
		{
			Name: "slow-node", About: "seed-16 with one node five times slower",
			Workers: 16, Params: h200Pair(), Speed: []float64{0.2}, Rate: 22, Requests: 24_000, Source: seed16().Source,
		},
		{
			Name: "deaths", About: "seed-16: 3 of 16 die at 300 s and return, empty, at 500 s",
			Workers: 16, Params: h200Pair(), Rate: 18, Requests: 24_000, Source: seed16().Source,
			Faults: []Fault{{At: 300 * time.Second, Workers: []int{2, 7, 11}, Kind: Die}, {At: 500 * time.Second, Workers: []int{2, 7, 11}, Kind: Return}},
		},
		{
			Name: "evictions", About: "seed-16: two nodes lose their whole cache at 400 s",
			Workers: 16, Params: h200Pair(), Rate: 22, Requests: 24_000, Source: seed16().Source,
			Faults: []Fault{{At: 400 * time.Second, Workers: []int{3, 9}, Kind: Evict}},
		},
		{
			Name: "lost-events", About: "seed-16 where three of ten of the engines' events never arrive",
			Workers: 16, Params: h200Pair(), Rate: 25, Requests: 24_000, Source: seed16().Source,
			Delays: func(d *Delays) { d.EventLoss = 0.3 },
		},
		{
			Name: "old-table", About: "seed-16 with engines' events ten seconds late",
			Workers: 16, Params: h200Pair(), Rate: 25, Requests: 24_000, Source: seed16().Source,
			Delays: func(d *Delays) { d.Event = 10 * time.Second },
		},
		{
			Name: "fleet-2000", About: "2,000 nodes, 40,000 tenants, a million requests",
			Workers: 2000, Params: h200Pair(), Rate: 3000, Requests: 1_000_000,
			Source: with(seed16(), func(c *Chat) { c.Tenants = 40_000 }),
		},
	}
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

// leastSpan is how long a run lasts at least, in virtual time.
const leastSpan = 5 * time.Minute

// Play is how a scenario is run.
type Play struct {
	Seed     uint64
	Rate     float64 // 0: the scenario's
	Requests int     // 0: the scenario's
	Gateways int     // 0: 2
	Delays   Delays  // zero: the defaults
	Policy   string  // a name of Policies
	Tune     func(p *policy.Policy)
	Skip     float64 // share of the run left out at its beginning; 0: 0.2
	Pooled   bool    // also play the requests through one cache of the fleet's size
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
		{"reference", "the rule cost with exact state and no delay", policy.Cost, Reference},
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

// Run plays a scenario.
func (s Scenario) Run(p Play) (*Result, error) {
	kind, err := FindPolicy(p.Policy)
	if err != nil {
		return nil, err
	}
	if p.Rate <= 0 {
		p.Rate = s.Rate
	}
	if p.Requests <= 0 {
		// Long enough for conversations to begin and end at any rate.
		p.Requests = max(s.Requests, int(p.Rate*leastSpan.Seconds()))
	}
	if p.Gateways <= 0 {
		p.Gateways = 2
	}
	if p.Delays == (Delays{}) {
		p.Delays = DefaultDelays()
	}
	if s.Delays != nil {
		s.Delays(&p.Delays)
	}
	if p.Skip == 0 {
		p.Skip = 0.2
	}
	rule := policy.Default(kind.rule)
	if p.Policy == "reference" {
		rule.Sample = 1
	}
	if p.Tune != nil {
		p.Tune(&rule)
	}
	span := time.Duration(float64(p.Requests) / p.Rate * float64(time.Second))
	c := newCollector(s.Workers, SLO{s.Params}, time.Duration(p.Skip*float64(span)))
	began := time.Now()
	cfg := Config{
		Seed: p.Seed, Workers: s.Workers, Gateways: p.Gateways, Params: s.Params, Speed: s.Speed, Delays: p.Delays,
		Source: s.Source(p.Seed, p.Rate, p.Requests), Policy: rule, Rule: kind.make, Faults: slices.Clone(s.Faults), Record: c.record,
	}
	if p.Progress != nil {
		cfg.Progress = func(done int) { p.Progress(done, p.Requests) }
	}
	var ceiling *ceiling
	if p.Pooled {
		ceiling = newCeiling(s.Workers*s.Params.CapacityBlocks, c.skip)
		cfg.Arrived = ceiling.take
	}
	f, err := Run(cfg)
	if err != nil {
		return nil, err
	}
	r := c.finish(f.Busy(), f.Now())
	if ceiling != nil {
		r.PooledHitRate = share(ceiling.hit, ceiling.prompt)
	}
	r.WallSeconds = time.Since(began).Seconds()
	return r, nil
}

// ceiling plays what arrives through the pooled cache.
type ceiling struct {
	pool        *pool
	skip        time.Duration
	prompt, hit int
}

func newCeiling(blocks int, skip time.Duration) *ceiling {
	return &ceiling{pool: newPool(blocks), skip: skip}
}

func (c *ceiling) take(r *Request, now time.Duration) {
	hit := c.pool.play(r)
	if now >= c.skip {
		c.prompt += r.Prompt
		c.hit += hit * engine.BlockTokens
	}
}
