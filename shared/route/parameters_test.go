package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/ring"
	"github.com/warmpath/warmpath/shared/table"
)

// otherValues are values beside the defaults, within reach of an operator, that must show in
// decisions. Each parameter that the parser knows has one.
var otherValues = map[string]string{
	"load_limit": "0.5", "min_match_tokens": "2000", "watermark": "0.5", "load_bound": "3", "holder_bound": "1.1",
	"virtual_nodes": "64", "load_decay_ms": "500", "lease_ms": "3000", "explore": "0.2",
	"miss_weight": "1", "decode_weight": "0.6", "output_tokens": "600", "decode_step_us": "1000", "evict_weight": "0.5",
	"tail_decay_ms": "3000", "spread_weight_ms": "600", "sample": "0.25", "ramp_ms": "0", "ramp_first_ms": "500",
	"cache_weight": "1", "max_queue": "0.2", "queue_breaker": "0.2",
}

// elsewhere are the parameters that act beside the choice.
var elsewhere = map[string]string{"copy_slice_tokens": "0"}

// keysOf are the parameters that the parser takes beside a rule: it names them all when it refuses
// one that it doesn't know.
func keysOf(t *testing.T, rule policy.Name) []string {
	_, err := policy.Parse(fmt.Appendf(nil, `{"pools":[{"name":"a","models":["*"],"policy":{"name":%q,"no such":1}}]}`, rule))
	var e *policy.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v: an unknown parameter is taken: %v", rule, err)
	}
	_, list, _ := strings.Cut(e.Remedy, "use one of ")
	keys := strings.Split(list, ", ")
	if len(keys) < 2 || keys[0] != "name" {
		t.Fatalf("%v: no parameters in %q", rule, e.Remedy)
	}
	return keys[1:]
}

func parsed(t *testing.T, rule policy.Name, more string) *policy.Pool {
	set, err := policy.Parse(fmt.Appendf(nil, `{"pools":[{"name":"a","models":["*"],"policy":{"name":%q%s}}]}`, rule, more))
	if err != nil {
		t.Fatalf("%v with %s: %v", rule, more, err)
	}
	return &set.Pools[0]
}

// busy is a fleet in the midst of its work: every worker is loaded, filled and heard of differently.
func busy(pool *policy.Pool, r *ring.Ring, rng *rand.Rand) *View {
	v := fleet(16, policy.Random, func(p *policy.Policy) { p.VirtualNodes = 1 })
	v.Pool, v.Score = pool, func(_ *Request, _ *Worker, f *Facts) float64 { return float64(f.CachedTokens)/4096 - f.Load }
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Running, w.Waiting, w.InFlight = rng.IntN(80), rng.IntN(10), rng.IntN(40)
		w.Watermark, w.Age = rng.Float64(), time.Duration(rng.IntN(6000))*time.Millisecond
		w.UncachedTokens, w.PrefillRate, w.DecodeSeconds = rng.IntN(6000), 10_000, 0.02
		w.FreeTokens, w.TailAge, w.RecentTokens = rng.IntN(3000), time.Duration(rng.IntN(60))*time.Second, float64(rng.IntN(9000))
		w.Load = LoadOf(w, w.Watermark/2, 0)
		if rng.IntN(8) == 0 {
			w.CacheAge = time.Duration(rng.IntN(20)) * time.Second
		}
	}
	v.Ring = r
	return v
}

// decisions are those of a pool about many requests at many moments, the same for every pool.
func decisions(pool *policy.Pool) (all []Decision) {
	rng := rand.New(rand.NewPCG(1, 2))
	empty := fleet(16, policy.Random, func(p *policy.Policy) { *p = pool.Policy })
	for n := range uint64(400) {
		v := busy(pool, empty.Ring, rng)
		req := &Request{PromptTokens: 1024 << rng.IntN(3), RingKey: rng.Uint64(), SessionKey: rng.Uint64(), Sequence: n}
		for range rng.IntN(4) {
			req.Matches = append(req.Matches, table.Match{Ref: uint16(1 + rng.IntN(16)), Units: uint32(1 + rng.IntN(250))})
		}
		req.Checkpoints = []fingerprint.Checkpoint{{Fingerprint: 1, End: 64}}
		d := Decision{}
		Choose(req, v, 0, NewRand(n), &d)
		all = append(all, d)
	}
	return all
}

// The parser's list is walked, so that a new parameter is no parameter before it has a value here
// that turns decisions.
func TestEveryParameterOfEveryRuleChangesDecisions(t *testing.T) {
	known := map[string]bool{}
	for rule := policy.Threshold; rule <= policy.Custom; rule++ {
		before := decisions(parsed(t, rule, ""))
		for _, key := range keysOf(t, rule) {
			value, has := otherValues[key]
			beside := false
			if !has {
				value, has = elsewhere[key]
				beside = has
			}
			if known[key] = true; !has {
				t.Errorf("%s is a parameter of %v without a value in this test", key, rule)
				continue
			}
			turned := 0
			for i, after := range decisions(parsed(t, rule, `,"`+key+`":`+value)) {
				if after.Best != before[i].Best {
					turned++
				}
			}
			if (turned == 0) != beside {
				t.Errorf("%s: %s changes %d of %d decisions by %v", key, value, turned, len(before), rule)
			}
			t.Logf("%-12v %-16s %5s: turns %d of %d decisions", rule, key, value, turned, len(before))
		}
	}
	for key := range otherValues {
		if !known[key] {
			t.Errorf("%s is no parameter of any rule", key)
		}
	}
}
