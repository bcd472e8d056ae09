package index

import (
	"math"
	"testing"
	"time"
)

func TestWhatIsFreeAndTheAgeOfTheTailFollowTheModelledCache(t *testing.T) {
	x := New(Config{})
	x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 192, BlockTokens: 16}) // 12 units: three letters
	x.AddWorker(WorkerSpec{Ref: 2, Pool: "p", CapacityTokens: 192, BlockTokens: 16, CapacityAssumed: true})
	look := func(ref uint16, at time.Duration) WorkerStats {
		s, _ := x.Worker(ref, epoch.Add(at))
		return s
	}
	if s := look(1, 0); s.FreeTokens != 0 || !s.TailAt.IsZero() {
		t.Errorf("a worker that nothing is known of: %+v", s)
	}
	for i, text := range []string{"a", "b", "c", "d"} {
		at := epoch.Add(time.Duration(i) * time.Second)
		for ref := uint16(1); ref <= 2; ref++ {
			x.Dispatch(Dispatch{Request: RequestID{Gateway: uint64(ref), ID: uint64(i)}, Chosen: ref, PromptUnits: 4, Path: pathOf(text)}, at)
		}
		want := epoch
		if text == "d" {
			want = epoch.Add(time.Second) // a has gone, b is next
		}
		s := look(1, time.Duration(i)*time.Second)
		if free := float64(max(0, 192-64*(i+1))); s.FreeTokens != free || !s.TailAt.Equal(want) {
			t.Errorf("after %s: free %v, want %v; tail from %v, want %v", text, s.FreeTokens, free, s.TailAt, want)
		}
	}
	if s := look(2, 4*time.Second); s.FreeTokens != 0 || !s.TailAt.IsZero() {
		t.Errorf("a guessed capacity gives a tail: %+v", s)
	}
}

func TestRecentWorkBelongsToWhoDidIt(t *testing.T) {
	for name, c := range map[string]struct {
		done  Done
		one   float64 // left at the chosen worker 10 s later, before fading
		other float64
	}{
		"served as chosen":      {Done{Served: 1, Outcome: Complete, CachedTokens: -1, PromptTokens: -1}, 96 * 16, 0},
		"nobody says by whom":   {Done{Outcome: Complete, CachedTokens: -1, PromptTokens: -1}, 96 * 16, 0},
		"served by another":     {Done{Served: 2, Outcome: Complete, CachedTokens: -1, PromptTokens: -1}, 0, 100 * 16},
		"with the engine's":     {Done{Served: 2, Outcome: Complete, CachedTokens: 200, PromptTokens: 1000}, 0, 800},
		"refused":               {Done{Served: 1, Outcome: Refused, TTFT: -1}, 0, 0},
		"left before an answer": {Done{Served: 1, Outcome: ClientAbort, TTFT: -1}, 0, 0},
	} {
		x := fleet(2)
		id := RequestID{Gateway: 1, ID: 1}
		x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 100, MatchedUnits: 4, Path: pathOf("abc")}, epoch)
		if s, _ := x.Worker(1, epoch); s.RecentTokens != 96*16 {
			t.Errorf("%s: dispatched work is %v", name, s.RecentTokens)
		}
		c.done.Request = id
		x.Done(c.done, epoch.Add(5*time.Second))
		for ref, want := range map[uint16]float64{1: c.one, 2: c.other} {
			s, _ := x.Worker(ref, epoch.Add(10*time.Second))
			if math.Abs(s.RecentTokens-want*math.Exp(-1)) > 1e-6 {
				t.Errorf("%s: worker %d has %v, want %v", name, ref, s.RecentTokens, want*math.Exp(-1))
			}
		}
	}
}

// TestWorkThatIsHeardOfLateFadesOnce: a report had to wait for its worker.
func TestWorkThatIsHeardOfLateFadesOnce(t *testing.T) {
	var inTurn, late fading
	inTurn.add(100, epoch)
	inTurn.add(1000, epoch.Add(earlyFor))
	late.add(1000, epoch.Add(earlyFor))
	late.add(100, epoch)
	for _, after := range []time.Duration{earlyFor, 2 * earlyFor} {
		if want, got := inTurn.at(epoch.Add(after)), late.at(epoch.Add(after)); math.Abs(want-got) > 1e-9 {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	x := trust{}
	x.prove(0, epoch.Add(earlyFor))
	x.prove(0, epoch)
	if x.fade(epoch.Add(earlyFor)); x.asked < 1.8 {
		t.Errorf("two misses count as %v", x.asked)
	}
}

func TestAnObservedChoiceIsNobodysWorkBeforeItIsServed(t *testing.T) {
	x := fleet(2)
	id := RequestID{Gateway: 1, ID: 1}
	x.Dispatch(Dispatch{Request: id, Chosen: 1, PromptUnits: 100, Path: pathOf("abc"), Observe: true}, epoch)
	if s, _ := x.Worker(1, epoch); s.RecentTokens != 0 {
		t.Errorf("on paper: %v", s.RecentTokens)
	}
	x.Done(complete(id, 2), epoch)
	one, _ := x.Worker(1, epoch)
	two, _ := x.Worker(2, epoch)
	if one.RecentTokens != 0 || two.RecentTokens != 1600 {
		t.Errorf("%v at the choice on paper, %v at who served", one.RecentTokens, two.RecentTokens)
	}
}

func TestTheTimelineIsBoundedAndNeverMakesTheTailTooOld(t *testing.T) {
	var line timeline
	const n, step = 200_000, 60 * time.Millisecond
	for seq := uint64(1); seq <= n; seq++ {
		line.add(seq, epoch.Add(time.Duration(seq)*step))
	}
	if len(line.marks) > timelineMarks {
		t.Fatalf("%d marks", len(line.marks))
	}
	whole := n * step
	for seq := uint64(1); seq <= n; seq += 997 {
		given := epoch.Add(time.Duration(seq) * step)
		if off := given.Sub(line.of(seq)); off < 0 && seq > 1 || off > whole/500 {
			t.Fatalf("number %d was given out %v after what the timeline says of %v", seq, off, whole)
		}
	}
}
