package discovery

import (
	"errors"
	"testing"
	"time"
)

func (l *live) beat(t *testing.T, b Beat) error {
	t.Helper()
	_, err := l.f.Beat(one, b, l.now)
	return err
}

func listed(t *testing.T) *live {
	t.Helper()
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{})
	return l
}

func TestABeatOfAnOldProcessChangesNothing(t *testing.T) {
	l := listed(t)
	l.up(one, Load{StartedMillis: 500_000})
	ref := l.worker(one).Ref
	busy := &BeatLoad{Running: 9}
	if err := l.beat(t, Beat{Sequence: 1, StartedMillis: 400_000, Load: busy, Draining: true}); !errors.Is(err, ErrOldGeneration) {
		t.Errorf("%v", err)
	}
	if w := l.worker(one); w.Load.Running != 0 || w.State != Healthy || w.Ref != ref || w.Beats != 0 {
		t.Errorf("%+v", w)
	}
	// Two clocks never agree to the millisecond.
	if err := l.beat(t, Beat{Sequence: 1, StartedMillis: 498_500, Load: busy}); err != nil || l.worker(one).Ref != ref {
		t.Errorf("%v %+v", err, l.worker(one))
	}
	if err := l.beat(t, Beat{Sequence: 2, StartedMillis: 501_500, Load: busy}); err != nil || l.worker(one).Ref != ref {
		t.Errorf("%v %+v", err, l.worker(one))
	}
	if err := l.beat(t, Beat{Sequence: 1, StartedMillis: 600_000, Load: busy}); err != nil {
		t.Error(err)
	}
	if w := l.worker(one); w.Ref == ref || w.Ref == 0 || w.Generation != 600_000 || w.Load.Running != 9 {
		t.Errorf("a new process: %+v", w)
	}
}

func TestABeatCountsOnce(t *testing.T) {
	l := listed(t)
	if err := l.beat(t, Beat{Sequence: 5, Load: &BeatLoad{Running: 1}}); err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(time.Second)
	for _, sequence := range []uint64{5, 4} {
		if err := l.beat(t, Beat{Sequence: sequence, Load: &BeatLoad{Running: 2}}); !errors.Is(err, ErrRepeated) {
			t.Errorf("%d: %v", sequence, err)
		}
	}
	if err := l.beat(t, Beat{Sequence: 6, Load: &BeatLoad{Running: 3}}); err != nil || l.worker(one).Load.Running != 3 {
		t.Errorf("%v %+v", err, l.worker(one))
	}
	l.now = l.now.Add(beatMemory) // the sender's clock was set back
	if err := l.beat(t, Beat{Sequence: 1}); err != nil {
		t.Errorf("%v", err)
	}
}

func TestALaterLoadWinsWhoeverBringsIt(t *testing.T) {
	l := listed(t)
	l.now = l.now.Add(time.Second)
	l.up(one, Load{Running: 1})
	if err := l.beat(t, Beat{Sequence: 1, Load: &BeatLoad{Running: 2, Age: 500 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if w := l.worker(one); w.Load.Running != 1 {
		t.Errorf("an older load: %+v", w.Load)
	}
	l.now = l.now.Add(time.Second)
	if err := l.beat(t, Beat{Sequence: 2, Load: &BeatLoad{Running: 2, Age: 500 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if w := l.worker(one); w.Load.Running != 2 || l.now.Sub(w.LoadAt) != 500*time.Millisecond {
		t.Errorf("a later load: %+v at %v", w.Load, w.LoadAt)
	}
}

// TestABeatThatTellsOfNoRequestsIsCountedOnlyWhereNothingRuns: what a worker has
// can't be known by a share of its cache, or of a batch of unknown size.
func TestABeatThatTellsOfNoRequestsIsCountedOnlyWhereNothingRuns(t *testing.T) {
	for i, c := range []struct {
		load       BeatLoad
		maxRunning int
		counted    bool
	}{
		{BeatLoad{}, 0, true},
		{BeatLoad{Running: 2, KVShare: 0.1}, 0, true},
		{BeatLoad{KVShare: 0.5}, 0, false},
		{BeatLoad{Utilization: 0.5}, 0, false},
		{BeatLoad{Utilization: 0.5}, 8, true},
	} {
		l := listed(t)
		if err := l.beat(t, Beat{Sequence: 1, Load: &c.load, Facts: Facts{MaxRunning: c.maxRunning}}); err != nil {
			t.Fatal(err)
		}
		if w := l.worker(one); w.Load.Counted != c.counted || !w.Load.Known {
			t.Errorf("%d: %+v", i, w.Load)
		}
	}
}

func TestAWishToDrainEndsWithItsBeats(t *testing.T) {
	l := listed(t)
	if err := l.beat(t, Beat{Sequence: 1, Draining: true}); err != nil || l.worker(one).State != Draining {
		t.Errorf("%v %v", err, l.worker(one).State)
	}
	l.now = l.now.Add(drainWord - time.Second)
	l.f.Tick(l.now)
	if l.worker(one).State != Draining {
		t.Error("ended early")
	}
	l.now = l.now.Add(time.Second)
	l.f.Tick(l.now)
	if l.worker(one).State != Healthy {
		t.Error("drains for ever on the word of an agent that is gone")
	}
	if err := l.beat(t, Beat{Sequence: 2, Draining: true}); err != nil {
		t.Error(err)
	}
	if err := l.beat(t, Beat{Sequence: 3}); err != nil || l.worker(one).State != Healthy {
		t.Errorf("taken back: %v %v", err, l.worker(one).State)
	}
}

func TestNoticesOfEvictionAddUpAndEnd(t *testing.T) {
	l := listed(t)
	notice := func(e Eviction) Worker {
		l.f.Evicting(l.worker(one).Ref, e, l.now)
		return l.worker(one)
	}
	if w := notice(Eviction{In: time.Second, For: 2 * time.Second, Share: 0.5, Why: "a"}); !w.EvictUntil.Equal(l.now.Add(3*time.Second)) || w.EvictShare != 0.5 {
		t.Errorf("%+v", w)
	}
	if w := notice(Eviction{For: time.Second, Share: 0.9}); !w.EvictUntil.Equal(l.now.Add(3*time.Second)) || w.EvictShare != 0.9 || w.EvictWhy != "a" {
		t.Errorf("a shorter and larger one: %+v", w)
	}
	if w := notice(Eviction{For: 4 * time.Second, Share: 0.2}); !w.EvictUntil.Equal(l.now.Add(4*time.Second)) || w.EvictShare != 0.9 {
		t.Errorf("a longer and smaller one: %+v", w)
	}
	l.now = l.now.Add(4 * time.Second)
	if w := notice(Eviction{For: time.Second, Share: 0.1, Why: "b"}); w.EvictShare != 0.1 || w.EvictWhy != "b" {
		t.Errorf("after the end of those: %+v", w)
	}
	if err := l.beat(t, Beat{Sequence: 1, Evict: &Eviction{}}); err != nil || !l.worker(one).EvictUntil.IsZero() {
		t.Errorf("taken back: %v %+v", err, l.worker(one))
	}
	notice(Eviction{For: time.Minute, Share: 1})
	l.up(one, Load{StartedMillis: 900_000}) // another process has nothing to lose
	if w := l.worker(one); !w.EvictUntil.IsZero() {
		t.Errorf("%+v", w)
	}
}

func TestABeatOfAnUnlistedWorkerIsRefused(t *testing.T) {
	l := listed(t)
	for _, address := range []string{two, "worker-7", ""} {
		if _, err := l.f.Beat(address, Beat{Sequence: 1}, l.now); !errors.Is(err, ErrNotListed) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := l.f.Beat("[::ffff:10.0.0.1]:8000", Beat{Sequence: 1}, l.now); err != nil {
		t.Errorf("another spelling: %v", err)
	}
}

// An engine whose page names no start is told apart by its beats, and its token
// counters don't contradict them.
func TestABeatNamesTheProcessWhereThePageDoesNot(t *testing.T) {
	l := listed(t)
	l.up(one, Load{Progress: 100})
	if err := l.beat(t, Beat{Sequence: 1, StartedMillis: 700_000}); err != nil {
		t.Fatal(err)
	}
	if w := l.worker(one); w.Generation != 700_000 || w.Ref == 0 {
		t.Errorf("%+v", w)
	}
	l.up(one, Load{Progress: 5})
	if w := l.worker(one); w.Generation != 700_000 {
		t.Errorf("counted beside: %+v", w)
	}
}

// A sender that is wrong about the start is another worker once, and not with
// every heartbeat and scrape in turns; a real restart counts all the same.
func TestABeatAndAPageThatDisagreeDoNotTakeTurns(t *testing.T) {
	l := listed(t)
	l.up(one, Load{StartedMillis: 500_000})
	beat := func(sequence, started uint64) error {
		return l.beat(t, Beat{Sequence: sequence, StartedMillis: started})
	}
	if err := beat(1, 600_000); err != nil {
		t.Fatal(err)
	}
	ref := l.worker(one).Ref
	for i := range uint64(3) {
		l.up(one, Load{StartedMillis: 500_000})
		if err := beat(2+i, 600_000); err != nil || l.worker(one).Ref != ref {
			t.Errorf("round %d: %v %+v", i, err, l.worker(one))
		}
	}
	l.up(one, Load{StartedMillis: 700_000})
	if w := l.worker(one); w.Generation != 700_000 || w.Ref == ref {
		t.Errorf("a restart: %+v", w)
	}
	if err := beat(9, 600_000); !errors.Is(err, ErrOldGeneration) {
		t.Errorf("%v", err)
	}
}

func TestAStartInAnotherUnitIsRefused(t *testing.T) {
	l := listed(t)
	ref, now := l.worker(one).Ref, uint64(l.now.UnixMilli())
	for _, started := range []uint64{now * 1000, now + uint64((startAhead + time.Second).Milliseconds())} {
		if err := l.beat(t, Beat{Sequence: 1, StartedMillis: started}); !errors.Is(err, ErrStartAhead) || l.worker(one).Ref != ref || l.worker(one).Beats != 0 {
			t.Errorf("%d: %v %+v", started, err, l.worker(one))
		}
	}
	if err := l.beat(t, Beat{Sequence: 1, StartedMillis: now + 3_600_000}); err != nil {
		t.Errorf("a clock that is an hour ahead: %v", err)
	}
}

func TestWhatABeatDoesNotTellStaysAsItWas(t *testing.T) {
	l := listed(t)
	l.up(one, Load{Asleep: true, RemovedTokens: 5, RemovalsKnown: true, Facts: Facts{Caching: CachingOff, BlockTokens: 32}})
	if err := l.beat(t, Beat{Sequence: 1, Load: &BeatLoad{Running: 1, Utilization: 0.5}, Facts: Facts{MaxRunning: 9}}); err != nil {
		t.Fatal(err)
	}
	w := l.worker(one)
	if !w.Load.Asleep || w.State != Draining || !w.CachingOff || w.BlockTokens != 32 || !w.Load.RemovalsKnown || w.Load.Running != 5 {
		t.Errorf("%+v", w)
	}
	l.up(one, Load{Facts: Facts{Caching: CachingOn}})
	if w := l.worker(one); w.CachingOff || w.State != Healthy || w.BlockTokens != 32 {
		t.Errorf("%+v", w)
	}
}
