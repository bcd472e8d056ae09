package transcripts

import (
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
)

// TestATenantIsServedWhileControlLearns: a fleet was in use before it had a
// control service, so the workers have a request that no gateway reports. The
// real ledger then holds tenants' slots back for as long as leases of a ledger
// before it could be in force, half a minute; their requests don't wait for that.
func TestATenantIsServedWhileControlLearns(t *testing.T) {
	p := start(t, modules.full, `{}`, 2)
	settings, err := policy.ParseAdmission([]byte(limited))
	if err != nil {
		t.Fatal(err)
	}
	now := func() int64 { return p.host.Now().UnixNano() }
	ledger := quota.New(9, true, now())
	ledger.Configure(settings, []quota.Pool{{Index: 0, Name: "default"}}, now())
	ledger.SetCapacity(0, quota.Capacity{Slots: 8, PrefillTokens: quota.NoLimit})
	ledger.Observe(0, 1, now())
	p.control.leases.settings = limited
	p.control.leases.ledger = func(usage []byte) []byte {
		payload, err := ledger.Renew("gw-1", usage, now(), nil)
		if err != nil {
			t.Error(err)
		}
		return payload
	}
	p.control.changed()
	pass := func(d time.Duration) {
		for range d / (100 * time.Millisecond) {
			p.advance(100 * time.Millisecond)
			ledger.Tick(now())
			ledger.Observe(0, 0, now())
		}
	}
	var open []*exchange
	ask := func(vm int) *exchange {
		x := p.send(vm, post("/v1/chat/completions", "x-tenant", "small"), chat("m", 1000, "one"), 0)
		open = append(open, x)
		return x
	}
	pass(12 * time.Second) // the pool is settled, by what its workers have
	if ledger.Learning() || !ledger.Unsettled() || p.counter("leases_installed") == 0 {
		t.Fatalf("learning %v, unsettled %v, %d leases", ledger.Learning(), ledger.Unsettled(), p.counter("leases_installed"))
	}
	for i := range 3 {
		x := ask(i % 2)
		pass(600 * time.Millisecond) // the first makes the tenant known to control
		if x.out.Request == nil {
			t.Fatalf("request %d waits or was refused: %v", i, x.out.Replied)
		}
	}
	pass(30 * time.Second)
	if x := ask(0); x.out.Replied == nil || x.out.Response.Value(":status") != "429" {
		t.Fatal("control knows all by now: three are in use of two, and a fourth is let in")
	}
	for _, x := range open {
		x.Close()
	}
	pass(2 * time.Second)
	if ask(1).out.Request == nil {
		t.Fatal("all have ended, and one more is not let in")
	}
}
