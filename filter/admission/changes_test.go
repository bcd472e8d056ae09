//go:build !wasm

package admission

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// player is a request that does what streams do when they are told: it reserves its tokens, may
// be turned away for that, and may end at once, or take another one with it.
type player struct {
	ticket  Ticket
	vm      *vm
	w       *world
	pool    uint8
	running bool
	waiting bool
	over    bool
	told    int
	tokens  uint32 // that it turns out to need
	plan    plan   // when it is let in
}

type plan uint8

const (
	goesOn plan = iota
	endsAtOnce
	takesAnother // its connection breaks, and that of another with it
)

func (r *player) Admitted() {
	r.told++
	r.running, r.waiting = true, false
	r.route()
}

func (r *player) Refused(quota.Reason) {
	r.told++
	r.waiting, r.over = false, true
}

func (r *player) route() {
	g, now := r.vm.gate, r.w.host.Clock
	if g.Reserve(&r.ticket, r.pool, r.tokens, now) != quota.None {
		r.running, r.over = false, true
		return
	}
	g.Dispatched(&r.ticket)
	switch r.plan {
	case endsAtOnce:
		r.w.end(r, -1)
	case takesAnother:
		for _, other := range r.w.players {
			if other != r && !other.over && other.vm == r.vm {
				r.w.end(other, -1)
				break
			}
		}
		r.w.end(r, -1)
	}
}

// world is a gateway whose policy changes while requests wait and run.
type world struct {
	*gateway
	players []*player
	version uint32
	pools   int
	off     bool
	lost    bool // a VM has died with what it had booked
	// What tenants have spent by all that has ended.
	requests, spent map[uint16]uint64
}

func (w *world) end(r *player, tokens int64) {
	if t := &r.ticket; t.tenant && !t.Bypass && t.served {
		w.requests[t.Tenant]++
		if tokens >= 0 {
			w.spent[t.Tenant] += uint64(tokens)
		} else {
			w.spent[t.Tenant] += t.reserved
		}
	}
	r.over, r.waiting, r.running = true, false, false
	r.vm.gate.Done(&r.ticket, tokens, w.host.Clock)
}

// publish gives the VMs a policy, which they see at their next look.
func (w *world) publish(admission string) {
	keys := wire.NewKeys("default")
	set := func(key string, value []byte) {
		w.host.Shared[key] = abi.FakeShared{Value: value, CAS: w.host.Shared[key].CAS + 1}
	}
	pools := `{"name":"default","models":["*"],"index":0}`
	if w.pools == 2 {
		pools += `,{"name":"other","models":["other"],"index":1}`
	}
	w.version++
	set(keys.Policy(), []byte(`{"pools":[`+pools+`]}`))
	set(keys.Admission(), []byte(admission))
	set(keys.Meta(), table.AppendMeta(nil, &table.Meta{
		Bits: 6, Ready: true, Epoch: 1, Version: uint64(w.version), UpdatedUnixNanos: w.host.Clock, PolicyVersion: uint64(w.version), Off: w.off,
	}))
}

func (w *world) grant(t interface{ Fatal(...any) }, slots, small uint32, flags uint8, tokens uint64) {
	c := w.control.gate
	usage := c.AppendUsage(nil, w.host.Clock)
	if len(usage) == 0 {
		return // without settings
	}
	u, _, err := wire.DecodeUsage(usage)
	if err != nil {
		t.Fatal(err)
	}
	w.sequence++
	b := wire.AppendLeases(nil, &wire.Leases{
		Nonce: u.Nonce, Term: 1, Sequence: w.sequence, Answers: u.Sequence, DurationMillis: 3_600_000, FloorMillis: 3_600_000, Tenants: u.Tenants,
	})
	for pool := range uint8(w.pools) {
		for _, class := range []uint8{wire.AnyClass, 0, 1, 2} {
			b = wire.AppendLease(b, &wire.Lease{Tenant: wire.WholeClass, Pool: pool, Class: class, Slots: slots, PrefillTokens: wire.NoLimit})
		}
	}
	b = wire.AppendLease(b, &wire.Lease{Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Flags: flags, Slots: small, Requests: wire.NoCredit, Tokens: tokens})
	if err := c.Install(b, w.host.Clock, w.host.Clock); err != nil {
		t.Fatal(err)
	}
}

// settingsOf draws admission settings: which pools refuse, what the tenants' limits are, how many
// may wait; or none at all.
func settingsOf(t *rapid.T) string {
	if rapid.IntRange(0, 5).Draw(t, "without admission") == 0 {
		return ""
	}
	enforce := rapid.SampledFrom([]string{``, `"default"`, `"other"`, `"default","other"`, `"default","other"`}).Draw(t, "enforce")
	limits := rapid.SampledFrom([]string{``, `"concurrency":2`, `"uncached_tokens_per_minute":600`, `"concurrency":3,"uncached_tokens_per_minute":600`}).Draw(t, "limits")
	tenants := rapid.SampledFrom([]string{`"small":{"index":1` + comma(limits) + `}`, `"small":{"index":1` + comma(limits) + `},"heavy":{"index":2,"weight":4}`, ``}).Draw(t, "tenants")
	n := rapid.SampledFrom([]int{0, 1, 6}).Draw(t, "queue")
	class := fmt.Sprintf(`{"queue":{"requests":%d,"deadline_ms":%d}}`, n, rapid.SampledFrom([]int{100, 1000, 5000}).Draw(t, "deadline"))
	return `{"enforce":[` + enforce + `],"tenants":{` + tenants + `},"bypass":{"secret_sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","max_concurrency":2},
		"classes":{"p0":` + class + `,"p1":` + class + `,"p2":` + class + `}}`
}

func comma(s string) string {
	if s == "" {
		return ""
	}
	return "," + s
}

// counts compares what the VMs believe to have with the tickets of their requests.
func (w *world) counts(t interface{ Fatalf(string, ...any) }) {
	for _, r := range w.players {
		k := &r.ticket
		switch {
		case r.told > 1:
			t.Fatalf("a request was told twice how its wait ends")
		case r.vm.dead:
		case r.waiting != k.Waits():
			t.Fatalf("a request believes to wait: %v, and does: %v", r.waiting, k.Waits())
		case r.over && (k.known || k.slot || k.tenant || k.pending != quota.None):
			t.Fatalf("a request that is over has something: %+v", k)
		}
	}
	for _, v := range w.vms {
		if v.dead {
			continue
		}
		for _, p := range v.gate.used {
			var want pool
			for _, r := range w.players {
				k := &r.ticket
				if r.vm != v || k.pool != p {
					continue
				}
				if k.slot {
					want.inUse[k.Class]++
					want.prefill[k.Class] += k.need
				}
				if k.Waits() {
					want.waiting++
				}
				if k.pending != quota.None {
					want.pending[k.Class]++
					want.pendingTokens[k.Class] += k.need
				}
			}
			queued := 0
			for _, q := range p.queues {
				if q != nil {
					queued += q.Len()
				}
			}
			if p.inUse != want.inUse || p.prefill != want.prefill || p.waiting != want.waiting || queued != want.waiting ||
				p.pending != want.pending || p.pendingTokens != want.pendingTokens {
				t.Fatalf("pool %d has %+v, its requests %+v, %d are queued", p.index, p, want, queued)
			}
		}
		own := v.gate.tenants
		if v.gate.bypass != nil {
			own = map[uint16]*tenant{noTenant: v.gate.bypass}
			for i, o := range v.gate.tenants {
				own[i] = o
			}
		}
		for i, have := range own {
			var want tenant
			for _, r := range w.players {
				k := &r.ticket
				if r.vm != v || k.Tenant != i && !(k.Bypass && i == noTenant) || k.Bypass != (i == noTenant) {
					continue
				}
				if k.tenant {
					want.inUse++
				}
				if k.pending != quota.None {
					want.waiting++
					want.tokens += k.need
				}
				if k.Waits() {
					want.held[k.Class]++
				}
			}
			if have.inUse != want.inUse || have.waiting != want.waiting || have.tokens != want.tokens || have.held != want.held {
				t.Fatalf("tenant %d has %+v, its requests %+v", i, have, want)
			}
		}
	}
}

// TestWhateverChangesNothingIsLostOrTwice changes everything while requests wait and run: which
// pools there are and which of them refuse, tenants and their limits, queues, leases, off and on;
// VMs die and have successors.
func TestWhateverChangesNothingIsLostOrTwice(t *testing.T) {
	const everything = `{"enforce":["default","other"],"tenants":{"small":{"index":1,"concurrency":500},"heavy":{"index":2}}}`
	refused, waited, bypassed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g, stop := newGateway(nil, 3)
		defer stop()
		w := &world{gateway: g, version: 1, pools: 2, requests: map[uint16]uint64{}, spent: map[uint16]uint64{}}
		w.publish(settings)
		w.advance(100 * time.Millisecond)
		w.grant(t, 3, 2, 0, wire.NoCredit)
		back := time.Duration(0) // the clock was set
		alive := func() *vm {
			v := rapid.SampledFrom(w.vms).Draw(t, "vm")
			if v.dead {
				return w.vms[len(w.vms)-1]
			}
			return v
		}
		some := func(is func(*player) bool) *player {
			return anyOf(t, w.players, func(r *player) bool { return !r.over && !r.vm.dead && is(r) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { w.counts(t) },
			"arrive": func(t *rapid.T) {
				r := &player{
					vm: alive(), w: w, pool: uint8(rapid.IntRange(0, w.pools-1).Draw(t, "pool")),
					tokens: rapid.Uint32Range(0, 300).Draw(t, "tokens"), plan: rapid.SampledFrom([]plan{0, 0, 0, endsAtOnce, takesAnother}).Draw(t, "plan"),
				}
				gate := r.vm.gate
				gate.Refresh(w.host.Clock)
				if !gate.Active() {
					return
				}
				w.players = append(w.players, r)
				who := Identity{Tenant: rapid.Uint16Range(0, 2).Draw(t, "tenant"), Class: rapid.Uint8Range(0, 2).Draw(t, "class"), Bypass: rapid.IntRange(0, 9).Draw(t, "bypass") == 0}
				if int(who.Tenant) >= len(gate.settings.Tenants) {
					who.Tenant = 0
				}
				if gate.Arrive(&r.ticket, who, w.host.Clock) != quota.None {
					refused++
					r.over = true
					return
				}
				if who.Bypass {
					bypassed++
				}
				if rapid.IntRange(0, 4).Draw(t, "the client leaves before its body's end") == 0 {
					w.end(r, -1)
					return
				}
				switch verdict, _ := gate.Enter(&r.ticket, r, r.pool, rapid.IntRange(0, 2000).Draw(t, "bytes"), rapid.IntRange(0, 5).Draw(t, "may wait") > 0, w.host.Clock); verdict {
				case Admitted:
					r.running = true
					r.route()
				case Waiting:
					waited++
					r.waiting = true
				case Refused:
					refused++
					r.over = true
				}
			},
			"end": func(t *rapid.T) {
				if r := some(func(r *player) bool { return r.running }); r != nil {
					if rapid.IntRange(0, 3).Draw(t, "unserved") == 0 {
						r.vm.gate.Unserved(&r.ticket)
					}
					w.end(r, rapid.Int64Range(-1, 400).Draw(t, "tokens"))
				}
			},
			"leave": func(*rapid.T) {
				if r := some(func(r *player) bool { return r.waiting }); r != nil {
					w.end(r, -1)
				}
			},
			"first token": func(*rapid.T) {
				if r := some(func(r *player) bool { return r.running }); r != nil {
					r.vm.gate.FirstToken(&r.ticket, 5, true, w.host.Clock)
				}
			},
			"first token too late": func(*rapid.T) {
				for _, r := range w.players {
					if r.over && !r.vm.dead {
						r.vm.gate.FirstToken(&r.ticket, 5, true, w.host.Clock)
						r.vm.gate.Done(&r.ticket, 7, w.host.Clock)
						break
					}
				}
			},
			"wake": func(*rapid.T) { w.wake() },
			"time": func(t *rapid.T) { w.advance(time.Duration(rapid.IntRange(1, 300).Draw(t, "ms")) * time.Millisecond) },
			"pause": func(t *rapid.T) { // of the whole process, often just after a lease has come
				if rapid.Bool().Draw(t, "a lease before") {
					w.grant(t, 20, 2, 0, wire.NoCredit)
				}
				w.advance(time.Duration(rapid.IntRange(1, 6).Draw(t, "seconds")) * time.Second)
			},
			"clock": func(t *rapid.T) { // is set
				d := time.Duration(rapid.IntRange(-20, 20).Draw(t, "seconds")) * time.Second
				w.host.Clock += int64(d)
				back += max(-d, 0)
			},
			"lease": func(t *rapid.T) {
				w.grant(t, rapid.SampledFrom([]uint32{0, 1, 3, 20, 60}).Draw(t, "slots"), rapid.SampledFrom([]uint32{0, 1, 2, 40}).Draw(t, "small"),
					rapid.SampledFrom([]uint8{0, 0, wire.NoSlots, wire.NoTokens, wire.NoSlots | wire.NoTokens}).Draw(t, "flags"),
					rapid.SampledFrom([]uint64{0, 500, 1500, wire.NoCredit}).Draw(t, "credit"))
			},
			"policy": func(t *rapid.T) {
				w.pools, w.off = rapid.IntRange(1, 2).Draw(t, "pools"), rapid.IntRange(0, 4).Draw(t, "off") == 0
				w.publish(settingsOf(t))
				if rapid.Bool().Draw(t, "seen at once") {
					w.advance(100 * time.Millisecond)
				}
			},
			"death": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "really") == 0 && len(w.vms) < 6 {
					if v := w.vms[len(w.vms)-3]; !v.dead && v.gate.orphanUntil == 0 { // an orphan's streams may outlive it
						v.dead, w.lost = true, true
						w.vms = append(w.vms, w.boot())
					}
				}
			},
			"orphan": func(t *rapid.T) {
				v := alive()
				v.gate.Orphan(w.host.Clock, true)
				if rapid.Bool().Draw(t, "for a moment") {
					v.gate.Orphan(0, false)
					v.tick(g)
				}
			},
		})
		w.pools, w.off = 2, false
		w.publish(everything)
		for _, v := range w.vms {
			if !v.dead {
				v.gate.Orphan(0, false)
			}
		}
		w.pass(2 * time.Second)
		w.grant(t, 500, 500, 0, wire.NoCredit)
		w.wake()
		w.pass(2 * time.Second) // whose VM is dead, but not known to be, is passed by
		w.counts(t)
		for _, r := range w.players {
			if r.waiting && !r.vm.dead {
				t.Fatalf("a request of class %d and tenant %d waits with room for all", r.ticket.Class, r.ticket.Tenant)
			}
			if !r.over && !r.vm.dead {
				w.end(r, 50)
			}
		}
		w.counts(t)
		for ; back > -5*time.Second; back -= time.Second { // rows of the dead are forgotten
			w.advance(time.Second)
		}
		w.pass(2 * time.Second)
		w.grant(t, 500, 500, 0, wire.NoCredit)
		w.pass(300 * time.Millisecond)
		for pool := range uint8(2) {
			value, ok := w.host.Shared[wire.NewKeys("default").PoolSlots(pool)]
			if u, _ := InspectPool(value.Value); ok && (u.InUse != [3]int{} || u.Booked != [3]int{} || u.Waiting != [3]int{} || u.Prefill != [3]uint64{}) {
				t.Fatalf("of pool %d is left: %+v", pool, u)
			}
		}
		for i := range uint16(3) {
			u, _ := InspectTenant(w.host.Shared[wire.NewKeys("default").TenantSlots(i)].Value)
			if u.InUse != 0 || u.Waiting != 0 {
				t.Fatalf("of tenant %d is left: %+v", i, u)
			}
			if !w.lost && (u.Requests != w.requests[i] || u.Tokens != w.spent[i]) {
				t.Fatalf("tenant %d has spent %d requests and %d tokens by its cell, and really %d and %d", i, u.Requests, u.Tokens, w.requests[i], w.spent[i])
			}
		}
	})
	if refused == 0 || waited == 0 || bypassed == 0 {
		t.Errorf("%d refused, %d waited, %d passed by the secret: the test tests nothing", refused, waited, bypassed)
	}
}
