//go:build !wasm

package fleet

import (
	"math/bits"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/predicted"
	"github.com/warmpath/warmpath/shared/table"
)

// PoolNamed is the pool of a name, nil for none.
func (f *Fleet) PoolNamed(name string) *Pool {
	for _, pool := range f.pools {
		if pool.View.Pool.Name == name {
			return pool
		}
	}
	return nil
}

// Pools are all pools, in the order of the policy.
func (f *Fleet) Pools() []*Pool { return f.pools }

// Remember makes this gateway one that sent a prompt to ref so long ago, and nothing since.
func (f *Fleet) Remember(ref uint16, checkpoints []fingerprint.Checkpoint, ago time.Duration, now int64) {
	f.sent.memory.Add(&predicted.Dispatch{ID: 1, Ref: ref, Sent: now - int64(ago)}, checkpoints, 0)
}

// Holders are the workers that the table names for a checkpoint, inline ones
// first; found is false when it has no entry.
func (f *Fleet) Holders(c fingerprint.Checkpoint) (refs []uint16, universal, found bool) {
	f.Pages.Use(f.meta.Bits, f.now)
	page := f.Pages.Get(table.PageIndex(c.Fingerprint, f.meta.Bits))
	if len(page) == 0 {
		return nil, false, false
	}
	e, found := page.Lookup(c.Fingerprint)
	if !found {
		return nil, false, false
	}
	if set := f.set(e.Overflow()); e.Overflow() != 0 && set != nil {
		for i, b := range set {
			for ; b != 0; b &= b - 1 {
				refs = append(refs, uint16(8*i+bits.TrailingZeros8(b)))
			}
		}
		return refs, e.Universal(), true
	}
	for _, ref := range e.Refs {
		if ref != 0 {
			refs = append(refs, ref)
		}
	}
	return refs, e.Universal(), true
}
