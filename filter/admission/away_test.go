//go:build !wasm

package admission

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestWhoFoundNoRoomIsToldToControl: the class records say how many were refused for want of room and
// how much they had to prefill, in all VMs together; who is beyond its own limit is not among them.
func TestWhoFoundNoRoomIsToldToControl(t *testing.T) {
	g, stop := newGateway(t, 2)
	defer stop()
	g.lease(t, 1, 0)
	first := g.arrive(g.vms[0], 2, 0, 400)
	for i := range 7 { // five wait
		g.arrive(g.vms[i%2], 2, 0, 4000)
	}
	g.arrive(g.vms[0], 1, 0, 400) // beyond the small tenant's limit
	g.advance(100 * time.Millisecond)
	if !first.running {
		t.Fatal("the first has no slot")
	}
	refused := uint32(0)
	for _, r := range g.requests {
		if r.refused.ForRoom() {
			refused++
		}
	}
	_, records, err := wire.DecodeUsage(g.control.gate.AppendUsage(nil, g.host.Clock))
	if err != nil {
		t.Fatal(err)
	}
	err = wire.ForEachUsed(records, func(u *wire.Used) error {
		if u.Tenant != wire.WholeClass || u.Class >= wire.BypassClass {
			return nil
		}
		want, tokens := uint32(0), uint64(0)
		if u.Class == 0 {
			want, tokens = refused, 1000*uint64(refused)
		}
		if u.Refused != want || u.Tokens != tokens {
			t.Errorf("P%d: %d refused with %d tokens, want %d and %d", u.Class, u.Refused, u.Tokens, want, tokens)
		}
		return nil
	})
	if err != nil || refused == 0 {
		t.Errorf("%d refused: %v", refused, err)
	}
}
