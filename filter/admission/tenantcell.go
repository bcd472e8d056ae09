package admission

import (
	"unsafe"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	tenantMagic = 0x32545057 // "WPT2"
	tenantFixed = int(unsafe.Sizeof(tenantHead{}))
	tenantShare = int(unsafe.Sizeof(tenantOf{}))
	// finishes is how many pools and classes a cell keeps the fair queue's finish
	// times of. A tenant that waits in more at once begins anew in the oldest.
	finishes = 2
)

// tenantCell is one tenant in one gateway: what it was granted, what it has spent,
// and who has how many of its requests. As with a pool's cell every VM writes
// its own share; what is spent stays when a VM is gone.
//
//	offset size
//	0      104  head
//	104    32n  shares
type tenantCell struct {
	tenantHead
	Shares []tenantOf
}

// tenantHead is what a cell begins with.
//
//	offset size
//	0      4    magic "WPT2"
//	4      2    n, the number of shares, at most 128
//	6      1    flags of the lease: the fleet has no more 1 slots, 2 requests, 4 tokens;
//	            8 the slots are not known yet and no limit
//	7      1    0
//	8      8    term of the lease, 0 none
//	16     8    sequence of the lease
//	24     4    slots
//	28     4    floor
//	32     8    requests granted
//	40     8    uncached tokens granted
//	48     8    requests spent, or booked to be
//	56     8    uncached tokens spent, reserved or booked to be
//	64     4    requests refused
//	68     4    0
//	72     32   twice: pool, class, 6 zero bytes, finish in that queue's virtual time, f64
type tenantHead struct {
	magic                          uint32
	n                              uint16
	Flags                          uint8
	_                              uint8
	Term, Lease                    uint64
	Slots, Floor                   uint32
	GrantedRequests, GrantedTokens uint64
	SpentRequests, SpentTokens     uint64
	Refused                        uint32
	_                              uint32
	Finish                         [finishes]finish
}

// finish is when a tenant's last request that waited in a queue is done, in the
// queue's virtual time.
type finish struct {
	Pool, Class uint8
	_           [6]uint8
	At          float64
}

// tenantOf is what one VM has of a tenant.
//
//	offset size
//	0      8    boot nonce of the VM
//	8      2    its slot
//	10     2    requests in use, as of the VM's last change
//	12     2    requests that wait for a lease of the tenant
//	14     2    requests booked: in use, or may be without a look at the cell
//	16     4    shared queue that wakes the VM, 0 none
//	20     4    it counts until then though its row is silent, unix s, 0 not
//	24     4    tokens to prefill of those that wait for a lease, as far as known
//	28     3    requests that wait in queues, whatever for: by class, at most 255
//	31     1    0
type tenantOf struct {
	Nonce          uint64
	Slot           uint16
	InUse, Waiting uint16
	Booked         uint16
	Queue          uint32
	Until          uint32
	Tokens         uint32
	Held           [policy.Classes]uint8
	_              uint8
}

func (c *tenantCell) decode(b []byte) bool {
	c.tenantHead, c.Shares = tenantHead{}, c.Shares[:0]
	if len(b) < tenantFixed {
		return len(b) == 0
	}
	copy(bytesOfOne(&c.tenantHead), b)
	n := int(c.n)
	if c.magic != tenantMagic || n > wire.MaxSlots || len(b) != tenantFixed+n*tenantShare {
		c.tenantHead = tenantHead{}
		return false
	}
	c.Shares = fill(c.Shares, n, b[tenantFixed:])
	return true
}

func (c *tenantCell) append(b []byte) []byte {
	c.magic, c.n = tenantMagic, uint16(len(c.Shares))
	b = append(b, bytesOfOne(&c.tenantHead)...)
	return append(b, bytesOf(c.Shares)...)
}

// booked is the tenant's requests in all VMs, and those that may come there
// without a look at the cell.
func (c *tenantCell) booked() uint32 {
	n := uint32(0)
	for i := range c.Shares {
		n += uint32(c.Shares[i].Booked)
	}
	return n
}

// inUse is its requests, as far as the VMs have said.
func (c *tenantCell) inUse() uint32 {
	n := uint32(0)
	for i := range c.Shares {
		n += uint32(c.Shares[i].InUse)
	}
	return n
}

// waiting is those that wait for its lease, and what they have to prefill.
func (c *tenantCell) waiting() (requests, tokens uint32) {
	for i := range c.Shares {
		requests += uint32(c.Shares[i].Waiting)
		tokens += c.Shares[i].Tokens
	}
	return requests, tokens
}

// finishOf is the tenant's finish time in a queue, which set replaces.
func (c *tenantCell) finishOf(pool, class uint8) float64 {
	for i := range c.Finish {
		if f := &c.Finish[i]; f.At != 0 && f.Pool == pool && f.Class == class {
			return f.At
		}
	}
	return 0
}

func (c *tenantCell) setFinish(pool, class uint8, at float64) {
	for i := range c.Finish {
		if f := &c.Finish[i]; f.At != 0 && f.Pool == pool && f.Class == class {
			f.At = at
			return
		}
	}
	copy(c.Finish[1:], c.Finish[:])
	c.Finish[0] = finish{Pool: pool, Class: class, At: at}
}
