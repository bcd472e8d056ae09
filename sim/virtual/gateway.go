package virtual

import (
	"math"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/predicted"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/sim/engine"
)

// Rule chooses the worker of a request. Dispatched lets a rule that keeps its
// own state follow; ours doesn't need it.
type Rule interface {
	// Choose returns a worker, -1 for none, and how many tokens of the prompt it
	// believes to be cached there.
	Choose(g *Gateway, r *Request, now time.Duration) (worker, cached int)
	Dispatched(g *Gateway, r *Request, worker int)
}

// A RuleMaker makes the rule of one run.
type RuleMaker func(f *Fleet) Rule

// Gateway is one proxy: what it was told a moment ago, and its own books.
type Gateway struct {
	Index int
	fleet *Fleet
	rng   *route.Rand

	view       route.View
	own        []book // by worker
	fader      fader
	avoid      []time.Duration // by worker: until when it is left alone here
	order      uint64          // requests so far
	dispatched time.Duration   // when it last did, 0 for never

	request  route.Request
	decision route.Decision
	known    []table.Match    // the request's matches without what was sent lately
	sent     predicted.Memory // what was dispatched here lately
	at       []int
	deepest  []int32
}

// book is what one gateway has at one worker.
type book struct {
	inFlight int
	uncached int
	waiting  int     // requests without a first token
	recent   float64 // uncached tokens sent, fading
	at       time.Duration
}

// recentFor is the time in which recent work fades by a factor e.
const recentFor = 10 * time.Second

func (b *book) fade(now time.Duration, by *fader) {
	if now > b.at {
		b.recent *= by.over(now - b.at)
		b.at = now
	}
}

// fader is by how much recent work fades over a time. Most books of a gateway were faded
// together, so most times are the last one.
type fader struct {
	age    time.Duration
	factor float64
}

func (f *fader) over(age time.Duration) float64 {
	if age != f.age || f.factor == 0 {
		f.age, f.factor = age, math.Exp(-float64(age)/float64(recentFor))
	}
	return f.factor
}

// report is what a worker's report said.
type report struct {
	taken time.Duration
	stats engine.Stats
}

func newGateway(f *Fleet, index int, rule policy.Policy) *Gateway {
	g := &Gateway{
		Index: index, fleet: f, rng: route.NewRand(f.seed<<8 + uint64(index)),
		own: make([]book, len(f.workers)), avoid: make([]time.Duration, len(f.workers)), deepest: make([]int32, len(f.workers)),
	}
	g.view.Pool = &policy.Pool{Name: "sim", Policy: rule}
	g.view.Fresh = true
	members := make([]ring.Member, len(f.workers))
	for i, w := range f.workers {
		p := w.engine.Params()
		g.view.Workers = append(g.view.Workers, route.Worker{
			Ref: refOf(i), State: route.Healthy, Address: w.address, AddressKey: ring.Key(w.address), Trust: 1,
			MaxRunning: p.MaxRunning, QueueLimit: max(p.MaxQueued, 0), BlockTokens: engine.BlockTokens, PrefillRate: w.rate,
		})
		members[i] = ring.Member{Ref: refOf(i), Address: w.address}
	}
	g.view.Ring = ring.Build(members, rule.VirtualNodes)
	return g
}

// reported takes a worker's report.
func (g *Gateway) reported(worker int, r *report) {
	w := &g.view.Workers[worker]
	w.Running, w.Waiting = r.stats.Running, r.stats.Waiting
	w.Watermark = r.stats.KVUsage()
	w.DecodeSeconds = r.stats.DecodeStep.Seconds()
	w.FreeTokens, w.TailAge = r.stats.FreeTokens(), r.stats.TailIdle
	w.Load = route.LoadOf(w, w.Watermark, 0)
}

// refresh brings worker i to now: the others' books are what they told last, the own ones
// exact.
func (g *Gateway) refresh(i int, now time.Duration) {
	w, worker, own := &g.view.Workers[i], g.fleet.workers[i], &g.own[i]
	own.fade(now, &g.fader)
	others := g.fleet.books.others(g.Index, i)
	w.InFlight = own.inFlight + others.inFlight
	w.UncachedTokens = own.uncached + others.uncached
	w.RecentTokens = own.recent
	if others.recent > 0 {
		w.RecentTokens += others.recent * g.fleet.fader.over(now-g.fleet.books.passed)
	}
	w.AvoidFor = max(0, g.avoid[i]-now)
	if worker.empty > 0 {
		w.CacheAge = max(now-worker.empty, 1)
	}
	w.EvictShare, w.EvictFor = 1, max(0, worker.evictUntil-now)
	w.Age = max(0, now-worker.seen.taken)
	if worker.seen.taken == 0 {
		w.Age = route.Never
	}
}

// routeRule is the Rule of package route.
type routeRule struct{}

// Choose asks route.Choose.
func (routeRule) Choose(g *Gateway, r *Request, now time.Duration) (worker, cached int) {
	f := g.fleet
	g.at = positions(g.at[:0], r)
	for i := range g.view.Workers {
		g.refresh(i, now)
	}
	g.view.At = now
	req := g.ask(r)
	req.Checkpoints = g.checkpoints(r)
	req.Matches = f.index.find(now, r, g.at, f.generations, g.deepest, req.Matches)
	g.known = append(g.known[:0], req.Matches...)
	req.AddSent(g.sent.Find(req.Checkpoints, clock(now), req.Sent[:0]))
	route.Choose(req, &g.view, now, g.rng, &g.decision)
	return workerOf(g.decision.Best), g.decision.MatchedTokens
}

// checkpoints are those of the prompt, as the module has them.
func (g *Gateway) checkpoints(r *Request) []fingerprint.Checkpoint {
	out, end := g.request.Checkpoints[:0], 0
	for _, at := range g.at {
		for end < len(r.ends) && r.ends[end] < at {
			end++
		}
		out = append(out, fingerprint.Checkpoint{Fingerprint: uint64(r.blocks[at-1]), End: uint32(at), TurnEnd: end < len(r.ends) && r.ends[end] == at})
	}
	return out
}

// ask is what route.Choose is asked, its matches still to come.
func (g *Gateway) ask(r *Request) *route.Request {
	req := &g.request
	*req = route.Request{PromptTokens: r.Prompt, Matches: req.Matches[:0], Sent: req.Sent[:0], Checkpoints: req.Checkpoints[:0], SessionKey: r.Session, RingKey: r.ring, Sequence: g.order}
	return req
}

// ringUnits is the position of the ring's key: 256 tokens.
const ringUnits = 16

// Dispatched remembers where the prompt will be, before the table can tell.
func (routeRule) Dispatched(g *Gateway, r *Request, worker int) { g.remember(&g.sent, r, worker) }

// Failed takes that back.
func (routeRule) Failed(g *Gateway, r *Request) { g.sent.Forget(r.ID) }

// remember notes that a request was sent to a worker, once it is in the books.
func (g *Gateway) remember(sent *predicted.Memory, r *Request, worker int) {
	known := uint32(0)
	for _, m := range g.known {
		if m.Ref == refOf(worker) {
			known = m.Units
		}
	}
	v := &g.view.Workers[worker]
	uncached := float64(v.UncachedTokens + r.uncached)
	sent.Add(&predicted.Dispatch{
		ID: r.ID, Ref: refOf(worker), Sent: clock(g.fleet.now), Ready: time.Duration(uncached / v.PrefillRate * float64(time.Second)),
	}, g.request.Checkpoints, known)
}

// clock is a time that doesn't begin at 0.
func clock(now time.Duration) int64 { return int64(now) + 1 }
