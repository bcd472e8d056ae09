package quota

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// chaos is a fleet whose network and processes do what they like: batches and answers are lost,
// doubled and late, gateways are cut off, die, and are replaced, and the control service forgets
// some or all. Leaders change; the old one may stand still between taking a batch in and answering
// it, and go on when there is a new one. Who was a gateway is written down a while after it was
// first heard. Clocks run at rates of their own. Requests outlive every lease.
//
// What it checks at every take is the count that nobody in it can see: what is at the workers.
//
// Each rule that keeps the limits is needed for it: rules_test.go takes them out.
type chaos struct {
	t         testing.TB
	rng       *rand.Rand
	now       int64
	events    events
	seq       int
	admission *policy.Admission
	limit     uint32

	ledger     *Ledger
	term       uint64
	dead       map[uint64]bool
	known      map[uint64]string // the checkpoint: who was a gateway
	joining    map[uint64]string // heard, and not in it yet
	gateways   []*node
	names      int
	nonces     uint64
	atWorkers  uint32
	ofTenant   map[uint16]uint32
	taken      int
	released   int
	restarts   int
	late       int // batches that a leader answered when there was another one
	rates      bool
	revived    bool   // a process came back that was thought to have ended
	spent      uint64 // requests of the metered tenant
	granted    int    // renewals
	fullTime   int64
	loss, dup  float64
	checkpoint bool
}

const (
	millis   = int64(time.Millisecond)
	uncapped = 0
	capped   = 1 // the tenant with a limit of 3
	metered  = 2 // the tenant with so many requests a minute, and so many at once
	tenants  = 3

	meteredRate, meteredBurst = 1200, 100
)

// node is a gateway's process as the path sees it.
type node struct {
	name        string
	nonce       uint64
	rate        float64 // of its clock
	offset      int64
	dead        bool
	cutUntil    int64
	lease       Lease
	sequence    uint64
	outstanding bool
	sent        int64 // by its own clock
	inUse       [policy.Classes]uint32
	waiting     [policy.Classes]uint32
	tenantUse   [tenants]uint32
	tenantWait  [tenants]uint32
	spent       uint64 // requests of the metered tenant
	quiet       bool   // few requests come, and then many again
	streams     []*stream
}

type stream struct {
	class  int
	tenant uint16
	gone   bool
}

type event struct {
	at  int64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (c *chaos) after(d int64, do func()) {
	c.seq++
	heap.Push(&c.events, event{c.now + max(d, 0), c.seq, do})
}

func (c *chaos) exp(mean int64) int64 { return int64(c.rng.ExpFloat64() * float64(mean)) }

func testAdmission(t testing.TB, text string) *policy.Admission {
	t.Helper()
	a, err := policy.ParseAdmission([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newChaos(t testing.TB, seed uint64) *chaos {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &chaos{
		t: t, rng: rng, limit: uint32(5+rng.IntN(40)) * []uint32{1, 1, 1, 10}[rng.IntN(4)], known: map[uint64]string{}, joining: map[uint64]string{}, dead: map[uint64]bool{}, ofTenant: map[uint16]uint32{},
		loss: rng.Float64() * 0.3, dup: rng.Float64() * 0.2, checkpoint: rng.IntN(3) > 0,
	}
	text, _ := json.Marshal(map[string]any{
		"lease_ms": 500 + rng.IntN(2000), "max_partition_ms": 5000 + rng.IntN(10000), "max_stream_ms": 3_600_000,
		"floor_share": rng.Float64() * 0.5, "level2": map[string]any{"slots": 0},
		"tenants": map[string]any{
			"capped":  map[string]any{"index": capped, "concurrency": 3},
			"metered": map[string]any{"index": metered, "requests_per_minute": meteredRate, "burst_s": meteredBurst * 60 / meteredRate},
		},
	})
	c.admission = testAdmission(t, string(text))
	c.startControl()
	for range 2 + rng.IntN(6) {
		c.startGateway(c.name())
	}
	c.after(100*millis, c.tick)
	c.after(500*millis, c.observe)
	c.after(c.exp(5000*millis), c.mischief)
	c.after(0, c.save)
	return c
}

func (c *chaos) name() string { c.names++; return fmt.Sprint("gw", c.names) }

func (c *chaos) startControl() {
	c.term++
	anonymous := !c.checkpoint
	c.ledger = New(c.term, anonymous, c.now)
	c.ledger.Configure(c.admission, []Pool{{0, "chat"}}, c.now)
	c.ledger.SetCapacity(0, Capacity{Slots: c.limit, PrefillTokens: NoLimit})
	if c.checkpoint {
		for nonce, name := range c.known {
			c.ledger.Remember(name, nonce)
		}
	}
}

// save writes down who was heard, up to a second after it was.
func (c *chaos) save() {
	for nonce, name := range c.joining {
		c.known[nonce] = name
	}
	clear(c.joining)
	c.after(c.rng.Int64N(1000*millis), c.save)
}

func (c *chaos) startGateway(name string) {
	c.nonces++
	g := &node{name: name, nonce: c.nonces, rate: 0.99 + 0.02*c.rng.Float64(), offset: c.rng.Int64N(1 << 40)}
	for _, other := range c.gateways { // two processes of a name are on one machine
		if other.name == name {
			g.cutUntil = other.cutUntil
		}
	}
	c.gateways = append(c.gateways, g)
	c.after(c.exp(100*millis), func() { c.batch(g) })
	c.after(c.exp(50*millis), func() { c.arrive(g) })
	c.after(c.exp(8000*millis), func() { c.turn(g) })
}

// turn makes a gateway quiet, or busy again: what it was granted is not in use all the time.
func (c *chaos) turn(g *node) {
	if g.dead {
		return
	}
	g.quiet = !g.quiet
	c.after(c.exp(4000*millis), func() { c.turn(g) })
}

func (c *chaos) clock(g *node) int64 { return int64(float64(c.now)*g.rate) + g.offset }

// wait turns a duration of a gateway's clock into one of the world's.
func (g *node) wait(d int64) int64 { return int64(float64(d) / g.rate) }

// batch sends a report, 250 ms after the one before or when its answer has been given up.
func (c *chaos) batch(g *node) {
	if g.dead {
		return
	}
	g.sequence++
	g.outstanding, g.sent = true, c.clock(g)
	usage := c.usage(g)
	sequence, sent := g.sequence, g.sent
	copies := 1
	if c.rng.Float64() < c.dup {
		copies = 2
	}
	for range copies {
		if c.lost(g) {
			continue
		}
		to := c.ledger
		c.after(c.delay(), func() {
			if to != c.ledger {
				return // it knows that it leads no more
			}
			if _, ok := c.known[g.nonce]; !ok && c.checkpoint {
				c.joining[g.nonce] = g.name
				return
			}
			c.after(c.standstill(), func() { c.renew(to, g, usage, sequence, sent) })
		})
	}
	c.after(g.wait(250*millis), func() { c.again(g, sequence) })
}

// standstill is how long a leader takes to answer: sometimes another one has its place by then.
func (c *chaos) standstill() int64 {
	if c.rng.IntN(30) == 0 {
		return c.exp(1500 * millis)
	}
	return 0
}

// renew has a ledger, which may be the one of a leader before, answer a batch.
func (c *chaos) renew(ledger *Ledger, g *node, usage []byte, sequence uint64, sent int64) {
	if ledger.gateways[g.nonce] == nil && g.lease.Term == ledger.Term() {
		c.revived = true
	}
	leases, err := ledger.Renew(g.name, usage, c.now, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if ledger != c.ledger {
		c.late++
	}
	c.checkDebits()
	if len(leases) == 0 || c.lost(g) {
		return
	}
	c.granted++
	c.after(c.delay(), func() { c.answer(g, leases, sequence, sent) })
}

func (c *chaos) again(g *node, sequence uint64) {
	if g.outstanding && g.sequence == sequence && c.clock(g)-g.sent < 1000*millis {
		c.after(g.wait(50*millis), func() { c.again(g, sequence) })
		return
	}
	c.batch(g)
}

func (c *chaos) answer(g *node, leases []byte, sequence uint64, sent int64) {
	if g.dead || !g.outstanding || g.sequence != sequence {
		return // given up
	}
	g.outstanding = false
	if _, err := g.lease.Install(leases, g.nonce, sequence, sent); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) lost(g *node) bool { return c.now < g.cutUntil || c.rng.Float64() < c.loss }

func (c *chaos) delay() int64 {
	if c.rng.IntN(20) == 0 {
		return c.exp(3000 * millis)
	}
	return c.exp(5 * millis)
}

func (c *chaos) usage(g *node) []byte {
	now := c.clock(g)
	b := wire.AppendUsage(nil, &wire.Usage{Nonce: g.nonce, Sequence: g.sequence, Term: g.lease.Term, Lease: g.lease.Sequence, Tenants: c.admission.TenantsHash})
	total := uint32(0)
	for class := range g.inUse {
		total += g.inUse[class]
		b = wire.AppendUsed(b, &wire.Used{Tenant: wire.WholeClass, Class: uint8(class), InUse: g.inUse[class], Waiting: g.waiting[class]})
	}
	b = wire.AppendUsed(b, &wire.Used{Tenant: wire.WholeClass, Class: wire.AnyClass, InUse: total, Slots: g.lease.Held(0, now)})
	for _, t := range []uint16{capped, metered} {
		credit, known := g.lease.Tenant(t, now)
		if g.tenantUse[t] == 0 && g.tenantWait[t] == 0 && !known {
			continue
		}
		used := wire.Used{
			Tenant: t, Pool: wire.AnyPool, Class: wire.AnyClass, InUse: g.tenantUse[t], Waiting: g.tenantWait[t], Slots: credit.Slots,
		}
		if t == metered {
			used.Requests = g.spent
		}
		b = wire.AppendUsed(b, &used)
	}
	for class := range g.waiting {
		g.waiting[class] = 0
	}
	clear(g.tenantWait[:])
	return b
}

// arrive is one request: taken, or noted as one that would have waited.
func (c *chaos) arrive(g *node) {
	if g.dead {
		return
	}
	pace := 40 * millis
	if g.quiet && !c.rates {
		pace = 3000 * millis
	}
	c.after(c.exp(pace), func() { c.arrive(g) })
	class, tenant := c.rng.IntN(policy.Classes), uint16(c.rng.IntN(tenants))
	now := c.clock(g)
	grant, ok := g.lease.Pool(0, now)
	var use Use
	for i := range g.inUse {
		use.Class[i].Slots = g.inUse[i]
	}
	if tenant != uncapped {
		credit, known := g.lease.Tenant(tenant, now)
		if !known || g.tenantUse[tenant] >= credit.Slots || tenant == metered && g.spent >= credit.Requests {
			g.tenantWait[tenant]++
			return
		}
	}
	if !ok || !grant.May(&use, class, 100) {
		g.waiting[class]++
		return
	}
	g.inUse[class]++
	g.tenantUse[tenant]++
	if tenant == metered {
		g.spent++
		c.spent++
		c.checkRate()
	}
	c.atWorkers++
	c.ofTenant[tenant]++
	c.taken++
	if c.atWorkers > c.limit {
		c.t.Fatalf("%v: %d at the workers, the limit is %d", time.Duration(c.now), c.atWorkers, c.limit)
	}
	if c.ofTenant[capped] > 3 {
		c.t.Fatalf("%v: %d of a tenant whose limit is 3", time.Duration(c.now), c.ofTenant[capped])
	}
	s := &stream{class: class, tenant: tenant}
	g.streams = append(g.streams, s)
	length := c.exp(600 * millis)
	if c.rng.IntN(30) == 0 {
		length = c.exp(60_000 * millis)
	}
	c.after(length, func() { c.finish(g, s) })
}

func (c *chaos) finish(g *node, s *stream) {
	if s.gone {
		return
	}
	s.gone = true
	g.inUse[s.class]--
	g.tenantUse[s.tenant]--
	c.leave(s)
}

func (c *chaos) leave(s *stream) {
	c.atWorkers--
	c.ofTenant[s.tenant]--
	c.released++
}

// mischief is what goes wrong beyond messages.
func (c *chaos) mischief() {
	c.after(c.exp(5000*millis), c.mischief)
	g := c.gateways[c.rng.IntN(len(c.gateways))]
	what := c.rng.IntN(6)
	if c.rates {
		what = 0
	}
	switch what {
	case 0, 1: // cut off, sometimes for longer than max_partition
		until := c.now + c.exp(10_000*millis)
		for _, other := range c.gateways {
			if other.name == g.name {
				other.cutUntil = until
			}
		}
	case 2: // dies and is replaced under its name
		c.kill(g)
		c.startGateway(g.name)
	case 3: // dies and is replaced under another
		c.kill(g)
		c.startGateway(c.name())
	case 4: // another process under the same name, while it goes on
		if len(c.gateways) < 12 {
			c.startGateway(g.name)
		}
	case 5:
		c.restarts++
		c.startControl()
	}
}

// kill ends a process. The workers notice within 2.5 s.
func (c *chaos) kill(g *node) {
	if g.dead {
		return
	}
	g.dead, c.dead[g.nonce] = true, true
	for i, other := range c.gateways {
		if other == g {
			c.gateways = append(c.gateways[:i:i], c.gateways[i+1:]...)
			break
		}
	}
	for _, s := range g.streams {
		if !s.gone {
			s.gone = true
			c.after(c.rng.Int64N(2500*millis), func() { c.leave(s) })
		}
	}
}

func (c *chaos) tick() {
	c.ledger.Tick(c.now)
	c.checkDebits()
	if c.atWorkers+2 >= c.limit {
		c.fullTime += 100 * millis
	}
	c.after(100*millis, c.tick)
}

func (c *chaos) observe() {
	c.ledger.Observe(0, c.atWorkers, c.now)
	c.after(500*millis, c.observe)
}

// checkDebits: unexpired grants, floors and what is in use never exceed the limit. After a restart
// the debits may be too much, but never what they stand for; so while the ledger counts a process
// that has ended (a late report brings one back), when one of several silent gateways comes back,
// whose common bound stays, and once one has come back whose successor's reports had ended it.
func (c *chaos) checkDebits() {
	if c.revived {
		return
	}
	for nonce := range c.ledger.gateways {
		if c.dead[nonce] {
			return
		}
	}
	total, known := c.ledger.debits(c.ledger.pools[0], 0, c.now)
	if known && total > uint64(c.limit) && c.restarts == 0 && c.ledger.pools[0].ghosts.bound == 0 {
		c.t.Fatalf("%v: debits of %d, the limit is %d", time.Duration(c.now), total, c.limit)
	}
	if a := c.ledger.accounts[capped]; a != nil && a.debit > 3 && c.restarts == 0 {
		c.t.Fatalf("%v: debits of %d of a tenant whose limit is 3", time.Duration(c.now), a.debit)
	}
}

// checkRate: no more is spent than the burst and what has come in since. A process that dies may
// take with it what it spent after its last report, and a new ledger begins with a full burst; so
// where rates are judged, none does.
func (c *chaos) checkRate() {
	allowed := meteredBurst + meteredRate*float64(c.now)/60e9
	if c.rates && float64(c.spent) > allowed+1 {
		c.t.Fatalf("%v: %d requests, %.1f are allowed", time.Duration(c.now), c.spent, allowed)
	}
}

func (c *chaos) run(d time.Duration) {
	for len(c.events) > 0 && c.events[0].at <= int64(d) {
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		e.do()
	}
}

func TestTheLimitHoldsWhateverIsLostLateOrRestarted(t *testing.T) {
	runs := uint64(1000)
	switch {
	case *chaosRuns > 0:
		runs = *chaosRuns
	case testing.Short():
		runs = 100
	}
	taken, renewals, restarts, late, full := 0, 0, 0, 0, int64(0)
	for i := range runs {
		seed := *chaosSeed + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newChaos(t, seed)
			c.run(60 * time.Second)
			taken, renewals, restarts, late, full = taken+c.taken, renewals+c.granted, restarts+c.restarts, late+c.late, full+c.fullTime
		})
	}
	t.Logf("%d runs of a minute: %d taken, %d leases, %d restarts of control, %d batches answered by a leader of before, full for %.0f %% of the time",
		runs, taken, renewals, restarts, late, 100*float64(full)/float64(int64(runs)*60_000*millis))
}

func TestRatesHoldWhateverIsLostOrLate(t *testing.T) {
	runs := uint64(100)
	if testing.Short() {
		runs = 20
	}
	spent, allowed := uint64(0), 0.0
	for seed := range runs {
		c := newChaos(t, seed)
		c.rates, c.limit = true, 1000
		c.ledger.SetCapacity(0, Capacity{Slots: c.limit, PrefillTokens: NoLimit})
		c.run(60 * time.Second)
		spent, allowed = spent+c.spent, allowed+meteredBurst+meteredRate
	}
	t.Logf("%.1f %% of what is allowed was spent", 100*float64(spent)/allowed)
	if float64(spent) < 0.5*allowed {
		t.Errorf("%d requests of %.0f", spent, allowed)
	}
}
