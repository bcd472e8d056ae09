//go:build !wasm

package courier

import (
	"cmp"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/wire"
)

// TestNewsOfASlowControlServiceWait: a control service that takes long to answer is asked less
// often, and the tick comes when a batch may go. The host refuses calls: a failure is a batch.
func TestNewsOfASlowControlServiceWait(t *testing.T) {
	host, c := begin(t)
	tries := func() uint32 { return c.batch.failures }
	for _, took := range []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond} {
		host.Clock += int64(10 * time.Second)
		c.batch.took, c.batch.news = took, false
		before := tries()
		c.News(host.Clock)
		if tries() != before+1 {
			t.Fatalf("control took %v: news after a pause are not sent", took)
		}
		c.batch.notBefore, c.batch.news = 0, false // as if it had been taken
		c.pace(host.Clock)
		c.News(host.Clock)
		want := max(25*time.Millisecond, 2*took)
		if tries() != before+1 || host.TickPeriod != want {
			t.Fatalf("control took %v: %d batches at once, the next tick after %v, want %v", took, tries()-before, host.TickPeriod, want)
		}
		host.Clock += int64(want)
		c.Tick(host.Clock)
		if tries() != before+2 {
			t.Fatalf("control took %v: not sent when it is time", took)
		}
		c.batch.notBefore, c.batch.news = 0, false
		c.pace(host.Clock)
		if host.TickPeriod != c.config.Tick {
			t.Fatalf("the tick stays at %v", host.TickPeriod)
		}
	}
}

// TestNewsToAControlServiceThatFailsShortenNoTick: the back-off decides, not the news.
func TestNewsToAControlServiceThatFailsShortenNoTick(t *testing.T) {
	host, c := begin(t) // every call is refused
	asked := c.batch.failures
	for range 400 { // some 20 s
		host.Clock += int64(cmp.Or(host.TickPeriod, c.config.Tick))
		c.News(host.Clock)
		c.fleet.Tick(host.Clock, true)
		c.Tick(host.Clock)
	}
	if took := time.Duration(host.Clock - start); took < 30*time.Second {
		t.Errorf("400 ticks in %v", took)
	}
	if n := c.batch.failures - asked; n > 16 {
		t.Errorf("%d batches tried", n)
	}
}

// TestQuickAnswersOfPollsRestLongerAndLonger: control has a reason to answer at once now and then,
// one that always does must not be asked without a pause.
func TestQuickAnswersOfPollsRestLongerAndLonger(t *testing.T) {
	host, c := begin(t)
	c.takeUpdate(resyncFrame(7, 3), host.Clock)
	c.finish(host)
	var rests []time.Duration
	for range 6 {
		c.poll = poll{generation: c.poll.generation, quick: c.poll.quick, started: host.Clock}
		c.pollAnswered(204, 0)
		rests = append(rests, time.Duration(c.poll.notBefore-host.Clock))
		if c.poll.open || host.TickPeriod != min(rests[len(rests)-1], c.config.Tick) {
			t.Fatalf("polls again at once %v; rest %v, tick %v", c.poll.open, rests, host.TickPeriod)
		}
		host.Clock += int64(100 * time.Millisecond)
	}
	for i, want := range []int64{10, 20, 40, 80, 100, 100} {
		if rests[i].Milliseconds() != want {
			t.Fatalf("rests %v", rests)
		}
	}
	c.poll.started = host.Clock - int64(time.Second)
	c.poll.notBefore = 0
	c.pollAnswered(204, 0)
	if c.poll.quick != 0 || c.poll.failures != 1 { // the host refuses the call
		t.Errorf("after a slow answer: %d quick ones, %d tries", c.poll.quick, c.poll.failures)
	}
}

// TestWhatIsNewIsPolledForWithoutAPause: each answer comes at once and brings a version; the rest
// doesn't grow, or a fleet that changes all the time would be known ever later.
func TestWhatIsNewIsPolledForWithoutAPause(t *testing.T) {
	host, c := begin(t)
	c.takeUpdate(resyncFrame(7, 3), host.Clock)
	c.finish(host)
	for version := uint64(3); version < 9; version++ {
		frame := updateFrame(7, version, version+1)
		host.Buffers[abi.HTTPCallBody] = frame
		c.poll = poll{generation: c.poll.generation, quick: c.poll.quick, started: host.Clock}
		c.pollAnswered(200, len(frame))
		if rest := time.Duration(c.poll.notBefore - host.Clock); rest != pollRest || host.TickPeriod != pollRest || c.meta.Version != version+1 {
			t.Fatalf("version %d: rests %v, tick %v", c.meta.Version, rest, host.TickPeriod)
		}
	}
}

// TestChunksOfASlotBeforeAreNotWaitedFor: a VM that has lost its slot goes on with its sequence in
// another. What it has written before is not there, and not lost because more follows.
func TestChunksOfASlotBeforeAreNotWaitedFor(t *testing.T) {
	host, c := begin(t)
	const slot, nonce = 5, 77
	put := func(key string, value []byte) {
		host.Shared[key] = abi.FakeShared{Value: value, CAS: host.Shared[key].CAS + 1}
	}
	look := func(sequence uint64) {
		put(c.fleet.Keys.RowKey(slot), wire.EndRow(wire.AppendRow(nil, &wire.Row{
			Slot: slot, Nonce: nonce, TickUnixNanos: host.Clock, ReportSequence: sequence,
		}), 0))
		for range 8 { // all slots are looked at
			host.Clock += int64(100 * time.Millisecond)
			c.fleet.Tick(host.Clock, true)
		}
		c.batchFrame(host.Clock)
	}
	put(c.fleet.Keys.Report(slot, 14), wire.AppendChunk(nil, wire.Chunk{Sequence: 14, Nonce: 76}))
	look(30)
	if c.pending() || len(c.batch.sent) > 0 {
		t.Errorf("%v was sent, more is waited for %v", c.batch.sent, c.pending())
	}
	put(c.fleet.Keys.Report(slot, 31), wire.AppendChunk(nil, wire.Chunk{Sequence: 31, Nonce: nonce}))
	look(31)
	c.metrics.Flush()
	if lost := host.Metrics["warmpath.reports_lost"].Value; lost != 0 || len(c.batch.sent) != 1 || !c.pending() {
		t.Errorf("%d chunks lost, %v was sent, waits for its answer %v", lost, c.batch.sent, c.pending())
	}
}
