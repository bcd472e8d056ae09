package engine

// A slotIndex finds the slot of a hash: open addressing, at most half full. Block
// hashes are spread well, so their low bits are the place, and 32 of them stand
// beside the slot so that a probe rarely has to look there. A Go map here took
// half of a simulated worker's time.
//
// A taken place leads to the one stride further. That makes one ring of all
// places in which neighbours in memory stand far apart, so blocks whose hashes
// count upwards (package virtual makes such) lie side by side and are in nobody's
// way.
type slotIndex []indexEntry

// stride is one more than the places that lie in two cache lines; backwards is
// its inverse, which turns a distance in memory into one on the ring.
const (
	stride    = 17
	backwards = 0xf0f0f0f0f0f0f0f1
)

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
		i = (i + stride) & mask
	}
	return i
}

// steps is how far on the ring it is from one place to another.
func (x slotIndex) steps(from, to int) int {
	return int(uint64(to-from)*backwards) & (len(x) - 1)
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
	for i := (hole + stride) & mask; x[i].at != none; i = (i + stride) & mask {
		// Its first choice must not lie after the hole, seen from i backwards.
		if wanted := int(x[i].low) & mask; x.steps(wanted, i) >= x.steps(hole, i) {
			x[hole] = x[i]
			hole = i
		}
	}
	x[hole].at = none
}
