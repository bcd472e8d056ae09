package route

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// A share of the sessions, and not of the prefixes, is routed by the group's rule with its own
// parameters; without a session it goes by the prefix, and what has neither is never in it.
func TestAShareOfTheSessionsIsRoutedByTheControlGroupsRule(t *testing.T) {
	v := fleet(8, policy.Threshold)
	v.Pool.Control = policy.ControlGroup{Share: 0.3, Policy: policy.Default(policy.LeastLoad)}
	v.Pool.Control.Policy.Watermark = 0.5
	v.worker(1).Load = 0.1
	for i := range v.Workers[1:] {
		v.Workers[i+1].Load = 0.2
	}
	v.worker(1).Watermark = 0.6 // of the group's rule alone
	in := 0
	for session := range uint64(2000) {
		req := long(holds(2, 4000))
		req.SessionKey = session + 1
		d := choose(req, v)
		req.RingKey = session + 77 // another prompt of the same session
		if again := choose(req, v); again.Control != d.Control {
			t.Fatalf("session %d: in the group %v, then %v", session+1, d.Control, again.Control)
		}
		switch {
		case d.Control && (d.Why != WhyLeastLoad || d.Best == 1):
			t.Fatalf("%d by %v in the group, want the least load below its watermark", d.Best, d.Why)
		case !d.Control && (d.Why != WhyHolder || d.Best != 2):
			t.Fatalf("%d by %v beside the group, want the holder", d.Best, d.Why)
		}
		if d.Control {
			in++
		}
	}
	if in < 500 || in > 700 {
		t.Errorf("%d of 2,000 sessions in a group of 0.3", in)
	}
	in = 0
	for key := range uint64(2000) {
		req := &Request{PromptTokens: 4096, RingKey: key + 1}
		if choose(req, v).Control {
			in++
		}
	}
	if in < 500 || in > 700 {
		t.Errorf("%d of 2,000 prefixes without a session in a group of 0.3", in)
	}
	if choose(&Request{PromptTokens: 4096}, v).Control {
		t.Error("a request without session and prefix is in the group")
	}
}

func TestExploringNeverPicksAWorkerWithoutBlocksToSpare(t *testing.T) {
	for _, rule := range []policy.Name{policy.Cost, policy.Weighted, policy.Threshold} {
		v := fleet(4, rule, func(p *policy.Policy) { p.Explore = 0.5 })
		v.worker(3).Watermark = 0.99
		rng, explored := NewRand(3), 0
		var d Decision
		for range 1000 {
			Choose(long(), v, 0, rng, &d)
			if d.Why != WhyExplore {
				continue
			}
			explored++
			if d.Best == 3 {
				t.Fatalf("%v: the full worker", rule)
			}
		}
		if explored < 300 {
			t.Errorf("%v: %d of 1,000 explored", rule, explored)
		}
	}
}

// One that has failed a moment ago reports still; of a silent one nobody has heard for longer than
// its lease.
func TestAFailedWorkerIsTriedBeforeASilentOne(t *testing.T) {
	for rule := policy.Threshold; rule < policy.Custom; rule++ {
		v := fleet(3, rule)
		v.worker(1).Age, v.worker(3).Age = time.Hour, time.Hour
		v.worker(2).AvoidFor = time.Minute
		if d := choose(long(), v); d.Best != 2 || d.Second == 0 {
			t.Errorf("%v: %d, then %d", rule, d.Best, d.Second)
		}
	}
}
