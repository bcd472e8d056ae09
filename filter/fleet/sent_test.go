package fleet

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/predicted"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// textOf is the checkpoints of a prompt of n units that shares its first ones with those of the same
// topic.
func textOf(topic, own uint64, shared, n int) (out []fingerprint.Checkpoint) {
	for end := 4; end <= n; end += 4 {
		f := topic<<32 + uint64(end)
		if end > shared {
			f += own << 48
		}
		f *= 0x9e3779b97f4a7c15
		out = append(out, fingerprint.Checkpoint{Fingerprint: (f ^ f>>32) * 0x9e3779b97f4a7c15, End: uint32(end)})
	}
	return out
}

func twoVMs(t *testing.T) (here, there *Fleet, refresh func(now int64), host *abi.Fake) {
	host = proxy(t)
	publish(host, 3, 1, onePool)
	here, there = vm(t), vm(t)
	refresh = func(now int64) {
		host.Clock = now
		here.Refresh(now)
		there.Refresh(now)
	}
	for now := start; now < start+int64(time.Second); now += int64(100 * time.Millisecond) {
		here.Tick(now, true)
		there.Tick(now, false)
		refresh(now)
	}
	refresh(start + int64(time.Second))
	return here, there, refresh, host
}

func TestASiblingVMIsToldOfANewPrefixAtOnce(t *testing.T) {
	here, there, refresh, _ := twoVMs(t)
	now := start + int64(time.Second)
	here.NoteSent(7, 2, textOf(1, 1, 400, 420), 0, 6720, 11)
	refresh(now + int64(40*time.Millisecond))
	for name, f := range map[string]*Fleet{"the same VM": here, "its sibling": there} {
		got := f.FindSent(textOf(1, 2, 400, 420), 11, 6720, nil, nil)
		// Of 105 checkpoints every fourth is told.
		if len(got) != 1 || got[0].Ref != 2 || got[0].Units < 384 || got[0].Ago != 40*time.Millisecond {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := there.FindSent(textOf(2, 2, 400, 420), 11, 6720, nil, nil); got != nil {
		t.Errorf("another prompt: %+v", got)
	}
	refresh(now + int64(predicted.Lifetime))
	if got := there.FindSent(textOf(1, 2, 400, 420), 11, 6720, nil, nil); got != nil {
		t.Errorf("after its lifetime: %+v", got)
	}
}

func TestOnlyWhatIsNewIsTold(t *testing.T) {
	here, there, _, _ := twoVMs(t)
	if cell := here.NoteSent(7, 2, textOf(1, 1, 400, 420), 400, 320, 11); cell != noCell {
		t.Error("a follow-up was told")
	}
	if cell := here.NoteSent(8, 2, textOf(1, 1, 400, 420), 0, 6720, 0); cell != noCell {
		t.Error("a prompt without a key was told")
	}
	if got := there.FindSent(textOf(1, 1, 400, 420), 11, 6720, []table.Match{{Ref: 1, Units: 400}}, nil); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestWhatFailedIsTakenBackFromTheSiblingsToo(t *testing.T) {
	here, there, refresh, _ := twoVMs(t)
	cell := here.NoteSent(7, 2, textOf(1, 1, 400, 420), 0, 6720, 11)
	other := here.NoteSent(8, 3, textOf(2, 1, 400, 420), 0, 6720, 11)
	if cell != other || cell == noCell {
		t.Fatalf("cells %d and %d", cell, other)
	}
	here.ForgetSent(7, cell)
	refresh(start + int64(1100*time.Millisecond))
	for _, f := range []*Fleet{here, there} {
		if got := f.FindSent(textOf(1, 2, 400, 420), 11, 6720, nil, nil); got != nil {
			t.Errorf("%+v", got)
		}
		if got := f.FindSent(textOf(2, 2, 400, 420), 11, 6720, nil, nil); len(got) != 1 || got[0].Ref != 3 {
			t.Errorf("the other one: %+v", got)
		}
	}
}

// TestACellHoldsTheNewest: one that is full has room for it, a damaged one is counted and written over.
func TestACellHoldsTheNewest(t *testing.T) {
	here, there, _, host := twoVMs(t)
	for id := range uint64(100) {
		here.NoteSent(id+1, 2, textOf(id+1, 1, 400, 420), 0, 6720, 11)
		if got := there.FindSent(textOf(id+1, 2, 400, 420), 11, 6720, nil, nil); len(got) != 1 {
			t.Fatalf("dispatch %d is not found", id+1)
		}
	}
	damaged := []byte("WPD1\x01garbage")
	host.Shared[there.Keys.Sent(11%wire.SentCells)] = abi.FakeShared{Value: damaged, CAS: 1 << 30}
	if got := there.FindSent(textOf(999, 2, 400, 420), 11, 6720, nil, nil); got != nil {
		t.Errorf("%+v", got)
	}
	here.NoteSent(200, 3, textOf(999, 1, 400, 420), 0, 6720, 11)
	if got := there.FindSent(textOf(999, 2, 400, 420), 11, 6720, nil, nil); len(got) != 1 || got[0].Ref != 3 {
		t.Errorf("%+v", got)
	}
}

// TestAFullCellLosesTheOldest: a sibling that looks once in a while finds what came last.
func TestAFullCellLosesTheOldest(t *testing.T) {
	here, there, _, host := twoVMs(t)
	for id := range uint64(100) {
		here.NoteSent(id+1, 2, textOf(id+1, 1, 400, 420), 0, 6720, 11)
		if n := len(host.Shared[here.Keys.Sent(11%wire.SentCells)].Value); n > wire.MaxSentBytes {
			t.Fatalf("a cell of %d bytes", n)
		}
		from := max(0, int(id)-8) // 27 checkpoints are 240 bytes
		if id%7 != 0 {
			continue
		}
		for k := from; k <= int(id); k++ {
			if got := there.FindSent(textOf(uint64(k)+1, 2, 400, 420), 11, 6720, nil, nil); len(got) != 1 {
				t.Fatalf("after %d dispatches the one %d before is not found", id+1, int(id)-k)
			}
		}
	}
}

func TestSentAllocatesNothing(t *testing.T) {
	here, there, _, _ := twoVMs(t)
	p, q := textOf(1, 1, 400, 420), textOf(1, 2, 400, 420)
	out := make([]route.Sent, 0, 8)
	known := []table.Match{{Ref: 2, Units: 416}}
	if n := testing.AllocsPerRun(50, func() {
		here.NoteSent(7, 2, p, 416, 64, 11)
		out = there.FindSent(q, 11, 6720, known, out[:0])
	}); n != 0 {
		t.Errorf("%v allocations for a follow-up", n)
	}
}
