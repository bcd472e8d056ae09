package admission

import (
	"math"
	"unsafe"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	poolMagic   = 0x33535057 // "WPS3"
	poolFixed   = int(unsafe.Sizeof(poolHead{}))
	poolShare   = int(unsafe.Sizeof(share{}))
	poolWaiters = int(unsafe.Sizeof(queued{}))
	// maxShares is the number of VMs that a cell can list: all that have a row.
	maxShares = wire.MaxSlots
	maxQueues = maxShares * policy.Classes
	// whole is the place of the whole pool in the limits, behind its classes.
	whole = policy.Classes
)

// limits is what a gateway's lease gives a class of a pool, or the whole pool.
type limits struct {
	Slots, Floor, Prefill, TokensPerSecond uint32
}

// poolCell is one pool of one gateway: the lease, and who has how much of it in
// use. It is changed by compare-and-set alone, so at the moment of a take its
// sums are exact, whatever the other VMs do. Every VM writes its own share from
// its own counts, so that a share which was lost, or dropped while its VM stood
// still, is whole again with the VM's next change.
//
//	offset size
//	0      152  head
//	152    56n  shares
//	       48m  queues
type poolCell struct {
	poolHead
	Shares []share
	Queues []queued
}

// poolHead is what a cell begins with.
//
//	offset size
//	0      4    magic "WPS3"
//	4      2    n, the number of shares, at most 128
//	6      2    m, the number of queues, at most 384
//	8      8    term of the lease, 0 none
//	16     8    sequence of the lease
//	24     64   by class, then of the whole pool: slots, floor, tokens to prefill,
//	            tokens/s, u32 each
//	88     24   by class: virtual time of the queues, f64
//	112    12   by class: requests refused for want of room, modulo 2^32
//	124    4    0
//	128    24   by class: the tokens that those would have had to prefill, u64
type poolHead struct {
	magic       uint32
	n, m        uint16
	Term, Lease uint64
	Limits      [policy.Classes + 1]limits
	Virtual     [policy.Classes]float64
	Away        [policy.Classes]uint32
	_           uint32
	AwayTokens  [policy.Classes]uint64
}

// away is what a VM has refused for want of room and not yet put into the cell.
type away struct {
	requests uint32
	tokens   uint64
}

// count puts it there.
func (c *poolCell) count(a *[policy.Classes]away) {
	for class := range a {
		c.Away[class] += a[class].requests
		c.AwayTokens[class] += a[class].tokens
	}
}

// share is what one VM has in use, and what it has booked: at least as much.
//
//	offset size
//	0      8    boot nonce of the VM
//	8      2    its slot
//	10     2    0
//	12     4    it counts until then though its row is silent, unix s, 0 not
//	16     6    requests booked by class, u16 each
//	22     6    requests in use by class, as of the VM's last change
//	28     12   tokens to prefill booked by class, u32 each
//	40     12   tokens to prefill by class, as of the VM's last change
//	52     4    0
type share struct {
	Nonce   uint64
	Slot    uint16
	_       uint16
	Until   uint32
	Booked  [policy.Classes]uint16
	InUse   [policy.Classes]uint16
	Tokens  [policy.Classes]uint32
	Prefill [policy.Classes]uint32
	_       uint32
}

// queued is the requests of one class that wait in one VM.
//
//	offset size
//	0      2    slot of the VM
//	2      1    class
//	3      1    0
//	4      2    requests that wait and could use a slot
//	6      2    weight of their tenants, 1 is 100
//	8      4    tokens to prefill of them, as far as known
//	12     4    shared queue that wakes the VM, 0 none
//	16     8    start of the best in virtual time, f64; +Inf: nobody could use a slot
//	24     8    arrival of the oldest, unix ns
//	32     8    when the VM was last woken and had not yet looked, unix ns; 0 not
//	40     2    requests that wait, those for their tenants' limits included
//	42     2    0
//	44     4    tokens of them, by their bytes
type queued struct {
	Slot       uint16
	Class      uint8
	_          uint8
	Waiting    uint16
	Weight     uint16
	Tokens     uint32
	Queue      uint32
	Start      float64
	Oldest     int64
	Woken      int64
	Held       uint16
	_          uint16
	HeldTokens uint32
}

// decode reads a cell. An absent or unreadable one is a cell without a lease.
func (c *poolCell) decode(b []byte) bool {
	c.poolHead = poolHead{}
	c.Shares, c.Queues = c.Shares[:0], c.Queues[:0]
	if len(b) < poolFixed {
		return len(b) == 0
	}
	copy(bytesOfOne(&c.poolHead), b)
	n, m := int(c.n), int(c.m)
	if c.magic != poolMagic || n > maxShares || m > maxQueues || len(b) != poolFixed+n*poolShare+m*poolWaiters {
		c.poolHead = poolHead{}
		return false
	}
	c.Shares = fill(c.Shares, n, b[poolFixed:])
	c.Queues = fill(c.Queues, m, b[poolFixed+n*poolShare:])
	for i := range c.Queues {
		c.Queues[i].Class %= policy.Classes
	}
	return true
}

// append appends the cell's bytes.
func (c *poolCell) append(b []byte) []byte {
	c.magic, c.n, c.m = poolMagic, uint16(len(c.Shares)), uint16(len(c.Queues))
	b = append(b, bytesOfOne(&c.poolHead)...)
	b = append(b, bytesOf(c.Shares)...)
	return append(b, bytesOf(c.Queues)...)
}

// share is a VM's share, nil for none.
func (c *poolCell) share(nonce uint64) *share {
	for i := range c.Shares {
		if c.Shares[i].Nonce == nonce {
			return &c.Shares[i]
		}
	}
	return nil
}

// booked is what all VMs have in use and to prefill, or may have without a look
// at the cell.
func (c *poolCell) booked() (u quota.Use) {
	for i := range c.Shares {
		s := &c.Shares[i]
		addUse(&u, &s.Booked, &s.Tokens)
	}
	return u
}

// use is what they have, as far as they have said.
func (c *poolCell) use() (u quota.Use) {
	for i := range c.Shares {
		s := &c.Shares[i]
		addUse(&u, &s.InUse, &s.Prefill)
	}
	return u
}

func addUse(u *quota.Use, slots *[policy.Classes]uint16, tokens *[policy.Classes]uint32) {
	for class := range u.Class {
		u.Class[class].Slots += uint32(slots[class])
		u.Class[class].Prefill += min(tokens[class], math.MaxUint32-u.Class[class].Prefill)
	}
}

// grant is the lease.
func (c *poolCell) grant() quota.Grant {
	g := quota.Grant{Total: quota.Part{Slots: c.Limits[whole].Slots, Prefill: c.Limits[whole].Prefill}, Floor: c.Limits[whole].Floor}
	for class := range g.Class {
		l := &c.Limits[class]
		g.Class[class], g.ClassFloor[class] = quota.Part{Slots: l.Slots, Prefill: l.Prefill}, l.Floor
	}
	return g
}
