//go:build !wasm

package plugin

import (
	"strconv"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// publish puts a table with 16 workers into a fake host's shared data, and a policy.
func publish(host *abi.Fake, policy ...string) {
	keys := wire.NewKeys("default")
	var roster, loads []byte
	for ref := range uint16(16) {
		roster = wire.AppendWorker(roster, &wire.Worker{Ref: ref + 1, Generation: 1, MaxRunning: 64, QueueLimit: 64, Address: []byte("10.0.0." + string('a'+rune(ref)) + ":9000")})
		loads = wire.AppendLoad(loads, &wire.Load{Ref: ref + 1, State: 1, Trust: 1})
	}
	set := func(key string, value []byte) { host.Shared[key] = abi.FakeShared{Value: value, CAS: 1} }
	set(keys.Roster(), roster)
	set(keys.Loads(), loads)
	policy = append(policy, `{"pools":[{"name":"default","models":["*"]}]}`)
	set(keys.Policy(), []byte(policy[0]))
	set(keys.Meta(), table.AppendMeta(nil, &table.Meta{
		Bits: 10, Ready: true, Epoch: 1, Version: 1, UpdatedUnixNanos: host.Clock,
		RosterVersion: 1, LoadsVersion: 1, PolicyVersion: 1,
	}))
}

// lease puts settings for admission and a lease into a fake host's shared data:
// a class slot and a tenant's slot, request and tokens for every request.
func lease(p *Plugin, host *abi.Fake) {
	keys := wire.NewKeys("default")
	host.Shared[keys.Admission()] = abi.FakeShared{CAS: 1, Value: []byte(`{"enforce":["default"],"identity":{"tenant_header":"x-tenant"},` +
		`"tenants":{"acme":{"concurrency":64,"requests_per_minute":100000,"uncached_tokens_per_minute":1000000,"index":1}}}`)}
	p.fleet.Tick(host.Clock, true)
	p.gate.Tick(host.Clock, true)
	usage := p.gate.AppendUsage(nil, host.Clock)
	u, _, err := wire.DecodeUsage(usage)
	if err != nil {
		panic(err)
	}
	b := wire.AppendLeases(nil, &wire.Leases{
		Nonce: u.Nonce, Term: 1, Sequence: 1, Answers: u.Sequence, DurationMillis: 60_000, FloorMillis: 60_000, Tenants: u.Tenants,
	})
	for _, class := range []uint8{wire.AnyClass, 0, 1, 2} {
		b = wire.AppendLease(b, &wire.Lease{Tenant: wire.WholeClass, Class: class, Slots: 1000, PrefillTokens: 10_000_000})
	}
	b = wire.AppendLease(b, &wire.Lease{
		Tenant: 1, Pool: wire.AnyPool, Class: wire.AnyClass, Slots: 64, PrefillTokens: wire.NoLimit, Requests: wire.NoCredit, Tokens: wire.NoCredit,
	})
	if err := p.gate.Install(b, host.Clock, host.Clock); err != nil {
		panic(err)
	}
}

// BenchmarkAdmission is a request with and without admission, natively: what the
// gate itself costs, for a tenant with every kind of limit and for one without.
func BenchmarkAdmission(b *testing.B) {
	for _, with := range []string{"none", "class", "tenant"} {
		b.Run(with, func(b *testing.B) {
			host := abi.NewFake()
			host.Clock = 1_700_000_000_000_000_000
			b.Cleanup(abi.UseFake(host))
			publish(host)
			host.Buffers[abi.PluginConfiguration] = []byte(`{}`)
			p := NewVM().NewPluginContext(1).(*Plugin)
			p.OnPluginStart(2)
			headers := [][2]string{{":method", "POST"}, {":path", "/v1/chat/completions"}, {"content-type", "application/json"}}
			if with != "none" {
				lease(p, host)
			}
			if with == "tenant" {
				headers = append(headers, [2]string{"x-tenant", "acme"})
			}
			body := []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
			host.Buffers[abi.RequestBody] = body
			b.ReportAllocs()
			for b.Loop() {
				host.Headers[abi.RequestHeaders] = append(host.Headers[abi.RequestHeaders][:0], headers...)
				s := p.NewHttpContext(2).(*stream)
				s.OnHttpRequestHeaders(3, false)
				s.OnHttpRequestBody(len(body), true)
				if s.ticket.Known() != (with != "none") || s.phase != phaseReleased {
					b.Fatal("not admitted")
				}
				s.OnHttpStreamDone()
			}
		})
	}
}

// BenchmarkRoute is everything between a body's last byte and the released
// request, natively: what the module itself costs, without host or wasm.
func BenchmarkRoute(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 100 << 10} {
		b.Run(strconv.Itoa(size>>10)+"KB", func(b *testing.B) {
			host := abi.NewFake()
			host.Clock = 1_700_000_000_000_000_000
			b.Cleanup(abi.UseFake(host))
			publish(host)
			host.Buffers[abi.PluginConfiguration] = []byte(`{}`)
			p := NewVM().NewPluginContext(1).(*Plugin)
			p.OnPluginStart(2)
			body := []byte(`{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat("You are helpful. ", size/17) + `"},{"role":"user","content":"hi"}]}`)
			host.Buffers[abi.RequestBody] = body
			headers := [][2]string{{":method", "POST"}, {":path", "/v1/chat/completions"}, {"content-type", "application/json"}}
			b.ReportAllocs()
			for b.Loop() {
				host.Headers[abi.RequestHeaders] = append(host.Headers[abi.RequestHeaders][:0], headers...)
				s := p.NewHttpContext(2).(*stream)
				s.OnHttpRequestHeaders(3, false)
				s.OnHttpRequestBody(len(body), true)
				s.OnHttpStreamDone()
				if s.named == 0 {
					b.Fatal("not routed")
				}
			}
		})
	}
}
