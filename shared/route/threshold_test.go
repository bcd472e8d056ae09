package route

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
)

// vllm-project/production-stack PR #1055: the first entry of the match list was used.
func TestLongestMatchWinsWhateverTheOrder(t *testing.T) {
	v := fleet(4, policy.Threshold)
	for _, matches := range [][]table.Match{
		{holds(1, 512), holds(2, 2304)},
		{holds(2, 2304), holds(1, 512)},
		{holds(1, 512), holds(2, 1024), holds(2, 2304), holds(2, 256)},
	} {
		d := choose(long(matches...), v)
		if d.Best != 2 || d.Second != 1 || d.Why != WhyHolder || d.MatchedTokens != 2304 {
			t.Errorf("%v: %+v", matches, d)
		}
	}
}

func TestATokenInSlowerMemoryCountsAsAPartOfOne(t *testing.T) {
	v := fleet(4, policy.Threshold)
	v.Pool.SlowCredit = 0.5
	for _, c := range []struct {
		name        string
		match, slow []table.Match
		best        uint16
		tokens      int
		held        int // of them, without the slow ones
	}{
		{"more than a miss", nil, []table.Match{holds(3, 2048)}, 3, 1024, 0},
		{"less than the GPU's", []table.Match{holds(2, 2048)}, []table.Match{holds(3, 2048)}, 2, 2048, 2048},
		{"twice as many", []table.Match{holds(2, 1024)}, []table.Match{holds(3, 3072)}, 3, 1536, 0},
		{"behind what is on the GPU", []table.Match{holds(2, 2048), holds(3, 1024)}, []table.Match{holds(3, 4096)}, 3, 2560, 1024},
		{"nothing beyond it", []table.Match{holds(2, 2048)}, []table.Match{holds(2, 1024)}, 2, 2048, 2048},
		{"somebody who isn't there", []table.Match{holds(2, 2048)}, []table.Match{holds(9, 4096)}, 2, 2048, 2048},
	} {
		req := long(c.match...)
		req.SlowMatches = c.slow
		if c.name == "behind what is on the GPU" {
			req.PromptTokens = 8192
		}
		if d := choose(req, v); d.Best != c.best || d.MatchedTokens != c.tokens || d.HeldTokens != c.held || d.SlowTokens != c.tokens-c.held {
			t.Errorf("%s: %d with %d tokens, %d of them held, want %d with %d, %d", c.name, d.Best, d.MatchedTokens, d.HeldTokens, c.best, c.tokens, c.held)
		}
	}
	v.Pool.SlowCredit = 0
	req := long(holds(2, 512))
	req.SlowMatches = []table.Match{holds(3, 4096)}
	if d := choose(req, v); d.Best != 2 {
		t.Errorf("without credit: %d", d.Best)
	}
}

func TestThresholdStepByStep(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(v *View, req *Request)
		best    uint16 // 0: any
		why     Why
		matched int    // -1: any
		second  uint16 // 0: any
	}{
		{
			name:    "among holders of the longest match the least loaded",
			prepare: func(v *View, req *Request) { v.worker(1).Load = 0.6; v.worker(2).Load = 0.3; v.worker(3).Load = 0.5 },
			best:    2, second: 3, why: WhyHolder, matched: 2048,
		}, {
			// vllm-project/production-stack PR #1035: choice by cache only queued the hot prefix.
			name:    "a holder at the limit loses to a holder below it",
			prepare: func(v *View, req *Request) { v.worker(1).Load = 0.85; v.worker(2).Load = 0.84; v.worker(3).Load = 0.9 },
			best:    2, why: WhyHolder, matched: 2048,
		}, {
			name: "the next shorter match when the whole level is over the limit",
			prepare: func(v *View, req *Request) {
				v.worker(1).Load, v.worker(2).Load, v.worker(3).Load = 0.9, 0.95, 1
				req.Matches = append(req.Matches, holds(4, 1024), holds(5, 512))
			},
			best: 4, second: 5, why: WhyNextHolder, matched: 1024,
		}, {
			name: "no next level below min_match_tokens: the ring",
			prepare: func(v *View, req *Request) {
				v.worker(1).Load, v.worker(2).Load, v.worker(3).Load = 0.9, 0.95, 1
				req.Matches = append(req.Matches, holds(4, 240))
			},
			why: WhySpill,
		}, {
			name:    "a holder without free KV blocks is left",
			prepare: func(v *View, req *Request) { v.worker(1).Watermark, v.worker(3).Watermark = 0.98, 0.99 },
			best:    2, why: WhyHolder, matched: 2048,
		}, {
			name: "equal load: the fewest uncached tokens",
			prepare: func(v *View, req *Request) {
				v.worker(1).UncachedTokens, v.worker(2).UncachedTokens, v.worker(3).UncachedTokens = 500, 400, 600
			},
			best: 2, second: 1, why: WhyHolder, matched: 2048,
		}, {
			name:    "no match: the ring",
			prepare: func(v *View, req *Request) { req.Matches = nil },
			why:     WhyRing,
		}, {
			name:    "a match below min_match_tokens is no match",
			prepare: func(v *View, req *Request) { req.Matches = []table.Match{holds(1, 240)} },
			why:     WhyRing, matched: -1,
		}, {
			name: "a short prompt goes to the least load although somebody holds it",
			prepare: func(v *View, req *Request) {
				req.PromptTokens = 200
				for i := range v.Workers {
					v.Workers[i].Load = 0.5
				}
				v.worker(7).Load = 0.1
			},
			best: 7, why: WhyShort,
		}, {
			name:    "a prompt without length is routed by its match",
			prepare: func(v *View, req *Request) { req.PromptTokens = 0; v.worker(1).Load = 0.1; v.worker(2).Load = 0.2 },
			best:    3, why: WhyHolder, matched: 2048,
		}, {
			name: "half the trust, half the match",
			prepare: func(v *View, req *Request) {
				v.worker(1).Trust, v.worker(2).Trust, v.worker(3).Trust = 0.4, 0.4, 0.4
				req.Matches = append(req.Matches, holds(5, 1024))
			},
			best: 5, why: WhyHolder, matched: 1024,
		}, {
			name:    "no trust, no match",
			prepare: func(v *View, req *Request) { v.worker(1).Trust, v.worker(2).Trust, v.worker(3).Trust = 0, 0, 0 },
			why:     WhyRing, matched: -1,
		}, {
			name: "a sixteenth less is the same level",
			prepare: func(v *View, req *Request) {
				req.Matches = []table.Match{holds(1, 2048), holds(2, 1936), holds(3, 1904)}
				v.worker(1).Load, v.worker(2).Load, v.worker(3).Load = 0.3, 0.2, 0.1
			},
			best: 2, second: 1, why: WhyHolder, matched: 1936,
		}, {
			name: "whole blocks of the worker, and one token stays to compute",
			prepare: func(v *View, req *Request) {
				req.PromptTokens = 2048
				v.worker(2).BlockTokens = 64
				req.Matches = []table.Match{holds(2, 2048)}
			},
			best: 2, why: WhyHolder, matched: 1984,
		}, {
			name:    "excluded by the client",
			prepare: func(v *View, req *Request) { req.Exclude = []uint16{1, 3} },
			best:    2, why: WhyHolder, matched: 2048,
		}, {
			name: "down and draining holders are out",
			prepare: func(v *View, req *Request) {
				v.worker(1).State, v.worker(2).State = Down, Draining
			},
			best: 3, why: WhyHolder, matched: 2048,
		}, {
			name:    "one that failed a moment ago is out",
			prepare: func(v *View, req *Request) { v.worker(3).AvoidFor = time.Second; v.worker(2).AvoidFor = 1 },
			best:    1, why: WhyHolder, matched: 2048,
		}, {
			name:    "silent beyond the lease is out",
			prepare: func(v *View, req *Request) { v.worker(1).Age, v.worker(2).Age = time.Minute, 31*time.Second },
			best:    3, why: WhyHolder, matched: 2048,
		}, {
			name: "refs the view does not know are ignored",
			prepare: func(v *View, req *Request) {
				req.Matches = []table.Match{holds(60000, 4096), holds(0, 4096), holds(3, 512)}
			},
			best: 3, why: WhyHolder, matched: 512,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := fleet(8, policy.Threshold)
			req := long(holds(1, 2048), holds(2, 2048), holds(3, 2048))
			c.prepare(v, req)
			d := choose(req, v)
			if c.best != 0 && d.Best != c.best || d.Best == 0 || d.Why != c.why || c.matched >= 0 && d.MatchedTokens != c.matched {
				t.Errorf("best %d %v matched %d, want %d %v %d", d.Best, d.Why, d.MatchedTokens, c.best, c.why, c.matched)
			}
			if c.second != 0 && d.Second != c.second || d.Second == 0 || d.Second == d.Best {
				t.Errorf("second %d, want %d", d.Second, c.second)
			}
		})
	}
}

// sgl-project/sglang PR #27430: every request without text shared one key.
func TestRequestsWithoutTextAreSpreadOverAllWorkers(t *testing.T) {
	for _, rule := range []policy.Name{policy.Threshold, policy.CHWBL, policy.LeastLoad, policy.Random, policy.SessionHash} {
		v := fleet(8, rule)
		rng, count := NewRand(3), map[uint16]int{}
		var d Decision
		for range 100 {
			Choose(&Request{}, v, 0, rng, &d)
			count[d.Best]++
		}
		for ref := uint16(1); ref <= 8; ref++ {
			if count[ref] < 3 || count[ref] > 30 {
				t.Errorf("%v: worker %d got %d of 100", rule, ref, count[ref])
			}
		}
	}
}

// vllm-project/production-stack #957: a system prompt that everybody shares pulled all traffic
// to one worker. Replayed with the books of one gateway: nothing finishes.
func TestSharedSystemPromptDoesNotPinTheFleet(t *testing.T) {
	v := fleet(4, policy.Threshold)
	rng := NewRand(1)
	var d Decision
	matches := []table.Match{holds(1, 2048)}
	for i := range 320 {
		req := long(matches...)
		req.RingKey = uint64(i%8) + 77 // 8 users, different tails
		Choose(req, v, 0, rng, &d)
		w := v.worker(d.Best)
		w.InFlight++
		w.UncachedTokens += 2048
		w.Load = LoadOf(w, 0, w.InFlight)
		if d.MatchedTokens == 0 {
			matches = append(matches, holds(d.Best, 2048)) // it has it from now on
		}
	}
	for _, w := range v.Workers {
		if w.InFlight > 100 {
			t.Errorf("worker %d carries %d of 320, mean 80", w.Ref, w.InFlight)
		}
		if w.InFlight < 60 {
			t.Errorf("worker %d carries %d of 320: no replica was made", w.Ref, w.InFlight)
		}
	}
}

// sgl-project/sglang PR #14305: on a miss the overloaded worker was chosen.
func TestMissNeverGoesToAnOverloadedWorkerWhileOthersAreIdle(t *testing.T) {
	v := fleet(6, policy.Threshold)
	hot := v.worker(4)
	hot.Load, hot.Running, hot.Waiting, hot.InFlight = 1.2, 100, 60, 160
	for key := range uint64(200) {
		req := long()
		req.RingKey = key + 1
		if d := choose(req, v); d.Best == 4 || d.Second == 4 {
			t.Fatalf("key %d: %d then %d", key, d.Best, d.Second)
		}
	}
}

// PrimeIntellect-ai/prime-rl PR #3255: a session pinned by its hash overflows to the next
// worker once its own is over the bound.
func TestSaturatedPrimaryOverflowsToTheNextOnTheRing(t *testing.T) {
	for _, rule := range []policy.Name{policy.Threshold, policy.CHWBL} {
		v := fleet(6, rule)
		first := choose(long(), v)
		for i := range v.Workers {
			v.Workers[i].InFlight = 10
		}
		if even := choose(long(), v); even.Best != first.Best {
			t.Errorf("%v: moved from %d to %d under even load", rule, first.Best, even.Best)
		}
		v.worker(first.Best).InFlight = 20
		if d := choose(long(), v); d.Best != first.Second {
			t.Errorf("%v: overflow went to %d, the next on the ring is %d", rule, d.Best, first.Second)
		}
	}
}

// ai-dynamo/dynamo PR #9688: the limit of a worker was checked only when all were over it.
func TestWorkersOverTheLimitLeaveAndNobodyIsRefusedWhileAnyIsLeft(t *testing.T) {
	v := fleet(4, policy.Threshold)
	for _, ref := range []uint16{1, 2, 3} {
		v.worker(ref).Load = 0.99
	}
	for key := range uint64(100) {
		req := long(holds(1, 2048), holds(2, 2048))
		req.RingKey = key + 1
		if d := choose(req, v); d.Best != 4 || d.Why != WhySpill {
			t.Fatalf("key %d: %d by %v, only 4 is under the limit", key, d.Best, d.Why)
		}
	}
	v.worker(4).Load = 0.99
	if d := choose(long(holds(1, 2048)), v); d.Best == 0 || d.Why != WhySpill {
		t.Errorf("all over the limit: %d by %v", d.Best, d.Why)
	}
}

func TestDownFleetGivesNobody(t *testing.T) {
	v := fleet(3, policy.Threshold)
	for i := range v.Workers {
		v.Workers[i].State = Down
	}
	v.worker(2).State = Draining
	if d := choose(long(holds(1, 2048)), v); d.Best != 0 || d.Second != 0 || d.Why != WhyNone {
		t.Errorf("%+v", d)
	}
	if d := choose(long(), fleet(0, policy.Threshold)); d.Best != 0 || d.Why != WhyNone {
		t.Errorf("empty pool: %+v", d)
	}
	v.worker(3).State = Unknown
	if d := choose(long(), v); d.Best != 3 || d.Second != 0 {
		t.Errorf("one left: %+v", d)
	}
}

// A tenant with far more than a worker's share must not keep its one holder busy until the
// engine's own limits: it gets a second home, which then takes its part.
func TestAHotPrefixGetsASecondHomeBeforeItsHolderDrowns(t *testing.T) {
	v := fleet(16, policy.Threshold)
	for i := range v.Workers {
		v.Workers[i].InFlight, v.Workers[i].MaxRunning = 4, 64
	}
	req := &Request{PromptTokens: 4000, RingKey: 7, Matches: []table.Match{{Ref: 1, Units: 240}}}
	sent := map[uint16]int{}
	for range 60 {
		d := choose(req, v)
		sent[d.Best]++
		w := v.worker(d.Best)
		w.InFlight++
		w.Load = LoadOf(w, 0, w.InFlight)
		if d.Best != 1 && sent[d.Best] == 1 {
			req.Matches = append(req.Matches, table.Match{Ref: d.Best, Units: 240}) // it holds the prefix now
		}
	}
	if len(sent) < 3 || len(sent) > 8 {
		t.Errorf("60 requests at once for one prefix went to %d workers: %v", len(sent), sent)
	}
	for ref := range sent {
		if w := v.worker(ref); w.InFlight > 2*8+holderSlack {
			t.Errorf("worker %d has %d requests, the mean is 8", ref, w.InFlight)
		}
	}
}

// TestWhoWasOverTheBoundIsExplainedSo: the bound is of the mean of all, the chosen one included.
func TestWhoWasOverTheBoundIsExplainedSo(t *testing.T) {
	v := fleet(2, policy.Threshold, func(p *policy.Policy) { p.HolderBound = 1.5 })
	v.worker(1).InFlight, v.worker(2).InFlight = 40, 3
	v.worker(1).MaxRunning, v.worker(2).MaxRunning = 1000, 1000
	d := choose(long(holds(1, 4000), holds(2, 2000)), v)
	if d.Best != 2 || d.Why != WhyNextHolder {
		t.Fatalf("%d, %v", d.Best, d.Why)
	}
	for _, c := range d.Candidates {
		if want := map[uint16]Left{1: LeftLoad, 2: LeftNot}[c.Ref]; c.Left != want {
			t.Errorf("worker %d: left %q, want %q", c.Ref, c.Left, want)
		}
	}
}
