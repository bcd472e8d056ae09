package discovery

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Identity is what a ref stands for: one process, not one address.
type Identity struct {
	Address    string
	Pool       string
	Generation uint64
}

// refTable gives every Identity a ref in 1..size.
//
// The ref is derived from the identity by hashing, so that a control service
// that restarts without its state file gives the same refs again and the pages
// that gateways kept stay true. Collisions go to the next free ref; a batch is
// assigned in the order of addresses, so equal lists give equal refs.
//
// A retired ref is not given to another identity before all of this is true, so
// that what was said about the one can't be taken for the other:
//   - quarantine is over;
//   - the entries that named it are out of the published table, and every
//     gateway that may still use a table has reported that version or a later
//     one. A gateway that is silent is waited for until it is forgotten;
//   - no gateway has a request under way on it.
//
// The space starts small because overflow sets are bitmaps over refs: 4,096
// refs are at most 512 bytes a set.
type refTable struct {
	quarantine time.Duration
	size       int
	owner      map[uint16]Identity
	ref        map[Identity]uint16
	resting    map[uint16]rest // retired refs
	retired    uint64          // how often a ref was retired
}

// rest is what has to happen before a ref may name another.
type rest struct {
	until  time.Time // end of the quarantine
	number uint64    // of the retirement
	gone   uint64    // version of the table from which on nothing names it; 0 not yet
}

const (
	firstRefSpace = 4095
	maxRefSpace   = 65534
)

func newRefTable(quarantine time.Duration) *refTable {
	return &refTable{
		quarantine: quarantine, size: firstRefSpace,
		owner: map[uint16]Identity{}, ref: map[Identity]uint16{}, resting: map[uint16]rest{},
	}
}

// assign gives refs to a batch; ids is sorted in place.
func (t *refTable) assign(ids []Identity) {
	slices.SortFunc(ids, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Generation, b.Generation))
	})
	for _, id := range ids {
		if _, ok := t.ref[id]; ok {
			delete(t.resting, t.ref[id])
			continue
		}
		if len(t.owner) >= t.size/2 && t.size < maxRefSpace {
			t.size = min(t.size*4, maxRefSpace)
		}
		start := int(hashIdentity(id) % uint64(t.size))
		for i := range t.size {
			ref := uint16((start+i)%t.size) + 1
			if _, taken := t.owner[ref]; !taken {
				t.owner[ref], t.ref[id] = id, ref
				break
			}
		}
	}
}

// retire puts the ref of id to rest.
func (t *refTable) retire(id Identity, now time.Time) {
	if ref, ok := t.ref[id]; ok {
		t.retired++
		t.resting[ref] = rest{until: now.Add(t.quarantine), number: t.retired}
	}
}

// published notes that nothing in the table names the refs of the first n
// retirements from version on.
func (t *refTable) published(n, version uint64) {
	for ref, r := range t.resting {
		if r.gone == 0 && r.number <= n {
			r.gone = version
			t.resting[ref] = r
		}
	}
}

// release ends the rest of refs: all gateways have the table of version passed,
// and busy tells whether requests are under way on a ref.
func (t *refTable) release(passed uint64, busy func(ref uint16) bool, now time.Time) {
	for ref, r := range t.resting {
		if t.rested(ref, r, passed, busy, now) {
			t.drop(t.owner[ref])
		}
	}
}

// rested tells whether a retired ref may name another.
func (t *refTable) rested(ref uint16, r rest, passed uint64, busy func(ref uint16) bool, now time.Time) bool {
	return !now.Before(r.until) && r.gone != 0 && r.gone <= passed && !busy(ref)
}

// drop forgets an identity and its ref.
func (t *refTable) drop(id Identity) {
	ref := t.ref[id]
	delete(t.ref, id)
	delete(t.owner, ref)
	delete(t.resting, ref)
}

// restore takes over a pair from a state file; false when either side is taken
// or the ref is out of range.
func (t *refTable) restore(id Identity, ref uint16) bool {
	_, refTaken := t.owner[ref]
	_, idTaken := t.ref[id]
	if ref == 0 || int(ref) > maxRefSpace || refTaken || idTaken {
		return false
	}
	for int(ref) > t.size {
		t.size = min(t.size*4, maxRefSpace)
	}
	t.owner[ref], t.ref[id] = id, ref
	return true
}

// maxCounted bounds the search for a counted generation.
const maxCounted = 1024

// lastCounted is the largest counted generation of an address that has a ref, 1
// when none has: after a restart the count goes on where it stood. From 1 on it
// would name a process that is gone, and believe what was saved of its cache.
func (t *refTable) lastCounted(address, pool string, incarnation uint64) uint64 {
	last := uint64(1)
	known := map[uint64]bool{}
	for id := range t.ref {
		if id.Address == address && id.Pool == pool {
			known[id.Generation] = true
		}
	}
	for n := last + 1; len(known) > 0 && n <= maxCounted; n++ {
		if known[within(incarnation, n)] {
			last = n
		}
	}
	return last
}

func hashIdentity(id Identity) uint64 {
	b := make([]byte, 0, len(id.Address)+len(id.Pool)+10)
	b = append(append(b, id.Address...), 0)
	b = append(append(b, id.Pool...), 0)
	b = binary.LittleEndian.AppendUint64(b, id.Generation)
	return xxhash.Sum64(b)
}

// within is the generation of a process inside an incarnation. It has 53 bits,
// so that programs that read JSON numbers as floats show it as it is.
func within(incarnation, generation uint64) uint64 {
	if incarnation == 0 {
		return generation
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 16), incarnation)
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(b, generation)) >> 11
}
