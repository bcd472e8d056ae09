// Package admission lets requests in, makes them wait, or turns them away.
//
// One request travels through it like this. At its headers Identify says whose
// it is, and Arrive takes what its tenant's limits give: a slot and a request
// of the rate. When its body is complete, Enter takes a slot of its class in
// its pool, or puts it into the class's queue; it goes on when Held.Admitted is
// called. At the route Reserve books the tokens to prefill. Done gives
// everything back, whatever ended the request.
//
// What the gateway may admit comes from control as a lease. The courier puts it
// into cells in shared data, one for each pool and one for each tenant with
// limits, and there every VM also has its share: what it has in use. A take
// compares lease and sums, and replaces the cell unless another VM was first;
// so no interleaving of VMs can go over a limit (cells.go). A VM that crashes
// leaves its share behind until its row is dead. Who waits is written there too,
// so that a freed slot goes to the best waiter of the whole gateway, whose VM is
// woken by its shared queue (waiting.go).
package admission

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// refreshEvery is the most often the gateway's lease record is looked at.
	refreshEvery = 20 * time.Millisecond
	// bytesPerToken turns a body's bytes into the tokens that it may have.
	bytesPerToken = 4
)

// Held is a request that the gate may keep waiting.
type Held interface {
	// Admitted lets the request go on: it has its slot.
	Admitted()
	// Refused turns it away.
	Refused(why quota.Reason)
}

// Gate is one VM's side of a gateway's admission.
type Gate struct {
	// Retries bounds how many requests are tried again.
	Retries quota.RetryBudget
	// Resets are prompts that must not be.
	Resets Resets

	fleet    *fleet.Fleet
	metrics  *metrics.Set
	settings *policy.Admission // the last ones, nil for never any
	on       bool              // they are in force
	seen     *policy.Admission // what the policy said last
	enforce  [256]bool         // by pool
	all      bool              // every pool refuses

	metadata string // path of the property with the tenant

	lease    lease
	leaseAt  int64 // unix ns of the last look at it
	pools    [256]*pool
	used     []*pool
	tenants  map[uint16]*tenant
	bypass   *tenant
	active   []byte // as last seen
	queue    uint32 // this VM's shared queue, 0 none
	tickedAt int64  // the last tick, unix ns
	toldAt   int64  // when the courier was last told of a request that waits
	ready    bool   // it is registered by the newest plugin context

	cell    poolCell
	tenancy tenantCell
	out     []byte
	scratch abi.Scratch

	dropped      uint64  // slots of dead VMs that the cell at hand has lost
	orphanUntil  uint32  // the shares count until then without a row, unix s: streams outlive ticks
	entering     *Ticket // the request in Enter
	letting      bool    // waiting requests are being let in
	install      install // the courier's
	processNonce uint64
	totals       totals // of the last USAGE section
}

// pool is what this VM has of a pool: the truth that its share in the cell is a
// copy of.
type pool struct {
	index   uint8
	key     string
	inUse   [policy.Classes]uint16
	prefill [policy.Classes]uint32
	queues  [policy.Classes]*quota.Queue
	waiting int  // in all queues
	owed    bool // somebody may be let in, once those are who are being let in
	late    bool // somebody waits for longer than he may: there was no time to say so
	// pending is how many of those that wait do so for their tenants' limits, and their tokens.
	pending       [policy.Classes]uint16
	pendingTokens [policy.Classes]uint32
	away          [policy.Classes]away
	ahead         ahead
	most, peak    amount // in use since the last tick, and in the time before it, at most
	others        bool   // requests waited when the cell was last seen
	ttft          [policy.Classes]*[wire.TTFTBuckets]uint32
	measured      bool // ttft has something new
	dirty         bool // the cell doesn't have this VM's share as it is
}

// tenant is what this VM has of a tenant.
type tenant struct {
	index          uint16
	key            string
	inUse, waiting uint16
	tokens         uint32              // that the waiting ones need
	held           [policy.Classes]int // in queues, whatever they wait for
	dirty          bool                // the cell doesn't have this VM's share as it is
	ahead          credit              // booked and not used
	most, peak     want                // since the last tick, and to be booked at the next look
	cost           float64             // share of its requests' tokens that was not cached, as of late
}

// New makes the gate of a VM. It does nothing before the policy has settings for
// admission.
func New(f *fleet.Fleet, m *metrics.Set) *Gate {
	return &Gate{fleet: f, metrics: m, tenants: map[uint16]*tenant{}}
}

// Active tells whether there is anything to do. Refresh has been called.
func (g *Gate) Active() bool { return g.on }

// Settings are the settings in force, or the last ones; nil for never any.
func (g *Gate) Settings() *policy.Admission { return g.settings }

// Refresh takes over new settings and looks at the lease, at most every 20 ms.
func (g *Gate) Refresh(now int64) {
	if settings := g.fleet.Admission(); settings != g.seen {
		g.configure(settings)
	}
	if g.on {
		g.readLease(now)
	}
}

// readLease looks at the gateway's lease, at most every 20 ms.
func (g *Gate) readLease(now int64) {
	if now-g.leaseAt < int64(refreshEvery) && g.leaseAt <= now {
		return
	}
	g.leaseAt = now
	value, _, status := abi.SharedData(g.fleet.Keys.Lease(), &g.scratch)
	if status == abi.OK && !g.lease.decode(value) {
		g.metrics.Inc(metrics.BadData, metrics.BadLease)
	}
}

func (g *Gate) configure(settings *policy.Admission) {
	g.seen, g.on = settings, settings != nil
	g.enforce, g.all = [256]bool{}, g.on
	if !g.on {
		g.metrics.Slots([policy.Classes]uint64{}, [policy.Classes]uint64{}) // nobody counts any more
		return                                                              // requests under way still give back what they have
	}
	g.settings = settings
	g.metadata = metadataOf(settings)
	for _, p := range g.fleet.PolicyPools() {
		on := settings.Enforced(p.Name)
		g.enforce[p.Index] = on
		g.all = g.all && on
	}
}

// refuses tells whether a pool turns requests away. Off, a deployment turns
// nobody away.
func (g *Gate) refuses(pool uint8) bool { return g.enforce[pool] && !g.fleet.Off() }

func (g *Gate) pool(index uint8) *pool {
	p := g.pools[index]
	if p == nil {
		p = &pool{index: index, key: g.fleet.Keys.PoolSlots(index)}
		g.pools[index] = p
		g.used = append(g.used, p)
	}
	return p
}

func (g *Gate) tenant(index uint16) *tenant {
	t := g.tenants[index]
	if t == nil {
		t = &tenant{index: index, key: g.fleet.Keys.TenantSlots(index), cost: 1}
		g.tenants[index] = t
	}
	return t
}

// TenantName is a tenant's name.
func (g *Gate) TenantName(index uint16) string { return g.limitsOf(index).Name }

// Orphan tells that this VM is not ticked any more, or that it is again. Its row
// dies then; what its streams have counts on for as long as a stream may take.
func (g *Gate) Orphan(now int64, orphaned bool) {
	if g.orphanUntil != 0 { // the cells say so, too
		for _, t := range g.tenants {
			t.dirty = true
		}
	}
	g.orphanUntil = 0
	if !orphaned || g.settings == nil {
		return
	}
	g.orphanUntil = uint32((now + int64(g.settings.MaxStream)) / int64(time.Second))
	for _, p := range g.used {
		if sum(p.inUse) > 0 || p.waiting > 0 || p.ahead.any() {
			g.publish(p, false, now)
		}
	}
	for _, t := range g.tenants {
		if t.inUse > 0 || t.ahead.any() {
			g.publishTenant(t, now)
		}
	}
}

// limitsOf are a tenant's settings. A number that the settings no longer have is
// the default tenant's.
func (g *Gate) limitsOf(index uint16) *policy.Tenant {
	if int(index) >= len(g.settings.Tenants) {
		index = 0
	}
	return &g.settings.Tenants[index]
}
