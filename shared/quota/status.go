package quota

import (
	"cmp"
	"slices"

	"github.com/warmpath/warmpath/shared/policy"
)

// ClassStatus is what a class has and wants in one pool, over all gateways.
type ClassStatus struct {
	InUse, Waiting         uint64
	Prefill, WaitingTokens uint64
	Refused                uint64 // since the ledger began
	OldestWaitMillis       uint32
	// Part is the slots that it gets of the pool at the moment.
	Part float64
}

// PoolStatus is a pool as the ledger sees it.
type PoolStatus struct {
	Pool
	Capacity Capacity
	Shares   Shares
	Class    [policy.Classes]ClassStatus
	// Debit is what gateways have or may have; Settled is false while that is not known, after a
	// restart.
	Debit   uint64
	Settled bool
	// Silent is the part of it that belongs to gateways that are not heard.
	Silent uint64
}

// GatewayStatus is a process of a gateway as the ledger sees it.
type GatewayStatus struct {
	Name  string
	Nonce uint64
	// Live: it may hold a lease. Unknown: a ledger before this one knew it, and it has not reported.
	Live, Unknown bool
	// Heard is when it last reported.
	Heard int64
	Pools []GatewayPool
}

// GatewayPool is what a gateway has in a pool, in slots.
type GatewayPool struct {
	Pool                         uint8
	Granted, Floor, InUse, Debit uint32
	Waiting                      uint32
}

// TenantStatus is a tenant with limits as the ledger sees it.
type TenantStatus struct {
	Index uint16
	// InUse is its requests that are under way; Waiting are those that wait for its own limits.
	InUse, Waiting uint64
	// Debit is the slots that gateways have or may have.
	Debit    uint64
	Gateways int
	// RequestsLeft and TokensLeft are the credit that is not drawn, RequestsDrawn and TokensDrawn
	// what gateways have drawn and not spent.
	RequestsLeft, TokensLeft   float64
	RequestsDrawn, TokensDrawn float64
	// RequestsUsed and TokensUsed are what gateways have spent, and Refused what they have refused of
	// it, since the first report of it. What nobody served comes back.
	RequestsUsed, TokensUsed int64
	Refused                  uint64
}

// Pools lists the pools.
func (l *Ledger) Pools(now int64) []PoolStatus {
	out := make([]PoolStatus, 0, len(l.pools))
	for i, p := range l.pools {
		l.sum(p, i, now)
		s := PoolStatus{Pool: p.Pool, Capacity: p.capacity, Shares: p.shares}
		if l.admission != nil {
			s.Debit, s.Settled = l.debits(p, i, now)
		}
		for c := range s.Class {
			s.Class[c].Part, s.Class[c].Refused = p.slots.split.Class[c], p.refused[c]
		}
		for _, g := range l.gateways {
			h := &g.pools[i]
			if !g.live(now) {
				s.Silent += h.debit()
				continue
			}
			for c, u := range h.class {
				to := &s.Class[c]
				to.InUse += uint64(u.inUse)
				to.Waiting += uint64(u.waiting)
				to.Prefill += uint64(u.prefill)
				to.WaitingTokens += uint64(u.waitingTokens)
				to.OldestWaitMillis = max(to.OldestWaitMillis, u.oldestMillis)
			}
		}
		s.Silent = min(s.Silent, s.Debit)
		out = append(out, s)
	}
	return out
}

// Gateways lists the gateways by name.
func (l *Ledger) Gateways(now int64) []GatewayStatus {
	out := make([]GatewayStatus, 0, len(l.gateways))
	for _, g := range l.names() {
		s := GatewayStatus{Name: g.name, Nonce: g.nonce, Live: g.live(now), Unknown: g.unknown, Heard: g.heard}
		for i, p := range l.pools {
			h := &g.pools[i]
			of := GatewayPool{Pool: p.Index, Granted: h.granted, Floor: h.floor, InUse: h.inUse, Debit: uint32(h.debit())}
			for c := range h.class {
				of.Waiting += h.class[c].waiting
			}
			s.Pools = append(s.Pools, of)
		}
		out = append(out, s)
	}
	return out
}

// Tenants lists the tenants with limits that gateways have reported something of.
func (l *Ledger) Tenants(now int64) []TenantStatus {
	if l.admission == nil {
		return nil
	}
	out := make([]TenantStatus, 0, len(l.accounts))
	for index, a := range l.accounts {
		a.requests.refill(now)
		a.tokens.refill(now)
		out = append(out, TenantStatus{
			Index: index, InUse: a.inUse, Waiting: a.asked - a.inUse, Debit: a.debit, Gateways: a.active,
			RequestsLeft: a.requests.level, RequestsDrawn: a.requests.drawn, TokensLeft: a.tokens.level, TokensDrawn: a.tokens.drawn,
			RequestsUsed: a.requestsUsed, TokensUsed: a.tokensUsed, Refused: a.refused,
		})
	}
	slices.SortFunc(out, func(a, b TenantStatus) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// Waits tells whether somebody waits. Gateways should come sooner then: who waits, and who has
// what others wait for.
func (l *Ledger) Waits(now int64) bool {
	for _, a := range l.accounts {
		if a.asked > a.inUse {
			return true
		}
	}
	for _, g := range l.gateways {
		for i := range g.pools {
			for _, c := range g.pools[i].class {
				if c.waiting > 0 && g.live(now) {
					return true
				}
			}
		}
	}
	return false
}
