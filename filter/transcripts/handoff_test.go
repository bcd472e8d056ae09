package transcripts

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// gateways are some proxies of one fleet in step, with one ledger.
type gateways struct {
	proxies []*proxy
	rng     *rand.Rand
	ledger  *quota.Ledger
	hurry   uint32 // what control says while somebody waits, ms
	clients []*client
	left    []time.Time     // of the workers, not followed by another request yet
	gaps    []time.Duration // from a request that leaves to the next that comes
	waits   []time.Duration // of those that were served, from their coming
	refused int
	busy    time.Duration // of all slots together
	atWork  int
	most    int
}

// client sends one request after the other to a VM of a gateway.
type client struct {
	p       *proxy
	vm      int
	tenant  string
	thinks  time.Duration // between two requests, on average
	x       *exchange
	came    time.Time
	working bool
	until   time.Time // the answer, or the next try
}

const handOffSettings = `{"enforce": ["default"], "identity": {"tenant_header": "x-tenant"}, "max_partition_ms": 30000,
	"tenants": {"small": {"concurrency": 3, "index": 1}},
	"classes": {"p1": {"queue": {"requests": 64, "bytes": 10000000, "deadline_ms": 10000}}}}`

func newGateways(t testing.TB, n, vms int, slots, hurry uint32) *gateways {
	g := &gateways{rng: rand.New(rand.NewPCG(1, 2)), hurry: hurry}
	settings, err := policy.ParseAdmission([]byte(handOffSettings))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		p := start(t, modules.full, `{}`, vms)
		g.proxies = append(g.proxies, p)
		p.control.doubts = true
		p.control.leases.settings = handOffSettings
		p.control.leases.ledger = func(usage []byte) []byte {
			now := g.now().UnixNano()
			payload := g.renew(i, usage, now)
			if p.control.hurry = 0; g.ledger.Waits(now) {
				p.control.hurry = g.hurry
			}
			return payload
		}
	}
	g.ledger = quota.New(1, false, g.now().UnixNano())
	g.ledger.Configure(settings, []quota.Pool{{Index: 0, Name: "default"}}, g.now().UnixNano())
	g.ledger.SetCapacity(0, quota.Capacity{Slots: slots, PrefillTokens: quota.NoLimit})
	for _, p := range g.proxies {
		p.control.changed()
	}
	for i, p := range g.proxies { // their ticks are not those of one clock
		p.host.Advance(time.Duration(i) * 13 * time.Millisecond)
	}
	g.pass(2 * time.Second)
	return g
}

// renew lets the ledger take a gateway's report. On a virtual clock all processes
// draw the same nonce.
func (g *gateways) renew(i int, usage []byte, now int64) []byte {
	u, used, err := wire.DecodeUsage(usage)
	if err != nil {
		panic(err)
	}
	u.Nonce += uint64(i)
	payload, err := g.ledger.Renew(fmt.Sprint("gw-", i), append(wire.AppendUsage(nil, &u), used...), now, nil)
	if err != nil || len(payload) == 0 {
		panic(fmt.Sprint("no lease: ", err))
	}
	l, leases, err := wire.DecodeLeases(payload)
	if err != nil {
		panic(err)
	}
	l.Nonce -= uint64(i)
	return append(wire.AppendLeases(nil, &l), leases...)
}

func (g *gateways) now() time.Time { return g.proxies[0].host.Now() }

// pass lets time pass in all gateways together.
func (g *gateways) pass(d time.Duration) {
	const step = 5 * time.Millisecond
	for ; d > 0; d -= step {
		for _, i := range g.rng.Perm(len(g.proxies)) {
			g.proxies[i].host.Advance(step)
			g.proxies[i].settle()
			g.serve(g.proxies[i])
		}
		g.ledger.Tick(g.now().UnixNano())
		g.busy += time.Duration(g.atWork) * step
	}
}

// serve does what the clients of a gateway and the workers do.
func (g *gateways) serve(p *proxy) {
	now := g.now()
	for _, c := range g.clients {
		if c.p != p {
			continue
		}
		if c.working && !now.Before(c.until) {
			c.working = false
			g.atWork--
			g.left = append(g.left, now)
			c.x.answer("10.0.0.1:9000", 200, 1, "application/json", `{"usage":{"prompt_tokens":500,"completion_tokens":3}}`)
			c.x, c.until = nil, now.Add(time.Duration(g.rng.ExpFloat64()*float64(c.thinks)))
		}
		switch {
		case c.working:
		case c.x == nil && !now.Before(c.until):
			c.came = now
			c.x = p.send(c.vm, post("/v1/chat/completions", "x-tenant", c.tenant), chat("m", 1000, "x"), 0)
			fallthrough
		case c.x != nil:
			switch {
			case c.x.out.Request != nil:
				c.working, c.until = true, now.Add(g.service())
				g.waits = append(g.waits, now.Sub(c.came))
				g.atWork++
				g.most = max(g.most, g.atWork)
				if len(g.left) > 0 {
					g.gaps = append(g.gaps, now.Sub(g.left[0]))
					g.left = g.left[1:]
				}
			case c.x.out.Replied != nil:
				g.refused++
				c.x, c.until = nil, now.Add(time.Second+time.Duration(g.rng.IntN(1000))*time.Millisecond)
			}
		}
	}
}

// service is lognormal with a mean of 2 s, as in the tests with real processes.
func (g *gateways) service() time.Duration {
	return time.Duration(math.Exp(math.Log(2)-0.5+g.rng.NormFloat64()) * float64(time.Second))
}

func (g *gateways) client(p *proxy, vm int, tenant string, thinks time.Duration) {
	g.clients = append(g.clients, &client{p: p, vm: vm, tenant: tenant, thinks: thinks, until: g.now().Add(time.Duration(g.rng.IntN(1000)) * time.Millisecond)})
}

// report tells the median and the 90th and 99th percentile.
func report(b *testing.B, what string, of []time.Duration) {
	slices.Sort(of)
	for _, q := range []int{50, 90, 99} {
		if len(of) > 0 {
			b.ReportMetric(float64(of[q*(len(of)-1)/100].Milliseconds()), fmt.Sprintf("%s-p%d-ms", what, q))
		}
	}
}

// BenchmarkHandOff plays two minutes of virtual time and reports how long a slot
// stands empty between two requests, where there is more demand than slots: within
// a gateway with the wake-up and without it, and between eight gateways of two VMs.
// Of a tenant's limit of 3 it reports how long those wait that are served, and how
// many are refused, while the tenant's requests come now here, now there.
func BenchmarkHandOff(b *testing.B) {
	for _, c := range []struct {
		name          string
		gateways, vms int
		hurry         uint32 // ms
		tenant        bool
		deaf          bool // nobody is woken
	}{
		{name: "one-gateway/wake", gateways: 1, vms: 4, hurry: 100},
		{name: "one-gateway/tick", gateways: 1, vms: 4, hurry: 100, deaf: true},
		{name: "8-gateways/100ms", gateways: 8, vms: 2, hurry: 100},
		{name: "8-gateways/50ms", gateways: 8, vms: 2, hurry: 50},
		{name: "tenant/one-gateway", gateways: 1, vms: 16, hurry: 100, tenant: true},
		{name: "tenant/8-gateways/100ms", gateways: 8, vms: 2, hurry: 100, tenant: true},
		{name: "tenant/8-gateways/50ms", gateways: 8, vms: 2, hurry: 50, tenant: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				// Of every VM: two clients that ask without a pause for the pool's slots, which
				// are 5 for 8 of them; or one of the tenant's, which asks for 0.2 slots.
				slots, limit := 5*uint32(c.gateways*c.vms)/4, 0
				if limit = int(slots); c.tenant {
					slots, limit = 100, 3
				}
				g := newGateways(b, c.gateways, c.vms, slots, c.hurry)
				for _, p := range g.proxies {
					if c.deaf {
						if err := p.host.Inject(hostsim.Fault{Call: "proxy_on_queue_ready", From: 1, To: -1, Do: hostsim.FaultLose}); err != nil {
							b.Fatal(err)
						}
					}
					for vm := range c.vms {
						if c.tenant {
							g.client(p, vm, "small", 8*time.Second)
							continue
						}
						g.client(p, vm, "", 0)
						g.client(p, vm, "", 0)
					}
				}
				g.pass(10 * time.Second)
				g.busy, g.gaps, g.waits, g.refused = 0, nil, nil, 0
				batches := -g.batches()
				g.pass(2 * time.Minute)
				batches += g.batches()
				if g.most > limit {
					b.Fatalf("%d at once, the limit is %d", g.most, limit)
				}
				b.ReportMetric(100*g.busy.Seconds()/120/float64(limit), "%used")
				b.ReportMetric(float64(batches)/120/float64(c.gateways), "batches/s")
				if c.tenant {
					report(b, "wait", g.waits)
					b.ReportMetric(float64(len(g.waits)), "served")
					b.ReportMetric(float64(g.refused), "refused")
				} else {
					report(b, "empty", g.gaps)
				}
			}
		})
	}
}

// batches is how many all gateways have sent.
func (g *gateways) batches() (n int) {
	for _, p := range g.proxies {
		n += p.control.requests["/v1/batch"]
	}
	return n
}
