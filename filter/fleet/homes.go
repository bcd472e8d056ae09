package fleet

import (
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
)

// setHomes takes the homes of the pools' hot prefixes. They come with the loads, and what didn't
// come isn't hot any more. A damaged payload leaves none.
func (f *Fleet) setHomes(payload []byte) error {
	for _, pool := range f.pools {
		pool.View.Homes = pool.View.Homes[:0]
	}
	if err := wire.ForEachHome(payload, func(*wire.Home) error { return nil }); err != nil {
		return err
	}
	return wire.ForEachHome(payload, func(h *wire.Home) error {
		if pool := f.poolByIndex(h.Pool); pool != nil {
			pool.addHome(h)
		}
		return nil
	})
}

// addHome appends to the view, into memory of what stood there before.
func (p *Pool) addHome(h *wire.Home) {
	homes := p.View.Homes
	if len(homes) < cap(homes) {
		homes = homes[:len(homes)+1]
	} else {
		homes = append(homes, route.Home{})
	}
	last := &homes[len(homes)-1]
	last.Fingerprint, last.Units, last.Refs = h.Fingerprint, h.Units, last.Refs[:0]
	h.Refs(func(ref uint16) { last.Refs = append(last.Refs, ref) })
	p.View.Homes = homes
}
