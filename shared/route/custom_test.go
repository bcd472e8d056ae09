package route

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/policy"
)

// scored is a fleet of n idle workers under the rule custom.
func scored(n int, score Score) *View {
	v := fleet(n, policy.Custom)
	v.Score = score
	return v
}

// byRef scores workers by a list, the first being worker 1's.
func byRef(scores ...float64) Score {
	return func(_ *Request, w *Worker, _ *Facts) float64 { return scores[w.Ref-1] }
}

func TestTheHighestScoreIsBestAndTheNextSecond(t *testing.T) {
	d := choose(long(), scored(4, byRef(1, 7, -3, 5)))
	if d.Best != 2 || d.Second != 4 || d.Why != WhyCustom || d.Why.String() != "custom" {
		t.Errorf("%d, then %d, by %v", d.Best, d.Second, d.Why)
	}
	for i, want := range []float64{1, 7, -3, 5} {
		if got := d.Candidates[i].Terms; !got.Seen || got.Sum != want {
			t.Errorf("worker %d is explained by %v, want %v", i+1, got, want)
		}
	}
}

func TestAScoreIsAskedOnceForEachThatCanTakeTheRequest(t *testing.T) {
	asked := map[uint16]int{}
	v := scored(6, func(_ *Request, w *Worker, _ *Facts) float64 { asked[w.Ref]++; return float64(w.Ref) })
	v.worker(1).State, v.worker(2).State = Down, Draining
	v.worker(3).AvoidFor = time.Second
	req := long()
	req.Exclude = []uint16{4}
	if d := choose(req, v); d.Best != 6 || d.Second != 5 {
		t.Errorf("%d, then %d", d.Best, d.Second)
	}
	if diff := cmp.Diff(map[uint16]int{5: 1, 6: 1}, asked); diff != "" {
		t.Error(diff)
	}
	// The second choice of a lone worker is one that is better avoided.
	v.worker(5).State = Down
	if d := choose(req, v); d.Best != 6 || d.Second != 3 {
		t.Errorf("%d, then %d", d.Best, d.Second)
	}
}

func TestTheUnfitAreLastAndTheFullBeforeThem(t *testing.T) {
	nan, no := math.NaN(), math.Inf(-1)
	v := scored(3, byRef(nan, no, -1e300))
	if d := choose(long(), v); d.Best != 3 || d.Why != WhyCustom {
		t.Errorf("%d by %v, want the only fit one", d.Best, d.Why)
	}
	v.worker(3).Watermark = 0.99
	if d := choose(long(), v); d.Best != 3 {
		t.Errorf("%d, want the one over the watermark: the others are unfit", d.Best)
	}
	v.Score = byRef(0, 0, 9)
	if d := choose(long(), v); d.Best == 3 || d.Second == 3 {
		t.Error("over the watermark comes after all others")
	}
	v.Score = byRef(nan, no, nan)
	v.worker(2).Load, v.worker(3).Load = 0.5, 0.5
	if d := choose(long(), v); d.Best != 1 || d.Why != WhyLeastLoad {
		t.Errorf("%d by %v, want the least load of the unfit", d.Best, d.Why)
	}
}

func TestFactsAreBroughtToNow(t *testing.T) {
	var facts [4]Facts
	v := scored(3, func(req *Request, w *Worker, f *Facts) float64 {
		if req.PromptTokens != 4096 {
			t.Errorf("a prompt of %d tokens", req.PromptTokens)
		}
		facts[w.Ref] = *f
		return 0
	})
	one, two := v.worker(1), v.worker(2)
	one.PrefillRate, one.Trust, one.InFlight = 8000, 0.5, 6
	one.Age, two.Age, v.worker(3).Age = 0, 2500*time.Millisecond, Never
	two.PrefillRate, two.Load, two.Watermark = 4000, 0.6, 0.4
	choose(long(holds(1, 2048)), v)
	want := [4]Facts{
		1: {MatchedTokens: 2048, CachedTokens: 1024, UncachedTokens: 3072, Requests: 6, MeanRequests: 2, PrefillRate: 8000, Load: 0.06},
		// Half way to the mean, in which its own report counts half: 0.6 + (0.2 - 0.6)/2.
		2: {UncachedTokens: 4096, MeanRequests: 2, PrefillRate: 4000, Load: 0.4, Watermark: 0.266667, Age: 2500 * time.Millisecond},
		// Nothing is known: the mean of all.
		3: {UncachedTokens: 4096, MeanRequests: 2, PrefillRate: 6000, Load: 0.2, Watermark: 0.133333, Age: Never},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-3 })
	if diff := cmp.Diff(want, facts, near); diff != "" {
		t.Error(diff)
	}
	// No rate known at all.
	one.PrefillRate, two.PrefillRate = 0, math.NaN()
	if choose(long(), v); facts[1].PrefillRate != defaultPrefillRate || facts[2].PrefillRate != defaultPrefillRate {
		t.Errorf("%v and %v tokens/s", facts[1].PrefillRate, facts[2].PrefillRate)
	}
}

// A pass over all workers, which the rule needs for nothing else.
func TestTheMeanRateIsWorkedOutOnlyWhereARateIsUnknown(t *testing.T) {
	for unknown, want := range map[int]bool{0: false, 1: true, 8: true} {
		v := scored(8, func(_ *Request, _ *Worker, f *Facts) float64 { return f.PrefillRate })
		for i := range v.Workers[unknown:] {
			v.Workers[unknown+i].PrefillRate = 8000
		}
		if d := choose(long(), v); len(d.order) > 0 != want {
			t.Errorf("with %d unknown rates the workers were listed by ref: %v, want %v", unknown, len(d.order) > 0, want)
		}
	}
}

func TestWithoutAScoreCustomIsThreshold(t *testing.T) {
	for _, req := range []*Request{long(holds(2, 2048), holds(3, 1024)), long(), {PromptTokens: 10, RingKey: 1}, {}} {
		custom, threshold := fleet(5, policy.Custom), fleet(5, policy.Threshold)
		for _, v := range []*View{custom, threshold} {
			v.worker(2).Load, v.worker(4).Watermark = 0.9, 0.99
		}
		got, want := choose(req, custom), choose(req, threshold)
		if got.Best != want.Best || got.Second != want.Second || got.Why != want.Why {
			t.Errorf("%d, %d by %v; threshold chooses %d, %d by %v", got.Best, got.Second, got.Why, want.Best, want.Second, want.Why)
		}
		if diff := cmp.Diff(want.Candidates, got.Candidates); diff != "" {
			t.Error(diff)
		}
	}
}

func TestEqualScoresKeepASessionTogether(t *testing.T) {
	v := scored(8, func(*Request, *Worker, *Facts) float64 { return 0 })
	count := map[uint16]int{}
	for session := range uint64(200) {
		a := choose(&Request{PromptTokens: 500, RingKey: 7, SessionKey: session + 1}, v)
		b := choose(&Request{PromptTokens: 900, RingKey: 8, SessionKey: session + 1}, v)
		if a.Best != b.Best {
			t.Fatalf("session %d: %d, then %d", session, a.Best, b.Best)
		}
		count[a.Best]++
	}
	if len(count) < 8 {
		t.Errorf("200 sessions on %d of 8 workers", len(count))
	}
}

func TestAScoreCostsNoAllocation(t *testing.T) {
	v := scored(64, func(_ *Request, w *Worker, f *Facts) float64 {
		return -float64(w.UncachedTokens+f.UncachedTokens) / f.PrefillRate
	})
	req, rng := long(holds(3, 2048)), NewRand(1)
	var d Decision
	Choose(req, v, 0, rng, &d)
	if n := testing.AllocsPerRun(50, func() { Choose(req, v, 0, rng, &d) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if d.Best != 3 {
		t.Errorf("%d", d.Best)
	}
}
