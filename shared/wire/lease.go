package wire

import "encoding/binary"

const (
	leasesFixed = 48
	usageFixed  = 40
	usageBytes  = 48

	// LeaseBytes is the size of one lease record.
	LeaseBytes = 40

	// WholeClass as a tenant: the record speaks of all of a class.
	WholeClass = 0xFFFF
	// AnyPool and AnyClass: the record speaks of a tenant wherever it is served.
	AnyPool  = 0xFF
	AnyClass = 0xFF
	// WeightOne is a tenant's weight of 1 in the usage record of a class.
	WeightOne = 100
	// NoLimit in slots and prefill tokens; NoCredit is the same for credits.
	NoLimit  = 0xFFFFFFFF
	NoCredit = 0xFFFFFFFFFFFFFFFF

	// LeasesLearning: control has just started and only confirms what is in use.
	LeasesLearning = 1

	// The flags of a tenant's lease: what the fleet has no more of at the moment, so that waiting
	// for the next answer is no use.
	NoSlots    = 1
	NoRequests = 2
	NoTokens   = 4
	// Unsettled in a tenant's lease: nobody knows yet whether gateways of before have slots of it.
	// Until that is known its slots are no limit, as where there is no lease at all.
	Unsettled = 8
)

// Leases is the header of the LEASES section of an ack: what one gateway may admit. Lease
// records follow.
//
// Both durations count from the sending of the batch that is answered: whatever the answer's
// delay, they are over here before they are over at control.
//
//	offset size
//	0      8    nonce of the gateway's process
//	8      8    term of the ledger: grows with every start of one
//	16     8    sequence within the term, grows with every lease of this process
//	24     8    sequence of the usage that is answered
//	32     4    duration, ms
//	36     4    duration of the floors, ms
//	40     4    hash of the table of tenants that the records' numbers are of
//	44     1    flags: 1 learning
//	45     3    0
//	48     40n  lease records
type Leases struct {
	Nonce                       uint64
	Term, Sequence              uint64
	Answers                     uint64
	DurationMillis, FloorMillis uint32
	Tenants                     uint32
	Flags                       uint8
}

// Lease is one record of a LEASES payload: of a pool (Tenant is WholeClass, Class is AnyClass), of
// a class in it (Tenant is WholeClass), or of a tenant in all of them (Pool is AnyPool, Class is
// AnyClass). What all classes of a pool have in use together stays within the pool's record; the
// records of the classes say how they share it, and come after it.
//
//	offset size
//	0      2    tenant, 0xFFFF the whole class
//	2      1    pool, 0xFF all
//	3      1    class: 0, 1, 2; 0xFF all
//	4      1    flags: the fleet has no more 1 slots, 2 requests, 4 tokens for the tenant;
//	            8 its slots are not known yet and no limit
//	5      3    0
//	8      4    slots: requests at once; 0xFFFFFFFF no limit
//	12      4    floor: slots that stay when the duration is over
//	16     4    tokens to prefill at once, 0xFFFFFFFF no limit
//	20     4    tokens/s, this gateway's part of the pool's prefill rate; 0 not known
//	24     8    requests granted since the process began; 2^64-1 no limit
//	32     8    uncached tokens granted since the process began; 2^64-1 no limit
type Lease struct {
	Tenant          uint16
	Pool, Class     uint8
	Flags           uint8
	Slots, Floor    uint32
	PrefillTokens   uint32
	TokensPerSecond uint32
	Requests        uint64
	Tokens          uint64
}

// AppendLeases appends the 48 bytes of l; AppendLease its records.
func AppendLeases(b []byte, l *Leases) []byte {
	b = binary.LittleEndian.AppendUint64(b, l.Nonce)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = binary.LittleEndian.AppendUint64(b, l.Sequence)
	b = binary.LittleEndian.AppendUint64(b, l.Answers)
	b = binary.LittleEndian.AppendUint32(b, l.DurationMillis)
	b = binary.LittleEndian.AppendUint32(b, l.FloorMillis)
	b = binary.LittleEndian.AppendUint32(b, l.Tenants)
	return append(b, l.Flags, 0, 0, 0)
}

// AppendLease appends the 40 bytes of l.
func AppendLease(b []byte, l *Lease) []byte {
	b = binary.LittleEndian.AppendUint16(b, l.Tenant)
	b = append(b, l.Pool, l.Class, l.Flags, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, l.Slots)
	b = binary.LittleEndian.AppendUint32(b, l.Floor)
	b = binary.LittleEndian.AppendUint32(b, l.PrefillTokens)
	b = binary.LittleEndian.AppendUint32(b, l.TokensPerSecond)
	b = binary.LittleEndian.AppendUint64(b, l.Requests)
	return binary.LittleEndian.AppendUint64(b, l.Tokens)
}

// DecodeLeases splits a LEASES payload into its header and its records, which ForEachLease
// reads.
func DecodeLeases(b []byte) (l Leases, records []byte, err error) {
	if len(b) < leasesFixed {
		return Leases{}, nil, fault(len(b), "leases: header cut short")
	}
	return Leases{
		Nonce:          binary.LittleEndian.Uint64(b),
		Term:           binary.LittleEndian.Uint64(b[8:]),
		Sequence:       binary.LittleEndian.Uint64(b[16:]),
		Answers:        binary.LittleEndian.Uint64(b[24:]),
		DurationMillis: binary.LittleEndian.Uint32(b[32:]),
		FloorMillis:    binary.LittleEndian.Uint32(b[36:]),
		Tenants:        binary.LittleEndian.Uint32(b[40:]),
		Flags:          b[44],
	}, b[leasesFixed:], nil
}

// ForEachLease calls f for lease records.
func ForEachLease(b []byte, f func(l *Lease) error) error {
	n, err := records(b, LeaseBytes, "leases")
	if err != nil {
		return err
	}
	var l Lease
	for i := range n {
		r := b[i*LeaseBytes:]
		l = Lease{
			Tenant: binary.LittleEndian.Uint16(r), Pool: r[2], Class: r[3], Flags: r[4],
			Slots:           binary.LittleEndian.Uint32(r[8:]),
			Floor:           binary.LittleEndian.Uint32(r[12:]),
			PrefillTokens:   binary.LittleEndian.Uint32(r[16:]),
			TokensPerSecond: binary.LittleEndian.Uint32(r[20:]),
			Requests:        binary.LittleEndian.Uint64(r[24:]),
			Tokens:          binary.LittleEndian.Uint64(r[32:]),
		}
		if !knownScope(l.Tenant, l.Pool, l.Class) || l.Tenant != WholeClass && l.Pool != AnyPool {
			return fault(i*LeaseBytes, "leases: neither of a class nor of a tenant")
		}
		if err := f(&l); err != nil {
			return err
		}
	}
	return nil
}

// Usage is the header of the USAGE section of a batch: what a gateway has admitted under which
// lease. Usage records follow.
//
//	offset size
//	0      8    nonce of the gateway's process
//	8      8    sequence, grows with every batch of this process
//	16     8    term of the lease that is held, 0 none
//	24     8    sequence of the lease that is held
//	32     4    hash of the table of tenants that the records' numbers are of
//	36     4    0
//	40     48n  usage records
type Usage struct {
	Nonce, Sequence uint64
	// Term and Lease name the newest lease that every VM of the gateway obeys at the moment the
	// records were read.
	Term, Lease uint64
	Tenants     uint32
}

// Used is one record of a USAGE payload: of a pool (Tenant is WholeClass, Class is AnyClass), of a
// class in it (Tenant is WholeClass), or of a tenant in all pools and classes (AnyPool, AnyClass).
// What is spent counts in the last kind. In the second Refused is for want of room, and Tokens
// those that the refused would have had to prefill; older gateways leave both at 0. PrefillTokens and OldestWait in the second, WaitingTokens
// in both. What waits in a class could use a slot there, what waits of a tenant waits for the
// tenant's own limits. Slots is the lease that is held, and in a class the weight of the tenants
// that wait in it, in units of 1/WeightOne; 0 is 1. A class 3 is the bypass. Records of a tenant in
// one pool are not read.
//
//	offset size
//	0      2    tenant, 0xFFFF the whole class
//	2      1    pool, 0xFF all
//	3      1    class: 0, 1, 2; 3 bypass; 0xFF all
//	4      4    slots in use
//	8      4    requests that wait
//	12     4    age of the oldest of them, ms
//	16     4    tokens to prefill that were admitted and have no first token yet
//	20     4    tokens to prefill of those that wait, as far as known
//	24     8    requests spent since the process began
//	32     8    uncached tokens spent since the process began; in a class those of the refused
//	40     4    requests refused since the process began, modulo 2^32; in a class for want of room
//	44     4    slots of the lease that is held, 0 once it is over: what a new ledger starts from;
//	            in a class the weight of the tenants that wait
type Used struct {
	Tenant           uint16
	Pool, Class      uint8
	InUse, Waiting   uint32
	OldestWaitMillis uint32
	PrefillTokens    uint32
	WaitingTokens    uint32
	Requests, Tokens uint64
	Refused          uint32
	Slots            uint32
}

// AppendUsage appends the 40 bytes of u; AppendUsed its records.
func AppendUsage(b []byte, u *Usage) []byte {
	b = binary.LittleEndian.AppendUint64(b, u.Nonce)
	b = binary.LittleEndian.AppendUint64(b, u.Sequence)
	b = binary.LittleEndian.AppendUint64(b, u.Term)
	b = binary.LittleEndian.AppendUint64(b, u.Lease)
	b = binary.LittleEndian.AppendUint32(b, u.Tenants)
	return append(b, 0, 0, 0, 0)
}

// AppendUsed appends the 48 bytes of u.
func AppendUsed(b []byte, u *Used) []byte {
	b = binary.LittleEndian.AppendUint16(b, u.Tenant)
	b = append(b, u.Pool, u.Class)
	b = binary.LittleEndian.AppendUint32(b, u.InUse)
	b = binary.LittleEndian.AppendUint32(b, u.Waiting)
	b = binary.LittleEndian.AppendUint32(b, u.OldestWaitMillis)
	b = binary.LittleEndian.AppendUint32(b, u.PrefillTokens)
	b = binary.LittleEndian.AppendUint32(b, u.WaitingTokens)
	b = binary.LittleEndian.AppendUint64(b, u.Requests)
	b = binary.LittleEndian.AppendUint64(b, u.Tokens)
	b = binary.LittleEndian.AppendUint32(b, u.Refused)
	return binary.LittleEndian.AppendUint32(b, u.Slots)
}

// DecodeUsage splits a USAGE payload into its header and its records, which ForEachUsed reads.
func DecodeUsage(b []byte) (u Usage, records []byte, err error) {
	if len(b) < usageFixed {
		return Usage{}, nil, fault(len(b), "usage: header cut short")
	}
	return Usage{
		Nonce:    binary.LittleEndian.Uint64(b),
		Sequence: binary.LittleEndian.Uint64(b[8:]),
		Term:     binary.LittleEndian.Uint64(b[16:]),
		Lease:    binary.LittleEndian.Uint64(b[24:]),
		Tenants:  binary.LittleEndian.Uint32(b[32:]),
	}, b[usageFixed:], nil
}

// ForEachUsed calls f for usage records.
func ForEachUsed(b []byte, f func(u *Used) error) error {
	n, err := records(b, usageBytes, "usage")
	if err != nil {
		return err
	}
	var u Used
	for i := range n {
		r := b[i*usageBytes:]
		u = Used{
			Tenant: binary.LittleEndian.Uint16(r), Pool: r[2], Class: r[3],
			InUse:            binary.LittleEndian.Uint32(r[4:]),
			Waiting:          binary.LittleEndian.Uint32(r[8:]),
			OldestWaitMillis: binary.LittleEndian.Uint32(r[12:]),
			PrefillTokens:    binary.LittleEndian.Uint32(r[16:]),
			WaitingTokens:    binary.LittleEndian.Uint32(r[20:]),
			Requests:         binary.LittleEndian.Uint64(r[24:]),
			Tokens:           binary.LittleEndian.Uint64(r[32:]),
			Refused:          binary.LittleEndian.Uint32(r[40:]),
			Slots:            binary.LittleEndian.Uint32(r[44:]),
		}
		if !knownScope(u.Tenant, u.Pool, u.Class) && (u.Tenant != WholeClass || u.Class != BypassClass || u.Pool == AnyPool) {
			return fault(i*usageBytes, "usage: no such class")
		}
		if err := f(&u); err != nil {
			return err
		}
	}
	return nil
}

// BypassClass as the class of a usage record of a whole class: requests that passed by the
// bypass's secret. They take no slots.
const BypassClass = 3

// knownScope tells whether a record is of a pool, of a class in it, of a tenant there, or of a
// tenant everywhere.
func knownScope(tenant uint16, pool, class uint8) bool {
	if class == AnyClass {
		return (tenant == WholeClass) == (pool != AnyPool)
	}
	return class < BypassClass && pool != AnyPool
}
