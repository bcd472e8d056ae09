package route

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/table"
)

// drawView draws any fleet under any rule.
func drawView(t *rapid.T) *View {
	v := fleet(rapid.IntRange(0, 12).Draw(t, "workers"), policy.Name(rapid.IntRange(0, int(policy.Custom)).Draw(t, "rule")))
	if rapid.Bool().Draw(t, "score") {
		v.Score = func(req *Request, w *Worker, f *Facts) float64 {
			if f.Requests > 50 {
				return math.NaN()
			}
			return -f.Load - float64(f.UncachedTokens+w.UncachedTokens)/f.PrefillRate
		}
	}
	v.Fresh = rapid.Bool().Draw(t, "fresh")
	share := rapid.SampledFrom([]float64{0, 0.1, 0.105, 0.5, 0.84, 0.85, 0.98, 1, 3})
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Ref = uint16(i*7 + 1)
		w.State = State(rapid.SampledFrom([]int{1, 1, 1, 0, 2, 3}).Draw(t, "state"))
		w.Load = share.Draw(t, "load")
		w.Watermark = share.Draw(t, "watermark")
		w.Trust = share.Draw(t, "trust")
		w.InFlight = rapid.IntRange(0, 60).Draw(t, "in flight")
		w.Running = rapid.SampledFrom([]int{0, 0, 5, 80}).Draw(t, "running")
		w.Waiting = rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "waiting")
		w.EvictShare = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "evict share")
		w.EvictFor = rapid.SampledFrom([]time.Duration{0, 0, 6 * time.Second}).Draw(t, "evict for")
		w.UncachedTokens = rapid.SampledFrom([]int{0, 0, 500}).Draw(t, "uncached")
		w.Age = rapid.SampledFrom([]time.Duration{Never, 0, time.Second, 7 * time.Second, time.Minute}).Draw(t, "age")
		w.AvoidFor = rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second}).Draw(t, "avoid")
		w.BlockTokens = rapid.SampledFrom([]int{0, 16, 32}).Draw(t, "block")
		w.PrefillRate = rapid.SampledFrom([]float64{0, 3000, 10000}).Draw(t, "rate")
		w.DecodeSeconds = rapid.SampledFrom([]float64{0, 0.02}).Draw(t, "decode")
		w.TailAge = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "tail")
		w.FreeTokens = rapid.SampledFrom([]int{0, 1000, 1 << 20}).Draw(t, "free")
		w.CacheAge = rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Hour}).Draw(t, "cache age")
		w.RecentTokens = rapid.SampledFrom([]float64{0, 1, 0.1, 12345}).Draw(t, "recent")
	}
	v.Ring = ringOf(v)
	return v
}

func drawRequest(t *rapid.T, v *View) *Request {
	req := &Request{
		PromptTokens: rapid.SampledFrom([]int{0, 100, 3000}).Draw(t, "prompt"),
		RingKey:      rapid.Uint64Range(0, 5).Draw(t, "ring key"),
		SessionKey:   rapid.Uint64Range(0, 5).Draw(t, "session"),
		Sequence:     rapid.Uint64().Draw(t, "sequence"),
	}
	for i := range uint64(rapid.IntRange(0, 4).Draw(t, "checkpoints")) {
		req.Checkpoints = append(req.Checkpoints, fingerprint.Checkpoint{Fingerprint: i, End: uint32(64 + 2*i), TurnEnd: rapid.Bool().Draw(t, "turn")})
	}
	for i := range v.Workers {
		if rapid.IntRange(0, 3).Draw(t, "home") == 0 {
			h := Home{Fingerprint: uint64(i), Units: uint32(64 + 2*i), Refs: []uint16{v.Workers[i].Ref, 9999}}
			for k := range min(len(v.Workers), 12) {
				if k != i && rapid.IntRange(0, 2).Draw(t, "another home") > 0 {
					h.Refs = append(h.Refs, v.Workers[k].Ref)
				}
			}
			v.Homes = append(v.Homes, h)
		}
	}
	for _, w := range v.Workers {
		if rapid.IntRange(0, 2).Draw(t, "matches") == 0 {
			req.Matches = append(req.Matches, table.Match{Ref: w.Ref, Units: rapid.SampledFrom([]uint32{3, 64, 66, 128}).Draw(t, "units")})
		}
		if rapid.IntRange(0, 4).Draw(t, "slow") == 0 {
			req.SlowMatches = append(req.SlowMatches, table.Match{Ref: w.Ref, Units: 100})
		}
		if rapid.IntRange(0, 5).Draw(t, "excluded") == 0 {
			req.Exclude = append(req.Exclude, w.Ref)
		}
	}
	return req
}

func TestNeverPicksExcludedDownOrDrainingAndNeverRefusesWhileOneIsLeft(t *testing.T) {
	var d Decision // reused
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		req := drawRequest(t, v)
		now := rapid.SampledFrom([]time.Duration{0, 500 * time.Millisecond, 2 * time.Second}).Draw(t, "now")
		Choose(req, v, now, NewRand(rapid.Uint64().Draw(t, "seed")), &d)

		able, good := 0, 0
		for _, w := range v.Workers {
			if w.State == Down || w.State == Draining || slices.Contains(req.Exclude, w.Ref) {
				if d.Best == w.Ref || d.Second == w.Ref {
					t.Fatalf("picked %d, which is %v", w.Ref, w.State)
				}
				continue
			}
			able++
			if w.AvoidFor <= now && (!v.Fresh || w.Age < 0 || w.Age+now <= v.Pool.Policy.Lease) {
				good++
			}
		}
		if (d.Best != 0) != (able > 0) || (d.Second != 0) != (able > 1) || d.Best != 0 && d.Best == d.Second {
			t.Fatalf("%d then %d with %d workers to choose from", d.Best, d.Second, able)
		}
		if (d.Why == WhyNone) != (d.Best == 0) {
			t.Fatalf("%d by %v", d.Best, d.Why)
		}
		if d.Best != 0 && good > 0 {
			w := v.worker(d.Best)
			if w.AvoidFor > now {
				t.Fatalf("avoided worker %d is best with %d others", d.Best, good)
			}
		}
	})
}

func TestOrderOfWorkersAndMatchesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		req := drawRequest(t, v)
		seed := rapid.Uint64().Draw(t, "seed")
		var a, b Decision
		a.Explain, b.Explain = true, true
		Choose(req, v, time.Second, NewRand(seed), &a)

		other := *v
		other.Workers = rapid.Permutation(slices.Clone(v.Workers)).Draw(t, "order")
		shuffled := *req
		shuffled.Matches = rapid.Permutation(slices.Clone(req.Matches)).Draw(t, "match order")
		Choose(&shuffled, &other, time.Second, NewRand(seed), &b)
		byRef := func(c []Candidate) []Candidate {
			return slices.SortedFunc(slices.Values(c), func(x, y Candidate) int { return int(x.Ref) - int(y.Ref) })
		}
		if a.Best != b.Best || a.Second != b.Second || a.Why != b.Why || a.MatchedTokens != b.MatchedTokens {
			t.Fatalf("%d, %d by %v and %d, %d by %v", a.Best, a.Second, a.Why, b.Best, b.Second, b.Why)
		}
		if diff := cmp.Diff(byRef(a.Candidates), byRef(b.Candidates)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestExplainChangesNothingAndNamesEveryWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		req := drawRequest(t, v)
		seed := rapid.Uint64().Draw(t, "seed")
		var plain, explained Decision
		explained.Explain = true
		Choose(req, v, 0, NewRand(seed), &plain)
		Choose(req, v, 0, NewRand(seed), &explained)
		if plain.Best != explained.Best || plain.Second != explained.Second || len(plain.Candidates) != 0 {
			t.Fatalf("%+v and %+v", plain, explained)
		}
		if len(explained.Candidates) != len(v.Workers) {
			t.Fatalf("%d candidates for %d workers", len(explained.Candidates), len(v.Workers))
		}
		for i, c := range explained.Candidates {
			w := v.Workers[i]
			if c.Ref != w.Ref || c.ReportedLoad != w.Load || c.CreditedTokens > c.MatchedTokens {
				t.Fatalf("%+v for %+v", c, w)
			}
			if (c.Left == LeftExcluded) != slices.Contains(req.Exclude, w.Ref) {
				t.Fatalf("%+v, excluded %v", c, req.Exclude)
			}
		}
	})
}

// A plain second implementation of the threshold rule for fresh, unmarked workers, without the
// ring: it must agree wherever a holder is chosen.
func TestThresholdEqualsAPlainImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := fleet(rapid.IntRange(1, 10).Draw(t, "workers"), policy.Threshold)
		for i := range v.Workers {
			w := &v.Workers[i]
			w.Load = float64(rapid.IntRange(0, 12).Draw(t, "load")) / 10
			w.UncachedTokens = rapid.IntRange(0, 2).Draw(t, "uncached") * 100
		}
		req := long()
		for _, w := range v.Workers {
			if tokens := rapid.SampledFrom([]int{0, 256, 1024, 1040, 2048}).Draw(t, "tokens"); tokens > 0 {
				req.Matches = append(req.Matches, holds(w.Ref, tokens))
			}
		}
		type holder struct {
			w      Worker
			tokens int
		}
		var left []holder
		for _, m := range req.Matches {
			left = append(left, holder{*v.worker(m.Ref), int(m.Units) * 16})
		}
		want, why := uint16(0), WhyHolder
		for len(left) > 0 && want == 0 {
			top := slices.MaxFunc(left, func(a, b holder) int { return a.tokens - b.tokens }).tokens
			var level, rest, under []holder
			for _, h := range left {
				if float64(h.tokens) >= float64(top)*15/16 {
					level = append(level, h)
				} else {
					rest = append(rest, h)
				}
			}
			for _, h := range level {
				if h.w.Load < 0.85 {
					under = append(under, h)
				}
			}
			if len(under) > 0 {
				want = slices.MinFunc(under, func(a, b holder) int {
					if a.w.Load != b.w.Load {
						return int(100*a.w.Load) - int(100*b.w.Load)
					}
					if a.w.UncachedTokens != b.w.UncachedTokens {
						return a.w.UncachedTokens - b.w.UncachedTokens
					}
					if ring.Rank(req.RingKey, a.w.AddressKey) < ring.Rank(req.RingKey, b.w.AddressKey) {
						return -1
					}
					return 1
				}).w.Ref
			} else {
				why = WhyNextHolder
			}
			left = rest
		}
		d := choose(req, v)
		if want != 0 && (d.Best != want || d.Why != why) {
			t.Fatalf("%d by %v, want %d by %v", d.Best, d.Why, want, why)
		}
		if want == 0 && d.Why != WhySpill && d.Why != WhyRing {
			t.Fatalf("%d by %v without a holder under the limit", d.Best, d.Why)
		}
	})
}

func TestDecisionDoesNotAllocateOnceWarm(t *testing.T) {
	for rule := policy.Threshold; rule <= policy.Weighted; rule++ {
		v := fleet(64, rule)
		req := long(holds(3, 1024), holds(9, 2048))
		rng := NewRand(1)
		d := &Decision{}
		Choose(req, v, 0, rng, d)
		if n := testing.AllocsPerRun(50, func() { Choose(req, v, 0, rng, d) }); n != 0 {
			t.Errorf("%v: %v allocations", rule, n)
		}
	}
}

// A recovered panic in the middle of a decision must not leave the next one with the refs of
// the one before.
func TestScratchOfAnAbandonedDecisionIsHarmless(t *testing.T) {
	var d Decision
	broken := fleet(20, policy.Random)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a nil rand did not panic")
			}
		}()
		Choose(long(), broken, 0, nil, &d)
	}()
	small := fleet(3, policy.Threshold)
	Choose(long(holds(15, 2048), holds(2, 512)), small, 0, NewRand(1), &d)
	if d.Best != 2 || d.Why != WhyHolder {
		t.Errorf("%d by %v", d.Best, d.Why)
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{16, 512} {
		for _, c := range []struct {
			name    string
			rule    policy.Name
			matches []table.Match
		}{
			{"threshold/holders", policy.Threshold, []table.Match{holds(1, 1024), holds(2, 2048), holds(3, 2048)}},
			{"threshold/ring", policy.Threshold, nil},
			{"least_load", policy.LeastLoad, nil},
			{"round_robin", policy.RoundRobin, nil},
		} {
			b.Run(c.name+"/"+strconv.Itoa(n), func(b *testing.B) {
				v := fleet(n, c.rule)
				for i := range v.Workers {
					v.Workers[i].Load = float64(i%7) / 10
					v.Workers[i].InFlight = i % 5
				}
				req, rng, d := long(c.matches...), NewRand(1), &Decision{}
				b.ReportAllocs()
				for b.Loop() {
					Choose(req, v, 0, rng, d)
				}
			})
		}
	}
}

// TestADecisionIsTheSameWhateverItsMemory: one that is used for all fleets and rules in turn decides as
// a new one, also where numbers are none, and refuses nobody while a worker is left.
func TestADecisionIsTheSameWhateverItsMemory(t *testing.T) {
	var reused Decision
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		req := drawRequest(t, v)
		odd := rapid.SampledFrom([]float64{0.5, 0.5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -1})
		for i := range v.Workers {
			w := &v.Workers[i]
			w.Load, w.Watermark, w.Trust = odd.Draw(t, "load"), odd.Draw(t, "watermark"), odd.Draw(t, "trust")
			w.PrefillRate, w.DecodeSeconds, w.RecentTokens = odd.Draw(t, "rate"), odd.Draw(t, "decode"), odd.Draw(t, "recent")
			w.EvictShare = odd.Draw(t, "evict share")
			w.Rank = rapid.SampledFrom([]uint8{0, 1, 2}).Draw(t, "rank")
			if rapid.IntRange(0, 3).Draw(t, "sent") == 0 {
				sent := Sent{Ref: w.Ref, Units: rapid.SampledFrom([]uint32{0, 64, 1 << 20}).Draw(t, "sent units"), Ready: time.Second}
				req.AddSent(append(slices.Clone(req.Sent), sent, Sent{Ref: 65535, Units: 64}))
			}
		}
		v.Workers = rapid.Permutation(v.Workers).Draw(t, "order")
		reused.Explain = rapid.Bool().Draw(t, "explain")
		fresh := Decision{Explain: reused.Explain}
		seed := rapid.Uint64().Draw(t, "seed")
		Choose(req, v, time.Second, NewRand(seed), &fresh)
		Choose(req, v, time.Second, NewRand(seed), &reused)
		if fresh.Best != reused.Best || fresh.Second != reused.Second || fresh.Why != reused.Why || fresh.Ranked != reused.Ranked ||
			fresh.MatchedTokens != reused.MatchedTokens || fresh.HeldTokens != reused.HeldTokens || fresh.SlowTokens != reused.SlowTokens || len(fresh.Candidates) != len(reused.Candidates) {
			t.Fatalf("%+v with new memory, %+v with old", fresh, reused)
		}
		able := slices.ContainsFunc(v.Workers, func(w Worker) bool {
			return w.State != Down && w.State != Draining && !slices.Contains(req.Exclude, w.Ref)
		})
		if able != (fresh.Best != 0) {
			t.Fatalf("%d was chosen by %v under %v", fresh.Best, fresh.Why, v.Pool.Policy.Name)
		}
		if n := req.PromptTokens; fresh.HeldTokens < 0 || fresh.MatchedTokens < fresh.HeldTokens || n > 0 && fresh.MatchedTokens >= n {
			t.Fatalf("%d tokens of %d match, %d are held", fresh.MatchedTokens, n, fresh.HeldTokens)
		}
		for i := range v.Workers {
			if w := &v.Workers[i]; w.Ref == fresh.Best && fresh.HeldTokens%max(w.BlockTokens, fingerprint.UnitTokens) != 0 {
				t.Fatalf("%d tokens are held by blocks of %d", fresh.HeldTokens, w.BlockTokens)
			}
		}
	})
}

// TestEveryPriceIsANumber: whatever a load record and a policy can hold, whoever is young, in pools of one
// and of a thousand.
func TestEveryPriceIsANumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		if n := rapid.SampledFrom([]int{0, 0, 0, 1, 1000}).Draw(t, "other workers"); n > 0 {
			v = fleet(n, policy.Cost)
		}
		v.Pool.Policy = policy.Default(policy.Cost)
		rule := &v.Pool.Policy
		rule.Watermark = rapid.SampledFrom([]float64{1e-6, 0.98, 1}).Draw(t, "rule's watermark")
		rule.OutputTokens = rapid.SampledFrom([]int{1, 250, 1 << 20}).Draw(t, "output tokens")
		rule.DecodeWeight = rapid.SampledFrom([]float64{0, 0.13, 10}).Draw(t, "decode weight")
		rule.MissWeight = rapid.SampledFrom([]float64{0, 3, 100}).Draw(t, "miss weight")
		rule.Ramp = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "ramp")
		rule.RampFirst = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Minute}).Draw(t, "ramp first")
		rng := NewRand(rapid.Uint64().Draw(t, "worlds"))
		among := func(of ...float64) float64 { return of[rng.IntN(len(of))] }
		young := rapid.SampledFrom([]int{0, 2, 10}).Draw(t, "young, of ten")
		for i := range v.Workers {
			w := &v.Workers[i]
			w.Watermark = among(0, 0.7, 0.98, 1, math.SmallestNonzeroFloat32)
			w.Running, w.Waiting, w.InFlight = int(among(0, 1, 65535)), int(among(0, 65535)), int(among(0, 0, 1, 65535))
			w.UncachedTokens, w.RecentTokens = int(among(0, 0, 900, math.MaxUint32)), among(0, 1, math.MaxUint32)
			w.PrefillRate, w.DecodeSeconds = among(0, 1, 10_000, 1e9), among(0, 1e-6, 0.04, 1000)
			if w.CacheAge = 0; rng.IntN(10) < young {
				w.CacheAge = time.Duration(among(1, 1e9, 59e9, 3600e9))
			}
		}
		req := drawRequest(t, v)
		req.PromptTokens = rapid.SampledFrom([]int{0, 1, 4000, 1 << 30}).Draw(t, "tokens")
		d := Decision{Explain: true}
		Choose(req, v, time.Duration(rng.IntN(3))*time.Second, rng, &d)
		for i := range d.Candidates {
			c := &d.Candidates[i]
			for _, x := range []float64{c.Terms.Prefill, c.Terms.Wait, c.Terms.Miss, c.Terms.Decode, c.Terms.Evict, c.Terms.Spread, c.Terms.Cost} {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					t.Fatalf("worker %d: %+v of %+v under %+v", c.Ref, c.Terms, v.Workers[i], *rule)
				}
			}
		}
		able := slices.ContainsFunc(v.Workers, func(w Worker) bool {
			return w.State != Down && w.State != Draining && !slices.Contains(req.Exclude, w.Ref)
		})
		if able != (d.Best != 0) || d.Best != 0 && d.Why != WhyCost && d.Why != WhyCostMiss {
			t.Fatalf("%d by %v", d.Best, d.Why)
		}
	})
}
