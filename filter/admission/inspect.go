//go:build !wasm

package admission

import "github.com/warmpath/warmpath/shared/policy"

// PoolUse is what a cell says about a pool, for tests and tools.
type PoolUse struct {
	InUse   [policy.Classes]int
	Booked  [policy.Classes]int // in use included
	Prefill [policy.Classes]uint64
	Waiting [policy.Classes]int
	Slots   uint32 // of the lease
	ByVM    map[uint64]int
}

// InspectPool reads a pool's cell.
func InspectPool(cell []byte) (u PoolUse, ok bool) {
	var c poolCell
	if !c.decode(cell) {
		return u, false
	}
	u.Slots, u.ByVM = c.Limits[whole].Slots, map[uint64]int{}
	for _, s := range c.Shares {
		for class, n := range s.InUse {
			u.InUse[class] += int(n)
			u.Prefill[class] += uint64(s.Prefill[class])
			u.Booked[class] += int(s.Booked[class])
		}
		u.ByVM[s.Nonce] += int(sum(s.InUse))
	}
	for _, q := range c.Queues {
		u.Waiting[q.Class] += int(q.Waiting)
	}
	return u, true
}

// TenantUse is what a cell says about a tenant.
type TenantUse struct {
	InUse, Waiting                 int
	Slots                          uint32 // of the lease
	Requests, Tokens               uint64 // spent
	GrantedRequests, GrantedTokens uint64
	Refused                        uint32
}

// InspectTenant reads a tenant's cell.
func InspectTenant(cell []byte) (u TenantUse, ok bool) {
	var c tenantCell
	if !c.decode(cell) {
		return u, false
	}
	u = TenantUse{
		InUse: int(c.inUse()), Slots: c.Slots, Requests: c.SpentRequests, Tokens: c.SpentTokens,
		GrantedRequests: c.GrantedRequests, GrantedTokens: c.GrantedTokens, Refused: c.Refused,
	}
	for _, s := range c.Shares {
		u.Waiting += int(s.Waiting)
	}
	return u, true
}
