package predicted

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
)

const ms = int64(time.Millisecond)

// prompt is checkpoints every four units, whose fingerprints are told apart by a seed from some
// position on.
func prompt(seed uint64, shared, n int) (out []fingerprint.Checkpoint) {
	for i := range n {
		f := uint64(i)
		if i >= shared {
			f += seed << 6
		}
		// Each has a set of its own, as long as seeds are below 16.
		out = append(out, fingerprint.Checkpoint{Fingerprint: f<<20 | 1, End: uint32(4 * (i + 1))})
	}
	return out
}

func TestASiblingFindsWhatItSharesAtOnce(t *testing.T) {
	var m Memory
	now := int64(1e18)
	m.Add(&Dispatch{ID: 7, Ref: 3, Sent: now, Ready: 700 * time.Millisecond}, prompt(1, 20, 30), 0)
	got := m.Find(prompt(2, 20, 25), now+40*ms, nil)
	want := []route.Sent{{Ref: 3, Units: 80, Ago: 40 * time.Millisecond, Ready: 660 * time.Millisecond}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := m.Find(prompt(2, 0, 25), now+40*ms, nil); got != nil {
		t.Errorf("a prompt that shares nothing finds %v", got)
	}
	if got := m.Find(prompt(2, 20, 25), now+int64(Lifetime), nil); got != nil {
		t.Errorf("after its lifetime: %v", got)
	}
}

func TestWhatTheTableKnowsIsNotRemembered(t *testing.T) {
	var m Memory
	now := int64(1e18)
	m.Add(&Dispatch{ID: 7, Ref: 3, Sent: now}, prompt(1, 20, 30), 80)
	if got := m.Find(prompt(2, 20, 25), now, nil); got != nil {
		t.Errorf("%v", got)
	}
	if got := m.Find(prompt(1, 20, 30), now, nil); len(got) != 1 || got[0].Units != 120 || got[0].Ready != 0 {
		t.Errorf("%v", got)
	}
}

func TestAFailedDispatchIsForgottenUnlessAnotherWentThere(t *testing.T) {
	var m Memory
	now := int64(1e18)
	m.Add(&Dispatch{ID: 7, Ref: 3, Sent: now, Ready: time.Second}, prompt(1, 20, 30), 0)
	m.Add(&Dispatch{ID: 8, Ref: 3, Sent: now + 100*ms, Ready: 2 * time.Second}, prompt(2, 20, 30), 0)
	m.Forget(7)
	if got := m.Find(prompt(1, 20, 30), now+200*ms, nil); len(got) != 1 || got[0].Units != 80 {
		t.Errorf("%v: the second one still brings the shared part", got)
	}
	// What the first began is ready when it was going to be.
	if got := m.Find(prompt(3, 20, 30), now+200*ms, nil); len(got) != 1 || got[0].Ready != 800*time.Millisecond {
		t.Errorf("%v", got)
	}
	m.Forget(8)
	if got := m.Find(prompt(2, 20, 30), now+200*ms, nil); got != nil {
		t.Errorf("%v", got)
	}
}

// TestWhatIsOverCountsForNothing: sent again long after, a prefix is as new as it was the first time.
func TestWhatIsOverCountsForNothing(t *testing.T) {
	var m Memory
	now := int64(1e18)
	m.Add(&Dispatch{ID: 7, Ref: 3, Sent: now, Ready: time.Second}, prompt(1, 20, 30), 0)
	now += int64(Lifetime)
	m.Add(&Dispatch{ID: 8, Ref: 3, Sent: now, Ready: 700 * time.Millisecond}, prompt(1, 20, 30), 0)
	if got := m.Find(prompt(1, 20, 30), now, nil); len(got) != 1 || got[0].Ready != 700*time.Millisecond {
		t.Errorf("%v", got)
	}
}

// TestAClockSetBackForgetsAll: entries from the future would count until the clock is there again, and
// nothing newer could take their places.
func TestAClockSetBackForgetsAll(t *testing.T) {
	var m Memory
	now := int64(1e18)
	m.Add(&Dispatch{ID: 7, Ref: 3, Sent: now}, prompt(1, 20, 30), 0)
	now -= int64(time.Hour)
	if got := m.Find(prompt(1, 20, 30), now, nil); got != nil {
		t.Errorf("sent an hour from now: %v", got)
	}
	m.Add(&Dispatch{ID: 8, Ref: 3, Sent: now}, prompt(1, 20, 30), 0)
	now += 30 * ms
	if got := m.Find(prompt(1, 20, 30), now, nil); len(got) != 1 || got[0].Ago != 30*time.Millisecond {
		t.Errorf("sent since: %v", got)
	}
	now += int64(Lifetime)
	if got := m.Find(prompt(1, 20, 30), now, nil); got != nil {
		t.Errorf("after its lifetime: %v", got)
	}
}

// TestAMemoryEqualsAListOfAll compares with a list that is searched from end to end, as long as
// there is room for everything.
func TestAMemoryEqualsAListOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type kept struct {
			id       uint64
			ref      uint16
			sent     int64
			unit     uint32
			checking uint64
		}
		m, list, now := new(Memory), []kept{}, int64(1e18)
		for id := range uint64(rapid.IntRange(1, 12).Draw(t, "requests")) {
			now += rapid.Int64Range(0, 900).Draw(t, "ms") * ms
			p := prompt(rapid.Uint64Range(1, 3).Draw(t, "seed"), rapid.IntRange(0, 12).Draw(t, "shared"), rapid.IntRange(1, 16).Draw(t, "n"))
			longest := map[uint16]uint32{}
			for _, k := range list {
				for _, c := range p {
					if c.Fingerprint == k.checking && now-k.sent < int64(Lifetime) {
						longest[k.ref] = max(longest[k.ref], c.End)
					}
				}
			}
			got := m.Find(p, now, nil)
			if len(got) != len(longest) {
				t.Fatalf("%v, want %v", got, longest)
			}
			for _, s := range got {
				if longest[s.Ref] != s.Units {
					t.Fatalf("%v, want %v", got, longest)
				}
			}
			d := Dispatch{ID: id + 1, Ref: rapid.Uint16Range(1, 4).Draw(t, "ref"), Sent: now}
			beyond := rapid.Uint32Range(0, 20).Draw(t, "beyond")
			m.Add(&d, p, beyond)
			for _, c := range p {
				if c.End > beyond {
					list = append(list, kept{d.ID, d.Ref, now, c.End, c.Fingerprint})
				}
			}
		}
	})
}

func TestNothingAllocates(t *testing.T) {
	var m Memory
	p, out := prompt(1, 20, 60), make([]route.Sent, 0, 8)
	now := int64(1e18)
	if n := testing.AllocsPerRun(100, func() {
		now += ms
		m.Add(&Dispatch{ID: 1, Ref: 3, Sent: now}, p, 0)
		out = m.Find(p, now, out[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRequest finds and adds a prompt of 4,000 tokens that nobody has, and one that is known but
// for its end.
func BenchmarkRequest(b *testing.B) {
	for name, beyond := range map[string]uint32{"cold": 0, "follow-up": 4 * 26} {
		b.Run(name, func(b *testing.B) {
			var m Memory
			p, out := prompt(1, 0, 28), make([]route.Sent, 0, 8)
			now := int64(1e18)
			b.ReportAllocs()
			for b.Loop() {
				now += 10 * ms
				p[20].Fingerprint += 1 << 40
				out = m.Find(p[:20], now, out[:0])
				m.Add(&Dispatch{ID: 1, Ref: 3, Sent: now}, p, beyond)
			}
		})
	}
}
