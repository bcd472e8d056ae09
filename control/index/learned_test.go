package index

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// prover asks worker 1 again and again for a prompt of 640 tokens that it was
// proven to hold.
type prover struct {
	*Index
	now time.Time
}

func newProver() *prover {
	p := &prover{Index: fleet(1), now: epoch}
	p.ask(0)
	return p
}

// ask returns the trust after an answer that names its cached tokens.
func (p *prover) ask(cached int32) float64 {
	lastID++
	id := RequestID{7, lastID}
	p.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 40, MatchedUnits: 40, Path: pathOf("abcdefghij")}, p.now)
	d := complete(id, 1)
	d.PredictedTokens, d.CachedTokens, d.PromptTokens = 640, cached, 640
	p.Done(d, p.now)
	return p.trust()
}

func (p *prover) trust() float64 {
	s, _ := p.Worker(1, p.now)
	return s.Trust
}

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

func TestTrustIsTheFadingShareOfWhatCameTrue(t *testing.T) {
	p := newProver()
	if got := p.ask(0); !near(got, 3.0/4, 1e-9) {
		t.Errorf("after one miss %v", got)
	}
	if got := p.ask(320); !near(got, 3.5/5, 1e-9) {
		t.Errorf("after half a hit %v", got)
	}
	p.now = p.now.Add(trustFor)
	left := 1 / math.E
	if got := p.trust(); !near(got, (3+0.5*left)/(3+2*left), 1e-9) {
		t.Errorf("a minute later %v", got)
	}
	for range 9 {
		p.ask(0)
	}
	if got := p.trust(); got > 0.3 {
		t.Errorf("after ten misses %v", got)
	}
	if s, _ := p.Worker(1, p.now); !near(s.Asked, 9+2*left, 1e-9) || !near(s.Came, 0.5*left, 1e-9) {
		t.Errorf("evidence %+v", s)
	}
}

// Who isn't believed gets no hits to prove anything by: trust must come back
// without them (a negative mark that only an event can clear stays for ever).
func TestTrustComesBackWithoutAnyEvent(t *testing.T) {
	p := newProver()
	for range 30 {
		p.ask(0)
	}
	low := p.trust()
	p.now = p.now.Add(3 * time.Minute)
	if got := p.trust(); low > 0.1 || got < 0.6 {
		t.Errorf("%v, three minutes later %v", low, got)
	}
	p.now = p.now.Add(5 * time.Minute)
	if got := p.trust(); got < 0.99 {
		t.Errorf("eight minutes later %v", got)
	}
}

func TestHitsThatComeTrueBringTrustBackSooner(t *testing.T) {
	told, silent := newProver(), newProver()
	for range 10 {
		told.ask(0)
		silent.ask(0)
	}
	for range 60 {
		told.now, silent.now = told.now.Add(time.Second), silent.now.Add(time.Second)
		told.ask(640)
	}
	if a, b := told.trust(), silent.trust(); a < 0.9 || a < b+0.2 {
		t.Errorf("a minute of hits %v, a minute of silence %v", a, b)
	}
}

func TestAnAnswerWithoutUsageLeavesTrustAndIsCounted(t *testing.T) {
	p := newProver()
	before := p.ask(0)
	if got := p.ask(-1); got != before || p.Stats().UsageMissing != 1 {
		t.Errorf("%v then %v, %d counted", before, got, p.Stats().UsageMissing)
	}
}

func TestTrustSurvivesASnapshot(t *testing.T) {
	p := newProver()
	for range 5 {
		p.ask(0)
	}
	y := New(Config{})
	if err := y.RestoreSnapshot(p.AppendSnapshot(nil), true); err != nil {
		t.Fatal(err)
	}
	y.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 16_000})
	if s, _ := y.Worker(1, p.now.Add(time.Hour)); !near(s.Trust, p.trust(), 1e-9) {
		t.Errorf("%v, was %v: its time begins with its first use", s.Trust, p.trust())
	}
	if s, _ := y.Worker(1, p.now.Add(time.Hour+10*time.Minute)); s.Trust < 0.99 {
		t.Errorf("never comes back: %v", s.Trust)
	}
}

// rated sends prompts of 4,000 tokens to a worker that computes at rate.
func rated(x *Index, rate float64, wait time.Duration, idle bool, now time.Time) float64 {
	lastID++
	id := RequestID{7, lastID}
	x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 250, Path: pathOf("abcdefgh"), Idle: idle}, now)
	d := complete(id, 1)
	d.PromptTokens, d.CachedTokens, d.OutputTokens = 4000, 0, 10
	d.TTFT = wait + time.Duration(4000/rate*float64(time.Second))
	d.Total = d.TTFT + time.Second
	x.Done(d, now)
	s, _ := x.Worker(1, now)
	return s.PrefillRate
}

func TestAConfiguredRateThatIsWrongByTwoConverges(t *testing.T) {
	for _, wrong := range []float64{5_000, 20_000} {
		x := New(Config{})
		x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 1 << 20, PrefillRate: wrong})
		if s, _ := x.Worker(1, epoch); s.PrefillRate != wrong {
			t.Errorf("begins with %v", s.PrefillRate)
		}
		got, asked := wrong, 0
		for ; !near(got, 10_000, 100) && asked < 20; asked++ {
			got = rated(x, 10_000, 0, true, epoch)
		}
		if asked > 4 {
			t.Errorf("from %v: %v after %d answers", wrong, got, asked)
		}
	}
}

func TestAnEngineThatBecomesSlowerIsNoticedWithinHalfAWindow(t *testing.T) {
	x := fleet(1)
	for range 100 {
		rated(x, 10_000, 0, true, epoch)
	}
	var got float64
	for range rateWindow/2 + 1 {
		got = rated(x, 5_000, 0, true, epoch)
	}
	if !near(got, 5_000, 50) {
		t.Errorf("%v", got)
	}
}

// Waits that nobody saw make samples low; less than half of them change nothing.
func TestHiddenWaitsDoNotMoveTheRate(t *testing.T) {
	x := fleet(1)
	var got float64
	for i := range 200 {
		wait := time.Duration(0)
		if i%5 < 2 {
			wait = time.Duration(i) * 50 * time.Millisecond
		}
		got = rated(x, 10_000, wait, true, epoch)
		if i > rateWindow && !near(got, 10_000, 100) {
			t.Fatalf("answer %d: %v", i, got)
		}
	}
	for range 50 {
		got = rated(x, 10_000, 3*time.Second, false, epoch)
	}
	if !near(got, 10_000, 100) {
		t.Errorf("a known wait was counted as prefill: %v", got)
	}
}

func TestTheRateIsTheMedianOfTheLastSamplesAndThePrior(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rates{prior: rapid.Float64Range(0, 10).Draw(t, "prior")}
		samples := rapid.SliceOfN(rapid.Float64Range(1, 100), 0, 80).Draw(t, "samples")
		for _, s := range samples {
			r.add(s)
		}
		last := slices.Clone(samples[max(0, len(samples)-rateWindow):])
		if r.prior > 0 && len(samples) < rateWindow {
			last = append(last, r.prior, r.prior, r.prior)
		}
		slices.Sort(last)
		want := 0.0
		if n := len(last); n > 0 {
			want = (last[(n-1)/2] + last[n/2]) / 2
		}
		if got := r.rate(); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
