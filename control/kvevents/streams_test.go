package kvevents

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// worker is the way of one of many engines into an index.
type worker struct {
	*index.Index
	ref uint16
}

func (w worker) Hold(path []fingerprint.Checkpoint) { w.Report(w.ref, path, benchTime) }
func (w worker) Drop(fp uint64)                     { w.Withdraw(w.ref, fp, benchTime) }
func (w worker) Clear()                             { w.WithdrawAll(w.ref) }
func (worker) Slow(uint64, bool)                    {}

// A hundred engines publish at once, each loses a batch in ten on the way, and in
// the end one index holds what each has stored.
func TestAHundredStreamsAtOnceLoseNothing(t *testing.T) {
	const engines, batches = 100, 40
	x := index.New(index.Config{})
	type stream struct {
		*engine
		source *Source
		told   chan struct{}
	}
	var streams []stream
	for i := range engines {
		ref := uint16(i + 1)
		x.AddWorker(index.WorkerSpec{Ref: ref, Pool: "pool", CapacityTokens: 1 << 20})
		x.Reporting(ref, true, benchTime)
		e := newEngine(t)
		source, told := follow(t, e, e.endpoint(), worker{x, ref})
		until(t, source, told, "the first replay", func(st SourceStatus) bool { return st.Replays == 1 })
		streams = append(streams, stream{e, source, told})
	}
	for i := range batches {
		for _, s := range streams {
			s.publish(prompt(float64(i+1), i), i%10 == 5)
		}
	}
	for i, s := range streams {
		st := until(t, s.source, s.told, "all batches", func(st SourceStatus) bool { return st.Next == batches })
		if st.Map.Held != 4*batches || st.Lost+st.Missed+st.Bad != 0 || st.Gaps == 0 || st.Batches != batches {
			t.Errorf("engine %d: %+v", i, st)
		}
		if w, _ := x.Worker(uint16(i+1), benchTime); w.Entries != batches {
			t.Errorf("engine %d: %d entries", i, w.Entries)
		}
	}
}

func TestBlocksThatThereIsNoRoomForAreTold(t *testing.T) {
	s := NewSource(Endpoint{}, Config{Pool: "pool", MaxBlocks: 6}, newLedger(), nil, slog.New(slog.DiscardHandler))
	for i, want := range []string{"", "2 blocks had no room among the 6"} {
		s.take(uint64(i), prompt(float64(i+1), i), false)
		if st := s.Status(); !strings.HasPrefix(st.Problem, want) || (st.Problem == "") != (want == "") {
			t.Errorf("after %d prompts: %+v", i+1, st)
		}
	}
}

// stalled is a sink that takes nothing until it may.
type stalled struct {
	*ledger
	open chan struct{}
}

func (s stalled) Hold(path []fingerprint.Checkpoint) {
	<-s.open
	s.ledger.Hold(path)
}

// A consumer that can't keep up leaves what is published with the engine, whose
// queue is bounded. What the engine drops then is asked for again, or counted to
// the last batch.
func TestASlowConsumerDropsNothingSilently(t *testing.T) {
	published := traffic(1500, 32) // some 8 MB; no removals yet
	for _, withReplay := range []bool{true, false} {
		e := newEngine(t)
		e.bound(100)
		endpoint := e.endpoint()
		if !withReplay {
			endpoint.Replay = ""
		}
		sink := stalled{newLedger(), make(chan struct{})}
		s, told := follow(t, e, endpoint, sink)
		if withReplay {
			until(t, s, told, "the first replay", func(st SourceStatus) bool { return st.Replays == 1 })
		}
		last := len(published) - 1
		for _, batch := range published[:last] {
			e.publish(batch, false)
		}
		close(sink.open)
		// The last one finds room, so that what is missing before it shows.
		for room := time.After(10 * time.Second); len(e.queue) == cap(e.queue); {
			select {
			case <-told:
			case <-room:
				t.Fatal("the queue stays full")
			}
		}
		e.publish(published[last], false)
		st := until(t, s, told, "the last batch", func(st SourceStatus) bool { return st.Next == uint64(len(published)) })
		if e.dropped < 100 || e.dropped == uint64(last) {
			t.Fatalf("%d of %d dropped: this shows nothing", e.dropped, last)
		}
		lost := uint64(0)
		if !withReplay {
			lost = e.dropped
		}
		if st.Lost != lost || st.Batches+lost != uint64(len(published)) || st.Map.Held != 30*int(st.Batches) || st.Gaps == 0 || (st.Problem == "") != withReplay {
			t.Errorf("replay %v: %d dropped, %+v", withReplay, e.dropped, st)
		}
	}
}
