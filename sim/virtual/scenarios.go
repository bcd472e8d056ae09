package virtual

import (
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

// saturation holds what "warmpath sim saturation NAME --seeds 1-5" found, in
// requests/s, with the engine h200Pair. What goes wrong
// in mishaps goes wrong in seed-16, so its saturation is the yardstick there.
var saturation = map[string]float64{
	"seed-16":                 149,
	"hot-prefix":              149, // of its background alone
	"hot-prefix-30":           149,
	"hot-prefix-15":           149,
	"hot-prefix-brief":        149,
	"hot-prefix-copied":       149,
	"hot-prefix-copied-30":    149,
	"hot-prefix-copied-15":    149,
	"hot-prefix-copied-brief": 149,
	"tight-16":                84.4,
	"zipf-32":                 128,
	"one-tenant":              143.4,
	"agents":                  98.9,
	"documents":               17.7,
	"bursts":                  127,
	"mooncake-conversation":   7.9,
	"mooncake-synthetic":      8.8,
	"pinned":                  81,
	"fan-out":                 141.1,
}

// Scenarios lists the built-in ones.
func Scenarios() []Scenario {
	all := workloads()
	for i := range all {
		all[i].Saturation = saturation[all[i].Name]
	}
	for _, s := range mishaps() {
		s.Saturation = saturation["seed-16"]
		all = append(all, s)
	}
	return all
}

// Workloads lists the scenarios in which nothing happens and whose saturation is known: those
// that rules are compared on.
func Workloads() (all []Scenario) {
	for _, s := range Scenarios() {
		if s.Saturation > 0 && !s.mishap() {
			all = append(all, s)
		}
	}
	return all
}

// workloads differ in what the requests are like.
func workloads() []Scenario {
	return []Scenario{
		chat("seed-16", "16 nodes, 400 tenants (Zipf 0.6), prompts of 3,500 tokens, 3 to 12 turns", 25),
		chat("tight-16", "seed-16 with less than half of the cache", 25).with(func(s *Scenario) {
			s.Params = h200Pair(func(p *engine.Params) { p.CapacityBlocks = 12_288 })
		}),
		chat("zipf-32", "32 tenants with long system prompts, Zipf 1.1: few prefixes, very unequal", 25, func(c *Chat) {
			c.Tenants, c.Zipf, c.System.Mean = 32, 1.1, 3500
		}),
		chat("one-tenant", "everybody shares one system prompt of 3,500 tokens", 25, func(c *Chat) {
			// Drawn, as other tenants' are, it made another workload of each seed: 94 to 96 % hits.
			c.Tenants, c.System = 1, Lengths{Mean: 3500, Min: 1, Max: 8000}
		}),
		chat("agents", "agents with tool loops: up to 40 turns, a second apart, long tool results", 25, func(c *Chat) {
			c.Tenants, c.Zipf, c.MinTurns, c.MaxTurns = 12, 0.8, 8, 40
			c.System, c.User = Lengths{Mean: 3000, CV: 0.3, Min: 500, Max: 8000}, Lengths{Mean: 500, CV: 1.2, Min: 16, Max: 6000}
			c.Answer, c.Think = Lengths{Mean: 120, CV: 0.8, Min: 8, Max: 1500}, time.Second
		}),
		chat("documents", "half of the sessions paste a document of 20,000 tokens and ask about it", 8, func(c *Chat) {
			c.Share, c.Document, c.MinTurns, c.MaxTurns = 0.5, Lengths{Mean: 20_000, CV: 0.6, Min: 2000, Max: 90_000}, 2, 6
		}),
		chat("bursts", "seed-16 with three times the rate in 5 of every 30 seconds", 20, func(c *Chat) {
			c.Burst = Burst{Period: 30 * time.Second, Length: 5 * time.Second, Factor: 3}
		}),
		chat("pinned", "long sessions of 20 to 40 turns: most of a prompt is its own conversation", 20, func(c *Chat) {
			c.MinTurns, c.MaxTurns, c.System.Mean, c.Think = 20, 40, 800, 5*time.Second
		}),
		fanOut(),
		chat("pressure", "answers of 1,200 tokens on caches of 96,000: running requests are preempted from 15/s on", 15, func(c *Chat) {
			c.System.Mean, c.MinTurns, c.MaxTurns = 800, 2, 5
			c.Answer = Lengths{Mean: 1200, CV: 0.7, Min: 50, Max: 6000}
		}).with(func(s *Scenario) {
			s.Params = h200Pair(func(p *engine.Params) { p.CapacityBlocks = 6000 })
		}),
		{
			Name: "mooncake-conversation", About: "a recorded hour of a chat service (needs --trace)", Recorded: true,
			Workers: 16, Params: h200Pair(), Rate: 8, Settle: time.Minute,
		},
		{
			Name: "mooncake-synthetic", About: "Mooncake's synthetic trace (needs --trace)", Recorded: true,
			Workers: 16, Params: h200Pair(), Rate: 5, Settle: time.Minute,
		},
		hotPrefix("hot-prefix", "seed-16, and for two minutes 60 requests/s more that share 8,000 tokens", 60, 250, false),
		hotPrefix("hot-prefix-30", "half as many of them", 30, 250, false),
		hotPrefix("hot-prefix-15", "a quarter of them", 15, 250, false),
		hotPrefix("hot-prefix-brief", "60/s with answers of 25 tokens: the prompts alone", 60, 25, false),
		hotPrefix("hot-prefix-copied", "hot-prefix where every worker was given a copy before: what its load alone does", 60, 250, true),
		hotPrefix("hot-prefix-copied-30", "half as many", 30, 250, true),
		hotPrefix("hot-prefix-copied-15", "a quarter", 15, 250, true),
		hotPrefix("hot-prefix-copied-brief", "60/s with answers of 25 tokens", 60, 25, true),
		chat("fleet-2000", "2,000 nodes, 40,000 tenants, a million requests", 3000, func(c *Chat) { c.Tenants = 40_000 }).with(func(s *Scenario) {
			s.Workers, s.Requests = 2000, 1_000_000
		}),
	}
}

// mishaps are seed-16 with something that goes wrong.
func mishaps() []Scenario {
	failing := []int{2, 7, 11}
	return []Scenario{
		chat("slow-node", "seed-16 with one node five times slower", 22).with(func(s *Scenario) { s.Speed = []float64{0.2} }),
		chat("deaths", "seed-16: 3 of 16 die at 300 s and return, empty, at 500 s", 18).with(func(s *Scenario) {
			s.Faults = []Fault{{At: 300 * time.Second, Workers: failing, Kind: Die}, {At: 500 * time.Second, Workers: failing, Kind: Return}}
		}),
		chat("evictions", "seed-16: two nodes lose their whole cache at 400 s", 22).with(func(s *Scenario) {
			s.Faults = []Fault{{At: 400 * time.Second, Workers: []int{3, 9}, Kind: Evict}}
		}),
		chat("evictions-announced", "the same, announced ten seconds ahead", 22).with(func(s *Scenario) {
			s.Faults = []Fault{{At: 390 * time.Second, Workers: []int{3, 9}, Kind: Announce}, {At: 400 * time.Second, Workers: []int{3, 9}, Kind: Evict}}
		}),
		chat("doubling", "seed-16 on 16 nodes, and on 32 from 400 s on", 40).with(func(s *Scenario) {
			late := make([]int, 16)
			for i := range late {
				late[i] = 16 + i
			}
			s.Workers = 32
			s.Faults = []Fault{{Workers: late, Kind: Die}, {At: 400 * time.Second, Workers: late, Kind: Return}}
		}),
		chat("lost-events", "seed-16 where three of ten of the engines' events never arrive", 25).with(func(s *Scenario) {
			s.Delays = func(d *Delays) { d.EventLoss = 0.3 }
		}),
		chat("lost-events-10", "the same where one of ten is lost", 25).with(func(s *Scenario) {
			s.Delays = func(d *Delays) { d.EventLoss = 0.1 }
		}),
		chat("old-table-2", "seed-16 with engines' events two seconds late", 25).with(func(s *Scenario) {
			s.Delays = func(d *Delays) { d.Event = 2 * time.Second }
		}),
		chat("old-table", "seed-16 with engines' events ten seconds late", 25).with(func(s *Scenario) {
			s.Delays = func(d *Delays) { d.Event = 10 * time.Second }
		}),
	}
}

// fanOut is seed-16 with a third of its requests from agents that hand a task to others: eight to
// sixteen of them begin within a fifth of a second with the same new text.
func fanOut() Scenario {
	s := chat("fan-out", "seed-16, a third of it agents that begin 8 to 16 at once with the same new 6,000 tokens", 25)
	chats := s.Source
	agents := seed16()
	agents.Tenants, agents.MinTurns, agents.MaxTurns = 12, 1, 4
	agents.Answer, agents.Think = Lengths{Mean: 120, CV: 0.8, Min: 8, Max: 1500}, time.Second
	agents.Fan = Fan{MinWidth: 8, MaxWidth: 16, Within: 200 * time.Millisecond, Brief: Lengths{Mean: 6000, CV: 0.3, Min: 1000, Max: 20_000}}
	s.Source = func(seed uint64, rate float64, n int) Source {
		named := func(name string) func(time.Duration) string { return func(time.Duration) string { return name } }
		return newMix(
			&part{Source: chats(seed, rate*2/3, n*2/3), group: named("chats")},
			&part{Source: agents.Source(seed+1<<32, rate/3, n-n*2/3), group: named("siblings")},
		)
	}
	return s
}

// hotPrefix is seed-16 that one prefix falls upon: 8,000 tokens and 300 new ones,
// rate times a second for two minutes. If copied, every worker was given a copy
// before, one after the other.
func hotPrefix(name, about string, rate, answer float64, copied bool) Scenario {
	s := chat(name, about, 75)
	background := s.Source
	from := s.Settle + time.Minute
	const lasts, start = 2 * time.Minute, 3 * time.Second
	s.Source = func(seed uint64, r float64, n int) Source {
		hot := seed16()
		hot.Tenants, hot.MinTurns, hot.MaxTurns = 1, 1, 1
		hot.System, hot.First = Lengths{Mean: 8000, Min: 8000, Max: 8000}, Lengths{Mean: 300, Min: 300, Max: 300}
		hot.Answer.Mean = answer
		hotSeed := seed + 1<<32
		parts := []*part{
			{Source: background(seed, r, n), group: func(at time.Duration) string {
				if at >= from && at < from+lasts {
					return "background"
				}
				return "background before and after"
			}},
			{Source: hot.Source(hotSeed, rate, 1<<30), from: from, until: from + lasts, group: func(at time.Duration) string {
				if at < from+start {
					return "hot, first 3 s"
				}
				return "hot"
			}},
		}
		if copied {
			const apart = 2 * time.Second
			parts = append(parts, &part{
				Source: &everywhere{Source: hot.Source(hotSeed, 1, s.Workers), workers: s.Workers, apart: apart},
				from:   from - time.Duration(s.Workers+1)*apart, group: func(time.Duration) string { return "copies" },
			})
		}
		return newMix(parts...)
	}
	return s
}

// everywhere sends a request of a source to every worker, one after the other.
type everywhere struct {
	Source
	workers, sent int
	apart         time.Duration
}

// Open returns the one for the next worker.
func (e *everywhere) Open() (time.Duration, *Request, bool) {
	_, r, ok := e.Source.Open()
	if !ok || e.sent == e.workers {
		return 0, nil, false
	}
	e.sent++
	r.pinned = e.sent
	return time.Duration(e.sent) * e.apart, r, true
}
