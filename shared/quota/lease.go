package quota

import (
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

// Level is how much a gateway knows of what it may admit.
type Level uint8

const (
	// Leased: a lease of control's is in force.
	Leased Level = 0
	// AtFloor: cut off. Only the floors are left.
	AtFloor Level = 1
	// Alone: nothing is known, or not for so long that the floors are over too. The settings say
	// what is done then.
	Alone Level = 2
)

// Lease is the gateway's side of a lease: what a LEASES payload says, and until when.
//
// A gateway has one batch under way at a time, and installs an answer only while it waits for
// it. So control knows from each report which lease is in force, and that no older one will be.
type Lease struct {
	Term, Sequence uint64
	// Tenants is the table that the numbers of tenants are of.
	Tenants uint32
	// Learning: control has just started.
	Learning bool

	end, floorEnd int64
	pools         [policy.MaxPools]*Grant
	rates         [policy.MaxPools]uint32
	tenants       map[uint16]Credit
}

// Credit is what a gateway may spend of a tenant's limits.
type Credit struct {
	// Slots are requests at once, NoLimit for no limit.
	Slots uint32
	// Requests and Tokens are what may be spent since the process began, wire.NoCredit for no limit.
	Requests, Tokens uint64
	// Flags say what the fleet has no more of: wire.NoSlots, NoRequests, NoTokens.
	Flags uint8
}

// Install takes over a LEASES payload that answers the batch with the usage of this sequence,
// sent at that time. It tells whether the payload is in force now: one that answers another
// batch, is for another process, or is older than the one in force is not.
func (l *Lease) Install(payload []byte, nonce, sequence uint64, sent int64) (bool, error) {
	header, records, err := wire.DecodeLeases(payload)
	if err != nil {
		return false, err
	}
	newer := header.Term > l.Term || header.Term == l.Term && header.Sequence > l.Sequence
	if header.Nonce != nonce || header.Answers != sequence || !newer {
		return false, nil
	}
	next := Lease{
		Term: header.Term, Sequence: header.Sequence, Tenants: header.Tenants, Learning: header.Flags&wire.LeasesLearning != 0,
		end: sent + atLeast(header.DurationMillis), floorEnd: sent + atLeast(header.FloorMillis),
		tenants: map[uint16]Credit{},
	}
	err = wire.ForEachLease(records, func(r *wire.Lease) error {
		if r.Tenant != wire.WholeClass {
			next.tenants[r.Tenant] = Credit{r.Slots, r.Requests, r.Tokens, r.Flags}
			return nil
		}
		g := next.pools[r.Pool]
		if g == nil {
			g = &Grant{}
			next.pools[r.Pool] = g
		}
		if r.Class == wire.AnyClass {
			g.Total, g.Floor, next.rates[r.Pool] = Part{r.Slots, r.PrefillTokens}, r.Floor, r.TokensPerSecond
			return nil
		}
		g.Class[r.Class], g.ClassFloor[r.Class] = Part{r.Slots, r.PrefillTokens}, r.Floor
		return nil
	})
	if err != nil {
		return false, err
	}
	*l = next
	return true, nil
}

// atLeast is a duration at the fastest clock, in nanoseconds.
func atLeast(millis uint32) int64 {
	n := int64(millis) * int64(time.Millisecond)
	return n - n/clockMargin
}

// Level tells how much the lease is worth at a time.
func (l *Lease) Level(now int64) Level {
	switch {
	case l.Term == 0 || now >= max(l.end, l.floorEnd):
		return Alone
	case now >= l.end:
		return AtFloor
	}
	return Leased
}

// Pool returns what may be in use in a pool at a time. ok is false at Level Alone, and for a
// pool that the lease doesn't know.
func (l *Lease) Pool(index uint8, now int64) (g Grant, ok bool) {
	level := l.Level(now)
	p := l.pools[index]
	switch {
	case p == nil || level == Alone:
		return Grant{}, false
	case level == AtFloor:
		return p.AtFloor(), true
	}
	return *p, true
}

// Rate is the gateway's part of a pool's prefill rate in tokens/s, 0 when it is not known.
func (l *Lease) Rate(index uint8) uint32 { return l.rates[index] }

// Held is what a usage record says of the slots of a pool: 0 once the lease is over.
func (l *Lease) Held(index uint8, now int64) uint32 {
	if p := l.pools[index]; p != nil && l.Level(now) == Leased {
		return p.Total.Slots
	}
	return 0
}

// Tenant returns what may be spent of a tenant's limits, for tenants that have any. known is
// false for one that the lease has nothing of: its requests wait for the next lease. What was
// granted of a tenant's limits stays as long as the floors.
func (l *Lease) Tenant(index uint16, now int64) (c Credit, known bool) {
	if l.Level(now) == Alone {
		return Credit{}, false
	}
	c, known = l.tenants[index]
	return c, known
}
