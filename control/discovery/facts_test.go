package discovery

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatTheEngineTellsFillsWhatTheListLeavesOpen(t *testing.T) {
	l := newLive()
	var updates []Worker
	l.f.hooks.Updated = func(w Worker) { updates = append(updates, w) }
	l.list(t, Spec{Address: one}, Spec{Address: two, CapacityTokens: 5000, BlockTokens: 16, MaxRunning: 8})
	told := Facts{CapacityTokens: 16_384, BlockTokens: 32, MaxRunning: 64}
	l.up(two, Load{})
	l.up(one, Load{Facts: told})
	if w := l.refs[l.worker(one).Ref]; w.CapacityTokens != 16_384 || w.CapacityAssumed || w.BlockTokens != 32 || w.MaxRunning != 64 {
		t.Errorf("%+v", w)
	}
	l.up(two, Load{Facts: told})
	if w := l.worker(two); w.CapacityTokens != 5000 || w.BlockTokens != 16 || w.MaxRunning != 8 {
		t.Errorf("the list said otherwise: %+v", w)
	}
	told.CapacityTokens = 8192
	l.up(one, Load{Facts: told})
	l.up(one, Load{}) // a page without them takes nothing back
	if len(updates) != 1 || updates[0].CapacityTokens != 8192 || updates[0].BlockTokens != 32 {
		t.Errorf("%+v", updates)
	}
	l.list(t, Spec{Address: one, MaxRunning: 16}, Spec{Address: two})
	if w := l.worker(one); w.CapacityTokens != 8192 || w.MaxRunning != 16 {
		t.Errorf("after another list: %+v", w)
	}
	if w := l.worker(two); w.CapacityTokens != 16_384 || w.MaxRunning != 64 {
		t.Errorf("after a list that leaves it open: %+v", w)
	}
}

func TestAnEngineThatFallsAsleepHoldsNothingAndGetsNothing(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{})
	l.events = nil
	l.up(one, Load{Asleep: true})
	l.up(one, Load{Asleep: true})
	if w := l.worker(one); w.State != Draining || !slices.Equal(l.events, []string{"retire " + one + "/1", "add " + one + "/1"}) {
		t.Errorf("%v %v", w.State, l.events)
	}
	l.up(one, Load{})
	if w := l.worker(one); w.State != Healthy {
		t.Errorf("awake: %v", w.State)
	}
}

func TestTheReasonForMissingMetricsStaysUntilTheyCome(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200})
	monitored(t, e, func(l *live, m *Monitor) {
		for range 50 { // between scrapes there are rounds without
			time.Sleep(117 * time.Millisecond)
			if w := l.worker(one); w.MetricsProblem != "/metrics answers 404" || w.Reason != "" {
				t.Fatalf("%+v", w)
			}
		}
		e.set(one, engine{status: 200, metrics: "vllm:num_requests_running five\n"})
		time.Sleep(time.Second)
		if w := l.worker(one); !strings.Contains(w.MetricsProblem, "read metrics page") {
			t.Errorf("%+v", w)
		}
		e.set(one, engine{status: 200, metrics: "vllm:num_requests_running 5\n" + strings.Repeat("# padding\n", maxMetricsBytes/10)})
		time.Sleep(time.Second)
		if w := l.worker(one); !strings.Contains(w.MetricsProblem, "is over") || !w.LoadAt.IsZero() {
			t.Errorf("%+v", w)
		}
		e.set(one, engine{status: 200, metrics: "vllm:num_requests_running 5\n"})
		time.Sleep(time.Second)
		if w := l.worker(one); w.MetricsProblem != "" || w.Load.Running != 5 {
			t.Errorf("%+v", w)
		}
	}, one)
}

func TestAHungMetricsPageKeepsTheLoadWithItsAge(t *testing.T) {
	e := &engines{}
	e.set(one, engine{status: 200, metrics: "vllm:num_requests_running 5\n"})
	monitored(t, e, func(l *live, m *Monitor) {
		e.set(one, engine{status: 200, metrics: hang})
		time.Sleep(10 * time.Second)
		w := l.worker(one)
		if w.State != Healthy || w.MetricsProblem != "timeout" || w.Load.Running != 5 || time.Since(w.LoadAt) < 9*time.Second {
			t.Errorf("%+v", w)
		}
	}, one)
}

// Workers that were listed at once would be asked at once for ever.
func TestScrapesOfManyWorkersDriftApart(t *testing.T) {
	e := &engines{}
	var addresses []string
	for i := range 50 {
		a := "10.0.1." + string(rune('1'+i/10)) + string(rune('0'+i%10)) + ":8000"
		addresses = append(addresses, a)
		e.set(a, engine{status: 200, metrics: "vllm:num_requests_running 5\n"})
	}
	monitored(t, e, func(l *live, m *Monitor) {
		time.Sleep(30 * time.Second)
		synctest.Wait()
		together := map[int64]int{}
		most := 0
		for _, w := range l.f.Workers() {
			slot := w.LoadAt.UnixMilli() / 10
			together[slot]++
			most = max(most, together[slot])
			if age := time.Since(w.LoadAt); age > 600*time.Millisecond {
				t.Errorf("%s was last read %v ago", w.Address, age)
			}
		}
		if most > 10 {
			t.Errorf("%d of 50 within the same 10 ms", most)
		}
	}, addresses...)
}

func TestBlocksAreThoseOfEventsWhereNobodySaysMore(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one}, Spec{Address: two, BlockTokens: 16})
	l.up(one, Load{})
	l.up(two, Load{})
	blocks := func(want, listed int) {
		t.Helper()
		if a, b := l.worker(one).BlockTokens, l.worker(two).BlockTokens; a != want || b != listed {
			t.Errorf("blocks of %d and %d tokens, want %d and %d", a, b, want, listed)
		}
	}
	blocks(DefaultBlockTokens, 16)
	for _, address := range []string{one, two} {
		l.f.EventBlocks(l.worker(address).Ref, 32)
	}
	l.f.EventBlocks(0, 64)
	l.f.EventBlocks(99, 64)
	blocks(32, 16)
	l.up(one, Load{Facts: Facts{BlockTokens: 64}}) // of a hybrid model: groups' blocks together
	blocks(64, 16)
	l.list(t, Spec{Address: one, MaxRunning: 16}, Spec{Address: two})
	blocks(64, 32)
}
