package admission

import (
	"encoding/binary"
	"math"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	poolMagic   = 0x31535057 // "WPS1"
	poolFixed   = 112
	poolShare   = 40
	poolWaiters = 40
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
//	0      4    magic "WPS1"
//	4      2    n, the number of shares, at most 128
//	6      2    m, the number of queues, at most 384
//	8      8    term of the lease, 0 none
//	16     8    sequence of the lease
//	24     64   by class, then of the whole pool: slots, floor, tokens to prefill,
//	            tokens/s, u32 each
//	88     24   by class: virtual time of the queues, f64
//	112    40n  shares
//	       40m  queues
type poolCell struct {
	Term, Lease uint64
	Limits      [policy.Classes + 1]limits
	Virtual     [policy.Classes]float64
	Shares      []share
	Queues      []queued
}

// share is what one VM has in use.
//
//	offset size
//	0      8    boot nonce of the VM
//	8      2    its slot
//	10     2    0
//	12     4    it counts until then though its row is silent, unix s, 0 not
//	16     6    requests in use by class, u16 each
//	22     2    0
//	24     12   tokens to prefill by class, u32 each
//	36     4    0
type share struct {
	Nonce   uint64
	Slot    uint16
	Until   uint32
	InUse   [policy.Classes]uint16
	Prefill [policy.Classes]uint32
}

// queued is the requests of one class that wait in one VM.
//
//	offset size
//	0      2    slot of the VM
//	2      1    class
//	3      1    0
//	4      2    requests that wait
//	6      2    of those, the ones that wait for their tenant's lease
//	8      4    tokens to prefill of all of them, as far as known
//	12     4    shared queue that wakes the VM, 0 none
//	16     8    start of the best in virtual time, f64; +Inf: nobody could use a slot
//	24     8    arrival of the oldest, unix ns
//	32     8    when the VM was last woken and had not yet looked, unix ns; 0 not
type queued struct {
	Slot    uint16
	Class   uint8
	Waiting uint16
	Blocked uint16
	Tokens  uint32
	Queue   uint32
	Start   float64
	Oldest  int64
	Woken   int64
}

// decode reads a cell. An absent or unreadable one is a cell without a lease.
func (c *poolCell) decode(b []byte) bool {
	c.Term, c.Lease = 0, 0
	c.Limits, c.Virtual = [policy.Classes + 1]limits{}, [policy.Classes]float64{}
	c.Shares, c.Queues = c.Shares[:0], c.Queues[:0]
	if len(b) == 0 {
		return true
	}
	if len(b) < poolFixed || binary.LittleEndian.Uint32(b) != poolMagic {
		return false
	}
	n, m := int(binary.LittleEndian.Uint16(b[4:])), int(binary.LittleEndian.Uint16(b[6:]))
	if n > maxShares || m > maxQueues || len(b) != poolFixed+n*poolShare+m*poolWaiters {
		return false
	}
	c.Term, c.Lease = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	for i := range c.Limits {
		r := b[24+16*i:]
		c.Limits[i] = limits{
			Slots: binary.LittleEndian.Uint32(r), Floor: binary.LittleEndian.Uint32(r[4:]),
			Prefill: binary.LittleEndian.Uint32(r[8:]), TokensPerSecond: binary.LittleEndian.Uint32(r[12:]),
		}
	}
	for i := range c.Virtual {
		c.Virtual[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[88+8*i:]))
	}
	for r := b[poolFixed:]; n > 0; n, r = n-1, r[poolShare:] {
		s := share{Nonce: binary.LittleEndian.Uint64(r), Slot: binary.LittleEndian.Uint16(r[8:]), Until: binary.LittleEndian.Uint32(r[12:])}
		for i := range s.InUse {
			s.InUse[i] = binary.LittleEndian.Uint16(r[16+2*i:])
		}
		for i := range s.Prefill {
			s.Prefill[i] = binary.LittleEndian.Uint32(r[24+4*i:])
		}
		c.Shares = append(c.Shares, s)
	}
	for r := b[len(b)-m*poolWaiters:]; m > 0; m, r = m-1, r[poolWaiters:] {
		c.Queues = append(c.Queues, queued{
			Slot: binary.LittleEndian.Uint16(r), Class: r[2] % policy.Classes,
			Waiting: binary.LittleEndian.Uint16(r[4:]), Blocked: binary.LittleEndian.Uint16(r[6:]),
			Tokens: binary.LittleEndian.Uint32(r[8:]), Queue: binary.LittleEndian.Uint32(r[12:]),
			Start:  math.Float64frombits(binary.LittleEndian.Uint64(r[16:])),
			Oldest: int64(binary.LittleEndian.Uint64(r[24:])), Woken: int64(binary.LittleEndian.Uint64(r[32:])),
		})
	}
	return true
}

// append appends the cell's bytes.
func (c *poolCell) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, poolMagic)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Shares)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Queues)))
	b = binary.LittleEndian.AppendUint64(b, c.Term)
	b = binary.LittleEndian.AppendUint64(b, c.Lease)
	for i := range c.Limits {
		l := &c.Limits[i]
		b = binary.LittleEndian.AppendUint32(b, l.Slots)
		b = binary.LittleEndian.AppendUint32(b, l.Floor)
		b = binary.LittleEndian.AppendUint32(b, l.Prefill)
		b = binary.LittleEndian.AppendUint32(b, l.TokensPerSecond)
	}
	for _, v := range c.Virtual {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	for i := range c.Shares {
		s := &c.Shares[i]
		b = binary.LittleEndian.AppendUint64(b, s.Nonce)
		b = binary.LittleEndian.AppendUint16(b, s.Slot)
		b = binary.LittleEndian.AppendUint16(b, 0)
		b = binary.LittleEndian.AppendUint32(b, s.Until)
		for _, n := range s.InUse {
			b = binary.LittleEndian.AppendUint16(b, n)
		}
		b = append(b, 0, 0)
		for _, n := range s.Prefill {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		b = binary.LittleEndian.AppendUint32(b, 0)
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		b = binary.LittleEndian.AppendUint16(b, q.Slot)
		b = append(b, q.Class, 0)
		b = binary.LittleEndian.AppendUint16(b, q.Waiting)
		b = binary.LittleEndian.AppendUint16(b, q.Blocked)
		b = binary.LittleEndian.AppendUint32(b, q.Tokens)
		b = binary.LittleEndian.AppendUint32(b, q.Queue)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(q.Start))
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Oldest))
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Woken))
	}
	return b
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

// use is what all VMs have in use and to prefill.
func (c *poolCell) use() (u quota.Use) {
	for i := range c.Shares {
		s := &c.Shares[i]
		for class := range u.Class {
			u.Class[class].Slots += uint32(s.InUse[class])
			u.Class[class].Prefill += min(s.Prefill[class], math.MaxUint32-u.Class[class].Prefill)
		}
	}
	return u
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
