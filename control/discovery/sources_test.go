package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// tell is Lists.Tell with the addresses of the joined list, "unchanged" without
// one.
func tell(t *testing.T, l *Lists, source string, f Finding, now time.Time) string {
	t.Helper()
	joined, changed, err := l.Tell(source, f, now)
	if err != nil {
		return "refused"
	}
	if !changed {
		return "unchanged"
	}
	var out []string
	for _, s := range joined {
		out = append(out, s.Address+"@"+s.Source)
	}
	return strings.Join(out, " ")
}

func found(addresses ...string) Finding {
	f := Finding{}
	for _, a := range addresses {
		f.Workers = append(f.Workers, Spec{Address: a, Pool: "chat"})
	}
	return f
}

func TestNothingIsListedBeforeEverySourceHasSpoken(t *testing.T) {
	l := NewLists("list", "dns")
	if got := tell(t, l, "list", found(one), t0); got != "unchanged" {
		t.Errorf("after one of two: %s", got)
	}
	if err := l.Missing(); err == nil || err.Error() != "dns: no list yet" {
		t.Errorf("missing: %v", err)
	}
	tell(t, l, "dns", Finding{Err: errors.New("dns w: SERVFAIL")}, t0)
	if err := l.Missing(); err == nil || err.Error() != "dns w: SERVFAIL" {
		t.Errorf("missing: %v", err)
	}
	// An empty list is a list.
	if got := tell(t, l, "dns", Finding{}, t0); got != one+"@list" || l.Missing() != nil {
		t.Errorf("after both: %s, %v", got, l.Missing())
	}
}

func TestAFailureKeepsTheLastListAndItsAgeTells(t *testing.T) {
	l := NewLists("dns")
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	tell(t, l, "dns", found(one, two), at(0))
	if got := tell(t, l, "dns", found(one, two), at(5)); got != "unchanged" {
		t.Errorf("the same again: %s", got)
	}
	tell(t, l, "dns", Finding{Err: errors.New("first")}, at(10))
	tell(t, l, "dns", Finding{Err: errors.New("second"), Workers: []Spec{{Address: "x"}}}, at(20))
	st := l.Status()[0]
	if st.Workers != 2 || !st.At.Equal(at(5)) || !st.Changed.Equal(at(0)) || st.Err.Error() != "second" || !st.ErrAt.Equal(at(10)) {
		t.Errorf("%+v", st)
	}
	if got := tell(t, l, "dns", found(one), at(30)); got != one+"@dns" {
		t.Errorf("after the failure: %s", got)
	}
	if st := l.Status()[0]; st.Err != nil || !st.ErrAt.IsZero() {
		t.Errorf("%+v", st)
	}
}

func TestTheFirstSourceOfAnAddressWinsAndTheOtherSaysSo(t *testing.T) {
	l := NewLists("list", "dns")
	tell(t, l, "dns", found(one, two), t0)
	if got := tell(t, l, "list", found(two), t0); got != two+"@list "+one+"@dns" {
		t.Errorf("joined %s", got)
	}
	tell(t, l, "dns", found(one, two), t0)
	if skipped := fmt.Sprint(l.Status()[1].Skipped); skipped != "["+two+": listed by list already]" {
		t.Errorf("skipped %s", skipped)
	}
	if got := tell(t, l, "list", found(), t0); got != one+"@dns "+two+"@dns" {
		t.Errorf("after the first let go: %s", got)
	}
}

// TestASourceThatFindsWhatAnotherListsByRankIsNotRefused: a file names the ranks, and
// the cluster has the pod.
func TestASourceThatFindsWhatAnotherListsByRankIsNotRefused(t *testing.T) {
	l := NewLists("list", "dns")
	tell(t, l, "list", found(one+"@0", one+"@1"), t0)
	joined, changed, err := l.Tell("dns", found(one, two), t0)
	if err != nil || !changed || len(joined) != 3 || joined[2].Address != two {
		t.Fatalf("%v %v %v", joined, changed, err)
	}
	if skipped := l.Status()[1].Skipped; len(skipped) != 1 || skipped[0].Error() != one+": listed by list already" {
		t.Errorf("%v", skipped)
	}
}

func TestAListThatCannotBeJoinedChangesNothing(t *testing.T) {
	l := NewLists("list", "dns")
	tell(t, l, "list", found(one), t0)
	tell(t, l, "dns", found(two), t0)
	many := Finding{}
	for i := range MaxWorkers {
		many.Workers = append(many.Workers, Spec{Address: fmt.Sprintf("10.1.%d.%d:80", i/250, i%250)})
	}
	if got := tell(t, l, "dns", many, t0); got != "refused" {
		t.Fatal(got)
	}
	if st := l.Status()[1]; st.Workers != 1 || st.Err == nil {
		t.Errorf("%+v", st)
	}
	if got := tell(t, l, "list", found(), t0); got != two+"@dns" {
		t.Errorf("joined %s", got)
	}
	if _, _, err := l.Tell("nobody", Finding{}, t0); err == nil {
		t.Error("an unknown source was heard")
	}
}

func TestATemplateFillsInAddressAndRank(t *testing.T) {
	tpl := Template{Pool: "chat", MaxRunning: 64, KVEvents: KVEvents{Endpoint: "tcp://*:5557", Replay: "tcp://10.9.9.9:5558", Topic: "kv"}}
	s, err := tpl.Spec(netip.MustParseAddr("fd00::7"), 8001, 2)
	if err != nil || s.Address != "[fd00::7]:8001" || s.Pool != "chat" || s.MaxRunning != 64 || s.BlockTokens != DefaultBlockTokens || !s.CapacityAssumed {
		t.Errorf("%+v %v", s, err)
	}
	if s.KVEvents.Endpoint != "tcp://[fd00::7]:5559" || s.KVEvents.Replay != "tcp://10.9.9.9:5558" {
		t.Errorf("%+v", s.KVEvents)
	}
	for _, bad := range []Template{{Pool: "A"}, {MaxRunning: -1}, {KVEvents: KVEvents{Endpoint: "tcp://*:65536"}}, {KVEvents: KVEvents{Endpoint: "tcp://*:0"}}, {KVEvents: KVEvents{Endpoint: "ipc://x"}}} {
		if bad.Check() == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestAnotherIncarnationBehindAnAddressIsAnotherWorker(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one, Incarnation: 7})
	l.up(one, Load{StartedMillis: 5000})
	first := l.worker(one)
	if err := l.f.Drain(one, true, l.now); err != nil {
		t.Fatal(err)
	}
	l.list(t, Spec{Address: one, Incarnation: 7, Note: "same pod"})
	if same := l.worker(one); same.Ref != first.Ref || same.Generation != first.Generation {
		t.Errorf("%+v, then %+v", first, same)
	}
	l.list(t, Spec{Address: one, Incarnation: 8}) // the delete was never seen
	if w := l.worker(one); w.Ref != 0 || w.State != Unknown || len(l.refs) != 0 {
		t.Errorf("%+v", w)
	}
	// Even a process that claims the same start is another one, and the drain was
	// for the pod that is gone.
	l.up(one, Load{StartedMillis: 5000})
	if w := l.worker(one); w.Ref == first.Ref || w.Ref == 0 || w.Generation == first.Generation || w.State != Healthy {
		t.Errorf("%+v, before %+v", w, first)
	}
	// A process that restarts within a pod is another one too.
	second := l.worker(one)
	l.up(one, Load{StartedMillis: 6000})
	if w := l.worker(one); w.Generation == second.Generation || w.Ref == second.Ref {
		t.Errorf("%+v, before %+v", w, second)
	}
	// A restarted control service makes the same of the same.
	again := newLive()
	again.list(t, Spec{Address: one, Incarnation: 8})
	again.up(one, Load{StartedMillis: 6000})
	if a, b := again.worker(one), l.worker(one); a.Generation != b.Generation || a.Generation >= 1<<53 {
		t.Errorf("generation %d, before the restart %d", a.Generation, b.Generation)
	}
}

func TestAWorkerThatHangsDelaysNoOtherOnceTheFleetRuns(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one}, Spec{Address: two})
	l.up(one, Load{StartedMillis: 1})
	if w := l.worker(one); w.Ref != 0 {
		t.Errorf("ref %d before the list was probed", w.Ref)
	}
	l.up(two, Load{StartedMillis: 2})
	const three, four = "10.0.0.3:8000", "10.0.0.4:8000"
	l.list(t, Spec{Address: one}, Spec{Address: two}, Spec{Address: three}, Spec{Address: four})
	l.up(four, Load{StartedMillis: 4})
	if w := l.worker(four); w.Ref == 0 {
		t.Error("a worker that hangs kept another one from its ref")
	}
	if w := l.worker(three); w.Ref != 0 || w.State != Unknown {
		t.Errorf("%+v", w)
	}
}
