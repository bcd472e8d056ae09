//go:build !wasm

package admission

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func TestStructsAreAsDrawn(t *testing.T) {
	for _, s := range []struct {
		what      string
		got, want uintptr
	}{
		{"a pool's head", unsafe.Sizeof(poolHead{}), 152},
		{"its queues' virtual times", unsafe.Offsetof(poolHead{}.Virtual), 88},
		{"a share", unsafe.Sizeof(share{}), 56},
		{"its prefill", unsafe.Offsetof(share{}.Prefill), 40},
		{"a queue", unsafe.Sizeof(queued{}), 48},
		{"its start", unsafe.Offsetof(queued{}.Start), 16},
		{"a tenant's head", unsafe.Sizeof(tenantHead{}), 104},
		{"its finish times", unsafe.Offsetof(tenantHead{}.Finish), 72},
		{"a tenant's share", unsafe.Sizeof(tenantOf{}), 32},
		{"a lease", unsafe.Sizeof(lease{}), 64},
		{"a reset", unsafe.Sizeof(reset{}), 24},
	} {
		if s.got != s.want {
			t.Errorf("%s: %d, want %d", s.what, s.got, s.want)
		}
	}
}

func TestCellsSurviveTheirBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c, back poolCell
		c.Term, c.Lease = rapid.Uint64().Draw(t, "term"), rapid.Uint64().Draw(t, "lease")
		c.Limits[3].Slots, c.Virtual[1] = rapid.Uint32().Draw(t, "slots"), rapid.Float64Range(0, 1e12).Draw(t, "virtual")
		c.Shares = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) share {
			return share{Nonce: rapid.Uint64().Draw(t, "nonce"), Slot: rapid.Uint16().Draw(t, "slot"), InUse: [3]uint16{0, rapid.Uint16().Draw(t, "in use"), 1}}
		}), 0, 5).Draw(t, "shares")
		c.Queues = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) queued {
			return queued{Slot: rapid.Uint16().Draw(t, "slot"), Class: rapid.Uint8Range(0, 2).Draw(t, "class"), Start: rapid.Float64Range(0, 1e12).Draw(t, "start")}
		}), 0, 5).Draw(t, "queues")
		guarded := c.append([]byte("guard"))
		if string(guarded[:5]) != "guard" || !back.decode(guarded[5:]) {
			t.Fatal("not readable")
		}
		if back.poolHead != c.poolHead || !slices.Equal(back.Shares, c.Shares) || !slices.Equal(back.Queues, c.Queues) {
			t.Fatalf("%+v became %+v", c, back)
		}
		cut := rapid.IntRange(1, len(guarded)-6).Draw(t, "cut")
		if back.decode(guarded[5 : 5+cut]) {
			t.Fatalf("%d of %d bytes were read", cut, len(guarded)-5)
		}
		if back.Term != 0 || len(back.Shares) > 0 {
			t.Fatal("an unreadable cell left something")
		}
	})
}

func TestAnyBytesAreACellOrNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "bytes")
		if len(b) >= 8 && rapid.Bool().Draw(t, "magic") {
			copy(b, "WPS3\x01\x00\x01\x00")
		}
		if len(b) >= 8 && rapid.Bool().Draw(t, "tenant") {
			copy(b, "WPT2\x02\x00")
		}
		var p poolCell
		p.decode(b)
		for _, q := range p.Queues {
			if q.Class > 2 {
				t.Fatal("a class that doesn't exist")
			}
		}
		new(tenantCell).decode(b)
		new(lease).decode(b)
		new(Resets).decode(b)
	})
}

func TestSHA256IsTheStandards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "text")
		if sum256(text) != sha256.Sum256(text) {
			t.Fatalf("of %d bytes", len(text))
		}
	})
	for n := range 200 { // every way to pad
		text := make([]byte, n)
		if sum256(text) != sha256.Sum256(text) {
			t.Fatalf("of %d zeroes", n)
		}
	}
}

func TestALeaseEndsAtTheFloorAndThenInNothing(t *testing.T) {
	l := lease{Term: 1, Sent: 100e9, Until: 102e9, Floor: 130e9}
	for at, want := range map[int64]string{100e9: "leased", 102e9 - 1: "leased", 102e9: "floor", 130e9 - 1: "floor", 130e9: "alone", 90e9: "floor"} {
		if got := []string{"leased", "floor", "alone"}[l.level(at)]; got != want {
			t.Errorf("at %d s: %s, want %s", at/1e9, got, want)
		}
	}
	if new(lease).level(5) != 2 {
		t.Error("without a lease something is known")
	}
}

func TestAPromptThatBrokeTwoWorkersWithinAMinuteIsDangerous(t *testing.T) {
	var r Resets
	now := int64(1000e9)
	r.note(7, 1, now)
	r.note(7, 1, now)
	if r.Dangerous(7, now) {
		t.Error("one worker is enough")
	}
	r.note(7, 2, now+int64(30*time.Second))
	if !r.Dangerous(7, now+int64(31*time.Second)) || r.Dangerous(8, now) {
		t.Error("two are not, or others are concerned")
	}
	if r.Dangerous(7, now+int64(91*time.Second)) {
		t.Error("it is never forgotten")
	}
	r.note(7, 3, now+int64(91*time.Second))
	if r.Dangerous(7, now+int64(92*time.Second)) {
		t.Error("what is forgotten counts")
	}
	for i := range uint64(100) {
		r.note(100+i, 1, now)
	}
	if len(r.known) != maxResets {
		t.Errorf("%d are remembered", len(r.known))
	}
}
