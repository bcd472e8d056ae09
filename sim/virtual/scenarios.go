package virtual

import (
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

// Scenarios lists the built-in ones.
func Scenarios() []Scenario {
	return append(workloads(), mishaps()...)
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
		chat("one-tenant", "everybody shares one system prompt", 25, func(c *Chat) { c.Tenants = 1 }),
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
		chat("old-table", "seed-16 with engines' events ten seconds late", 25).with(func(s *Scenario) {
			s.Delays = func(d *Delays) { d.Event = 10 * time.Second }
		}),
	}
}
