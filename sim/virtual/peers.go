package virtual

import (
	"math"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/sim/engine"
)

// Peers are rules of other routers, written from their public descriptions:
// what they decide by, with their defaults, and their own books per gateway.
func Peers() []PolicyKind {
	return []PolicyKind{
		{"smg", "SGLang's and SMG's cache_aware: imbalance switch (64 and 1.5), else an approximate tree of what each gateway sent where", policy.RoundRobin, newSMG},
		{"llm-d", "llm-d's scorers: queue 2, KV use 2, prefix 3, with a prefix LRU of 31,250 blocks of 64 tokens a worker", policy.RoundRobin, newLLMD},
		{"lmetric", "LMetric: the least of new prefill tokens x batch size", policy.RoundRobin, newLMetric},
	}
}

// sent is what one gateway remembers of what it sent: blocks of so many tokens
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
	sent   []*sent // by gateway
	tokens []int
	score  func(x *peer, g *Gateway, r *Request, now time.Duration) int
}

func newPeer(f *Fleet, stride, limit int, score func(*peer, *Gateway, *Request, time.Duration) int) *peer {
	x := &peer{fleet: f, tokens: make([]int, len(f.workers)), score: score}
	for range f.gateways {
		x.sent = append(x.sent, newSent(len(f.workers), stride, limit))
	}
	return x
}

// Choose asks the router's rule.
func (x *peer) Choose(g *Gateway, r *Request, now time.Duration) (worker, cached int) {
	for i := range g.view.Workers {
		g.refresh(i, now)
	}
	x.sent[g.Index].match(r, x.tokens)
	best := x.score(x, g, r, now)
	if best < 0 {
		return -1, 0
	}
	return best, x.tokens[best]
}

// Dispatched remembers what was sent.
func (x *peer) Dispatched(g *Gateway, r *Request, worker int) { x.sent[g.Index].note(r, worker) }

// up tells whether a router would try a worker: health checks take a moment.
func (x *peer) up(g *Gateway, i int, now time.Duration) bool {
	return g.view.Workers[i].State <= route.Healthy && g.avoid[i] <= now
}

// smgTree is the size of SMG's tree for one worker, --max-tree-size 67,108,864
// characters at four a token.
const smgTree = 67_108_864 / 4 / engine.BlockTokens

// newSMG: each router counts its own requests only.
func newSMG(f *Fleet) Rule {
	return newPeer(f, 1, smgTree, func(x *peer, g *Gateway, r *Request, now time.Duration) int {
		least, most, leastAt := math.MaxInt, 0, -1
		for i := range g.own {
			if !x.up(g, i, now) {
				continue
			}
			n := g.own[i].inFlight
			most = max(most, n)
			if n < least {
				least, leastAt = n, i
			}
		}
		if most-least > 64 && float64(most) > 1.5*float64(least) {
			return leastAt
		}
		best, smallest := -1, -1
		for i := range g.own {
			if !x.up(g, i, now) {
				continue
			}
			if best < 0 || x.tokens[i] > x.tokens[best] {
				best = i
			}
			if smallest < 0 || x.sent[g.Index].held[i] < x.sent[g.Index].held[smallest] {
				smallest = i
			}
		}
		if best >= 0 && 2*x.tokens[best] > r.Prompt { // cache_threshold 0.5
			return best
		}
		return smallest
	})
}

// newLLMD: scores between 0 and 1, weighted 2, 2 and 3; the best worker wins.
func newLLMD(f *Fleet) Rule {
	return newPeer(f, 4, 31_250, func(x *peer, g *Gateway, r *Request, now time.Duration) int {
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

// newLMetric: the product of what is to be prefilled there, this prompt
// included, and the batch that it joins.
func newLMetric(f *Fleet) Rule {
	return newPeer(f, 1, f.cfg.Params.CapacityBlocks, func(x *peer, g *Gateway, r *Request, now time.Duration) int {
		best, least := -1, math.Inf(1)
		first := g.rng.IntN(len(g.view.Workers))
		for n := range g.view.Workers {
			i := (first + n) % len(g.view.Workers)
			if !x.up(g, i, now) {
				continue
			}
			w := &g.view.Workers[i]
			c := float64(w.UncachedTokens+r.Prompt-x.tokens[i]) * float64(1+max(w.InFlight, w.Running+w.Waiting))
			if c < least {
				best, least = i, c
			}
		}
		return best
	})
}
