package virtual

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/sim/engine"
)

// hotConfig is some seconds of a hot prefix of 8,000 tokens, from second 3 on, among 75 other requests
// a second on 16 workers.
func hotConfig(t *testing.T) Config {
	t.Helper()
	hot := seed16()
	hot.Tenants, hot.MinTurns, hot.MaxTurns = 1, 1, 1
	hot.System, hot.First = Lengths{Mean: 8000, Min: 8000, Max: 8000}, Lengths{Mean: 300, Min: 300, Max: 300}
	named := func(name string) func(time.Duration) string { return func(time.Duration) string { return name } }
	s, err := FindScenario("hot-prefix")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.config(t, "cost", 1, nil)
	cfg.Source = newMix(
		&part{Source: seed16().Source(1, 75, 800), group: named("background")},
		&part{Source: hot.Source(2, 30, 240), from: 3 * time.Second, group: named("hot")},
	)
	return cfg
}

// play runs a configuration and returns what became of its requests. It checks that every one of them
// ended once, that no slice is among them, that none found more than all requests before had brought,
// and that the books say nothing in the end but for the slices that are under way.
func play(t *testing.T, cfg Config) (*Fleet, []Outcome) {
	t.Helper()
	var all []Outcome
	infinite, most, ended := newPool(1<<20, cfg.Workers), map[uint64]int{}, map[uint64]bool{}
	cfg.Arrived = func(r *Request, _ time.Duration) { most[r.ID] = infinite.asked(r) * engine.BlockTokens }
	cfg.Record = func(o Outcome) {
		if ended[o.ID] || o.ID >= sliceIDs {
			t.Fatalf("request %d ended twice, or is a slice", o.ID)
		}
		ended[o.ID] = true
		if o.Cached > most[o.ID] {
			t.Fatalf("request %d found %d tokens, all that was ever asked covers %d", o.ID, o.Cached, most[o.ID])
		}
		infinite.answered(o.Request, o.Worker)
		all = append(all, o)
	}
	f, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c := f.Counts(); c.Arrived != 1040 || c.Arrived != c.Answered+c.Refused+c.Failed || len(all) != c.Arrived {
		t.Errorf("%+v, %d recorded", c, len(all))
	}
	if f.waiting != 0 || len(f.live) != 0 {
		t.Errorf("%d wait for a first token, %d are live", f.waiting, len(f.live))
	}
	f.checkBooks(t, "cost")
	return f, all
}

// checkBooks checks that only slices are under way.
func (f *Fleet) checkBooks(t *testing.T, name string) {
	t.Helper()
	slices := map[[2]int]book{}
	for _, c := range f.copying {
		if c.slice != nil {
			at := [2]int{c.gateway, c.worker}
			b := slices[at]
			slices[at] = book{inFlight: b.inFlight + 1, uncached: b.uncached + c.slice.uncached}
		}
	}
	for _, g := range f.gateways {
		for i, b := range g.own {
			if want := slices[[2]int{g.Index, i}]; b.inFlight != want.inFlight || b.uncached != want.uncached || b.waiting != 0 {
				t.Errorf("%s: gateway %d has %+v at worker %d in the end, its slices are %+v", name, g.Index, b, i, want)
			}
		}
	}
}

// whole counts the hot requests that computed most of the prefix.
func whole(all []Outcome) (n int) {
	for i := range all {
		if o := &all[i]; o.Group == "hot" && o.Prompt-o.Cached > 4000 {
			n++
		}
	}
	return n
}

func TestGatewaysMakeTheCopiesOfAHotPrefix(t *testing.T) {
	f, all := play(t, hotConfig(t))
	off := hotConfig(t)
	off.Policy.CopySlice = 0
	without, before := play(t, off)
	c := f.Counts()
	if c.Copies < 4 || c.Slices < 10*c.Copies || c.Slices > 11*(c.Copies+len(f.copying)) {
		t.Errorf("%d copies of 8,000 tokens by %d slices of 768", c.Copies, c.Slices)
	}
	if n := f.planner.Counts(); n.Made != uint64(c.Copies) || n.Failed > 0 {
		t.Errorf("the plan knows of %+v, %d were made", n, c.Copies)
	}
	if c := without.Counts(); c.Copies != 0 || c.Slices != 0 {
		t.Errorf("%d copies, %d slices where slices are off", c.Copies, c.Slices)
	}
	if w, b := whole(all), whole(before); w > b/2 {
		t.Errorf("%d hot requests computed the prefix, %d without slices", w, b)
	}
}

func TestALongerSliceMakesFewer(t *testing.T) {
	short, long := hotConfig(t), hotConfig(t)
	short.Policy.CopySlice, long.Policy.CopySlice = 300, 8192 // 300: slices end within a block
	a, _ := play(t, short)
	b, _ := play(t, long)
	if x, y := a.Counts(), b.Counts(); x.Copies < 4 || y.Copies < 4 || x.Slices < 27*x.Copies || y.Slices > y.Copies+1 {
		t.Errorf("%d copies by %d slices of 300, %d by %d of the whole", x.Copies, x.Slices, y.Copies, y.Slices)
	}
}

func TestCopiesEndWithTheirWorkerAndRunsRepeat(t *testing.T) {
	const dead, back = 4600 * time.Millisecond, 6 * time.Second
	troubled := func() (*Fleet, []Outcome) {
		cfg := hotConfig(t)
		cfg.Params.MaxQueued = 6
		cfg.Faults = []Fault{
			{At: dead, Workers: []int{0, 1, 2, 3, 4, 5}, Kind: Die},
			{At: 5 * time.Second, Workers: []int{6, 7}, Kind: Evict},
			{At: back, Workers: []int{0, 1, 2}, Kind: Return},
		}
		making := map[*copying]bool{} // at the time of the deaths
		var fleet *Fleet
		cfg.Rule = func(f *Fleet) Rule { fleet = f; return routeRule{} }
		cfg.Sampled = func(_ Sample, now time.Duration) {
			if now < dead {
				clear(making)
			}
			for _, c := range fleet.copying {
				switch {
				case now < dead && c.worker < 6 && c.slice != nil:
					making[c] = true
				case now > dead+5*time.Millisecond && making[c] && (!c.over || c.slice != nil || c.done >= 8000):
					t.Errorf("at %v a copy is still being made at worker %d, which died: %+v", now, c.worker, c)
				}
			}
		}
		f, all := play(t, cfg)
		if len(making) == 0 {
			t.Error("no copy was being made where workers died")
		}
		return f, all
	}
	f, all := troubled()
	again, same := troubled()
	if f.Counts() != again.Counts() || len(all) != len(same) {
		t.Fatalf("%+v, again %+v", f.Counts(), again.Counts())
	}
	for i := range all {
		a, b := all[i], same[i]
		a.Request, b.Request = nil, nil
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("request %d: %+v, again %+v", i, a, b)
		}
	}
}

// A gateway that isn't a copy's maker any more ends it before its next slice, and the new maker begins.
func TestACopyGoesToItsNewMaker(t *testing.T) {
	cfg := hotConfig(t)
	var fleet *Fleet
	var moved *copying
	begun := false
	cfg.Rule = func(f *Fleet) Rule { fleet = f; return routeRule{} }
	cfg.Sampled = func(_ Sample, _ time.Duration) {
		for _, c := range fleet.copying {
			if moved == nil && c.slice != nil {
				for i := range fleet.wanted {
					if fleet.wanted[i] == c.wantedCopy {
						fleet.wanted[i].gateway ^= 1
						moved = c
					}
				}
			}
			begun = begun || moved != nil && c.worker == moved.worker && c.gateway != moved.gateway
		}
	}
	play(t, cfg)
	if moved == nil || !moved.over || moved.done >= 8000 || !begun {
		t.Errorf("%+v of the old maker; the new one has begun: %v", moved, begun)
	}
}

func TestMakersAreGatewaysThatDispatchedLately(t *testing.T) {
	f := &Fleet{now: 10 * time.Second, cfg: Config{Policy: policy.Default(policy.Cost)}}
	for i, at := range []time.Duration{0, 7900 * time.Millisecond, 8 * time.Second, 10 * time.Second} {
		f.gateways = append(f.gateways, &Gateway{Index: i, dispatched: at})
	}
	if got := f.makers(); !reflect.DeepEqual(got, []uint64{3, 4}) {
		t.Errorf("makers %v", got)
	}
	if f.cfg.Policy.CopySlice = 0; f.makers() != nil {
		t.Error("makers without slices")
	}
}

// Where nothing is hot, and under rules that know no homes, slices or none is the same to the byte.
func TestNoSlicesWithoutAHotPrefix(t *testing.T) {
	for _, x := range []struct{ scenario, rule string }{{"seed-16", "cost"}, {"hot-prefix", "threshold"}, {"hot-prefix", "reference"}} {
		s, err := FindScenario(x.scenario)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, slice := range []int{0, 768} {
			r, err := s.Run(Play{Seed: 1, Rate: 25, Requests: 1500, Policy: x.rule, Tune: func(p *policy.Policy) { p.CopySlice = slice }})
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		if texts[0] != texts[1] || strings.Contains(texts[0], "slices") || strings.Contains(texts[0], "copies") {
			t.Errorf("%s under %s:\n%s\n%s", x.scenario, x.rule, texts[0], texts[1])
		}
	}
}
