package virtual

import (
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/sim/engine"
)

// Peers are rules of other routers, written from their public descriptions: what they decide by,
// with their defaults, and what they know where they are deployed as their makers say.
func Peers() []PolicyKind {
	return []PolicyKind{
		{"smg", "SMG's cache_aware (SGLang's router): least busy of those that each gateway sent 30 % of the prompt to, unless far above the mean (64 and 1.5)", policy.RoundRobin, newSMG},
		{"llm-d", "llm-d's scorers: queue 2, KV use 2, prefix 3; one picker for all gateways, which takes a worker's cache for an LRU of its size", policy.RoundRobin, newLLMD},
		{"lmetric", "LMetric: the least of new prefill tokens x batch size; one scheduler for all gateways", policy.RoundRobin, newLMetric},
	}
}

// sent is what one router remembers of what it sent: blocks of so many tokens
// by worker, the least recently used forgotten.
type sent struct {
	stride int // blocks of 16 tokens to one of the rule's, a divisor of chunkBlocks
	limit  int // per worker
	chunks chunks
	used   []uint32      // when each worker was last sent a block, 0 never: a row of workers for each of the rule's blocks
	holds  []int32       // by chunk: what isn't 0 in its rows
	order  [][]sentEntry // by worker, oldest first
	held   []int
	clock  uint32
}

type sentEntry struct {
	hash engine.BlockHash
	row  int32
	at   uint32
}

func newSent(workers, stride, limit int) *sent {
	return &sent{stride: stride, limit: limit, chunks: newChunks(), order: make([][]sentEntry, workers), held: make([]int, workers)}
}

// rowOf is the row of a block in a chunk.
func (s *sent) rowOf(chunk int32, h engine.BlockHash) int32 {
	return (chunk*chunkBlocks + int32(h%chunkBlocks)) / int32(s.stride)
}

// row is when each worker was last sent a block.
func (s *sent) row(at int32) []uint32 {
	n := len(s.held)
	return s.used[int(at)*n:][:n]
}

// match fills in how many tokens of the prompt each worker was sent before.
func (s *sent) match(r *Request, tokens []int) {
	clear(tokens)
	blocks := r.promptBlocks()
	for i := s.stride; i <= len(blocks); i += s.stride {
		h := blocks[i-1]
		chunk := s.chunks.of(h)
		if chunk == unknown {
			return
		}
		any := false
		for w, at := range s.row(s.rowOf(chunk, h)) {
			if at != 0 && tokens[w] == (i-s.stride)*engine.BlockTokens {
				tokens[w] = i * engine.BlockTokens
				any = true
			}
		}
		if !any {
			return
		}
	}
}

// note remembers a prompt.
func (s *sent) note(r *Request, worker int) {
	blocks := r.promptBlocks()
	for i := s.stride; i <= len(blocks); i += s.stride {
		h := blocks[i-1]
		chunk := s.chunks.open(h)
		if int(chunk) == len(s.holds) {
			s.holds = append(s.holds, 0)
			s.used = append(s.used, make([]uint32, chunkBlocks/s.stride*len(s.held))...)
		}
		row := s.rowOf(chunk, h)
		at := &s.row(row)[worker]
		if *at == 0 {
			s.held[worker]++
			s.holds[chunk]++
		}
		s.clock++
		*at = s.clock
		s.order[worker] = append(s.order[worker], sentEntry{h, row, s.clock})
	}
	order := s.order[worker]
	for s.held[worker] > s.limit {
		s.forget(order[0], worker)
		order = order[1:]
	}
	if len(order) > 2*s.held[worker]+1024 { // mostly entries that were used again
		order = slices.DeleteFunc(slices.Clone(order), func(e sentEntry) bool { return s.row(e.row)[worker] != e.at })
	}
	s.order[worker] = order
}

// forget drops a worker's block, unless it was used again since. The clock's
// values are never given twice, so a row that is another block's by now doesn't
// match.
func (s *sent) forget(e sentEntry, worker int) {
	at := &s.row(e.row)[worker]
	if *at != e.at {
		return
	}
	*at = 0
	s.held[worker]--
	chunk := s.chunks.of(e.hash)
	if s.holds[chunk]--; s.holds[chunk] == 0 {
		s.chunks.drop(e.hash)
	}
}

// peer is what the rules of other routers share.
type peer struct {
	fleet  *Fleet
	sent   []*sent // by router: each gateway is one, or all ask one
	tokens []int
	score  func(x *peer, g *Gateway, r *Request, now time.Duration) int
}

func newPeer(f *Fleet, routers, stride, limit int, score func(*peer, *Gateway, *Request, time.Duration) int) *peer {
	x := &peer{fleet: f, tokens: make([]int, len(f.workers)), score: score}
	for range routers {
		x.sent = append(x.sent, newSent(len(f.workers), stride, limit))
	}
	return x
}

// memory is that of the router behind a gateway.
func (x *peer) memory(g *Gateway) *sent { return x.sent[min(g.Index, len(x.sent)-1)] }

// Choose asks the router's rule.
func (x *peer) Choose(g *Gateway, r *Request, now time.Duration) (worker, cached int) {
	for i := range g.view.Workers {
		g.refresh(i, now)
	}
	x.memory(g).match(r, x.tokens)
	best := x.score(x, g, r, now)
	if best < 0 {
		return -1, 0
	}
	return best, x.tokens[best]
}

// Dispatched remembers what was sent.
func (x *peer) Dispatched(g *Gateway, r *Request, worker int) { x.memory(g).note(r, worker) }

// up tells whether a router would try a worker: health checks take a moment.
func (x *peer) up(g *Gateway, i int, now time.Duration) bool {
	return g.view.Workers[i].State <= route.Healthy && g.avoid[i] <= now
}

// booked is what all gateways have at a worker this moment: what one router for all of them knows.
func (x *peer) booked(i int) (total book) {
	for _, g := range x.fleet.gateways {
		total.inFlight += g.own[i].inFlight
		total.uncached += g.own[i].uncached
	}
	return total
}

// smgTree is the size of an SMG's tree, --max-tree-size 67,108,864 characters at four a token. Its
// workers share it.
const smgTree = 67_108_864 / 4 / engine.BlockTokens

// newSMG is cache_aware of SMG 1.9 over HTTP, each gateway a router with a tree and counts of its
// own (a mesh between them has to be set up). A prompt of which more than cache_threshold is known
// goes to the least busy of the workers with the longest match, unless that one is above the mean
// by balance_abs_threshold requests and by balance_rel_threshold; then, and else, to the least busy
// of all. SGLang's router before it took any one worker of a match, asked for half of the prompt,
// and left the cache to itself whenever the busiest and the idlest worker lay as far apart.
// Source: github.com/smg-project/smg, docs and help of the command.
func newSMG(f *Fleet) Rule {
	const threshold, above, times = 0.3, 64, 1.5
	limit := max(smgTree/len(f.workers), f.cfg.Params.CapacityBlocks) // a large fleet's owner raises it
	return newPeer(f, len(f.gateways), 1, limit, func(x *peer, g *Gateway, r *Request, now time.Duration) int {
		longest, sum, ups := 0, 0, 0
		for i := range g.own {
			if x.up(g, i, now) {
				longest = max(longest, x.tokens[i])
				sum += g.own[i].inFlight
				ups++
			}
		}
		first := g.rng.IntN(len(g.own)) // ties by chance
		least := func(tokens int) int {
			best := -1
			for n := range g.own {
				i := (first + n) % len(g.own)
				if x.up(g, i, now) && x.tokens[i] >= tokens && (best < 0 || g.own[i].inFlight < g.own[best].inFlight) {
					best = i
				}
			}
			return best
		}
		if float64(longest) > threshold*float64(r.Prompt) {
			best, mean := least(longest), float64(sum)/float64(ups)
			if n := float64(g.own[best].inFlight); n <= mean+above || n <= times*mean {
				return best
			}
		}
		return least(0)
	})
}

// newLLMD: scores between 0 and 1, weighted 2, 2 and 3; the best worker wins. One endpoint picker
// decides for all gateways: of several replicas one leads, unless that is turned off. Its memory of
// a worker is as large as the worker's cache, which it reads from the engine (autoTune).
// Source: llm-d.ai/docs, operations guide of the router and prefix cache plugin.
func newLLMD(f *Fleet) Rule {
	const stride = 4
	return newPeer(f, 1, stride, f.cfg.Params.CapacityBlocks/stride, func(x *peer, g *Gateway, r *Request, now time.Duration) int {
		shortest, longest := math.MaxInt, 0
		for i := range g.view.Workers {
			if x.up(g, i, now) {
				shortest, longest = min(shortest, g.view.Workers[i].Waiting), max(longest, g.view.Workers[i].Waiting)
			}
		}
		best, top := -1, math.Inf(-1)
		first := g.rng.IntN(len(g.view.Workers)) // ties by chance
		for n := range g.view.Workers {
			i := (first + n) % len(g.view.Workers)
			if !x.up(g, i, now) {
				continue
			}
			w := &g.view.Workers[i]
			queue := 1.0
			if longest > shortest {
				queue = float64(longest-w.Waiting) / float64(longest-shortest)
			}
			s := 2*queue + 2*(1-w.Watermark) + 3*float64(x.tokens[i])/float64(max(r.Prompt, 1))
			if s > top {
				best, top = i, s
			}
		}
		return best
	})
}

// newLMetric: the product of what is to be prefilled there, this prompt included, and the batch
// that it joins. One global scheduler decides for all gateways and counts what it sent.
func newLMetric(f *Fleet) Rule {
	return newPeer(f, 1, 1, f.cfg.Params.CapacityBlocks, func(x *peer, g *Gateway, r *Request, now time.Duration) int {
		best, least := -1, math.Inf(1)
		first := g.rng.IntN(len(g.view.Workers))
		for n := range g.view.Workers {
			i := (first + n) % len(g.view.Workers)
			if !x.up(g, i, now) {
				continue
			}
			w, b := &g.view.Workers[i], x.booked(i)
			c := float64(b.uncached+r.Prompt-x.tokens[i]) * float64(1+max(b.inFlight, w.Running+w.Waiting))
			if c < least {
				best, least = i, c
			}
		}
		return best
	})
}
