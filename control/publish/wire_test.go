package publish

import (
	"testing"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestACourierIsAnsweredInAVersionItSpeaks: one that says nothing speaks the oldest,
// one from the future no more than this.
func TestACourierIsAnsweredInAVersionItSpeaks(t *testing.T) {
	x := New(Config{MinBits: 6}, start)
	for speaks, want := range map[uint8]uint8{0: wire.OldestVersion, 1: 1, 2: 2, wire.Version + 1: wire.Version, 255: wire.Version} {
		frame, ok := x.Update(0, 0, speaks, start)
		if h, err := wire.DecodeHeader(frame); !ok || err != nil || h.Wire != want {
			t.Errorf("who speaks up to %d is answered in %d: %v", speaks, h.Wire, err)
		}
	}
	frame, err := x.Pages(x.epoch, 6, 0)
	if h, bad := wire.DecodeHeader(frame); err != nil || bad != nil || h.Wire != wire.OldestVersion {
		t.Errorf("pages in %d: %v, %v", h.Wire, err, bad)
	}
}
