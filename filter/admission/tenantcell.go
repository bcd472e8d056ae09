package admission

import (
	"encoding/binary"
	"math"

	"github.com/warmpath/warmpath/shared/wire"
)

const (
	tenantMagic = 0x31545057 // "WPT1"
	tenantFixed = 104
	tenantShare = 24
	// finishes is how many pools and classes a cell keeps the fair queue's finish
	// times of. A tenant that waits in more at once begins anew in the oldest.
	finishes = 2
)

// tenantCell is one tenant in one gateway: what it was granted, what it has spent,
// and who has how many of its requests. As with a pool's cell every VM writes
// its own share; what is spent stays when a VM is gone.
//
//	offset size
//	0      4    magic "WPT1"
//	4      2    n, the number of shares, at most 128
//	6      1    flags of the lease: the fleet has no more 1 slots, 2 requests, 4 tokens
//	7      1    0
//	8      8    term of the lease, 0 none
//	16     8    sequence of the lease
//	24     4    slots
//	28     4    floor
//	32     8    requests granted
//	40     8    uncached tokens granted
//	48     8    requests spent
//	56     8    uncached tokens spent, reserved ones included
//	64     4    requests refused
//	68     4    0
//	72     32   twice: pool, class, 6 zero bytes, finish in that queue's virtual time, f64
//	104    24n  shares
type tenantCell struct {
	Flags                          uint8
	Term, Lease                    uint64
	Slots, Floor                   uint32
	GrantedRequests, GrantedTokens uint64
	SpentRequests, SpentTokens     uint64
	Refused                        uint32
	Finish                         [finishes]finish
	Shares                         []tenantOf
}

// finish is when a tenant's last request that waited in a queue is done, in the
// queue's virtual time.
type finish struct {
	Pool, Class uint8
	At          float64
}

// tenantOf is what one VM has of a tenant.
//
//	offset size
//	0      8    boot nonce of the VM
//	8      2    its slot
//	10     2    requests in use
//	12     2    requests that wait for a lease of the tenant
//	14     2    0
//	16     4    shared queue that wakes the VM, 0 none
//	20     4    it counts until then though its row is silent, unix s, 0 not
type tenantOf struct {
	Nonce          uint64
	Slot           uint16
	InUse, Waiting uint16
	Queue          uint32
	Until          uint32
}

func (c *tenantCell) decode(b []byte) bool {
	*c = tenantCell{Shares: c.Shares[:0]}
	if len(b) == 0 {
		return true
	}
	if len(b) < tenantFixed || binary.LittleEndian.Uint32(b) != tenantMagic {
		return false
	}
	n := int(binary.LittleEndian.Uint16(b[4:]))
	if n > wire.MaxSlots || len(b) != tenantFixed+n*tenantShare {
		return false
	}
	c.Flags = b[6]
	c.Term, c.Lease = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	c.Slots, c.Floor = binary.LittleEndian.Uint32(b[24:]), binary.LittleEndian.Uint32(b[28:])
	c.GrantedRequests, c.GrantedTokens = binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
	c.SpentRequests, c.SpentTokens = binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])
	c.Refused = binary.LittleEndian.Uint32(b[64:])
	for i := range c.Finish {
		r := b[72+16*i:]
		c.Finish[i] = finish{Pool: r[0], Class: r[1], At: math.Float64frombits(binary.LittleEndian.Uint64(r[8:]))}
	}
	for r := b[tenantFixed:]; n > 0; n, r = n-1, r[tenantShare:] {
		c.Shares = append(c.Shares, tenantOf{
			Nonce: binary.LittleEndian.Uint64(r), Slot: binary.LittleEndian.Uint16(r[8:]),
			InUse: binary.LittleEndian.Uint16(r[10:]), Waiting: binary.LittleEndian.Uint16(r[12:]),
			Queue: binary.LittleEndian.Uint32(r[16:]), Until: binary.LittleEndian.Uint32(r[20:]),
		})
	}
	return true
}

func (c *tenantCell) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, tenantMagic)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Shares)))
	b = append(b, c.Flags, 0)
	b = binary.LittleEndian.AppendUint64(b, c.Term)
	b = binary.LittleEndian.AppendUint64(b, c.Lease)
	b = binary.LittleEndian.AppendUint32(b, c.Slots)
	b = binary.LittleEndian.AppendUint32(b, c.Floor)
	b = binary.LittleEndian.AppendUint64(b, c.GrantedRequests)
	b = binary.LittleEndian.AppendUint64(b, c.GrantedTokens)
	b = binary.LittleEndian.AppendUint64(b, c.SpentRequests)
	b = binary.LittleEndian.AppendUint64(b, c.SpentTokens)
	b = binary.LittleEndian.AppendUint32(b, c.Refused)
	b = append(b, 0, 0, 0, 0)
	for i := range c.Finish {
		b = append(b, c.Finish[i].Pool, c.Finish[i].Class, 0, 0, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.Finish[i].At))
	}
	for i := range c.Shares {
		s := &c.Shares[i]
		b = binary.LittleEndian.AppendUint64(b, s.Nonce)
		b = binary.LittleEndian.AppendUint16(b, s.Slot)
		b = binary.LittleEndian.AppendUint16(b, s.InUse)
		b = binary.LittleEndian.AppendUint16(b, s.Waiting)
		b = append(b, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, s.Queue)
		b = binary.LittleEndian.AppendUint32(b, s.Until)
	}
	return b
}

// inUse is the tenant's requests in all VMs.
func (c *tenantCell) inUse() uint32 {
	n := uint32(0)
	for i := range c.Shares {
		n += uint32(c.Shares[i].InUse)
	}
	return n
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
