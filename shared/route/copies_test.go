package route

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
)

// spoken is a request whose messages end at the given tokens, the last of them at the prompt's end.
func spoken(ends ...int) *Request {
	req := long()
	req.PromptTokens = ends[len(ends)-1] + 5
	for i, end := range ends {
		req.Checkpoints = append(req.Checkpoints, fingerprint.Checkpoint{Fingerprint: uint64(i + 1), End: uint32(end / 16), TurnEnd: true})
	}
	return req
}

func TestAHomePaysHalfForTheCopyThatItIsToGet(t *testing.T) {
	v := priced(4)
	v.worker(1).UncachedTokens = 6000 // holds the prefix, and has a queue
	req := long(holds(1, 2048))
	req.Checkpoints = []fingerprint.Checkpoint{{Fingerprint: 7, End: 64}, {Fingerprint: 8, End: 128}, {Fingerprint: 9, End: 256}}
	if d := choose(req, v); d.Best != 1 {
		t.Fatalf("%d has the request before there are homes: %+v", d.Best, d.Candidates)
	}
	v.Homes = []Home{
		{Fingerprint: 7, Units: 64, Refs: []uint16{3, 4}}, // the deeper one counts
		{Fingerprint: 8, Units: 128, Refs: []uint16{1, 2, 99}},
		{Fingerprint: 5, Units: 256, Refs: []uint16{4}}, // of another prefix
	}
	d := choose(req, v)
	if d.Best != 2 {
		t.Errorf("%d has the request, its home is 2: %+v", d.Best, d.Candidates)
	}
	want := homePrice*0.2048 + 4*0.2048 // the copy, and what isn't hot
	if got := d.Candidates[1]; math.Abs(got.Terms.Miss-want) > 1e-9 || !got.Home || d.Candidates[2].Home {
		t.Errorf("miss %v, want %v: %+v", got.Terms.Miss, want, d.Candidates)
	}
	if got := d.Candidates[0]; math.Abs(got.Terms.Miss-4*0.2048) > 1e-9 {
		t.Errorf("a home with its copy pays %v", got.Terms.Miss)
	}
	slices.Reverse(v.Homes)
	if again := choose(req, v); again.Best != 2 || again.Candidates[2].Home {
		t.Errorf("with the prefixes the other way round %d: %+v", again.Best, again.Candidates)
	}
}

// An explanation tells all that a miss is made of: whoever reads it can add it up.
func TestAMissIsTheSumOfItsParts(t *testing.T) {
	v := priced(5)
	tight(v, 0.85*0.98, 20) // half way
	v.worker(1).UncachedTokens = 0
	v.worker(2).CacheAge = time.Second
	v.worker(3).EvictShare, v.worker(3).EvictFor = 0.5, time.Second
	req := spoken(1024, 2048, 4000)
	req.Matches = []table.Match{holds(1, 2048)}
	v.Homes = []Home{{Fingerprint: 1, Units: 64, Refs: []uint16{5}}}
	req.AddSent([]Sent{{Ref: 1, Units: 128, Ready: time.Second}})
	d := choose(req, v)
	for i, c := range d.Candidates {
		x := c.Terms
		if sum := x.Own*x.Prefill + x.Home + x.Sibling + x.Young + x.Gone; math.Abs(sum-x.Miss) > 1e-9 {
			t.Errorf("worker %d: the parts add up to %v: %+v", i+1, sum, x)
		}
		if price := d.Price.Base + d.Price.Each*x.HeldUp; math.Abs(price-x.Prefill) > 1e-9 || x.HeldUp != 20 {
			t.Errorf("worker %d: %v for %v requests held up, want %v: %+v", i+1, price, x.HeldUp, x.Prefill, d.Price)
		}
		if x.Home != 0 != (c.Ref == 5) || x.Young != 0 != (c.Ref == 2) || x.Gone != 0 != (c.Ref == 3) || x.Sibling != 0 != (c.Ref == 2 || c.Ref == 3 || c.Ref == 4) {
			t.Errorf("worker %d: %+v", i+1, x)
		}
	}
	if p := d.Price; p.Base != 4 || math.Abs(p.Tight-0.5) > 1e-6 || math.Abs(p.Memory-0.85*0.98) > 1e-6 || math.Abs(p.Each-(0.065+0.5*0.935)) > 1e-6 {
		t.Errorf("%+v", p)
	}
	v.Pool.Policy.Name = policy.LeastLoad
	if Choose(req, v, 0, NewRand(1), &d); d.Price != (Price{}) {
		t.Errorf("another rule: %+v", d.Price)
	}
}

func TestHomesAreAlwaysLookedAt(t *testing.T) {
	v := priced(40)
	v.Pool.Policy.Sample = 0.01
	req := long()
	req.Checkpoints = []fingerprint.Checkpoint{{Fingerprint: 8, End: 128}}
	v.Homes = []Home{{Fingerprint: 8, Units: 128, Refs: []uint16{5, 17, 31}}}
	for _, c := range choose(req, v).Candidates {
		if c.Home && !c.Terms.Seen {
			t.Errorf("home %d isn't looked at", c.Ref)
		}
	}
}

// A worker with an empty cache gets what it answers soon, and no queue: its price is that of how much
// later the first token comes there than where most is held, and fades into the usual one. Where half of
// the pool is young half as much again is allowed.
func TestAYoungWorkerIsPricedByHowMuchLaterTheFirstTokenComes(t *testing.T) {
	miss := func(prompt, held, waiting int, age, after time.Duration) float64 {
		v := priced(2)
		v.Pool.Policy.Ramp, v.Pool.Policy.RampFirst = 20*time.Second, 150*time.Millisecond
		v.worker(2).CacheAge, v.worker(2).UncachedTokens = age, waiting
		req := long(holds(1, held))
		req.PromptTokens = prompt
		c := chooseAt(req, v, after).Candidates[1].Terms
		return c.Wait + c.Miss
	}
	for _, c := range []struct {
		name                  string
		prompt, held, waiting int
		age, after            time.Duration
		want                  float64
	}{
		{"grown", 2400, 1440, 0, 0, 0, 4 * 0.24},
		{"what nobody holds costs as everywhere", 1500, 0, 0, time.Nanosecond, 0, 4 * 0.15},
		{"but a queue before it counts", 1500, 0, 2250, time.Nanosecond, 0, 4 * (0.15 + 0.225)},
		{"a little later is nearly free", 1700, 720, 0, time.Nanosecond, 0, 4 * (0.098 + 0.225*math.Pow(0.072/0.225, 16))},
		{"as dear as elsewhere where it takes longer by what is allowed", 1550, 1440, 2250 - 1440, time.Nanosecond, 0, 4 * (0.011 + 0.225)},
		{"as good as refused beyond", 4000, 3200, 0, time.Nanosecond, 0, 4 * (0.08 + 0.225*math.Pow(0.32/0.225, 16))},
		{"half way", 1700, 720, 0, 10 * time.Second, 0, 2*(0.098+0.1875*math.Pow(0.072/0.1875, 16)) + 2*0.17},
		{"it ages with the view", 1700, 720, 0, 5 * time.Second, 5 * time.Second, 2*(0.098+0.1875*math.Pow(0.072/0.1875, 16)) + 2*0.17},
		{"over", 1700, 720, 0, 20 * time.Second, 0, 4 * 0.17},
	} {
		if got := miss(c.prompt, c.held, c.waiting, c.age, c.after); math.Abs(got-c.want) > 1e-6*max(1, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A conversation that lives at a young worker stays there for a queue as long as its prompt takes
// elsewhere, and what others wait for counts as well. One that lives elsewhere doesn't leave a queue for it.
func TestAYoungWorkerIsLeftForWhereTheFirstTokenComesSooner(t *testing.T) {
	const allowed = 0.225 // half of the pool is young
	for _, c := range []struct {
		name                string
		holder              uint16
		held, here, another int // tokens; those that wait at the young worker and at the other one
		want                float64
	}{
		{"no queue", 2, 4000, 0, 0, 4 * 0.0096},
		{"a queue shorter than the prompt", 2, 4000, 3500, 0, 4 * 0.0096},
		{"as much longer as is allowed", 2, 4000, 4000 + 2250, 0, 4 * (0.0096 + allowed)},
		{"beyond", 2, 4000, 4000 + 4500, 0, 4 * (0.0096 + allowed*65536)},
		{"beyond, and a queue elsewhere", 2, 4000, 4000 + 4500, 4500, 4 * 0.0096},
		{"nobody holds it, and a queue elsewhere", 2, 0, 2250, 2250, 4 * 0.4096},
		{"nobody holds it, no queue elsewhere", 2, 0, 2250, 0, 4 * (0.4096 + allowed)},
		{"the other one holds it, with a queue", 1, 1824, 0, 4500, 4 * (0.2272 + allowed*math.Pow(0.1824/allowed, 16))},
	} {
		v := priced(2)
		v.Pool.Policy.Ramp, v.Pool.Policy.RampFirst = 20*time.Second, 150*time.Millisecond
		v.worker(2).CacheAge = time.Nanosecond
		v.worker(1).UncachedTokens, v.worker(2).UncachedTokens = c.another, c.here
		x := choose(long(holds(c.holder, c.held)), v).Candidates[1].Terms
		if got := x.Wait + x.Miss; math.Abs(got-c.want) > 1e-6*max(1, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	v := priced(2) // the case: 54 tokens behind 0.3 s of others', or 4,096 tokens elsewhere
	v.worker(2).CacheAge, v.worker(2).UncachedTokens = time.Second, 3000
	if d := choose(long(holds(2, 4048)), v); d.Best != 2 {
		t.Errorf("%d computes all of it: %+v", d.Best, d.Candidates)
	}
}

// Where all share a system prompt that takes longer than is allowed, a worker that comes makes its copy
// once it is a home, with the first request, and the next ones wait until it is there.
func TestAYoungHomeGetsItsCopy(t *testing.T) {
	v := priced(4)
	v.worker(4).CacheAge = time.Nanosecond
	for i := range v.Workers[:3] {
		v.Workers[i].InFlight = 20
	}
	req := long(holds(1, 3504), holds(2, 3504), holds(3, 3504))
	req.PromptTokens, req.Checkpoints = 4000, []fingerprint.Checkpoint{{Fingerprint: 8, End: 219}}
	allowed := 1.25 * v.Pool.Policy.RampFirst.Seconds() // a quarter of the pool is young
	terms := func() Terms { return choose(req, v).Candidates[3].Terms }
	paid := func(t Terms) float64 { return t.Wait + t.Miss }

	if d := choose(req, v); d.Best == 4 || paid(d.Candidates[3].Terms) < 10 {
		t.Fatalf("without homes %d has the request: %+v", d.Best, d.Candidates)
	}
	v.Homes = []Home{{Fingerprint: 8, Units: 219, Refs: []uint16{1, 2, 3, 4}}}
	for _, homes := range [][]uint16{{4}, {1, 2, 3}} {
		v.Homes[0].Refs = homes
		if d := choose(req, v); d.Best == 4 {
			t.Errorf("with the homes %v it has the request: %+v", homes, d.Candidates)
		}
	}
	v.Homes[0].Refs = []uint16{1, 4}
	if d := choose(req, v); d.Best != 4 {
		t.Errorf("%d has the request, and a home stays idle: %+v", d.Best, d.Candidates)
	}
	if x := terms(); math.Abs(paid(x)-(x.Prefill*0.0496+homePrice*0.3504)) > 1e-6 {
		t.Errorf("its copy costs %v", paid(x))
	}
	v.worker(4).UncachedTokens, v.worker(4).InFlight = 4000, 1 // it makes the copy
	if d := choose(req, v); d.Best == 4 {
		t.Errorf("the next one goes there as well: %+v", d.Candidates)
	}
	v.worker(4).UncachedTokens = 0
	req.Matches = append(req.Matches, holds(4, 3504))
	if x := terms(); math.Abs(paid(x)-x.Prefill*0.0496) > 1e-6 {
		t.Errorf("with its copy it costs %v", paid(x))
	}
	req.Matches = []table.Match{holds(1, 3808)} // a conversation: what is beyond the hot prefix counts
	if x := terms(); math.Abs(paid(x)-(x.Prefill*0.0192+homePrice*0.3504+4*allowed*math.Pow(0.0304/allowed, 16))) > 1e-6 {
		t.Errorf("beside a conversation's own worker it costs %v", paid(x))
	}
	req.Matches = []table.Match{holds(1, 1600)} // nobody has all of it
	if x := terms(); math.Abs(paid(x)-(x.Prefill*0.0496+homePrice*0.3504)) > 1e-6 {
		t.Errorf("where nobody has a whole copy it costs %v", paid(x))
	}
}

// Who has lost its worker goes to one that has lost its cache before it goes to one whose hits it
// would delay: there is room, and nobody else who waits.
func TestAPromptThatNobodyHoldsGoesToTheYoungWorkerThatIsIdle(t *testing.T) {
	v := priced(3)
	for i := range v.Workers {
		v.Workers[i].Running = 10
	}
	v.worker(1).UncachedTokens, v.worker(2).UncachedTokens = 200, 200
	v.worker(3).CacheAge = time.Second
	if d := choose(long(), v); d.Best != 3 {
		t.Errorf("%d has it: %+v", d.Best, d.Candidates)
	}
	if d := choose(long(holds(1, 4000)), v); d.Best != 1 {
		t.Errorf("a conversation leaves its worker for %d: %+v", d.Best, d.Candidates)
	}
}

// What is computed where the cache is about to go has to be computed once more.
func TestNothingNewGoesWhereAnEvictionIsAnnounced(t *testing.T) {
	miss := func(left, after time.Duration, held int) float64 {
		v := priced(2)
		v.worker(2).EvictShare, v.worker(2).EvictFor = 0.5, left
		req := long(holds(2, held))
		req.PromptTokens = 3000
		return chooseAt(req, v, after).Candidates[1].Terms.Miss
	}
	for _, c := range []struct {
		name        string
		left, after time.Duration
		held        int
		want        float64
	}{
		{"nothing announced", 0, 0, 1024, 4 * 0.1976},
		{"far away", 11 * time.Second, 0, 1024, 4 * 0.1976},
		{"half of it goes", 9 * time.Second, 0, 1024, 6 * 0.1976},
		{"what is held stays cheap", 9 * time.Second, 0, 2992, 6 * 0.0008},
		{"over", 3 * time.Second, 3 * time.Second, 1024, 4 * 0.1976},
	} {
		if got := miss(c.left, c.after, c.held); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A young worker's share is told by what is in flight there and not by what it has computed lately.
func TestAYoungWorkerIsCheaperTheFewerRequestsItHas(t *testing.T) {
	spread := func(age time.Duration, requests int) float64 {
		v := priced(2)
		v.Pool.Policy.Ramp = 20 * time.Second
		v.worker(1).InFlight, v.worker(2).InFlight = 8-requests, requests
		v.worker(2).CacheAge, v.worker(2).RecentTokens = age, 1000
		return choose(long(), v).Candidates[1].Terms.Spread
	}
	for _, c := range []struct {
		age      time.Duration
		requests int
		want     float64
	}{
		{time.Nanosecond, 0, -1},
		{time.Nanosecond, 2, -0.5},
		{time.Nanosecond, 4, 0},
		{time.Nanosecond, 7, 0},
		{10 * time.Second, 0, -0.4},
		{10 * time.Second, 4, 0.1},
		{0, 0, 0.2},
		{20 * time.Second, 0, 0.2},
	} {
		if got := spread(c.age, c.requests); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("age %v, %d of 8 requests: %v, want %v", c.age, c.requests, got, c.want)
		}
	}
}

// Of many young workers, all of them idle, each prefix has its own, whoever chooses; other prefixes
// have others. Who holds as much of the prompt as any young one is as good.
func TestEveryPrefixHasAYoungWorkerOfItsOwn(t *testing.T) {
	v := priced(16)
	v.Pool.Policy.Sample = 1
	for i := range v.Workers {
		v.Workers[i].CacheAge = time.Second
	}
	detours := func(req *Request) (own []uint16) {
		least := math.Inf(1)
		candidates := choose(req, v).Candidates
		for _, c := range candidates {
			least = min(least, c.Terms.Cost)
		}
		for _, c := range candidates {
			if c.Terms.Cost < least+sameCost {
				own = append(own, c.Ref)
			}
		}
		return own
	}
	had := map[uint16]bool{}
	for key := range uint64(64) {
		req := long()
		req.RingKey, req.SessionKey = mixed(key), 0
		own := detours(req)
		if len(own) != 1 {
			t.Fatalf("prefix %d has %v", key, own)
		}
		had[own[0]] = true
		req.SessionKey = key + 1
		if again := detours(req); !slices.Equal(own, again) {
			t.Errorf("prefix %d has %v, of a session %v", key, own, again)
		}
	}
	if len(had) < 12 {
		t.Errorf("64 prefixes have %d of 16 workers", len(had))
	}
	req := long(holds(3, 1024), holds(9, 1024), holds(12, 512))
	req.RingKey = mixed(1)
	if own := detours(req); !slices.Equal(own, []uint16{3, 9}) {
		t.Errorf("%v, want the holders of the longest match", own)
	}
	req = long()
	req.RingKey = 0
	if own := detours(req); len(own) != 16 {
		t.Errorf("without a prefix %v", own)
	}
}

// An idle young worker draws as much as a detour costs: a prefix that all requests share fills them all.
func TestAPrefixOfAllFillsAllYoungWorkers(t *testing.T) {
	v := priced(8)
	for i := range v.Workers {
		v.Workers[i].CacheAge = time.Second
	}
	had := map[uint16]int{}
	for range 80 {
		best := choose(long(), v).Best
		had[best]++
		v.worker(best).InFlight++
		v.worker(best).UncachedTokens += 400
	}
	for i := range v.Workers {
		if n := had[v.Workers[i].Ref]; n < 5 || n > 20 {
			t.Fatalf("80 requests: %v", had)
		}
	}
}

// mixed makes a fingerprint of a number.
func mixed(n uint64) uint64 { return (n + 1) * 0x9e3779b97f4a7c15 }

func TestTheRampsParametersChangeADecision(t *testing.T) {
	for name, set := range map[string]func(p *policy.Policy){
		"ramp_ms":       func(p *policy.Policy) { p.Ramp = 0 },
		"ramp_first_ms": func(p *policy.Policy) { p.RampFirst = 30 * time.Millisecond },
	} {
		v := priced(2) // worker 1 has half of the prompt and a queue, worker 2 nothing yet
		v.worker(1).UncachedTokens, v.worker(2).CacheAge = 1500, time.Second
		req := long(holds(1, 512))
		req.PromptTokens = 1000
		if d := choose(req, v); d.Best != 2 {
			t.Fatalf("%d has the request: %+v", d.Best, d.Candidates)
		}
		set(&v.Pool.Policy)
		if d := choose(req, v); d.Best != 1 {
			t.Errorf("%s changes nothing: %+v", name, d.Candidates)
		}
	}
}

func TestExploringSendsItsShareByChance(t *testing.T) {
	for _, rule := range []policy.Name{policy.Cost, policy.Weighted, policy.Threshold} {
		v := fleet(5, rule)
		rng := NewRand(7)
		var d Decision
		count := func() (explored, seconds int) {
			for range 4000 {
				Choose(long(holds(1, 4080)), v, 0, rng, &d)
				if d.Why == WhyExplore {
					explored++
				} else if d.Best != 1 {
					t.Fatalf("%v: %d by %v", rule, d.Best, d.Why)
				}
				if d.Second != 0 && d.Second != d.Best {
					seconds++
				}
			}
			return explored, seconds
		}
		if n, _ := count(); n != 0 {
			t.Errorf("%v: %d explored by default", rule, n)
		}
		v.Pool.Policy.Explore = 0.05
		if n, seconds := count(); n < 150 || n > 250 || seconds != 4000 {
			t.Errorf("%v: %d of 4,000 explored, want 200; %d have a second choice", rule, n, seconds)
		}
	}
}

func TestAMatchAtTheEndOfAPromptHasItsAnswerToo(t *testing.T) {
	for _, c := range []struct {
		name        string
		ends        []int
		match, want int
	}{
		{"system, question, answer, question", []int{1600, 2080, 3200, 3520}, 2080, 3200},
		{"the shared system prompt alone", []int{1600, 2080, 3200, 3520}, 1600, 1600},
		{"beyond the answer", []int{1600, 2080, 3200, 3520}, 3200, 3200},
		{"an earlier turn", []int{1600, 2080, 3200, 3520, 4800, 5120}, 2080, 3200},
		{"the last turn", []int{1600, 2080, 3200, 3520, 4800, 5120}, 3520, 4800},
		{"no system prompt", []int{480, 1600, 1920}, 480, 1600},
		{"a word for a question", []int{1600, 2080, 3200, 3216}, 2080, 2080},
		{"the marks that begin an answer", []int{1600, 2080, 2096, 3200, 3520, 3536}, 2096, 3200},
		{"within a message", []int{1600, 2080, 3200, 3520}, 1920, 1920},
		{"the whole prompt", []int{1600, 2080, 3200, 3520}, 3520, 3520},
	} {
		req := spoken(c.ends...)
		req.Matches = append(req.Matches, holds(2, c.match))
		v := priced(3)
		if got := choose(req, v).Candidates[1].MatchedTokens; got != c.want {
			t.Errorf("%s: %d tokens, want %d", c.name, got, c.want)
		}
		req.Exact = true
		if got := choose(req, v).Candidates[1].MatchedTokens; got != c.match {
			t.Errorf("%s: %d tokens where the table knows tokens, want %d", c.name, got, c.match)
		}
		req.Exact, req.Checkpoints = false, nil
		if got := choose(req, v).Candidates[1].MatchedTokens; got != c.match {
			t.Errorf("%s: %d tokens of an unknown prompt, want %d", c.name, got, c.match)
		}
	}
}
