package route

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
)

// plain is the rule cost once more, worker by worker and without any care for time: what Choose
// does in flat loops, lazily, it must do as this does.
type plain struct {
	req  *Request
	view *View
	rule *policy.Policy
	now  time.Duration

	candidates []*Worker
}

func (p *plain) age(w *Worker) time.Duration {
	if w.Age < 0 {
		return Never
	}
	return w.Age + p.now
}

func (p *plain) stale(w *Worker) int64 {
	if age := p.age(w); age >= 0 && age < p.rule.LoadDecay {
		return int64(float64(staleOne) * float64(age) / float64(p.rule.LoadDecay))
	}
	return staleOne
}

// able lists who takes part: those without a mark, else those that are to be avoided, else the silent.
func (p *plain) able() []*Worker {
	var by [3][]*Worker
	for i := range p.view.Workers {
		w := &p.view.Workers[i]
		switch {
		case slices.Contains(p.req.Exclude, w.Ref) || w.State == Down || w.State == Draining:
		case p.view.Fresh && p.age(w) > p.rule.Lease:
			by[2] = append(by[2], w)
		case w.AvoidFor > p.now:
			by[1] = append(by[1], w)
		default:
			by[0] = append(by[0], w)
		}
	}
	for _, workers := range by {
		if len(workers) > 0 {
			slices.SortFunc(workers, func(a, b *Worker) int { return int(a.Ref) - int(b.Ref) })
			return workers
		}
	}
	return nil
}

func (p *plain) requests(w *Worker) int {
	return max(w.InFlight, int(int64(w.Running+w.Waiting)*(staleOne-p.stale(w))/staleOne))
}

func (p *plain) credited(w *Worker) int {
	matched := 0
	for _, m := range p.req.Matches {
		if m.Ref == w.Ref {
			matched = max(matched, usable(m.Units, p.req.PromptTokens, w.BlockTokens))
		}
	}
	for _, m := range p.req.SlowMatches {
		if m.Ref == w.Ref {
			matched += int(p.view.Pool.SlowCredit * float64(max(0, usable(m.Units, p.req.PromptTokens, w.BlockTokens)-matched)))
		}
	}
	trust := w.Trust
	if !p.view.Fresh {
		trust *= max(0, 1-p.now.Seconds()/60)
	}
	if left := w.EvictFor - p.now; left > 0 && left < 200*time.Millisecond {
		trust *= 1 - w.EvictShare*(1-left.Seconds()/0.2)
	}
	return int(float64(matched) * min(1, trust))
}

// watermark is drawn to the mean of all workers that report.
func (p *plain) watermark(w *Worker) int64 {
	var sum, weight, all, n int64
	for i := range p.view.Workers {
		if o := &p.view.Workers[i]; o.State != Down && o.Age >= 0 {
			fresh := staleOne - p.stale(o)
			sum, weight, all, n = sum+fixed(o.Watermark)*fresh, weight+fresh, all+fixed(o.Watermark), n+1
		}
	}
	mean := int64(0)
	switch {
	case weight > 0:
		mean = sum / weight
	case n > 0:
		mean = all / n
	}
	mark := fixed(w.Watermark)
	return mark + (mean-mark)*p.stale(w)/staleOne
}

func (p *plain) youth(w *Worker) float64 {
	if w.CacheAge == 0 || p.rule.Ramp == 0 {
		return 0
	}
	return max(0, 1-float64(w.CacheAge+p.now)/float64(p.rule.Ramp))
}

// young is the share of the pool that is young, and by how much a young worker costs more that isn't
// the prefix's own.
func (p *plain) young(w *Worker) (share, detour float64) {
	var young []*Worker
	longest := 0
	able := p.able()
	for _, o := range able {
		if youth := p.youth(o); youth > 0 {
			share += youth / float64(len(able))
			longest = max(longest, p.credited(o))
			young = append(young, o)
		}
	}
	if p.req.RingKey == 0 || len(young) == 0 || longest > 0 && p.credited(w) == longest {
		return share, 0
	}
	slices.SortStableFunc(young, func(a, b *Worker) int {
		return cmp.Compare(ring.Rank(p.req.RingKey, a.AddressKey), ring.Rank(p.req.RingKey, b.AddressKey))
	})
	if young[0] == w {
		return share, 0
	}
	return share, 5 * p.rule.SpreadWeight.Seconds()
}

// hot is the length of the deepest hot prefix that the prompt begins with, and its homes.
func (p *plain) hot() (tokens int, homes []uint16) {
	units := uint32(0)
	for _, h := range p.view.Homes {
		for _, at := range p.req.Checkpoints {
			if at.End == h.Units && at.Fingerprint == h.Fingerprint && h.Units > units {
				units, homes = h.Units, h.Refs
			}
		}
	}
	return int(units) * 16, homes
}

// among counts the workers that are homes.
func (p *plain) among(homes []uint16, workers []*Worker) (n int) {
	for _, w := range workers {
		if slices.Contains(homes, w.Ref) {
			n++
		}
	}
	return n
}

// heldUp is what a second of prefill counts to each request at a worker: half a second of decoding
// where memory is roomy, all of it where requests hold the watermark, on average.
func (p *plain) heldUp() float64 {
	var use, reported float64
	for _, w := range p.able() {
		if p.stale(w) < staleOne {
			use, reported = use+float64(fixed(w.Watermark))/loadUnits, reported+1
		}
	}
	roomy := p.rule.DecodeWeight / 2
	if reported == 0 || roomy >= 1 {
		return roomy
	}
	tight := (use/reported/p.rule.Watermark - 0.7) / 0.3
	return roomy + min(1, max(0, tight))*(1-roomy)
}

// room is how long a request waits for a place for its blocks.
func (p *plain) room(w *Worker) float64 {
	running := float64(w.Running)
	if running == 0 {
		running = float64(p.requests(w))
	}
	use := min(1, w.Watermark)
	if running == 0 || p.stale(w) == staleOne {
		return 0
	}
	each := use / running
	lacks := use + each + each*max(0, float64(p.requests(w))-running) - p.rule.Watermark
	if use == 0 || lacks <= 0 {
		return 0
	}
	step := p.rule.DecodeStep.Seconds()
	answer := float64(p.rule.OutputTokens) * (step + max(w.DecodeSeconds, float64(p.requests(w))*step))
	return lacks / each / running * answer
}

// soonest is when the first token comes at the candidate where it comes first, in seconds.
func (p *plain) soonest() float64 {
	soonest := math.Inf(1)
	for _, w := range p.candidates {
		soonest = min(soonest, float64(w.UncachedTokens)/p.rate(w)+p.room(w)+float64(max(0, p.req.PromptTokens-p.credited(w)))/p.rate(w))
	}
	return soonest
}

// rate is the worker's prefill rate, the mean of those that are known where its own isn't.
func (p *plain) rate(w *Worker) float64 {
	var sum, known float64
	for _, o := range p.able() {
		if o.PrefillRate > 0 {
			sum, known = sum+o.PrefillRate, known+1
		}
	}
	switch {
	case w.PrefillRate > 0:
		return w.PrefillRate
	case known > 0:
		return sum / known
	}
	return 10_000
}

func (p *plain) terms(w *Worker) Terms {
	var recent, requests float64
	able := p.able()
	for _, o := range able {
		recent += o.RecentTokens
		requests += float64(p.requests(o))
	}
	mean := requests / float64(len(able))
	prefill := 1 + p.rule.MissWeight + p.heldUp()*min(mean, float64(p.requests(w)))
	recent /= float64(len(able))
	rate := p.rate(w)
	uncached := float64(max(0, p.req.PromptTokens-p.credited(w)))
	t := Terms{Seen: true, Prefill: prefill, Own: uncached / rate, HeldUp: min(mean, float64(p.requests(w))), Wait: float64(w.UncachedTokens)/rate + p.room(w), Miss: prefill * uncached / rate}
	if hot, homes := p.hot(); slices.Contains(homes, w.Ref) {
		lacks := max(0, min(hot, p.req.PromptTokens)-p.credited(w))
		t.Home = -(prefill - 0.5) * float64(lacks) / rate
		t.Miss += t.Home
	}
	top := 0
	for _, o := range able {
		top = max(top, p.credited(o))
	}
	held, copied := top, 0.0
	hot, homes := p.hot()
	if 2*p.among(homes, able) >= len(able) && slices.Contains(homes, w.Ref) {
		held = max(held, min(hot, p.req.PromptTokens))
		copied = float64(max(0, min(hot, p.req.PromptTokens)-p.credited(w))) / rate
	}
	anyway := float64(max(0, p.req.PromptTokens-held)) / rate
	elsewhere := anyway + copied
	if p.credited(w) == top {
		elsewhere = max(elsewhere, p.soonest())
	}
	later := t.Wait + uncached/rate - elsewhere
	share, detour := p.young(w)
	allowed := (1 + share) * p.rule.RampFirst.Seconds()
	young := prefill*anyway + 0.5*copied + 4*allowed*math.Pow(later/allowed, 16) + detour - t.Wait
	if t.Youth = p.youth(w); t.Youth > 0 {
		t.Later, t.Allowed, t.Detour, t.Young = later, allowed, detour, t.Youth*(young-t.Miss)
	}
	t.Miss += t.Young
	if left := w.EvictFor - p.now; left > 0 && left < 10*time.Second {
		t.Gone = w.EvictShare * prefill * uncached / rate
		t.Miss += t.Gone
	}
	step, others := p.rule.DecodeStep.Seconds(), float64(p.requests(w))
	t.Decode = p.rule.DecodeWeight * float64(p.rule.OutputTokens) * (max(w.DecodeSeconds, others*step) + step + others*step)
	if w.TailAge > 0 {
		pushed := max(0, uncached+float64(p.rule.OutputTokens)-float64(w.FreeTokens))
		t.Evict = p.rule.EvictWeight * pushed / rate * math.Exp(-(w.TailAge+max(0, p.age(w))).Seconds()/p.rule.TailDecay.Seconds())
	}
	if recent > 0 {
		t.Spread = p.rule.SpreadWeight.Seconds() * (w.RecentTokens/recent - 1)
	}
	if youth := p.youth(w); youth > 0 {
		pull := 0.0
		if others < mean {
			pull = 5 * (others/mean - 1)
		}
		t.Spread = (1-youth)*t.Spread + youth*pull*p.rule.SpreadWeight.Seconds()
	}
	t.Cost = t.Wait + t.Miss + t.Decode + t.Evict + t.Spread
	return t
}

// drawn is how many candidates there are.
func (p *plain) drawn() int {
	top := 0
	for _, w := range p.able() {
		top = max(top, p.credited(w))
	}
	part := func(n int) int { return min(n, max(2, int(math.Ceil(p.rule.Sample*float64(n))))) }
	_, homes := p.hot()
	sure, holders, others := 0, 0, 0
	for _, w := range p.able() {
		longest := top > 0 && p.credited(w) == top
		switch {
		case p.youth(w) > 0 || slices.Contains(homes, w.Ref) && !longest:
			sure++
		case longest:
			holders++
		default:
			others++
		}
	}
	return sure + part(holders) + part(others)
}

// pick is the cheapest of the candidates, of nearly equal ones the session's favourite; 0 for none.
func (p *plain) pick(candidates []*Worker) uint16 {
	least := math.Inf(1)
	for _, w := range candidates {
		least = min(least, p.terms(w).Cost)
	}
	left := slices.DeleteFunc(slices.Clone(candidates), func(w *Worker) bool { return p.terms(w).Cost > least+sameCost })
	if len(left) == 0 {
		return 0
	}
	rank := func(w *Worker) uint64 { return ring.Rank(p.req.SessionKey, w.AddressKey) }
	return slices.MinFunc(left, func(a, b *Worker) int { return cmp.Compare(rank(a), rank(b)) }).Ref
}

func TestCostEqualsAPlainImplementation(t *testing.T) {
	var reused Decision
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		rule := &v.Pool.Policy
		*rule = policy.Default(policy.Cost)
		rule.Sample = rapid.SampledFrom([]float64{0.01, 0.25, 0.5, 1}).Draw(t, "sample")
		rule.MissWeight = rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "miss weight")
		rule.EvictWeight = rapid.SampledFrom([]float64{0, 3}).Draw(t, "evict weight")
		rule.Watermark = rapid.SampledFrom([]float64{0.1, 0.98}).Draw(t, "watermark")
		rule.DecodeWeight = rapid.SampledFrom([]float64{0, 0.13, 5}).Draw(t, "decode weight")
		rule.SpreadWeight = rapid.SampledFrom([]time.Duration{0, 200 * time.Millisecond, 2 * time.Second}).Draw(t, "spread weight")
		rule.OutputTokens = rapid.SampledFrom([]int{1, 250, 1 << 20}).Draw(t, "output tokens")
		rule.RampFirst = rapid.SampledFrom([]time.Duration{time.Millisecond, 165 * time.Millisecond}).Draw(t, "ramp first")
		rule.Ramp = rapid.SampledFrom([]time.Duration{0, 20 * time.Second}).Draw(t, "ramp")
		v.Pool.SlowCredit = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "slow credit")
		req := drawRequest(t, v)
		req.SessionKey = rapid.Uint64Range(1, 5).Draw(t, "a session")
		req.Exact = true // no answers are guessed
		p := &plain{req: req, view: v, rule: rule, now: rapid.SampledFrom([]time.Duration{0, 500 * time.Millisecond, 2 * time.Second}).Draw(t, "now")}
		seed := rapid.Uint64().Draw(t, "seed")
		explained := Decision{Explain: true}
		Choose(req, v, p.now, NewRand(seed), &explained)
		Choose(req, v, p.now, NewRand(seed), &reused)

		for i := range explained.Candidates {
			if explained.Candidates[i].Terms.Seen {
				p.candidates = append(p.candidates, &v.Workers[i])
			}
		}
		for i := range explained.Candidates {
			c, w := &explained.Candidates[i], &v.Workers[i]
			if !c.Terms.Seen {
				continue
			}
			want := p.terms(w)
			for name, pair := range map[string][2]float64{
				"prefill": {c.Terms.Prefill, want.Prefill}, "wait": {c.Terms.Wait, want.Wait}, "miss": {c.Terms.Miss, want.Miss}, "decode": {c.Terms.Decode, want.Decode},
				"evict": {c.Terms.Evict, want.Evict}, "spread": {c.Terms.Spread, want.Spread}, "cost": {c.Terms.Cost, want.Cost},
				"own": {c.Terms.Own, want.Own}, "held up": {c.Terms.HeldUp, want.HeldUp}, "home": {c.Terms.Home, want.Home},
				"young": {c.Terms.Young, want.Young}, "gone": {c.Terms.Gone, want.Gone}, "youth": {c.Terms.Youth, want.Youth},
				"later": {c.Terms.Later, want.Later}, "allowed": {c.Terms.Allowed, want.Allowed}, "detour": {c.Terms.Detour, want.Detour},
				"each request held up": {c.Terms.Prefill, explained.Price.Base + explained.Price.Each*want.HeldUp},
			} {
				if math.Abs(pair[0]-pair[1]) > 1e-9*max(1, math.Abs(pair[1])) {
					t.Fatalf("worker %d: %s %v, want %v", w.Ref, name, pair[0], pair[1])
				}
			}
			if c.CreditedTokens != p.credited(w) || fixed(c.Watermark) != p.watermark(w) {
				t.Fatalf("worker %d: %+v, want %d tokens, watermark %d", w.Ref, c, p.credited(w), p.watermark(w))
			}
		}
		if len(p.candidates) != p.drawn() {
			t.Fatalf("%d candidates, want %d", len(p.candidates), p.drawn())
		}
		best := p.pick(p.candidates)
		second := p.pick(slices.DeleteFunc(slices.Clone(p.candidates), func(w *Worker) bool { return w.Ref == best }))
		for name, d := range map[string]*Decision{"explained": &explained, "not explained": &reused} {
			// Where no candidate is left, the second is of the others.
			if d.Best != best || second != 0 && d.Second != second {
				t.Fatalf("%s: %d, then %d, want %d, then %d", name, d.Best, d.Second, best, second)
			}
		}
	})
}
