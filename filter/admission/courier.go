package admission

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// clockMargin is what a lease loses for clocks that go at different rates: a
// fiftieth.
const clockMargin = 50

// install is a LEASES payload that is being put into the cells.
type install struct {
	header  wire.Leases
	records []byte // what is left of them, a copy
	sent    int64
	grew    bool // there is more than before for somebody who may wait
	// idle counts, by tenant, the USAGE sections in a row in which it was.
	idle map[uint16]int
}

const (
	// idleAfter is after how many batches in a row without anything in use or
	// waiting a tenant isn't told of any more.
	idleAfter = 40
	// perSlice bounds the cells that one callback changes, about 5 us each.
	perSlice = 256
)

// process is the nonce of the proxy's process, 0 while shared data fails.
func (g *Gate) process() uint64 {
	if g.processNonce != 0 {
		return g.processNonce
	}
	key := g.fleet.Keys.Process()
	var mine [8]byte
	binary.LittleEndian.PutUint64(mine[:], rand.Uint64()|1)
	for range 2 {
		value, _, status := abi.SharedData(key, &g.scratch)
		if status == abi.OK && len(value) == 8 {
			g.processNonce = binary.LittleEndian.Uint64(value)
			return g.processNonce
		}
		abi.SetSharedData(key, mine[:], wire.CreateCAS)
	}
	return 0
}

// Install takes a LEASES section that answers the batch sent at a time. The
// cells follow in slices; until they all have it, USAGE names the lease before.
func (g *Gate) Install(payload []byte, sent, now int64) error {
	header, records, err := wire.DecodeLeases(payload)
	if err == nil {
		err = wire.ForEachLease(records, func(*wire.Lease) error { return nil })
	}
	if err != nil || !g.on {
		return err
	}
	g.leaseAt = 0
	g.Refresh(now)
	next := lease{Term: header.Term, Sequence: header.Sequence}
	if header.Nonce != g.process() || header.Answers != g.lease.Usage || !next.newer(g.lease.Term, g.lease.Sequence) {
		g.metrics.Inc(metrics.LeasesIgnored, 0)
		return nil
	}
	g.install.header, g.install.sent = header, sent
	g.install.records = append(g.install.records[:0], records...)
	g.metrics.Inc(metrics.LeasesInstalled, 0)
	g.installMore(now)
	return nil
}

// installMore puts a slice of a lease's records into the cells.
func (g *Gate) installMore(now int64) {
	in := &g.install
	if in.sent == 0 {
		return
	}
	slice := in.records[:min(len(in.records), perSlice*wire.LeaseBytes)]
	in.records = in.records[len(slice):]
	_ = wire.ForEachLease(slice, func(l *wire.Lease) error { // Install has checked them
		g.put(l, now)
		return nil
	})
	if len(in.records) > 0 {
		return
	}
	h := &in.header
	last := func(millis uint32) int64 {
		d := int64(millis) * int64(time.Millisecond)
		return in.sent + d - d/clockMargin
	}
	next := lease{
		Flags: h.Flags, Term: h.Term, Sequence: h.Sequence,
		Sent: in.sent, Until: last(h.DurationMillis), Floor: last(h.FloorMillis),
	}
	in.sent = 0
	if g.editLease(func(l *lease) { next.Usage, next.Queue = l.Usage, l.Queue; *l = next }) && in.grew {
		in.grew = false
		g.wakeAll(now)
	}
}

// editLease changes the gateway's lease record. It answers false when that can't
// be done, or another VM, the new courier, was first.
func (g *Gate) editLease(edit func(l *lease)) bool {
	cas, ok := g.read(g.fleet.Keys.Lease(), g.lease.decode)
	if !ok {
		return false
	}
	edit(&g.lease)
	g.out = g.lease.append(g.out[:0])
	return abi.SetSharedData(g.fleet.Keys.Lease(), g.out, cas) == abi.OK
}

// put writes one record into its cell.
func (g *Gate) put(l *wire.Lease, now int64) {
	h := &g.install.header
	if l.Tenant != wire.WholeClass {
		if h.Tenants != g.settings.TenantsHash || int(l.Tenant) >= len(g.settings.Tenants) {
			return
		}
		g.change(g.tenant(l.Tenant), now, func(c *tenantCell) bool {
			if l.Slots > c.Slots || l.Requests > c.GrantedRequests || l.Tokens > c.GrantedTokens || l.Flags != c.Flags {
				g.install.grew = true
			}
			c.Term, c.Lease, c.Flags = h.Term, h.Sequence, l.Flags
			c.Slots, c.Floor, c.GrantedRequests, c.GrantedTokens = l.Slots, l.Floor, l.Requests, l.Tokens
			return true
		})
		return
	}
	p := g.pool(l.Pool)
	for range casTries {
		cas, ok := g.readPool(p, now)
		if !ok {
			return
		}
		c := &g.cell
		c.Term, c.Lease = h.Term, h.Sequence
		g.install.grew = g.install.grew || l.Slots > c.Limits[min(l.Class, whole)].Slots || l.PrefillTokens > c.Limits[min(l.Class, whole)].Prefill
		c.Limits[min(l.Class, whole)] = limits{Slots: l.Slots, Floor: l.Floor, Prefill: l.PrefillTokens, TokensPerSecond: l.TokensPerSecond}
		if g.writePool(p, cas, now) != abi.CASMismatch {
			return
		}
	}
}

// wakeAll lets every VM look in which requests wait: there may be more for them.
func (g *Gate) wakeAll(now int64) {
	var queues []uint32
	for _, p := range g.fleet.PolicyPools() {
		own := g.pool(p.Index)
		if _, ok := g.readPool(own, now); !ok {
			continue
		}
		for i := range g.cell.Queues {
			if q := g.cell.Queues[i].Queue; q != g.queue {
				queues = appendNew(queues, q)
			}
		}
	}
	for _, q := range queues {
		g.send(q)
	}
	for _, p := range g.used {
		if p.waiting > 0 {
			p.unblock()
			g.letIn(p, now)
		}
	}
}

func appendNew(list []uint32, v uint32) []uint32 {
	for _, have := range list {
		if have == v {
			return list
		}
	}
	return append(list, v)
}

// AppendUsage appends what the gateway has in use, as the payload of a USAGE
// section; nothing without settings for admission.
func (g *Gate) AppendUsage(b []byte, now int64) []byte {
	process := g.process()
	if !g.on || process == 0 {
		return b
	}
	if !g.editLease(func(l *lease) { l.Usage, l.Queue = l.Usage+1, g.queue }) {
		return b
	}
	held := &g.lease
	b = wire.AppendUsage(b, &wire.Usage{
		Nonce: process, Sequence: held.Usage, Term: held.Term, Lease: held.Sequence, Tenants: g.settings.TenantsHash,
	})
	g.totals = totals{}
	for _, p := range g.fleet.PolicyPools() {
		b = g.appendPool(b, g.pool(p.Index), now)
	}
	g.metrics.Slots(g.totals.inUse, g.totals.waiting)
	g.readActive()
	for i, bits := range g.active {
		for bit := range 8 {
			if bits>>bit&1 != 0 && i*8+bit < len(g.settings.Tenants) {
				b = g.appendTenant(b, uint16(i*8+bit), now)
			}
		}
	}
	return b
}

// totals are what is in use and waits in all pools, by class, and what waits for
// tenants' limits.
type totals struct {
	inUse, waiting [policy.Classes]uint64
	pending        uint64
}

// Busy tells that control should hear soon: something is in use, or waits.
func (g *Gate) Busy() bool { return g.on && g.totals != totals{} }

// appendPool appends a pool's classes, without the VMs that are gone.
func (g *Gate) appendPool(b []byte, p *pool, now int64) []byte {
	for range casTries {
		cas, ok := g.readPool(p, now)
		if !ok {
			return b
		}
		if !g.dropDead(now) || g.writePool(p, cas, now) == abi.OK {
			break
		}
	}
	use, booked := g.cell.use(), g.cell.booked()
	all := wire.Used{Tenant: wire.WholeClass, Pool: p.index, Class: wire.AnyClass}
	if g.lease.level(now) == quota.Leased {
		all.Slots = g.cell.Limits[whole].Slots
	}
	most := uint32(0)
	for class := range use.Class {
		all.InUse += use.Class[class].Slots
		most += booked.Class[class].Slots
	}
	if most > all.Slots {
		// What may be in use is no more covered by the lease that is held: it
		// shrank, or is over.
		all.InUse = most
	}
	b = wire.AppendUsed(b, &all)
	for class := range use.Class {
		u := wire.Used{
			Tenant: wire.WholeClass, Pool: p.index, Class: uint8(class),
			InUse: use.Class[class].Slots, PrefillTokens: use.Class[class].Prefill,
			Refused: g.cell.Away[class], Tokens: g.cell.AwayTokens[class],
		}
		for i := range g.cell.Queues {
			if q := &g.cell.Queues[i]; int(q.Class) == class {
				u.Waiting += uint32(q.Waiting)
				u.WaitingTokens += q.Tokens
				u.Slots += uint32(q.Weight)
				u.OldestWaitMillis = max(u.OldestWaitMillis, uint32(min(max(now-q.Oldest, 0)/1_000_000, math.MaxUint32)))
			}
		}
		g.totals.inUse[class] += uint64(u.InUse)
		g.totals.waiting[class] += uint64(u.Waiting)
		b = wire.AppendUsed(b, &u)
	}
	return b
}

// appendTenant appends a tenant with limits, and takes away what an older lease
// gave it.
func (g *Gate) appendTenant(b []byte, index uint16, now int64) []byte {
	if !g.limitsOf(index).Limited() {
		return b
	}
	own, c := g.tenant(index), &g.tenancy
	g.change(own, now, func(c *tenantCell) bool {
		dead := g.dropDeadTenants(now)
		old := c.Term != g.lease.Term || c.Lease != g.lease.Sequence
		if old && g.install.sent == 0 {
			c.Term, c.Lease, c.Flags, c.Slots, c.Floor = g.lease.Term, g.lease.Sequence, 0, 0, 0
			c.GrantedRequests, c.GrantedTokens = min(c.GrantedRequests, c.SpentRequests), min(c.GrantedTokens, c.SpentTokens)
		}
		return dead || old
	})
	waiting, tokens := c.waiting()
	g.totals.pending += uint64(waiting)
	booked := c.booked()
	if booked == 0 && waiting == 0 {
		g.idle(index)
	} else {
		delete(g.install.idle, index)
	}
	u := wire.Used{
		Tenant: index, Pool: wire.AnyPool, Class: wire.AnyClass, InUse: c.inUse(), Waiting: waiting, WaitingTokens: tokens,
		Requests: c.SpentRequests, Tokens: c.SpentTokens, Refused: c.Refused,
	}
	if g.lease.level(now) != quota.Alone {
		u.Slots = c.Slots // it counts for as long as the floors
	}
	if booked > u.Slots {
		u.InUse = booked // as for a pool
	}
	return wire.AppendUsed(b, &u)
}

// idle counts a batch in which a tenant had nothing; after a while control hears
// no more of it, and its lease goes to others.
func (g *Gate) idle(index uint16) {
	if g.install.idle == nil {
		g.install.idle = map[uint16]int{}
	}
	g.install.idle[index]++
	if g.install.idle[index] < idleAfter {
		return
	}
	delete(g.install.idle, index)
	g.editActive(func(set []byte) { set[index/8] &^= 1 << (index % 8) })
}

// readActive looks at the set of tenants that control is told of, and adds those
// of this VM that are missing in it.
func (g *Gate) readActive() {
	value, _, status := abi.SharedData(g.fleet.Keys.Active(), &g.scratch)
	if status != abi.OK {
		value = nil
	}
	g.active = append(g.active[:0], value...)
	for index, t := range g.tenants {
		if t.inUse > 0 || t.waiting > 0 {
			g.markActive(index)
		}
	}
}

// markActive adds a tenant to the set.
func (g *Gate) markActive(index uint16) {
	if index == noTenant || int(index)/8 < len(g.active) && g.active[index/8]>>(index%8)&1 != 0 {
		return
	}
	g.editActive(func(set []byte) { set[index/8] |= 1 << (index % 8) })
}

func (g *Gate) editActive(edit func(set []byte)) {
	for range casTries {
		cas, ok := g.read(g.fleet.Keys.Active(), func(b []byte) bool {
			g.active = append(g.active[:0], b...)
			return true
		})
		if !ok {
			return
		}
		for len(g.active) < policy.MaxTenants/8 {
			g.active = append(g.active, 0)
		}
		edit(g.active)
		if abi.SetSharedData(g.fleet.Keys.Active(), g.active, cas) != abi.CASMismatch {
			return
		}
	}
}
