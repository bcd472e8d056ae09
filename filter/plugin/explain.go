package plugin

import (
	"strconv"
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
	b := append(make([]byte, 0, 256), "mode="...)
	if p.reason != body.OK {
		s.explanation = append(append(b, "none reason="...), p.reason.String()...)
		return
	}
	if pool == nil { // nobody has read it
		s.explanation = append(b, "none"...)
		return
	}
	b = append(b, p.mode.String()...)
	b = append(b, " tokens="...)
	b = strconv.AppendInt(b, int64(p.tokens), 10)
	if p.exact() {
		b = append(b, " fresh="...)
		b = strconv.AppendInt(b, int64(p.encoded.Fresh), 10)
		b = append(b, " memo="...)
		b = strconv.AppendInt(b, int64(p.encoded.Memoised), 10)
	}
	if p.stopped != chat.Complete {
		b = append(append(b, " stopped="...), p.stopped.String()...)
	}
	if p.encoded.Exhausted {
		b = append(b, " capped"...)
	}
	separator := " at="
	for i, c := range p.checkpoints {
		if skip := len(p.checkpoints) - explainedCheckpoints; skip > 0 && i >= explainedCheckpoints/2 && i < explainedCheckpoints/2+skip {
			if i == explainedCheckpoints/2 {
				b = append(b, ",("...)
				b = strconv.AppendInt(b, int64(skip), 10)
				b = append(b, " more)"...)
			}
			continue
		}
		b = append(b, separator...)
		b = strconv.AppendUint(b, uint64(c.End)*fingerprint.UnitTokens, 10)
		if c.TurnEnd {
			b = append(b, '*')
		}
		separator = ","
	}
	s.explanation = b
}

// explainedWorkers is how many workers an explanation lists: the rest is counted.
const explainedWorkers = 16

// appendWorkers appends what a decision saw of the workers and made of it, the best and the second
// first, each as one field; by rule cost after what a second of prefill costs:
//
//	price=4.0000 each=0.0650 kv_mean=0.0300 tight=0.0000 @10.0.0.1:9000;matched=640;credited=640;load=0.0800;kv=0.0200;n=3;uncached=512;age=120ms;wait=0.0512;prefill=0.0172;price=4.0650;held_up=1.0000;miss=0.0699;decode=0.0100;evict=0.0000;spread=-0.0200;cost=0.1111
func appendWorkers(b []byte, f *fleet.Fleet, d *route.Decision, rule policy.Name) []byte {
	if rule == policy.Cost {
		b = appendPart(b, " price", d.Price.Base)
		b = appendPart(b, " each", d.Price.Each)
		b = appendPart(b, " kv_mean", d.Price.Memory)
		b = appendPart(b, " tight", d.Price.Tight)
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
				b = appendWorker(append(append(b, " @"...), f.AddressOf(c.Ref)...), c, rule)
			}
		}
	}
	if listed > explainedWorkers {
		b = strconv.AppendInt(append(b, " workers_more="...), int64(listed-explainedWorkers), 10)
	}
	return b
}

func appendWorker(b []byte, c *route.Candidate, rule policy.Name) []byte {
	whole := func(name string, n int) {
		b = strconv.AppendInt(append(append(append(b, ';'), name...), '='), int64(n), 10)
	}
	part := func(name string, x float64) { b = appendPart(append(b, ';'), name, x) }
	some := func(name string, x float64) {
		if x != 0 {
			part(name, x)
		}
	}
	if c.Left != route.LeftNot {
		b = append(append(b, ";left="...), c.Left.String()...)
	}
	whole("matched", c.MatchedTokens)
	whole("credited", c.CreditedTokens)
	part("load", c.Load)
	part("kv", c.Watermark)
	whole("n", c.InFlight)
	whole("uncached", c.UncachedTokens)
	if c.Age >= 0 {
		whole("age", int(c.Age/time.Millisecond))
		b = append(b, "ms"...)
	}
	if c.SentAgo > 0 {
		whole("sent", int(c.SentAgo/time.Millisecond))
		b = append(b, "ms"...)
	}
	if c.Home {
		b = append(b, ";home"...)
	}
	t := &c.Terms
	switch {
	case rule != policy.Cost && rule != policy.Weighted && rule != policy.Custom || c.Left != route.LeftNot && !t.Seen:
	case !t.Seen:
		b = append(b, ";not_drawn"...)
	case rule == policy.Cost:
		part("wait", t.Wait)
		part("prefill", t.Own)
		part("price", t.Prefill)
		part("held_up", t.HeldUp)
		some("miss_home", t.Home)
		some("miss_sibling", t.Sibling)
		some("miss_young", t.Young)
		some("miss_gone", t.Gone)
		if t.Youth > 0 {
			part("youth", t.Youth)
			part("later", t.Later)
			part("allowed", t.Allowed)
			some("detour", t.Detour)
		}
		part("miss", t.Miss)
		part("decode", t.Decode)
		part("evict", t.Evict)
		part("spread", t.Spread)
		part("cost", t.Cost)
	default:
		if rule == policy.Weighted {
			part("cached", t.CachedShare)
			part("queue", t.Queue)
			part("util", t.Utilization)
		}
		part("score", t.Sum)
	}
	return b
}

func appendPart(b []byte, name string, x float64) []byte {
	return strconv.AppendFloat(append(append(b, name...), '='), x, 'f', 4, 64)
}

// tellExplanation puts it on the response, with the choice that followed.
func (s *stream) tellExplanation() {
	if s.explanation != nil {
		s.explanation = s.explainAdmission(s.explanation)
		abi.SetHeader(abi.ResponseHeaders, explainHeader, text(s.explanation))
		s.explanation = nil
	}
}
