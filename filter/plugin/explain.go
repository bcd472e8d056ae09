package plugin

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// explainedCheckpoints is how many checkpoints an explanation lists: the rest
// is counted.
const explainedCheckpoints = 48

// keepExplanation notes how the prompt was read, for the response to tell:
//
//	mode=exact tokens=812 fresh=310 memo=2810 at=64,128,192*,256,...,812*
//
// fresh and memo are bytes of text; at is the checkpoints in tokens, a star
// where a turn ends.
func (s *stream) keepExplanation(pool *fleet.Pool, p *prompt) {
	if !s.plugin.config.Explain {
		return
	}
	w := words(append(make([]byte, 0, 256), "mode="...))
	defer func() { s.explanation = w }()
	if p.reason != body.OK {
		w.add("none reason=")
		w.add(p.reason.String())
		return
	}
	if pool == nil { // nobody has read it
		w.add("none")
		return
	}
	w.add(p.mode.String())
	w.whole(" tokens=", int64(p.tokens))
	if p.exact() {
		w.whole(" fresh=", int64(p.encoded.Fresh))
		w.whole(" memo=", int64(p.encoded.Memoised))
	}
	if p.stopped != chat.Complete {
		w.add(" stopped=")
		w.add(p.stopped.String())
	}
	if p.encoded.Exhausted {
		w.add(" capped")
	}
	separator := " at="
	for i, c := range p.checkpoints {
		if skip := len(p.checkpoints) - explainedCheckpoints; skip > 0 && i >= explainedCheckpoints/2 && i < explainedCheckpoints/2+skip {
			if i == explainedCheckpoints/2 {
				w.whole(",(", int64(skip))
				w.add(" more)")
			}
			continue
		}
		w.whole(separator, int64(c.End)*fingerprint.UnitTokens)
		if c.TurnEnd {
			w.add("*")
		}
		separator = ","
	}
}

// explainedWorkers is how many workers an explanation lists: the rest is counted.
const explainedWorkers = 16

// appendWorkers appends what a decision saw of the workers and made of it, the best and the second
// first, each as one field; by rule cost after what a second of prefill costs:
//
//	price=4.0000 each=0.0650 kv_mean=0.0300 tight=0.0000 @10.0.0.1:9000;matched=640;credited=640;load=0.0800;kv=0.0200;n=3;uncached=512;age=120ms;wait=0.0512;prefill=0.0172;price=4.0650;held_up=1.0000;miss=0.0699;decode=0.0100;evict=0.0000;spread=-0.0200;cost=0.1111
func appendWorkers(b []byte, f *fleet.Fleet, d *route.Decision, rule policy.Name) []byte {
	w := words(b)
	if rule == policy.Cost {
		w.part(" price=", d.Price.Base)
		w.part(" each=", d.Price.Each)
		w.part(" kv_mean=", d.Price.Memory)
		w.part(" tight=", d.Price.Tight)
	}
	listed := 0
	for pass := range 3 {
		for i := range d.Candidates {
			c := &d.Candidates[i]
			turn := 2
			switch c.Ref {
			case d.Best:
				turn = 0
			case d.Second:
				turn = 1
			}
			if turn != pass {
				continue
			}
			if listed++; listed <= explainedWorkers {
				w.add(" @")
				w.add(f.AddressOf(c.Ref))
				w.worker(c, rule)
			}
		}
	}
	if listed > explainedWorkers {
		w.whole(" workers_more=", int64(listed-explainedWorkers))
	}
	return w
}

func (w *words) worker(c *route.Candidate, rule policy.Name) {
	if c.Left != route.LeftNot {
		w.add(";left=")
		w.add(c.Left.String())
	}
	w.whole(";matched=", int64(c.MatchedTokens))
	w.whole(";credited=", int64(c.CreditedTokens))
	w.part(";load=", c.Load)
	w.part(";kv=", c.Watermark)
	w.whole(";n=", int64(c.InFlight))
	w.whole(";uncached=", int64(c.UncachedTokens))
	if c.Age >= 0 {
		w.whole(";age=", int64(c.Age/time.Millisecond))
		w.add("ms")
	}
	if c.SentAgo > 0 {
		w.whole(";sent=", int64(c.SentAgo/time.Millisecond))
		w.add("ms")
	}
	if c.Home {
		w.add(";home")
	}
	t := &c.Terms
	switch {
	case rule != policy.Cost && rule != policy.Weighted && rule != policy.Custom || c.Left != route.LeftNot && !t.Seen:
	case !t.Seen:
		w.add(";not_drawn")
	case rule == policy.Cost:
		w.part(";wait=", t.Wait)
		w.part(";prefill=", t.Own)
		w.part(";price=", t.Prefill)
		w.part(";held_up=", t.HeldUp)
		w.some(";miss_home=", t.Home)
		w.some(";miss_sibling=", t.Sibling)
		w.some(";miss_young=", t.Young)
		w.some(";miss_gone=", t.Gone)
		if t.Youth > 0 {
			w.part(";youth=", t.Youth)
			w.part(";later=", t.Later)
			w.part(";allowed=", t.Allowed)
			w.some(";detour=", t.Detour)
		}
		w.part(";miss=", t.Miss)
		w.part(";decode=", t.Decode)
		w.part(";evict=", t.Evict)
		w.part(";spread=", t.Spread)
		w.part(";cost=", t.Cost)
	default:
		if rule == policy.Weighted {
			w.part(";cached=", t.CachedShare)
			w.part(";queue=", t.Queue)
			w.part(";util=", t.Utilization)
		}
		w.part(";score=", t.Sum)
	}
}

// tellExplanation puts it on the response, with the choice that followed.
func (s *stream) tellExplanation() {
	if s.explanation != nil {
		s.explanation = s.explainAdmission(s.explanation)
		abi.SetHeader(abi.ResponseHeaders, explainHeader, text(s.explanation))
		s.explanation = nil
	}
}
