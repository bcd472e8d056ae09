package quota

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

// TestTenantsAreNotStarvedByWorkOfBeforeTheControlService: requests were at the workers before any
// gateway reported. That may be a ledger of before, or a fleet that served without one; either way
// the tenants' slots are held back for as long as leases of before could be in force. Where the
// policy lets requests pass while nothing is known, theirs are no limit meanwhile.
func TestTenantsAreNotStarvedByWorkOfBeforeTheControlService(t *testing.T) {
	for _, c := range []struct {
		name      string
		settings  string
		inherited bool // a gateway shows a lease of another term
		open      bool
	}{
		{"passing where nothing is known", "", false, true},
		{"a static limit there", `"level2": {"slots": 5}, `, false, false},
		{"a ledger before this one", "", true, false},
	} {
		b := newBench(t, `{`+c.settings+`"max_partition_ms": 10000, "tenants": {"small": {"concurrency": 2, "index": 1}}}`, 100)
		b.ledger = New(7, true, 1)
		b.ledger.Configure(b.a, []Pool{{0, "chat"}}, b.now)
		b.ledger.SetCapacity(0, Capacity{Slots: 100, PrefillTokens: NoLimit})
		b.ledger.Observe(0, 1, b.now)
		if c.inherited {
			b.leases[1] = &Lease{Term: 5, Sequence: 9}
		}
		credit := func() Credit {
			c, _ := b.renew(1, ofTenant(1, 0, 1)).Tenant(1, b.now)
			return c
		}
		until := b.now + int64(9*time.Second)
		for b.now < until { // the workers are idle from now on
			b.now += 250 * millis
			b.ledger.Tick(b.now)
			b.ledger.Observe(0, 0, b.now)
			if b.ledger.Learning() && !c.inherited {
				continue // it gets nothing and goes by that
			}
			if got := credit(); got.Slots != 0 || got.Flags&wire.Unsettled != 0 != c.open {
				t.Fatalf("%s: %d slots, flags %d after %v", c.name, got.Slots, got.Flags, time.Duration(b.now))
			}
			if !b.ledger.Unsettled() {
				t.Fatalf("%s: settled after %v", c.name, time.Duration(b.now))
			}
		}
		for range 40 {
			b.now += 250 * millis
			b.ledger.Tick(b.now)
			b.ledger.Observe(0, 0, b.now)
		}
		if got := credit(); got.Slots != 2 || got.Flags != 0 {
			t.Errorf("%s: %d slots, flags %d when everything of before is over", c.name, got.Slots, got.Flags)
		}
	}
}
