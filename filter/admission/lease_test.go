//go:build !wasm

package admission

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestALeaseCountsFromTheSendingOfItsBatch: however long its answer took.
func TestALeaseCountsFromTheSendingOfItsBatch(t *testing.T) {
	g, stop := newGateway(t, 1)
	defer stop()
	c := g.control.gate
	sent := g.host.Clock
	u, _, err := wire.DecodeUsage(c.AppendUsage(nil, sent))
	if err != nil {
		t.Fatal(err)
	}
	g.advance(1500 * time.Millisecond)
	b := wire.AppendLeases(nil, &wire.Leases{Nonce: u.Nonce, Term: 1, Sequence: 1, Answers: u.Sequence, DurationMillis: 2000, FloorMillis: 5000})
	if err := c.Install(b, sent, g.host.Clock); err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(c.lease.Until - g.host.Clock); left != 460*time.Millisecond { // and a fiftieth for the clock
		t.Errorf("%v of two seconds are left after one and a half", left)
	}
}
