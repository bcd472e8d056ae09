package transcripts

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// leases is the test control's side of admission: it gives the one gateway what
// it was told to, without looking at what that has in use.
type leases struct {
	settings string // ADMISSION section, empty for none
	pool     map[uint8]wire.Lease
	tenants  map[uint16]wire.Lease
	millis   uint32
	floor    uint32
	sequence uint64
	usage    []wire.Used // of the last batch
	ttft     map[uint8]uint32
	mute     bool // gives no leases
	// ledger gives them instead; it answers with a LEASES payload, nothing for none.
	ledger func(usage []byte) []byte
}

func newLeases() leases {
	return leases{pool: map[uint8]wire.Lease{}, tenants: map[uint16]wire.Lease{}, millis: 2000, floor: 30_000}
}

// generous has limits of every kind that nobody reaches.
func (l *leases) generous() {
	l.settings = `{"enforce": ["default"], "tenant_defaults": {"concurrency": 50, "requests_per_minute": 1000000, "uncached_tokens_per_minute": 1000000000}}`
	l.slots(50, 50, 50, 50)
	for class, r := range l.pool {
		r.Floor = 50
		l.pool[class] = r
	}
	l.tenants[0] = wire.Lease{Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 50, Floor: 50, PrefillTokens: wire.NoLimit, Requests: 1 << 40, Tokens: 1 << 40}
}

// slots leases a pool of one bound for all classes: total, then by class.
func (l *leases) slots(total, p0, p1, p2 uint32) {
	for class, n := range []uint32{p0, p1, p2} {
		l.pool[uint8(class)] = wire.Lease{Tenant: wire.WholeClass, Class: uint8(class), Slots: n, PrefillTokens: wire.NoLimit}
	}
	l.pool[wire.AnyClass] = wire.Lease{Tenant: wire.WholeClass, Class: wire.AnyClass, Slots: total, PrefillTokens: wire.NoLimit}
}

// answer appends the LEASES section that answers a USAGE section.
func (l *leases) answer(b, usage []byte) []byte {
	header, records, err := wire.DecodeUsage(usage)
	if err != nil {
		panic(err)
	}
	l.usage = l.usage[:0]
	_ = wire.ForEachUsed(records, func(u *wire.Used) error { l.usage = append(l.usage, *u); return nil })
	if l.mute {
		return b
	}
	if l.ledger != nil {
		if payload := l.ledger(usage); len(payload) > 0 {
			b = wire.AppendSection(b, wire.SectionLeases, payload)
		}
		return b
	}
	l.sequence++
	b, mark := wire.BeginSection(b, wire.SectionLeases)
	b = wire.AppendLeases(b, &wire.Leases{
		Nonce: header.Nonce, Term: 1, Sequence: l.sequence, Answers: header.Sequence,
		DurationMillis: l.millis, FloorMillis: l.floor, Tenants: header.Tenants,
	})
	for _, class := range []uint8{wire.AnyClass, 0, 1, 2} {
		if r, ok := l.pool[class]; ok {
			b = wire.AppendLease(b, &r)
		}
	}
	for tenant := range uint16(64) {
		if r, ok := l.tenants[tenant]; ok {
			b = wire.AppendLease(b, &r)
		}
	}
	return wire.EndSection(b, mark)
}

func (l *leases) latency(payload []byte) error {
	l.ttft = map[uint8]uint32{}
	return wire.ForEachLatency(payload, func(r *wire.Latency) error {
		for _, n := range r.Counts {
			l.ttft[r.Class] += n
		}
		return nil
	})
}

// lease changes what control grants, one record a line:
//
//	pool total=3 p0=2 p1=1 p2=0 floor=1 prefill=5000 rate=1000
//	tenant 1 slots=2 requests=10 tokens=1000 flags=1
//	none / again / settings <JSON>
func (s *story) lease(d *datadriven.TestData) string {
	l := &s.p.control.leases
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		values := map[string]uint32{}
		for _, field := range f[1:] {
			if key, value, ok := strings.Cut(field, "="); ok {
				values[key] = uint32(number(value))
			}
		}
		value := func(key string, otherwise uint32) uint32 {
			if v, ok := values[key]; ok {
				return v
			}
			return otherwise
		}
		switch f[0] {
		case "settings":
			l.settings = strings.TrimPrefix(strings.TrimSpace(line), "settings ")
			if _, err := policy.ParseAdmission([]byte(l.settings)); err != nil {
				d.Fatalf(s.t, "%v", err)
			}
			s.p.control.changed()
		case "pool":
			l.slots(values["total"], value("p0", values["total"]), value("p1", values["total"]), value("p2", values["total"]))
			for class, r := range l.pool {
				r.Floor, r.PrefillTokens, r.TokensPerSecond = value("floor", 0), value("prefill", wire.NoLimit), value("rate", 0)
				l.pool[class] = r
			}
		case "tenant":
			l.tenants[uint16(number(f[1]))] = wire.Lease{
				Tenant: uint16(number(f[1])), Pool: wire.AnyPool, Class: wire.AnyClass, Flags: uint8(values["flags"]),
				Slots: value("slots", wire.NoLimit), Floor: values["floor"], PrefillTokens: wire.NoLimit,
				Requests: uint64(value("requests", 1<<31)), Tokens: uint64(value("tokens", 1<<31)),
			}
		case "none":
			l.mute = true
		case "again":
			l.mute = false
		default:
			d.Fatalf(s.t, "no such line: %s", line)
		}
	}
	return ""
}

// slots tells what the cells say.
func (s *story) slots() string {
	keys := wire.NewKeys("default")
	var b strings.Builder
	if value, _, ok := s.p.host.SharedData(vmID, keys.PoolSlots(0)); ok {
		u, ok := admission.InspectPool(value)
		if !ok {
			s.t.Fatal("the pool's cell can't be read")
		}
		fmt.Fprintf(&b, "pool: %v in use of %d, %v waiting, %v tokens to prefill\n", u.InUse, u.Slots, u.Waiting, u.Prefill)
	}
	for tenant := range uint16(64) {
		if value, _, ok := s.p.host.SharedData(vmID, keys.TenantSlots(tenant)); ok {
			u, ok := admission.InspectTenant(value)
			if !ok {
				s.t.Fatal("a tenant's cell can't be read")
			}
			fmt.Fprintf(&b, "tenant %d: %d in use of %d, %d waiting; spent %d requests, %d tokens; refused %d\n", tenant, u.InUse, u.Slots, u.Waiting, u.Requests, u.Tokens, u.Refused)
		}
	}
	return b.String()
}

// usage tells what control last heard.
func (s *story) usage() string {
	var b strings.Builder
	for _, u := range s.p.control.leases.usage {
		if u.InUse == 0 && u.Waiting == 0 && u.Requests == 0 && u.Tokens == 0 && u.Refused == 0 {
			continue
		}
		who := fmt.Sprintf("p%d", u.Class)
		switch {
		case u.Tenant != wire.WholeClass:
			who = fmt.Sprintf("tenant %d", u.Tenant)
		case u.Class == wire.AnyClass:
			who = "pool"
		}
		fmt.Fprintf(&b, "%s: %d in use of %d, %d waiting for %d ms, %d and %d tokens to prefill; spent %d requests, %d tokens; refused %d\n",
			who, u.InUse, u.Slots, u.Waiting, u.OldestWaitMillis, u.PrefillTokens, u.WaitingTokens, u.Requests, u.Tokens, u.Refused)
	}
	return b.String()
}
