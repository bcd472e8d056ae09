package engine

// A slotIndex finds the slot of a hash: open addressing with linear probing, at
// most half full. Block hashes are spread well, so their low bits are the
// place, and 32 of them stand beside the slot so that a probe rarely has to
// look there. A Go map here took half of a simulated worker's time.
type slotIndex []indexEntry

type indexEntry struct {
	low uint32 // bits of the hash
	at  int32  // none: free
}

func newSlotIndex(capacity int) slotIndex {
	size := 8
	for size < 2*capacity {
		size *= 2
	}
	x := make(slotIndex, size)
	for i := range x {
		x[i].at = none
	}
	return x
}

// place returns where the hash's slot stands, or the free place it would take.
func (x slotIndex) place(slots []slot, h BlockHash) int {
	mask := len(x) - 1
	i := int(h) & mask
	for x[i].at != none && (x[i].low != uint32(h) || slots[x[i].at].hash != h) {
		i = (i + 1) & mask
	}
	return i
}

// find returns the slot of the hash, or none.
func (x slotIndex) find(slots []slot, h BlockHash) int32 { return x[x.place(slots, h)].at }

// put enters a slot at its place.
func (x slotIndex) put(place int, h BlockHash, at int32) { x[place] = indexEntry{uint32(h), at} }

// remove takes out a slot and moves up those behind it that its place stood in
// the way of.
func (x slotIndex) remove(slots []slot, at int32) {
	mask := len(x) - 1
	hole := x.place(slots, slots[at].hash)
	for i := (hole + 1) & mask; x[i].at != none; i = (i + 1) & mask {
		// Its first choice must not lie after the hole, seen from i backwards.
		if wanted := int(x[i].low) & mask; (i-wanted)&mask >= (i-hole)&mask {
			x[hole] = x[i]
			hole = i
		}
	}
	x[hole].at = none
}
