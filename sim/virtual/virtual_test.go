package virtual

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
)

// small is a scenario that plays in a fraction of a second: four nodes and a
// cache that conversations overflow.
func small(change ...func(s *Scenario)) Scenario {
	c := seed16()
	c.Tenants, c.MinTurns, c.MaxTurns, c.Think = 12, 2, 6, 2*time.Second
	s := Scenario{
		Name: "small", Workers: 4, Rate: 12, Requests: 1200, Source: c.Source, Settle: 10 * time.Second,
		Params: h200Pair(func(p *engine.Params) { p.CapacityBlocks, p.MaxRunning = 2000, 64 }),
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// config is what Scenario.Run plays, open to a test.
func (s Scenario) config(t *testing.T, name string, seed uint64, record func(o Outcome)) Config {
	t.Helper()
	kind, err := FindPolicy(name)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Seed: seed, Workers: s.Workers, Gateways: 2, Params: s.Params, Speed: s.Speed, Delays: DefaultDelays(),
		Source: s.Source(seed, s.Rate, s.Requests), Policy: policy.Default(kind.rule), Rule: kind.make, Faults: s.Faults, Record: record,
	}
}

func everyPolicy() (names []string) {
	for _, p := range append(Policies(), Peers()...) {
		names = append(names, p.Name)
	}
	return names
}

func troubles() []Fault {
	return []Fault{
		{At: 0, Workers: []int{3}, Kind: Die},
		{At: 20 * time.Second, Workers: []int{0, 1}, Kind: Die},
		{At: 30 * time.Second, Workers: []int{3}, Kind: Return},
		{At: 40 * time.Second, Workers: []int{2}, Kind: Evict},
		{At: 50 * time.Second, Workers: []int{2}, Kind: Die},
		{At: 51 * time.Second, Workers: []int{0, 2, 2}, Kind: Return},
		{At: 52 * time.Second, Workers: []int{0}, Kind: Die},
		{At: 60 * time.Second, Workers: []int{0, 1}, Kind: Return},
	}
}

func TestEveryRequestEndsOnceAndTheBooksReturnToZero(t *testing.T) {
	for _, name := range everyPolicy() {
		for _, faults := range [][]Fault{nil, troubles()} {
			ended := map[uint64]int{}
			hit := map[string]int{}
			s := small(func(s *Scenario) {
				s.Faults = faults
				s.Params.MaxQueued = 4 // so that some are refused
			})
			cfg := s.config(t, name, 1, func(o Outcome) {
				ended[o.ID]++
				switch {
				case o.Refused:
					hit["refused"]++
				case o.Failed:
					hit["failed"]++
				default:
					hit["answered"]++
					if o.TTFT <= 0 || o.Ended < o.FirstToken || o.Cached >= o.Prompt {
						t.Fatalf("%s: %+v", name, o)
					}
				}
			})
			f, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			c := f.Counts()
			if c.Arrived != s.Requests || c.Arrived != c.Answered+c.Refused+c.Failed || len(ended) != c.Arrived {
				t.Errorf("%s: %+v, %d ended, %d asked", name, c, len(ended), s.Requests)
			}
			if hit["answered"] != c.Answered || hit["refused"] != c.Refused || hit["failed"] != c.Failed {
				t.Errorf("%s: recorded %v, counted %+v", name, hit, c)
			}
			if faults != nil && c.Failed == 0 {
				t.Errorf("%s: nobody noticed the deaths", name)
			}
			for id, n := range ended {
				if n != 1 {
					t.Errorf("%s: request %d ended %d times", name, id, n)
				}
			}
			f.checkBooks(t, name)
			if len(f.live) != 0 {
				t.Errorf("%s: %d requests still live", name, len(f.live))
			}
		}
	}
}

func TestHitsNeverExceedWhatWasAskedBeforeNorThePooledCache(t *testing.T) {
	for _, name := range everyPolicy() {
		infinite, pooled := newPool(1<<20, 4), newPool(4*2000, 4)
		most := map[uint64]int{}
		hits, pool, prompt := 0, 0, 0
		cfg := small().config(t, name, 2, func(o Outcome) {
			if o.Cached > most[o.ID] {
				t.Fatalf("%s: request %d found %d tokens, all that was ever asked covers %d", name, o.ID, o.Cached, most[o.ID])
			}
			hits += o.Cached
			prompt += o.Prompt
			infinite.answered(o.Request, o.Worker)
			pooled.answered(o.Request, o.Worker)
		})
		cfg.Sampled = func(s Sample, _ time.Duration) { pooled.decodes(s.Worker, s.Answers) }
		cfg.Arrived = func(r *Request, _ time.Duration) {
			most[r.ID] = infinite.asked(r) * engine.BlockTokens
			pool += pooled.asked(r) * engine.BlockTokens
		}
		if _, err := Run(cfg); err != nil {
			t.Fatal(err)
		}
		if hits > pool {
			t.Errorf("%s: %.4f hits, one cache of the fleet's size has %.4f", name, share(hits, prompt), share(pool, prompt))
		}
		if hits == 0 {
			t.Errorf("%s: no hits", name)
		}
	}
}

// The ceiling is one for every workload, not only for small prompts of four nodes: of each, with the
// rule that has most hits and the one that sees everything.
func TestOnNoWorkloadDoHitsExceedThePooledCache(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	trace := &Trace{} // conversations that begin alike, and documents
	for i := range 1500 {
		l := traceLine{Timestamp: float64(i) * 100, Input: 512 * (1 + rng.IntN(12)), Output: 200}
		topic := rng.IntN(60)
		for k := range l.Input / 512 {
			l.Hashes = append(l.Hashes, uint64(k+100*(topic+1)*min(k, 1)))
		}
		trace.lines = append(trace.lines, l)
	}
	for _, s := range Scenarios() {
		if s.Recorded {
			s = s.WithTrace(trace)
		}
		if s.Workers > 100 || s.mishap() {
			continue
		}
		if s.Name != "pressure" {
			const fewer = 4 // so that caches fill up within a short run
			s.Params.CapacityBlocks /= fewer
		}
		c, err := s.Compare(t.Context(), []string{"cost", "weighted", "reference"}, []uint64{1}, Play{Pooled: true, Skip: 0.01, Requests: 1500, GiveUp: true}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range c.Policies {
			if p.HitRate > p.PooledHitRate || p.HitRate == 0 {
				t.Errorf("%s under %s: %.4f hits, one cache of the fleet's size has %.4f", s.Name, name, p.HitRate, p.PooledHitRate)
			}
		}
	}
}

func TestAComparisonTellsHowFarItIsWithinItsRuns(t *testing.T) {
	var told []int
	c, err := small().Compare(t.Context(), []string{"cost", "random"}, []uint64{1}, Play{Requests: 2500}, nil, func(done, all int) {
		if all != 5000 {
			t.Errorf("%d requests in all, want 5,000", all)
		}
		told = append(told, done)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) < 6 || !slices.IsSorted(told) || told[len(told)-1] != 2*c.Requests {
		t.Errorf("told of %v done", told)
	}
}

func TestARunSaysTheSameOnAnyNumberOfCores(t *testing.T) {
	play := func() string {
		s := small(func(s *Scenario) { s.Faults = troubles() })
		c, err := s.Compare(t.Context(), []string{"cost", "threshold", "smg", "llm-d", "reference"}, []uint64{1, 2}, Play{Pooled: true, Requests: 900}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := play()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if second := play(); first != second {
		t.Errorf("two runs differ:\n%s\n%s", first, second)
	}
	other, err := small().Run(Play{Seed: 3, Policy: "cost", Requests: 900})
	if err != nil {
		t.Fatal(err)
	}
	same, err := small().Run(Play{Seed: 1, Policy: "cost", Requests: 900})
	if err != nil {
		t.Fatal(err)
	}
	if other.TTFT == same.TTFT {
		t.Error("another seed changes nothing")
	}
}

// One worker, Poisson arrivals, a constant prefill and no decoding is an M/D/1
// queue: the mean wait is rho / (2 (1 - rho)) services (Pollaczek, Khinchine).
func TestOneWorkerWithoutDecodingIsAnMD1Queue(t *testing.T) {
	p := engine.DefaultParams()
	p.MaxQueued = -1
	p.CapacityBlocks = 1 << 10
	service := p.PrefillTime(p.StepTokens) // fills a step: one at a time
	for _, load := range []float64{0.5, 0.8} {
		one := Lengths{Mean: float64(p.StepTokens - 16), Min: p.StepTokens - 16, Max: p.StepTokens - 16}
		c := &Chat{
			Tenants: 1, System: Lengths{Mean: 1, Min: 1, Max: 1}, MinTurns: 1, MaxTurns: 1, Answer: Lengths{Mean: 1, Min: 1, Max: 1},
			First: Lengths{Mean: one.Mean + 15, Min: one.Min + 15, Max: one.Max + 15},
		}
		n := 30_000
		sum, answered := time.Duration(0), 0
		kind, _ := FindPolicy("round_robin")
		cfg := Config{
			Seed: 1, Workers: 1, Gateways: 1, Params: p, Delays: Delays{ReportEvery: time.Hour},
			Source: c.Source(1, load/service.Seconds(), n), Policy: policy.Default(kind.rule), Rule: kind.make,
			Record: func(o Outcome) {
				if o.Cached > 0 {
					t.Fatalf("request %d found %d tokens", o.ID, o.Cached)
				}
				sum += o.TTFT - service
				answered++
			},
		}
		if _, err := Run(cfg); err != nil {
			t.Fatal(err)
		}
		got := (sum / time.Duration(answered)).Seconds()
		want := load / (2 * (1 - load)) * service.Seconds()
		if math.Abs(got/want-1) > 0.04 {
			t.Errorf("load %v: mean wait %.4f s, Pollaczek and Khinchine say %.4f", load, got, want)
		}
	}
}

func TestCheckpointsAreThoseOfTheModule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var chain fingerprint.Chain
	tokens := make([]uint32, 700_000)
	for i := range tokens {
		tokens[i] = rng.Uint32()
	}
	thinned := 0
	for try := range 60 {
		prompt := 1 + rng.IntN([]int{40, 1200, 10_000, 120_000, 650_000}[try%5])
		turns := rng.IntN([]int{3, 12, 400}[try%3] + 1)
		r := &Request{Prompt: prompt}
		chain.Reset(1)
		ends := []int{prompt}
		for range turns {
			ends = append(ends, rng.IntN(prompt+1))
		}
		slices.Sort(ends)
		talk := talk{system: 0}
		at := 0
		for _, end := range ends {
			chain.WriteTokens(tokens[at:end])
			chain.TurnEnd()
			at = end
			talk.tokens = end
			talk.endTurn()
		}
		r.ends = talk.ends
		var want []int
		for _, c := range chain.Finish() {
			want = append(want, int(c.End))
		}
		got := positions(nil, r)
		if len(got) != len(want) {
			t.Fatalf("%d tokens, %d turns: %d checkpoints, the module keeps %d\n%v\n%v", prompt, turns, len(got), len(want), got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d tokens, %d turns: %v, the module keeps %v", prompt, turns, got, want)
			}
		}
		if len(want) > 250 {
			thinned++
		}
	}
	if thinned == 0 {
		t.Error("no prompt was long enough to be thinned")
	}
}

func TestAPlayChangesTheEngine(t *testing.T) {
	s := small(func(s *Scenario) {
		c := seed16()
		c.Share, c.Document = 0.5, Lengths{Mean: 12_000, Min: 12_000, Max: 12_000}
		s.Source = c.Source
	})
	p99 := func(change func(p *engine.Params)) float64 {
		r, err := s.Run(Play{Seed: 1, Policy: "cost", Engine: change})
		if err != nil {
			t.Fatal(err)
		}
		return r.TTFT.P99
	}
	if as, free := p99(nil), p99(func(p *engine.Params) { p.PrefillPerToken = 0 }); free > as/2 {
		t.Errorf("p99 of %.0f ms where prompts cost nothing, %.0f ms where they do", free, as)
	}
	if _, err := s.Run(Play{Seed: 1, Policy: "cost", Engine: func(p *engine.Params) { p.MaxRunning = 0 }}); err == nil {
		t.Error("an engine without a batch was played")
	}
}
