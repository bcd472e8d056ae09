package route

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
)

// ai-dynamo/dynamo #14213: an "overloaded" mark was set on one path and cleared on another
// that never fired. Here a mark is a duration: no event is needed to end it.
func TestAvoidMarkEndsByItselfWithinItsTime(t *testing.T) {
	v := fleet(4, policy.Threshold)
	v.At = time.Hour
	v.worker(2).AvoidFor = 3 * time.Second
	for _, c := range []struct {
		after time.Duration
		best  bool
	}{{0, false}, {2999 * time.Millisecond, false}, {3 * time.Second, true}, {time.Minute, true}} {
		v.worker(2).Age = -1 // its reports don't matter here
		d := chooseAt(long(holds(2, 2048)), v, v.At+c.after)
		if (d.Best == 2) != c.best {
			t.Errorf("after %v: best %d", c.after, d.Best)
		}
	}
}

func TestAvoidedAndSilentWorkersAreTriedRatherThanRefusing(t *testing.T) {
	v := fleet(3, policy.Threshold)
	v.worker(1).AvoidFor, v.worker(2).AvoidFor = time.Minute, time.Minute
	v.worker(3).State = Down
	if d := choose(long(holds(2, 2048)), v); d.Best != 2 || d.Second != 1 {
		t.Errorf("all avoided: %d then %d", d.Best, d.Second)
	}
	v.worker(3).State = Healthy
	if d := choose(long(holds(2, 2048)), v); d.Best != 3 || d.Second != 2 {
		t.Errorf("one not avoided: %d then %d", d.Best, d.Second)
	}
	for i := range v.Workers {
		v.Workers[i].AvoidFor, v.Workers[i].Age = 0, time.Hour
	}
	if d := choose(long(holds(2, 2048)), v); d.Best != 2 || d.Second == 0 {
		t.Errorf("all silent: %d then %d", d.Best, d.Second)
	}
}

func TestSilenceCountsOnlyWhileTheTableIsFresh(t *testing.T) {
	v := fleet(4, policy.Threshold)
	for i := range v.Workers {
		v.Workers[i].Age = time.Second
	}
	v.worker(2).Age = time.Hour
	v.worker(2).Trust = 1
	if d := choose(long(holds(2, 2048)), v); d.Best == 2 || d.Candidates[1].Left != LeftSilent {
		t.Errorf("fresh table: %d, left %v", d.Best, d.Candidates[1].Left)
	}
	v.Fresh = false
	if d := choose(long(holds(2, 2048)), v); d.Best != 2 {
		t.Errorf("old table: %d", d.Best)
	}
}

func TestTrustInAnOldTableSinksWithinAMinute(t *testing.T) {
	v := fleet(4, policy.Threshold)
	v.Fresh = false
	for _, c := range []struct {
		after    time.Duration
		credited int
	}{{0, 2048}, {15 * time.Second, 1536}, {45 * time.Second, 512}, {time.Minute, 0}, {time.Hour, 0}} {
		d := chooseAt(long(holds(2, 2048)), v, c.after)
		if got := d.Candidates[1].CreditedTokens; got != c.credited {
			t.Errorf("after %v: %d tokens credited, want %d", c.after, got, c.credited)
		}
		if (d.Why == WhyHolder) != (c.credited >= 256) {
			t.Errorf("after %v: %v", c.after, d.Why)
		}
	}
}

func TestOldLoadDecaysToTheMeanOfTheFleet(t *testing.T) {
	v := fleet(5, policy.LeastLoad)
	for i, load := range []float64{0.2, 0.4, 0.4, 0.6, 0} {
		v.Workers[i].Load = load
	}
	idle := v.worker(5) // was idle when it last reported
	for _, c := range []struct {
		age  time.Duration
		load float64
	}{{0, 0}, {2500 * time.Millisecond, 0.1778}, {5 * time.Second, 0.4}, {20 * time.Second, 0.4}} {
		idle.Age = c.age
		got := choose(long(), v).Candidates[4].Load
		if got < c.load-0.001 || got > c.load+0.001 {
			t.Errorf("age %v: load %.4f, want %.4f", c.age, got, c.load)
		}
	}
	idle.Age = 0
	if d := choose(long(), v); d.Best != 5 {
		t.Errorf("fresh and idle: best %d", d.Best)
	}
	idle.Age = 5 * time.Second
	if d := choose(long(), v); d.Best != 1 {
		t.Errorf("old report of idleness: best %d, want 1", d.Best)
	}
}

func TestOwnRequestsInFlightAreNeverOld(t *testing.T) {
	v := fleet(3, policy.LeastLoad)
	for i := range v.Workers {
		v.Workers[i].Age = time.Hour
		v.Workers[i].InFlight = 10 * (i + 1)
	}
	v.Fresh = false
	if d := choose(long(), v); d.Best != 1 || d.Candidates[2].Load != 0.3 {
		t.Errorf("%+v", d)
	}
}

// An announced eviction takes from what a match is worth in its last 200 ms, ends by itself, and
// leaves load alone.
func TestAnAnnouncedEvictionSinksTheWorthOfAMatchUntilItIsOver(t *testing.T) {
	for _, rule := range []policy.Name{policy.Threshold, policy.Cost, policy.Weighted} {
		v := fleet(4, rule)
		v.At = time.Hour
		v.worker(2).EvictShare, v.worker(2).EvictFor = 0.75, 12*time.Second
		for _, c := range []struct {
			after    time.Duration
			credited int
		}{{0, 3072}, {2 * time.Second, 3072}, {11 * time.Second, 3072}, {11960 * time.Millisecond, 1228}, {12*time.Second - 1, 768}, {12 * time.Second, 3072}, {time.Minute, 3072}} {
			v.worker(2).Age = -1
			d := chooseAt(long(holds(2, 3072), holds(3, 1536)), v, v.At+c.after)
			if got := d.Candidates[1].CreditedTokens; got != c.credited {
				t.Errorf("%v after %v: %d tokens credited, want %d", rule, c.after, got, c.credited)
			}
			if want := uint16(3 - c.credited/3072); d.Best != want {
				t.Errorf("%v after %v: best %d, want %d", rule, c.after, d.Best, want)
			}
		}
	}
}

// volcano-sh/kthena PR #1554: new pods without history got no traffic.
func TestNewWorkerGetsItsShareAndNoStampede(t *testing.T) {
	for _, rule := range []policy.Name{policy.Threshold, policy.LeastLoad, policy.CHWBL, policy.RoundRobin, policy.Random, policy.SessionHash} {
		v := fleet(4, rule)
		for i := range v.Workers {
			v.Workers[i].Load = 0.30
			v.Workers[i].Running, v.Workers[i].InFlight = 30, 30
		}
		newcomer := v.worker(4)
		*newcomer = Worker{Ref: 4, Address: newcomer.Address, Trust: 1, Age: Never, MaxRunning: 100}
		rng, got := NewRand(9), 0
		var d Decision
		// 30 requests arrive before its first report.
		for i := range 30 {
			Choose(&Request{PromptTokens: 1000, RingKey: uint64(i)*977 + 1, SessionKey: uint64(i)*31 + 1, Sequence: uint64(i)}, v, 0, rng, &d)
			w := v.worker(d.Best)
			w.InFlight++
			w.UncachedTokens += 1000
			w.Load = LoadOf(w, 0, w.InFlight-w.Running)
			if d.Best == 4 {
				got++
			}
		}
		if got < 3 || got > 24 {
			t.Errorf("%v: the new worker got %d of the first 30", rule, got)
		}
	}
}
