package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// lookupBudget is the module's: pages that one lookup may get.
const lookupBudget = 24

// lookupFigures say what lookups of real prompts cost and find.
type lookupFigures struct {
	Workload    string  `json:"workload"`
	Lookups     int     `json:"lookups"`
	Checkpoints float64 `json:"checkpoints_mean"`
	// Gets are pages asked for, without a VM's cache of pages, which saves more.
	GetsP50      int     `json:"gets_p50"`
	GetsP90      int     `json:"gets_p90"`
	GetsMean     float64 `json:"gets_mean"`
	GetsFollowUp int     `json:"gets_p50_follow_up"`
	GetsFirst    int     `json:"gets_p50_first_turn"`
	GetsAll      float64 `json:"gets_mean_without_budget"`
	// Deepest is the share of lookups that find the deepest checkpoint that is
	// there; Same of those that find the longest match of every worker.
	Deepest float64 `json:"deepest_found"`
	Same    float64 `json:"all_matches_found"`
}

// talks are the conversations of a lookup workload, in tokens.
type talks struct {
	name                 string
	tenants              int
	zipf                 float64
	system, user, answer int // tokens, mean
	minTurns, maxTurns   int
	workers              int
	spread               float64 // share of requests that go to a worker at random
}

var lookupTalks = []talks{
	{"chat, 400 tenants, prompts of 3,500 tokens", 400, 0.6, 2200, 120, 250, 3, 12, 16, 0.1},
	{"chat, 32 tenants with long system prompts", 32, 1.1, 3500, 120, 250, 3, 12, 16, 0.1},
	{"chat, one tenant", 1, 0, 2200, 120, 250, 3, 12, 16, 0.1},
	{"agents, up to 40 turns", 12, 0.8, 3000, 500, 120, 8, 40, 16, 0.1},
}

// lookupPool is the table as gateways have it, and the same as maps.
type lookupPool struct {
	index  *index.Index
	pages  map[uint32]table.Page
	sets   map[uint32][]byte
	bits   uint8
	truth  map[uint64][]uint16
	now    time.Time
	lookup table.Lookup
}

func newLookupPool(workers int) *lookupPool {
	p := &lookupPool{index: index.New(index.Config{}), pages: map[uint32]table.Page{}, sets: map[uint32][]byte{}, bits: 14, truth: map[uint64][]uint16{}, now: time.Unix(1_800_000_000, 0)}
	for ref := 1; ref <= workers; ref++ {
		p.index.AddWorker(index.WorkerSpec{Ref: uint16(ref), Pool: "p", CapacityTokens: 500_000, BlockTokens: 16})
	}
	p.lookup = table.Lookup{Bits: p.bits, Set: func(id uint32) []byte { return p.sets[id] }}
	return p
}

// publish carries the changes of the index into the pages.
func (p *lookupPool) publish() {
	p.index.Drain(func(c index.Change) { p.put(c.Fingerprint, c.Holders) })
}

// longest is what a lookup should find.
func (p *lookupPool) longest(path []fingerprint.Checkpoint) (best map[uint16]uint32, deepest uint32) {
	best = map[uint16]uint32{}
	for _, c := range path {
		for _, ref := range p.truth[c.Fingerprint] {
			best[ref], deepest = c.End, c.End
		}
	}
	return best, deepest
}

// session is one conversation under way.
type session struct {
	tokens []uint32
	ends   []int // of turns, in tokens
	turns  int
}

func (s *session) path() []fingerprint.Checkpoint {
	var c fingerprint.Chain
	c.Reset(fingerprint.Salt("p", "m", 0, "", fingerprint.Exact))
	at := 0
	for _, end := range s.ends {
		c.WriteTokens(s.tokens[at:end])
		c.TurnEnd()
		at = end
	}
	c.WriteTokens(s.tokens[at:])
	return c.Finish()
}

func (s *session) say(rng *rand.Rand, mean int) {
	for range mean/2 + rng.IntN(mean) {
		s.tokens = append(s.tokens, rng.Uint32N(150_000))
	}
	s.ends = append(s.ends, len(s.tokens))
}

// player plays conversations against a table that follows.
type player struct {
	talks
	rng     *rand.Rand
	pool    *lookupPool
	systems []session
	weights []float64 // of the systems, added up
	most    int       // conversations at once
	open    []*session
	asked   uint64
}

func newPlayer(t talks, most int) *player {
	p := &player{talks: t, rng: rand.New(rand.NewPCG(42, 7)), pool: newLookupPool(t.workers), systems: make([]session, t.tenants), weights: make([]float64, t.tenants), most: most}
	total := 0.0
	for i := range p.systems {
		p.systems[i].say(p.rng, t.system)
		total += math.Pow(float64(i+1), -t.zipf)
		p.weights[i] = total
	}
	return p
}

// next is the conversation that goes on, with its next question asked; fresh: it is its first.
func (p *player) next() (s *session, fresh bool) {
	if len(p.open) < p.most {
		k, _ := slices.BinarySearch(p.weights, p.rng.Float64()*p.weights[len(p.weights)-1])
		s = &session{tokens: slices.Clone(p.systems[k].tokens), ends: slices.Clone(p.systems[k].ends), turns: p.minTurns + p.rng.IntN(p.maxTurns-p.minTurns+1)}
		p.open = append(p.open, s)
	} else {
		s = p.open[p.rng.IntN(len(p.open))]
	}
	fresh = len(s.ends) == 1
	s.say(p.rng, p.user)
	return s, fresh
}

// answer lets a worker answer, mostly the one of the longest match, and tells the table.
func (p *player) answer(s *session, path []fingerprint.Checkpoint, matches []table.Match) {
	ref := uint16(1 + p.rng.IntN(p.workers))
	if len(matches) > 0 && p.rng.Float64() >= p.spread {
		ref = matches[0].Ref
	}
	request := index.RequestID{Gateway: 1, ID: p.asked}
	p.asked++
	p.pool.index.Dispatch(index.Dispatch{Request: request, Chosen: ref, PromptUnits: uint32(len(s.tokens) / 16), Path: path}, p.pool.now)
	p.pool.index.Done(index.Done{Request: request, Served: ref, Outcome: index.Complete, CachedTokens: -1, PromptTokens: -1, OutputTokens: -1}, p.pool.now)
	p.pool.publish()
	s.say(p.rng, p.talks.answer)
	if s.turns--; s.turns == 0 {
		p.open = slices.DeleteFunc(p.open, func(o *session) bool { return o == s })
	}
}

// find looks a prompt up as the module does.
func (p *lookupPool) find(path []fingerprint.Checkpoint, budget int) []table.Match {
	return p.lookup.Find(path, func(page uint32) table.Page { return p.pages[page] }, budget, nil)
}

// measureLookups plays conversations and counts what looking their prompts up takes.
func measureLookups(t talks, requests int) lookupFigures {
	play := newPlayer(t, 60)
	p := play.pool
	f := lookupFigures{Workload: t.name}
	var gets, followUp, first []int
	checkpoints, all := 0, 0
	for n := range requests {
		p.now = p.now.Add(40 * time.Millisecond)
		s, fresh := play.next()
		path := slices.Clone(s.path())
		best, deepest := p.longest(path)
		matches := p.find(path, lookupBudget)
		if n >= requests/5 {
			f.Lookups++
			checkpoints += len(path)
			gets = append(gets, p.lookup.Gets())
			if fresh {
				first = append(first, p.lookup.Gets())
			} else {
				followUp = append(followUp, p.lookup.Gets())
			}
			if p.lookup.Deepest() == deepest {
				f.Deepest++
			}
			if sameMatches(matches, best) {
				f.Same++
			}
			p.find(path, fingerprint.MaxCheckpoints)
			all += p.lookup.Gets()
		}
		play.answer(s, path, matches)
	}
	f.GetsP50, f.GetsP90, f.GetsMean = quantile(gets, 50), quantile(gets, 90), mean(gets)
	f.GetsFollowUp, f.GetsFirst = quantile(followUp, 50), quantile(first, 50)
	f.Checkpoints, f.GetsAll = float64(checkpoints)/float64(f.Lookups), float64(all)/float64(f.Lookups)
	f.Deepest, f.Same = f.Deepest/float64(f.Lookups), f.Same/float64(f.Lookups)
	return f
}

func sameMatches(got []table.Match, want map[uint16]uint32) bool {
	for _, m := range got {
		if want[m.Ref] != m.Units {
			return false
		}
	}
	return len(got) == len(want)
}

func quantile(values []int, percent int) int {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)*percent/100]
}

func mean(values []int) float64 {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(max(len(values), 1))
}
