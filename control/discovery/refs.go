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
// assigned in the order of addresses, so equal lists give equal refs. A retired
// ref is not given to another identity before quarantine is over: by then no
// gateway has an entry that names it.
//
// The space starts small because overflow sets are bitmaps over refs: 4,096
// refs are at most 512 bytes a set.
type refTable struct {
	quarantine time.Duration
	size       int
	owner      map[uint16]Identity
	ref        map[Identity]uint16
	freeAt     map[uint16]time.Time // retired refs, still resting
}

const (
	firstRefSpace = 4095
	maxRefSpace   = 65534
)

func newRefTable(quarantine time.Duration) *refTable {
	return &refTable{
		quarantine: quarantine, size: firstRefSpace,
		owner: map[uint16]Identity{}, ref: map[Identity]uint16{}, freeAt: map[uint16]time.Time{},
	}
}

// assign gives refs to a batch; ids is sorted in place.
func (t *refTable) assign(ids []Identity, now time.Time) {
	slices.SortFunc(ids, func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Generation, b.Generation))
	})
	for _, id := range ids {
		if _, ok := t.ref[id]; ok {
			delete(t.freeAt, t.ref[id])
			continue
		}
		t.expire(now)
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
		t.freeAt[ref] = now.Add(t.quarantine)
	}
}

func (t *refTable) expire(now time.Time) {
	for ref, at := range t.freeAt {
		if !now.Before(at) {
			delete(t.ref, t.owner[ref])
			delete(t.owner, ref)
			delete(t.freeAt, ref)
		}
	}
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

func hashIdentity(id Identity) uint64 {
	b := make([]byte, 0, len(id.Address)+len(id.Pool)+10)
	b = append(append(b, id.Address...), 0)
	b = append(append(b, id.Pool...), 0)
	b = binary.LittleEndian.AppendUint64(b, id.Generation)
	return xxhash.Sum64(b)
}
