package virtual

import (
	"time"

	"github.com/warmpath/warmpath/shared/predicted"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
)

// reference is the rule of the policy (cost, as a rule) with exact state: one
// gateway that sees every engine as it is now, every block that it holds, and
// what is on its way there.
// It is no bound: more knowledge isn't always used better.
type reference struct {
	fleet *Fleet
	sent  predicted.Memory // of all gateways
}

// Reference makes the rule with exact state.
func Reference(f *Fleet) Rule { return &reference{fleet: f} }

// Choose asks route.Choose about what is true.
func (x *reference) Choose(g *Gateway, r *Request, now time.Duration) (worker, cached int) {
	f := x.fleet
	g.at = positions(g.at[:0], r)
	req := g.ask(r)
	req.Checkpoints, req.Exact = g.checkpoints(r), true
	for i, w := range f.workers {
		v := &g.view.Workers[i]
		if !w.up {
			v.State = route.Down
			continue
		}
		s := w.engine.Stats(now)
		f.wakeAt(i)
		v.State, v.Running, v.Waiting, v.Watermark = route.Healthy, s.Running, s.Waiting, s.KVUsage()
		v.DecodeSeconds, v.FreeTokens, v.TailAge = s.DecodeStep.Seconds(), s.FreeTokens(), s.TailIdle
		v.Load = route.LoadOf(v, v.Watermark, 0)
		v.InFlight, v.RecentTokens = 0, 0
		for _, other := range f.gateways {
			b := &other.own[i]
			b.fade(now, &other.fader)
			v.InFlight += b.inFlight
			v.RecentTokens += b.recent
		}
		// What is to be computed there: exact for those that run, booked for those that wait.
		v.UncachedTokens = 0
		for _, other := range f.gateways {
			v.UncachedTokens += other.own[i].uncached
		}
		v.Age, v.AvoidFor = 0, 0
		if held := w.engine.Holds(r.promptBlocks()); held > 0 {
			req.Matches = append(req.Matches, table.Match{Ref: refOf(i), Units: uint32(held)})
		}
	}
	g.known = append(g.known[:0], req.Matches...)
	req.AddSent(x.sent.Find(req.Checkpoints, clock(now), req.Sent[:0]))
	g.view.At = now
	route.Choose(req, &g.view, now, g.rng, &g.decision)
	return workerOf(g.decision.Best), g.decision.MatchedTokens
}

// Dispatched remembers where the prompt is on its way to.
func (x *reference) Dispatched(g *Gateway, r *Request, worker int) { g.remember(&x.sent, r, worker) }

// Failed takes that back.
func (x *reference) Failed(_ *Gateway, r *Request) { x.sent.Forget(r.ID) }
