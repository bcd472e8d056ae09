package index

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// report is one that a gateway makes.
type report struct {
	dispatch *Dispatch
	done     *Done
}

// at gives a report its order.
func (r report) at(order uint64) report {
	if r.dispatch != nil {
		d := *r.dispatch
		d.Order = order
		return report{dispatch: &d}
	}
	d := *r.done
	d.Order = order
	return report{done: &d}
}

func (r report) to(x *Index, now time.Time) {
	if r.dispatch != nil {
		x.Dispatch(*r.dispatch, now)
	} else {
		x.Done(*r.done, now)
	}
}

func sent(gateway, id uint64, chosen uint16, text string) report {
	return report{dispatch: &Dispatch{Request: RequestID{gateway, id}, Chosen: chosen, PromptUnits: uint32(len(text)) * 4, Path: pathOf(text)}}
}

func answered(gateway, id uint64, served uint16) report {
	d := complete(RequestID{gateway, id}, served)
	return report{done: &d}
}

func failed(gateway, id uint64) report {
	return report{done: &Done{Request: RequestID{gateway, id}, Outcome: UpstreamFailure, CachedTokens: -1, PromptTokens: -1, OutputTokens: -1, TTFT: -1}}
}

func hearing(reports ...report) *Index {
	x := fleet(3)
	for _, r := range reports {
		r.to(x, epoch)
	}
	return x
}

// TestTwoGatewaysReportsOfOnePromptCountTheSameInBothOrders: one's request was
// re-routed, so what it predicted is taken back; what the other predicts stays.
func TestTwoGatewaysReportsOfOnePromptCountTheSameInBothOrders(t *testing.T) {
	moved := []report{sent(1, 1, 1, "ab"), answered(1, 1, 2)}
	waits := []report{sent(2, 1, 1, "ab")}
	want := heldBy(hearing(slices.Concat(moved, waits)...))
	if len(want) != 4 { // both checkpoints at both workers
		t.Fatalf("%v", want)
	}
	for name, order := range map[string][]report{
		"the other first":   slices.Concat(waits, moved),
		"the other between": {moved[0], waits[0], moved[1]},
	} {
		if got := heldBy(hearing(order...)); !maps.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", name, got, want)
		}
	}
	// Both are taken back: nothing is left, in whatever order.
	gone := failed(2, 1)
	for _, order := range [][]report{{moved[0], waits[0], moved[1], gone}, {waits[0], moved[0], gone, moved[1]}, {waits[0], gone, moved[0], moved[1]}} {
		if got := heldBy(hearing(order...)); len(got) != 2 {
			t.Errorf("%v", got)
		}
	}
}

// TestReplicasHoldTheSameWhateverTheOrderOfTheGatewaysReports: each gateway's
// reports come in order, and those of several in any.
func TestReplicasHoldTheSameWhateverTheOrderOfTheGatewaysReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var streams [][]report
		for gateway := range uint64(rapid.IntRange(2, 3).Draw(t, "gateways")) {
			var stream []report
			var open []uint64
			for id := range uint64(rapid.IntRange(1, 8).Draw(t, "requests")) {
				ref := rapid.Uint16Range(1, 3)
				stream = append(stream, sent(gateway, id, ref.Draw(t, "chosen"), rapid.StringMatching("[ab]{1,4}").Draw(t, "text")))
				open = append(open, id)
				for len(open) > 0 && rapid.Bool().Draw(t, "done") {
					at := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
						stream = append(stream, failed(gateway, open[at]))
					} else {
						stream = append(stream, answered(gateway, open[at], ref.Draw(t, "served")))
					}
					open = slices.Delete(open, at, at+1)
				}
			}
			streams = append(streams, stream)
		}
		one, other := fleet(3), fleet(3)
		interleaved(t, "one", streams, one)
		interleaved(t, "other", streams, other)
		if one, other := heldBy(one), heldBy(other); !maps.Equal(one, other) {
			t.Fatalf("one holds %v\nthe other %v", fmt.Sprint(one), fmt.Sprint(other))
		}
	})
}

// interleaved has an index hear streams of reports, of which each comes in order.
func interleaved(t *rapid.T, name string, streams [][]report, x *Index) {
	left := slices.Clone(streams)
	for len(left) > 0 {
		at := rapid.IntRange(0, len(left)-1).Draw(t, name)
		left[at][0].to(x, epoch)
		if left[at] = left[at][1:]; len(left[at]) == 0 {
			left = slices.Delete(left, at, at+1)
		}
		checkModels(t, x)
	}
}

// TestReplicasWithFullCachesEvictTheSame: which checkpoints were used last goes by
// the order that reports were given, not by when they come.
func TestReplicasWithFullCachesEvictTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		streams := make([][]report, rapid.IntRange(2, 4).Draw(t, "gateways"))
		first := uint64(epoch.UnixMicro()) << orderBits
		for order := range uint64(rapid.IntRange(2, 30).Draw(t, "requests")) {
			gateway := rapid.IntRange(0, len(streams)-1).Draw(t, "gateway")
			text := rapid.StringMatching("[ab]{1,6}").Draw(t, "text")
			for i, r := range []report{sent(uint64(gateway), order, 1, text), answered(uint64(gateway), order, 1)} {
				streams[gateway] = append(streams[gateway], r.at(first+2*order+uint64(i)))
			}
		}
		streams = slices.DeleteFunc(streams, func(s []report) bool { return len(s) == 0 })
		small := func() *Index {
			x := New(Config{})
			x.AddWorker(WorkerSpec{Ref: 1, Pool: "p", CapacityTokens: 6 * 4 * 16, BlockTokens: 16})
			return x
		}
		one, other := small(), small()
		interleaved(t, "one", streams, one)
		interleaved(t, "other", streams, other)
		if one, other := heldBy(one), heldBy(other); !maps.Equal(one, other) {
			t.Fatalf("one holds %v\nthe other %v", fmt.Sprint(one), fmt.Sprint(other))
		}
	})
}

// TestAReportWaitsForItsWorker: replicas come to know of workers one after the other.
func TestAReportWaitsForItsWorker(t *testing.T) {
	reports := []report{
		sent(1, 1, 1, "ab"), answered(1, 1, 2), // moved from one that is known to one that isn't yet
		sent(1, 2, 2, "abc"), answered(1, 2, 1), // and back
		sent(1, 3, 2, "b"), failed(1, 3),
		sent(1, 4, 2, "bb"),
	}
	want := heldBy(hearing(reports...))
	spec := func(ref uint16) WorkerSpec {
		return WorkerSpec{Ref: ref, Pool: "p", CapacityTokens: 16_000, BlockTokens: 16}
	}
	late := New(Config{})
	late.AddWorker(spec(1))
	for _, r := range reports {
		r.to(late, epoch)
	}
	if len(heldBy(late)) >= len(want) {
		t.Error("nothing waits: the test tests nothing")
	}
	late.AddWorker(spec(2))
	if got := heldBy(late); !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if late.Stats().UnknownRef != 0 || len(late.early.queue) != 0 || len(late.early.requests) != 0 {
		t.Errorf("%+v, %+v", late.Stats(), late.early)
	}

	// One that doesn't come holds up what others know for a while, and no more than so much.
	never := New(Config{})
	never.AddWorker(spec(1))
	for _, r := range reports {
		r.to(never, epoch)
	}
	never.Tick(epoch.Add(earlyFor + 1))
	if got := heldBy(never); len(got) != 3 || never.Stats().UnknownRef == 0 || len(never.early.requests) != 0 {
		t.Errorf("%v, %+v", got, never.Stats())
	}
	for i := range uint64(2 * maxEarly) {
		sent(2, i, 9, "a").to(never, epoch)
	}
	if n := len(never.early.queue); n != maxEarly {
		t.Errorf("%d wait", n)
	}
}
