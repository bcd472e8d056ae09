package quota

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestALeaseIsOverAtTheGatewayFirst: whatever its clock's rate within 1.9 %, and however late the
// answer came, a gateway's lease and its floor have ended when the ledger takes them for over.
func TestALeaseIsOverAtTheGatewayFirst(t *testing.T) {
	for _, rate := range []float64{0.981, 1, 1.019} {
		a := testAdmission(t, `{"lease_ms": 2000, "max_partition_ms": 5000}`)
		ledger := New(1, false, 0)
		ledger.Configure(a, []Pool{{0, "chat"}}, 0)
		ledger.SetCapacity(0, Capacity{Slots: 100, PrefillTokens: NoLimit})
		clock := func(at int64) int64 { return int64(rate*float64(at)) + 7_000_000_000 }
		sent := int64(time.Second)
		usage := wire.AppendUsage(nil, &wire.Usage{Nonce: 1, Sequence: 1, Tenants: a.TenantsHash})
		usage = wire.AppendUsed(usage, &wire.Used{Tenant: wire.WholeClass, Class: wire.AnyClass})
		answer, err := ledger.Renew("gw", usage, sent, nil) // the fastest way there
		if err != nil {
			t.Fatal(err)
		}
		var lease Lease
		if ok, err := lease.Install(answer, 1, 1, clock(sent)); err != nil || !ok {
			t.Fatal(ok, err)
		}
		g := ledger.gateways[1]
		for at := sent; at < sent+int64(6*time.Second); at += int64(time.Millisecond) {
			level := lease.Level(clock(at))
			if !g.live(at) && level == Leased || at > g.floorEnd && level != Alone {
				t.Fatalf("a clock at %v: after %v the ledger thinks it over, the gateway is at level %d", rate, time.Duration(at-sent), level)
			}
		}
	}
}

// TestFloorsOfALedgerBeforeStayDebited: a gateway that a ledger before this one knew is silent, and
// the workers have nothing of it. Cut off, it still may use its floor, which is not given away.
func TestFloorsOfALedgerBeforeStayDebited(t *testing.T) {
	b := newBench(t, `{"lease_ms": 1000, "max_partition_ms": 60000, "floor_share": 0.4}`, 100)
	b.ledger = New(2, false, b.now)
	b.ledger.Configure(b.a, []Pool{{0, "chat"}}, b.now)
	b.ledger.SetCapacity(0, Capacity{Slots: 100, PrefillTokens: NoLimit})
	b.ledger.Remember("silent", 99)
	b.leases[1] = &Lease{Term: 1, Sequence: 5}
	granted := uint32(0)
	for range 40 {
		b.now += 490 * millis
		b.ledger.Tick(b.now)
		g, _ := b.renew(1, ofClass(0, 0, 200)).Pool(0, b.now)
		b.ledger.Observe(0, 0, b.now)
		granted = g.Total.Slots
	}
	if granted != 60 {
		t.Errorf("%d of 100 are granted, and a silent gateway may use 40", granted)
	}
}
