package transcripts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/wire"
)

const rated = `{"enforce": ["default"], "identity": {"tenant_header": "x-tenant"},
	"tenants": {"rated": {"uncached_tokens_per_minute": 1000000, "index": 1}},
	"classes": {"p1": {"queue": {"requests": 1000, "bytes": 100000000, "deadline_ms": 5000}}}}`

// TestWhoeverIsTurnedAwayAtItsSlotIsToldItself: requests wait for the one slot, and
// meanwhile their tenant's tokens are used up by others. Each that gets the slot is refused
// at once, which frees it for the next. All are told, each in its own stream, none gets to a
// worker, and none within the callback of another.
func TestWhoeverIsTurnedAwayAtItsSlotIsToldItself(t *testing.T) {
	for _, by := range []string{"the end of another", "the tick"} {
		t.Run(by, func(t *testing.T) {
			p := start(t, modules.full, `{}`, 1)
			l := &p.control.leases
			tenant := wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: wire.NoLimit, Requests: wire.NoCredit, Tokens: 1 << 30}
			l.settings, l.tenants[1] = rated, tenant
			l.slots(1, 1, 1, 1)
			p.control.changed()
			p.advance(time.Second)
			ask := func(name string) *exchange {
				return p.send(0, post("/v1/chat/completions", "x-tenant", "rated"), chat("m", 0, strings.Repeat(name+" ", 4000/(len(name)+1))), 0)
			}
			first := ask("first")
			if first.out.Request == nil {
				t.Fatalf("the first waits: %v", first.out.Lines)
			}
			p.advance(time.Second)
			spent := uint64(0)
			for _, u := range l.usage {
				if u.Tenant == 1 {
					spent = u.Tokens
				}
			}
			var waiting []*exchange
			for i := range 300 {
				waiting = append(waiting, ask(fmt.Sprint(i)))
			}
			tenant.Tokens, tenant.Flags = spent+spent/2, wire.NoTokens // no more for a whole prompt
			l.tenants[1] = tenant
			p.advance(time.Second)
			if by == "the tick" {
				l.slots(2, 2, 2, 2)
				p.advance(2 * time.Second)
			} else {
				first.Close()
				p.advance(300 * time.Millisecond) // what has taken too long for one callback
			}
			for i, x := range waiting {
				if x.out.Replied == nil || x.out.Request != nil || x.out.Response.Value(":status") != "429" {
					t.Fatalf("request %d: %v", i, x.out.Lines)
				}
			}
			first.Close()
			if n := p.counter("panics"); n != 0 {
				t.Fatalf("%d panics: %v", n, p.logs)
			}
			p.advance(3 * time.Second)
			if err := p.empty(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
