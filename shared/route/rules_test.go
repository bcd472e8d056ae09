package route

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// vllm-project/router #253: a setting had no effect. Each parameter here turns one decision
// into another.
func TestEveryParameterChangesADecision(t *testing.T) {
	for _, c := range []struct {
		name    string
		rule    policy.Name
		prepare func(v *View, req *Request)
		set     func(p *policy.Policy)
		why     [2]Why // with the default, with the setting
		same    bool   // the worker may stay the same where the reason changes
	}{
		{
			name: "load_limit", prepare: func(v *View, req *Request) { v.worker(1).Load = 0.7 },
			set: func(p *policy.Policy) { p.LoadLimit = 0.6 }, why: [2]Why{WhyHolder, WhySpill},
		}, {
			name: "min_match_tokens", prepare: func(*View, *Request) {},
			set: func(p *policy.Policy) { p.MinMatchTokens = 2500 }, why: [2]Why{WhyHolder, WhyRing}, same: true,
		}, {
			name: "watermark", prepare: func(v *View, req *Request) { v.worker(1).Watermark = 0.9 },
			set: func(p *policy.Policy) { p.Watermark = 0.9 }, why: [2]Why{WhyHolder, WhySpill},
		}, {
			name: "watermark", rule: policy.LeastLoad,
			prepare: func(v *View, req *Request) {
				for i := range v.Workers {
					v.Workers[i].Load = 0.5
				}
				v.worker(1).Load, v.worker(1).Watermark = 0.1, 0.9
			},
			set: func(p *policy.Policy) { p.Watermark = 0.9 }, why: [2]Why{WhyLeastLoad, WhyLeastLoad},
		}, {
			name: "watermark", rule: policy.CHWBL,
			prepare: func(v *View, req *Request) { v.worker(choose(req, v).Best).Watermark = 0.9 },
			set:     func(p *policy.Policy) { p.Watermark = 0.9 }, why: [2]Why{WhyHash, WhyHash},
		}, {
			name: "load_bound", rule: policy.CHWBL,
			prepare: func(v *View, req *Request) {
				for i := range v.Workers {
					v.Workers[i].InFlight = 10
				}
				v.worker(choose(req, v).Best).InFlight = 11
			},
			set: func(p *policy.Policy) { p.LoadBound = 1.01 }, why: [2]Why{WhyHash, WhyHash},
		}, {
			name: "load_bound", prepare: func(v *View, req *Request) {
				req.Matches = nil
				for i := range v.Workers {
					v.Workers[i].InFlight = 10
				}
				v.worker(choose(req, v).Best).InFlight = 11
			},
			set: func(p *policy.Policy) { p.LoadBound = 1.01 }, why: [2]Why{WhyRing, WhyRing},
		}, {
			name: "holder_bound", prepare: func(v *View, req *Request) {
				for i := range v.Workers {
					v.Workers[i].InFlight = 10
				}
				v.worker(1).InFlight = 15
			},
			set: func(p *policy.Policy) { p.HolderBound = 1.1 }, why: [2]Why{WhyHolder, WhySpill},
		}, {
			name: "load_decay_ms", rule: policy.LeastLoad,
			prepare: func(v *View, req *Request) {
				for i := range v.Workers {
					v.Workers[i].Load = 0.2 + 0.1*float64(i%3)
				}
				v.worker(1).Load, v.worker(1).Age = 0.1, time.Second // the least loaded, long ago
			},
			set: func(p *policy.Policy) { p.LoadDecay = time.Second }, why: [2]Why{WhyLeastLoad, WhyLeastLoad},
		}, {
			name: "lease_ms", prepare: func(v *View, req *Request) { v.worker(1).Age = 20 * time.Second },
			set: func(p *policy.Policy) { p.Lease = 10 * time.Second }, why: [2]Why{WhyHolder, WhyRing},
		},
	} {
		v := fleet(8, c.rule)
		req := long(holds(1, 2048))
		c.prepare(v, req)
		before := choose(req, v)
		c.set(&v.Pool.Policy)
		after := choose(req, v)
		if before.Why != c.why[0] || after.Why != c.why[1] || !c.same && before.Best == after.Best {
			t.Errorf("%s with %v: %d by %v, then %d by %v", c.name, c.rule, before.Best, before.Why, after.Best, after.Why)
		}
	}
}

func TestVirtualNodesChangeWhereKeysGo(t *testing.T) {
	for _, rule := range []policy.Name{policy.Threshold, policy.CHWBL, policy.SessionHash} {
		few := fleet(8, rule, func(p *policy.Policy) { p.VirtualNodes = 1 })
		many := fleet(8, rule, func(p *policy.Policy) { p.VirtualNodes = 160 })
		moved := 0
		for key := range uint64(100) {
			req := &Request{PromptTokens: 4096, RingKey: key + 1, SessionKey: key + 1}
			if choose(req, few).Best != choose(req, many).Best {
				moved++
			}
		}
		if moved < 30 {
			t.Errorf("%v: %d of 100 keys moved", rule, moved)
		}
	}
}

func TestSessionHashSticksToItsWorkerWhateverTheLoad(t *testing.T) {
	v := fleet(8, policy.SessionHash)
	first := choose(long(), v)
	v.worker(first.Best).Load, v.worker(first.Best).InFlight = 5, 500
	req := long(holds(3, 4096))
	req.RingKey = 99
	if d := choose(req, v); d.Best != first.Best || d.Second != first.Second || d.Why != WhySession {
		t.Errorf("%d then %d by %v, before %d then %d", d.Best, d.Second, d.Why, first.Best, first.Second)
	}
	v.worker(first.Best).State = Down
	if d := choose(long(), v); d.Best != first.Second {
		t.Errorf("%d after the loss of the first, want the next on the ring %d", d.Best, first.Second)
	}
}

func TestRoundRobinVisitsEveryWorkerInTurn(t *testing.T) {
	v := fleet(5, policy.RoundRobin)
	v.worker(3).State = Down
	count := map[uint16]int{}
	for i := range uint64(40) {
		d := choose(&Request{Sequence: i, PromptTokens: 1000, RingKey: 1}, v)
		count[d.Best]++
		if next := choose(&Request{Sequence: i + 1}, v); d.Second != next.Best {
			t.Errorf("second %d, the next in turn is %d", d.Second, next.Best)
		}
	}
	for _, ref := range []uint16{1, 2, 4, 5} {
		if count[ref] != 10 {
			t.Errorf("worker %d got %d of 40", ref, count[ref])
		}
	}
	// 2^64 requests later it goes on.
	if d := choose(&Request{Sequence: ^uint64(0)}, v); d.Best == 0 || d.Second == 0 {
		t.Errorf("%+v", d)
	}
}

func TestLeastLoadIgnoresTheMatch(t *testing.T) {
	v := fleet(4, policy.LeastLoad)
	for i := range v.Workers {
		v.Workers[i].Load = 0.4
	}
	v.worker(4).Load, v.worker(2).Load = 0.1, 0.2
	if d := choose(long(holds(1, 4000)), v); d.Best != 4 || d.Second != 2 || d.Why != WhyLeastLoad || d.MatchedTokens != 0 {
		t.Errorf("%+v", d)
	}
}

func TestEqualLoadsAreSpreadByPrefixAndEveryGatewayAgrees(t *testing.T) {
	v := fleet(8, policy.LeastLoad)
	count := map[uint16]int{}
	for key := range uint64(800) {
		req := &Request{PromptTokens: 4096, RingKey: key + 1}
		d := choose(req, v)
		count[d.Best]++
		var other Decision
		Choose(req, v, 0, NewRand(key+7), &other)
		if other.Best != d.Best {
			t.Fatalf("key %d: two gateways chose %d and %d", key, d.Best, other.Best)
		}
	}
	for ref := uint16(1); ref <= 8; ref++ {
		if count[ref] < 60 || count[ref] > 140 {
			t.Errorf("worker %d got %d of 800", ref, count[ref])
		}
	}
}

func TestLoadOfIsTheLargestOfItsTerms(t *testing.T) {
	w := Worker{Running: 30, Waiting: 10, MaxRunning: 100, QueueLimit: 50}
	for _, c := range []struct {
		kv   float64
		own  int
		want float64
	}{{0, 0, 0.3}, {0.5, 0, 0.5}, {0.5, 40, 0.7}, {0, -5, 0.3}} {
		if got := LoadOf(&w, c.kv, c.own); got != c.want {
			t.Errorf("kv %v own %d: %v, want %v", c.kv, c.own, got, c.want)
		}
	}
	w.Waiting = 45
	if got := LoadOf(&w, 0.5, 0); got != 0.9 {
		t.Errorf("queue: %v", got)
	}
	if got := LoadOf(&Worker{Running: 5, Waiting: 5}, 0.25, 3); got != 0.25 {
		t.Errorf("no limits known: %v", got)
	}
}

func TestRandIsSeededAndEven(t *testing.T) {
	a, b := NewRand(5), NewRand(5)
	count := [7]int{}
	for range 7000 {
		n := a.IntN(7)
		if n != b.IntN(7) {
			t.Fatal("equal seeds differ")
		}
		count[n]++
		if f := a.Float64(); f < 0 || f >= 1 || f != b.Float64() {
			t.Fatalf("%v", f)
		}
	}
	for i, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("%d came %d times of 7,000", i, n)
		}
	}
}
