package virtual

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
)

func testIndex(d Delays) (x *index, r *Request, find func(now time.Duration, generation uint32) int) {
	x = newIndex(d, rand.New(rand.NewPCG(1, 1)))
	r = &Request{Prompt: 64, blocks: []engine.BlockHash{11, 12, 13, 14}, ends: []int{2, 4}}
	find = func(now time.Duration, generation uint32) int {
		m := x.find(now, r, []int{2, 4}, []uint32{0, generation}, make([]int32, 2), nil)
		if len(m) == 0 {
			return 0
		}
		return int(m[0].Units)
	}
	return x, r, find
}

func TestTheIndexLearnsLateAndForgetsLate(t *testing.T) {
	d := Delays{Event: 200 * time.Millisecond, Prediction: 300 * time.Millisecond}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	x, r, find := testIndex(d)
	check := func(at, want int) {
		t.Helper()
		if got := find(ms(at), 0); got != want {
			t.Errorf("at %d ms: %d units, want %d", at, got, want)
		}
	}
	x.event(0, 1, 0, 14, true)
	check(10_000, 0) // nobody asked for it: the table doesn't know the checkpoint

	x.tell(ms(1000)+d.Prediction, []prediction{x.predict(ms(1000), r, 1, 0, []int{2, 4})})
	check(1299, 0)
	check(1300, 4)
	check(60_999, 4)
	check(61_000, 0) // nothing confirmed it within a minute

	x.tell(ms(70_000)+d.Prediction, []prediction{x.predict(ms(70_000), r, 1, 0, []int{2, 4})})
	check(70_299, 0) // as late as the first time
	x.event(ms(70_050), 1, 0, 12, true)
	check(70_249, 0)
	check(70_250, 2) // the event is faster than the prediction
	check(70_300, 4)
	x.event(ms(70_400), 1, 0, 14, true)
	x.sweep(ms(500_000))
	check(500_000, 4) // confirmed stays

	x.event(ms(500_000), 1, 0, 14, false)
	check(500_199, 4)
	check(500_200, 2)
	x.event(ms(600_000), 1, 0, 14, true) // and back
	check(600_199, 2)
	check(600_200, 4)

	if got := find(ms(600_200), 1); got != 0 {
		t.Errorf("%d units of a worker that has started anew", got)
	}
	x.forget(1)
	if len(x.chunks.numbers) != 0 {
		t.Errorf("%d chunks are held by nobody", len(x.chunks.numbers))
	}
}

func TestTheIndexDoesNotGrowWithTime(t *testing.T) {
	x, r, _ := testIndex(Delays{})
	for second := range 1000 {
		now := time.Duration(second) * time.Second
		for i := range r.blocks {
			r.blocks[i] = engine.BlockHash(second*4 + i + 1)
		}
		x.tell(now, []prediction{x.predict(now, r, 1, 0, []int{2, 4})})
		x.event(now, 1, 0, r.blocks[3], true)
		x.event(now, 1, 0, r.blocks[3], false)
		x.sweep(now)
	}
	if len(x.chunks.numbers) > 130 || len(x.gone.list) > 260 || len(x.expiring.list) > 260 {
		t.Errorf("%d chunks of checkpoints, %d removals and %d predictions are kept: a minute's worth is 120", len(x.chunks.numbers), len(x.gone.list), len(x.expiring.list))
	}
}

func TestLostEventsAreLost(t *testing.T) {
	x, r, _ := testIndex(Delays{EventLoss: 0.3})
	x.tell(0, []prediction{x.predict(0, r, 1, 0, []int{4})})
	arrived := 0
	for range 10_000 {
		x.placeOf(14).holders = nil
		x.event(0, 1, 0, 14, true)
		arrived += len(x.placeOf(14).holders)
	}
	if math.Abs(float64(arrived)/10_000-0.7) > 0.02 {
		t.Errorf("%d of 10,000 arrived, want 7,000", arrived)
	}
}

func TestWhatAPeerRemembersIsBounded(t *testing.T) {
	s := newSent(2, 4, 100)
	r := &Request{Prompt: 16 * 40}
	for round := range 3000 {
		r.blocks = r.blocks[:0]
		for i := range 40 {
			v := i // the same system prompt again and again, then something new
			if i >= 20 {
				v = round*100 + i
			}
			r.blocks = append(r.blocks, engine.BlockHash(v+1))
		}
		s.note(r, round%2)
		if s.held[0] > 100 || s.held[1] > 100 || len(s.order[0]) > 2000 || len(s.holds) > 100 {
			t.Fatalf("round %d: %v held, %d in order, %d chunks", round, s.held, len(s.order[0]), len(s.holds))
		}
	}
	tokens := make([]int, 2)
	s.match(r, tokens)
	if tokens[1] != 640 || tokens[0] != 320 {
		t.Errorf("matches %v, want 320 tokens at the one and 640 at the other", tokens)
	}
}

func TestBurstsKeepTheMeanRate(t *testing.T) {
	c := seed16()
	c.Burst = Burst{Period: 30 * time.Second, Length: 5 * time.Second, Factor: 3}
	for at := time.Duration(0); at < time.Minute; at += 137 * time.Millisecond {
		if back := c.Burst.real(c.Burst.even(at)); (back - at).Abs() > time.Microsecond {
			t.Fatalf("%v came back as %v", at, back)
		}
	}
	in, all := 0, 0
	s := small(func(s *Scenario) {
		s.Source, s.Rate, s.Requests, s.Params, s.Workers = c.Source, 40, 40*600, h200Pair(), 8
	})
	cfg := s.config(t, "cost", 1, nil)
	cfg.Arrived = func(_ *Request, now time.Duration) {
		if now < c.Settle() || now >= 540*time.Second { // settled, whole periods
			return
		}
		all++
		if now%c.Burst.Period < c.Burst.Length {
			in++
		}
	}
	if _, err := Run(cfg); err != nil {
		t.Fatal(err)
	}
	if got := float64(in) / float64(all); math.Abs(got-0.5) > 0.06 {
		t.Errorf("%.2f of the requests came in bursts, want half", got)
	}
	if rate := float64(all) / (540 - c.Settle().Seconds()); math.Abs(rate/40-1) > 0.1 {
		t.Errorf("%.1f requests/s in the mean, want 40", rate)
	}
}

func TestAMixKeepsItsPartsApart(t *testing.T) {
	s, err := FindScenario("hot-prefix")
	if err != nil {
		t.Fatal(err)
	}
	s.Workers, s.Requests = 8, 0
	source := s.Source(1, 10, 4000)
	ids := map[uint64]bool{}
	groups := map[string]int{}
	last := time.Duration(0)
	follow := 0
	for {
		at, r, ok := source.Open()
		if !ok {
			break
		}
		if at < last || ids[r.ID] {
			t.Fatalf("request %d at %v after %v", r.ID, at, last)
		}
		last, ids[r.ID] = at, true
		groups[r.Group]++
		if when, next, ok := source.After(r, at+time.Second); ok {
			if next.Group[:3] == "hot" || when < at || next.Session != r.Session || ids[next.ID] {
				t.Fatalf("%s at %v is followed by %s at %v", r.Group, at, next.Group, when)
			}
			ids[next.ID] = true
			follow++
		}
	}
	if n := groups["hot"] + groups["hot, first 3 s"]; math.Abs(float64(n)/7200-1) > 0.05 || groups["hot, first 3 s"] < 120 {
		t.Errorf("%v: want 7,200 hot ones, 180 of them in the first 3 s", groups)
	}
	if follow == 0 || groups["background"] == 0 || groups["background before and after"] == 0 {
		t.Errorf("%v, %d later turns", groups, follow)
	}
}

func TestATraceIsPlayedAsRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"timestamp":0,"input_length":1100,"output_length":40,"hash_ids":[1,2,3]}
{"timestamp":3000,"input_length":1600,"output_length":3,"hash_ids":[1,2,4,5]}
{"timestamp":3000,"input_length":500,"output_length":0,"hash_ids":[9]}
`)
	trace, err := ReadTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	source := trace.Source(1, 0.5, 10)
	var all []*Request
	for {
		at, r, ok := source.Open()
		if !ok {
			break
		}
		if at < 0 || at > 6*time.Second {
			t.Errorf("request at %v: three of them at 0.5/s last 6 s", at)
		}
		all = append(all, r)
	}
	if len(all) != 3 || all[0].Prompt != 1100 || all[0].Output != 40 || len(all[0].blocks) != 1140/16 {
		t.Fatalf("%d requests, the first %+v", len(all), all[0])
	}
	pool := newPool(1000, 1)
	hits := 0
	for _, r := range all {
		hits += pool.asked(r)
	}
	if hits != 64 {
		t.Errorf("%d blocks hit, want the 2 x 512 tokens that both prompts begin with", hits)
	}
	write(`{"timestamp":0,"input_length":1100,"output_length":40,"hash_ids":[1,2]}`)
	if _, err := ReadTrace(path); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a line without its hashes: %v", err)
	}
	s, err := FindScenario("mooncake-conversation")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(Play{Policy: "cost"}); err == nil || !strings.Contains(err.Error(), "--trace") {
		t.Errorf("a recorded scenario without its trace: %v", err)
	}
}

// Where every worker was given a copy of the hot prefix, no hot request computes it again.
func TestACopiedPrefixIsWhereItWasSent(t *testing.T) {
	s, err := FindScenario("hot-prefix-copied")
	if err != nil {
		t.Fatal(err)
	}
	copies := map[int]bool{}
	cfg := s.config(t, "cost", 1, func(o Outcome) {
		switch o.Group {
		case "copies":
			copies[o.Worker] = true
		case "hot", "hot, first 3 s":
			if o.Cached < 8000 {
				t.Errorf("a hot request at %v found %d tokens at worker %d", o.Arrived, o.Cached, o.Worker)
			}
		}
	})
	cfg.Source = s.Source(1, 10, 2800)
	if _, err := Run(cfg); err != nil {
		t.Fatal(err)
	}
	if len(copies) != s.Workers {
		t.Errorf("%d of %d workers were given a copy", len(copies), s.Workers)
	}
}

// TestAGroupSharesItsBriefAndBeginsTogether: sessions of a fan share system prompt and brief, come
// within its time, and arrive in order.
func TestAGroupSharesItsBriefAndBeginsTogether(t *testing.T) {
	c := seed16()
	c.Fan = Fan{MinWidth: 3, MaxWidth: 5, Within: 200 * time.Millisecond, Brief: Lengths{Mean: 3000, Min: 3000, Max: 3000}}
	source := c.Source(1, 40, 2000)
	type group struct {
		first time.Duration
		n     int
	}
	groups, last, requests := map[engine.BlockHash]*group{}, time.Duration(0), 0
	for {
		at, r, ok := source.Open()
		if !ok {
			break
		}
		requests++
		if at < last {
			t.Fatalf("request %d comes at %v, after one at %v", r.ID, at, last)
		}
		last = at
		brief := r.blocks[(r.talk.system+r.talk.brief)/engine.BlockTokens-1]
		if r.Prompt <= r.talk.system+3000 {
			t.Fatalf("a prompt of %d tokens, %d of them the system's", r.Prompt, r.talk.system)
		}
		g := groups[brief]
		if g == nil {
			g = &group{first: at}
			groups[brief] = g
		}
		if g.n++; at-g.first >= c.Fan.Within {
			t.Errorf("a sibling comes %v after the first", at-g.first)
		}
	}
	for _, g := range groups {
		if g.n > 5 {
			t.Errorf("a group of %d", g.n)
		}
	}
	if mean := float64(requests) / float64(len(groups)); mean < 3.5 || mean > 4.5 {
		t.Errorf("%v sessions a group", mean)
	}
}

// TestAGatewayKnowsItsOwnDispatchesAtOnce: of the 8 to 16 siblings of a group that begin within a
// fifth of a second three compute the brief; before a gateway remembered what it sent, seven did.
func TestAGatewayKnowsItsOwnDispatchesAtOnce(t *testing.T) {
	s, err := FindScenario("fan-out")
	if err != nil {
		t.Fatal(err)
	}
	s.Rate, s.Requests = 60, 2400
	for gateways, most := range map[int]float64{1: 3.5, 2: 4} {
		cold, siblings := map[uint64]int{}, 0
		cfg := s.config(t, "cost", 1, func(o Outcome) {
			if o.talk.group == 0 || o.Turn > 0 {
				return
			}
			siblings++
			if o.Cached < o.talk.system+o.talk.brief/4 {
				cold[o.talk.group]++
			}
		})
		cfg.Gateways = gateways
		if _, err := Run(cfg); err != nil {
			t.Fatal(err)
		}
		all := 0
		for _, n := range cold {
			all += n
		}
		mean := float64(all) / float64(len(cold))
		if mean > most || len(cold) < 10 {
			t.Errorf("%d gateways: %.1f of a group computed its brief, %d groups of %.1f", gateways, mean, len(cold), float64(siblings)/float64(len(cold)))
		}
	}
}

// TestALimitThatIsNowhereIsAnError: of a workload that meets the SLO at no rate, or at any.
func TestALimitThatIsNowhereIsAnError(t *testing.T) {
	for _, always := range []bool{false, true} {
		tries := 0
		rate, err := bisect(func(float64) (bool, error) {
			if tries++; tries > 1000 {
				t.Fatal("it never ends")
			}
			return always, nil
		}, 100, 1.06)
		if err == nil {
			t.Errorf("always %v: a limit of %v", always, rate)
		}
	}
	rate, err := bisect(func(rate float64) (bool, error) { return rate < 7, nil }, 100, 1.06)
	if err != nil || rate < 6.7 || rate > 7 {
		t.Errorf("%v, %v", rate, err)
	}
}
