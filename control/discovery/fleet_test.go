package discovery

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

// live follows what the hooks tell, as the index does.
type live struct {
	f      *Fleet
	refs   map[uint16]Worker
	events []string
	now    time.Time
}

func newLive() *live {
	l := &live{refs: map[uint16]Worker{}, now: t0}
	l.f = NewFleet(FleetConfig{}, Hooks{
		Added: func(w Worker) {
			l.refs[w.Ref] = w
			l.events = append(l.events, fmt.Sprintf("add %s/%d", w.Address, w.Generation))
		},
		Retired: func(ref uint16) {
			l.events = append(l.events, fmt.Sprintf("retire %s/%d", l.refs[ref].Address, l.refs[ref].Generation))
			delete(l.refs, ref)
		},
	})
	return l
}

func (l *live) list(t interface{ Fatalf(string, ...any) }, specs ...Spec) {
	checked, err := Check(specs)
	if err != nil {
		t.Fatalf("%v", err)
	}
	l.f.SetList(checked, l.now)
}

func (l *live) worker(address string) Worker {
	for _, w := range l.f.Workers() {
		if w.Address == address {
			return w
		}
	}
	return Worker{}
}

func (l *live) up(address string, load Load) {
	load.Known = true
	l.f.Observe(address, Observation{OK: true, Load: &load}, l.now)
}

func (l *live) down(address string, refused bool) {
	l.f.Observe(address, Observation{Refused: refused, Reason: "test"}, l.now)
}

const one, two = "10.0.0.1:8000", "10.0.0.2:8000"

func TestAnotherStartTimeIsAnotherWorker(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{StartedMillis: 5000})
	first := l.worker(one)
	l.up(one, Load{StartedMillis: 5000})
	if same := l.worker(one); same.Ref != first.Ref || first.Generation != 5000 {
		t.Errorf("%+v then %+v", first, same)
	}
	l.up(one, Load{StartedMillis: 6000}) // a restart that no probe saw
	second := l.worker(one)
	if second.Ref == first.Ref || len(l.refs) != 1 {
		t.Errorf("ref %d again; live %v", second.Ref, l.refs)
	}
}

func TestWithoutAStartTimeARefusedConnectionMeansAnotherProcess(t *testing.T) {
	for name, c := range map[string]struct {
		refused bool
		want    uint64
	}{"refused": {true, 2}, "only silent": {false, 1}} {
		l := newLive()
		l.list(t, Spec{Address: one})
		l.up(one, Load{})
		l.down(one, c.refused)
		l.down(one, c.refused)
		if w := l.worker(one); w.State != Down {
			t.Errorf("%s: %v", name, w.State)
		}
		l.up(one, Load{})
		if w := l.worker(one); w.Generation != c.want || w.State != Healthy {
			t.Errorf("%s: generation %d, %v", name, w.Generation, w.State)
		}
	}
}

func TestCountersThatWentBackMeanAnotherProcess(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{Progress: 100})
	l.up(one, Load{Progress: 200})
	if w := l.worker(one); w.Generation != 1 {
		t.Errorf("generation %d", w.Generation)
	}
	l.up(one, Load{Progress: 5})
	if w := l.worker(one); w.Generation != 2 {
		t.Errorf("generation %d", w.Generation)
	}
}

func TestAConfiguredGenerationIsTheOnlyOne(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one, Generation: 70})
	l.up(one, Load{StartedMillis: 5000})
	l.up(one, Load{StartedMillis: 6000})
	if w := l.worker(one); w.Generation != 70 {
		t.Errorf("generation %d", w.Generation)
	}
	before := l.worker(one).Ref
	l.list(t, Spec{Address: one, Generation: 71})
	if w := l.worker(one); w.Generation != 71 || w.Ref == before {
		t.Errorf("%+v, ref %d before", w, before)
	}
}

func TestADeletedWorkerLeavesNothingBehind(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one}, Spec{Address: two})
	l.up(one, Load{StartedMillis: 1})
	l.up(two, Load{StartedMillis: 2})
	l.list(t, Spec{Address: two})
	if len(l.refs) != 1 || l.worker(one).Address != "" {
		t.Errorf("live %v", l.refs)
	}
	l.up(one, Load{StartedMillis: 1}) // a probe that was under way
	if len(l.refs) != 1 {
		t.Errorf("live %v", l.refs)
	}
}

func TestAnAddressThatServesAnotherPoolIsAnotherWorker(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one, Pool: "chat"})
	l.up(one, Load{StartedMillis: 1})
	before := l.worker(one).Ref
	l.list(t, Spec{Address: one, Pool: "code"}) // the delete was never seen
	if w := l.worker(one); w.Ref != 0 || w.State != Unknown || len(l.refs) != 0 {
		t.Errorf("%+v", w)
	}
	l.up(one, Load{StartedMillis: 1})
	if w := l.worker(one); w.Ref == before || w.Ref == 0 {
		t.Errorf("ref %d, before %d", w.Ref, before)
	}
}

func TestOneRefusedConnectionIsEnoughTwoOtherFailuresAreNeeded(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{})
	l.down(one, false)
	if w := l.worker(one); w.State != Healthy {
		t.Errorf("%v after one timeout", w.State)
	}
	l.up(one, Load{})
	l.down(one, false)
	if w := l.worker(one); w.State != Healthy {
		t.Errorf("%v: failures must be in a row", w.State)
	}
	l.down(one, false)
	if w := l.worker(one); w.State != Down {
		t.Errorf("%v after two", w.State)
	}
	l.up(one, Load{})
	l.down(one, true)
	if w := l.worker(one); w.State != Down {
		t.Errorf("%v after a refused connection", w.State)
	}
	l.up(one, Load{})
	if w := l.worker(one); w.State != Healthy {
		t.Errorf("%v after one success", w.State)
	}
}

func TestEveryMarkEnds(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{})
	ref := l.worker(one).Ref
	avoided := func() time.Duration { return max(0, l.worker(one).AvoidUntil.Sub(l.now)) }
	var lengths []time.Duration
	for range 6 {
		if address, ok := l.f.Mark(ref, MarkFailed, "reset", l.now); !ok || address != one {
			t.Fatalf("mark: %q %v", address, ok)
		}
		lengths = append(lengths, avoided())
		l.f.Mark(ref, MarkFailed, "echo", l.now) // changes nothing while one runs
		l.now = l.now.Add(avoided())
		if avoided() != 0 {
			t.Errorf("avoided for %v after the end", avoided())
		}
	}
	want := []int{1, 2, 4, 8, 8, 8} // seconds
	for i := range want {
		if lengths[i] != time.Duration(want[i])*time.Second {
			t.Errorf("marks of %v", lengths)
			break
		}
	}
	l.now = l.now.Add(11 * time.Second)
	l.f.Mark(ref, MarkFailed, "reset", l.now)
	if avoided() != time.Second {
		t.Errorf("%v after a quiet time", avoided())
	}
	l.down(one, true)
	l.up(one, Load{StartedMillis: 9})
	if avoided() != 0 {
		t.Errorf("still avoided for %v after it came back", avoided())
	}
	if _, ok := l.f.Mark(ref, MarkFailed, "late report", l.now); ok {
		t.Error("a report about the old process marked the new one")
	}
	if _, ok := l.f.Mark(0, MarkFailed, "nobody", l.now); ok {
		t.Error("ref 0 was marked")
	}
}

// Of several gateways one was refused there and the next one's connection broke.
func TestTheLongerOfTwoMarksCounts(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{})
	ref := l.worker(one).Ref
	avoided := func() time.Duration { return max(0, l.worker(one).AvoidUntil.Sub(l.now)) }
	l.f.Mark(ref, MarkRefused, "refused", l.now)
	l.now = l.now.Add(100 * time.Millisecond)
	l.f.Mark(ref, MarkFailed, "reset", l.now)
	if got := l.worker(one); avoided() != 900*time.Millisecond || got.AvoidWhy != "reset" {
		t.Errorf("avoided for %v by %q, want 900ms by the longer mark", avoided(), got.AvoidWhy)
	}
	l.f.Mark(ref, MarkRefused, "refused", l.now)
	if got := l.worker(one); avoided() != 900*time.Millisecond || got.AvoidWhy != "reset" {
		t.Errorf("avoided for %v by %q after a shorter one", avoided(), got.AvoidWhy)
	}
	l.now = l.now.Add(avoided())
	l.f.Mark(ref, MarkRefused, "refused", l.now)
	if avoided() != 2*MarkRefused {
		t.Errorf("avoided for %v the second time, want %v: the echo was no mark of its own", avoided(), 2*MarkRefused)
	}
}

// Under load a worker that died was marked by all gateways, for longer each time.
func TestTheReturnOfAWorkerEndsItsMarks(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{StartedMillis: 5})
	ref := l.worker(one).Ref
	avoided := func() time.Duration { return max(0, l.worker(one).AvoidUntil.Sub(l.now)) }
	for range 4 {
		l.f.Mark(ref, MarkFailed, "reset", l.now)
		l.now = l.now.Add(avoided() - time.Millisecond)
	}
	l.f.Mark(ref, MarkFailed, "reset", l.now.Add(time.Millisecond))
	for range 2 {
		l.down(one, false) // it hung, and is the same process
	}
	if avoided() == 0 || l.worker(one).State != Down {
		t.Fatalf("avoided for %v, %v", avoided(), l.worker(one).State)
	}
	l.up(one, Load{StartedMillis: 5})
	if w := l.worker(one); avoided() != 0 || w.State != Healthy || w.Ref != ref {
		t.Errorf("after its return avoided for %v by %q, %v, ref %d of %d", avoided(), w.AvoidWhy, w.State, w.Ref, ref)
	}
	l.f.Mark(ref, MarkFailed, "reset", l.now)
	if avoided() != MarkFailed {
		t.Errorf("the next mark is %v, want %v as the first", avoided(), MarkFailed)
	}
}

func TestADrainLastsUntilLifted(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one}, Spec{Address: two, Drain: true})
	l.up(one, Load{})
	l.up(two, Load{})
	if w := l.worker(two); w.State != Draining {
		t.Errorf("%v", w.State)
	}
	if err := l.f.Drain(one, true, l.now); err != nil {
		t.Fatal(err)
	}
	l.up(one, Load{})
	l.list(t, Spec{Address: one, MaxRunning: 9}, Spec{Address: two})
	if w := l.worker(one); w.State != Draining || !w.Drain {
		t.Errorf("%+v", w)
	}
	if w := l.worker(two); w.State != Healthy {
		t.Errorf("%v after the list lifted it", w.State)
	}
	if err := l.f.Drain(one, false, l.now); err != nil || l.worker(one).State != Healthy {
		t.Errorf("%v %v", err, l.worker(one).State)
	}
	for _, bad := range []string{"10.0.0.9:1", "nonsense", ""} {
		if err := l.f.Drain(bad, true, l.now); remedy(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAWorkerThatIsDownForLongIsForgotten(t *testing.T) {
	l := newLive()
	l.list(t, Spec{Address: one})
	l.up(one, Load{StartedMillis: 1})
	l.down(one, true)
	l.events = nil
	l.now = l.now.Add(119 * time.Second)
	l.f.Tick(l.now)
	if len(l.events) != 0 {
		t.Errorf("%v", l.events)
	}
	l.now = l.now.Add(time.Second)
	l.f.Tick(l.now)
	l.f.Tick(l.now)
	if fmt.Sprint(l.events) != "[retire 10.0.0.1:8000/1 add 10.0.0.1:8000/1]" {
		t.Errorf("%v", l.events)
	}
}

func TestTheSameListGetsTheSameRefsInWhateverOrderProbesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "n")
		refs := func(order []int) map[string]uint16 {
			l := newLive()
			var specs []Spec
			for i := range n {
				specs = append(specs, Spec{Address: fmt.Sprintf("10.0.1.%d:8000", i)})
			}
			l.list(t, specs...)
			for _, i := range order {
				l.up(specs[i].Address, Load{StartedMillis: uint64(i + 1)})
			}
			out := map[string]uint16{}
			for _, w := range l.f.Workers() {
				out[w.Address] = w.Ref
			}
			return out
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		a := refs(order)
		b := refs(rapid.Permutation(order).Draw(t, "order"))
		seen := map[uint16]bool{}
		for address, ref := range a {
			if ref == 0 || seen[ref] || b[address] != ref {
				t.Fatalf("%s: ref %d and %d", address, ref, b[address])
			}
			seen[ref] = true
		}
	})
}

// An engine that doesn't tell its start was restarted twice before the service
// was: its first process must not come back to life.
func TestTheCountOfProcessesGoesOnAfterARestart(t *testing.T) {
	for _, incarnation := range []uint64{0, 77} {
		l := newLive()
		for n, ref := range map[uint64]uint16{1: 5, 2: 9, 3: 7} {
			if !l.f.RestoreRef(Ref{Identity{one, "default", within(incarnation, n)}, ref, false}) {
				t.Fatal("refused")
			}
		}
		l.f.RestoreDone(l.now)
		l.list(t, Spec{Address: one, Incarnation: incarnation}, Spec{Address: two, Incarnation: incarnation})
		l.up(one, Load{})
		l.up(two, Load{})
		if w := l.worker(one); w.Ref != 7 || w.Generation != within(incarnation, 3) {
			t.Errorf("%+v", w)
		}
		if w := l.worker(two); w.Generation != within(incarnation, 1) {
			t.Errorf("%+v", w)
		}
		l.down(one, true)
		l.up(one, Load{})
		if w := l.worker(one); w.Generation != within(incarnation, 4) {
			t.Errorf("%+v", w)
		}
	}
}

func TestRefsOfAStateFileComeBack(t *testing.T) {
	l := newLive()
	if !l.f.RestoreRef(Ref{Identity{one, "default", 5000}, 17, true}) {
		t.Fatal("refused")
	}
	for _, r := range []Ref{
		{Identity{two, "default", 1}, 17, false},
		{Identity{one, "default", 5000}, 18, false},
		{Identity{two, "default", 1}, 0, false},
	} {
		if l.f.RestoreRef(r) {
			t.Errorf("%+v accepted", r)
		}
	}
	l.f.RestoreDone(l.now)
	l.list(t, Spec{Address: one})
	l.up(one, Load{StartedMillis: 5000})
	if w := l.worker(one); w.Ref != 17 || w.State != Draining {
		t.Errorf("%+v", w)
	}
	l.up(one, Load{StartedMillis: 6000})
	if w := l.worker(one); w.Ref == 17 {
		t.Error("another process got the old ref")
	}
	// The old one rests, over another restart too.
	saved := l.f.Refs()
	if len(saved) != 2 || saved[0] != (Ref{Identity{one, "default", 5000}, 17, false}) && saved[1] != (Ref{Identity{one, "default", 5000}, 17, false}) {
		t.Fatalf("%+v", saved)
	}
	again := newLive()
	for _, r := range saved {
		if !again.f.RestoreRef(r) {
			t.Errorf("%+v refused", r)
		}
	}
	again.f.RestoreDone(again.now)
	again.list(t, Spec{Address: one})
	again.up(one, Load{StartedMillis: 6000})
	if w := again.worker(one); w.Ref != l.worker(one).Ref || w.State != Draining {
		t.Errorf("%+v", w)
	}
	if n := again.f.Release(0, idle, again.now.Add(time.Hour)); n != 1 {
		t.Errorf("%d refs rest before a table without them was published", n)
	}
}
