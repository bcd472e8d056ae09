package virtual

import (
	"time"

	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
)

// reference is the rule of the policy (cost, as a rule) with exact state: one
// gateway that sees every engine as it is now and every block that it holds.
// It is no bound: more knowledge isn't always used better.
type reference struct{ fleet *Fleet }

// Reference makes the rule with exact state.
func Reference(f *Fleet) Rule { return &reference{f} }

// Choose asks route.Choose about what is true.
func (x *reference) Choose(g *Gateway, r *Request, now time.Duration) (worker, cached int) {
	f := x.fleet
	req := g.ask(r)
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
	g.view.At = now
	route.Choose(req, &g.view, now, g.rng, &g.decision)
	return workerOf(g.decision.Best), g.decision.MatchedTokens
}

// Dispatched has nothing to do.
func (*reference) Dispatched(*Gateway, *Request, int) {}
