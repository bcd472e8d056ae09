package quota

import "github.com/warmpath/warmpath/shared/policy"

// NoLimit in slots or tokens is no limit.
const NoLimit = 0xFFFFFFFF

// Part is slots and tokens to prefill.
type Part struct {
	// Slots are requests at once.
	Slots uint32
	// Prefill is uncached tokens of requests that have no first token yet.
	Prefill uint32
}

// Grant is what one gateway may have in use in one pool.
type Grant struct {
	// Total bounds all classes together. What is in use stays within it, or drains.
	Total Part
	// Class is how the classes share Total. What a class leaves unused is there for the classes
	// above it.
	Class [policy.Classes]Part
	// Floor and ClassFloor take the place of the slots when the lease is over; prefill has no bound
	// then.
	Floor      uint32
	ClassFloor [policy.Classes]uint32
}

// Use is what one gateway has in use in one pool.
type Use struct {
	Class [policy.Classes]Part
}

// AtFloor is the grant of a gateway whose lease is over.
func (g *Grant) AtFloor() Grant {
	f := Grant{Total: Part{g.Floor, NoLimit}, Floor: g.Floor, ClassFloor: g.ClassFloor}
	for c := range f.Class {
		f.Class[c] = Part{g.ClassFloor[c], NoLimit}
	}
	return f
}

// May tells whether a request of a class with so many tokens to prefill may be taken beside what
// is in use.
func (g *Grant) May(u *Use, class int, prefill uint32) bool {
	return g.MaySlot(u, class) && g.MayPrefill(u, class, prefill)
}

// MaySlot tells whether one more slot of a class may be taken: the total has room, and either
// the class and those below it leave something of what they have together, or it is P0, which
// may use all.
func (g *Grant) MaySlot(u *Use, class int) bool {
	var granted, used [policy.Classes]uint32
	for c := range used {
		granted[c], used[c] = g.Class[c].Slots, u.Class[c].Slots
	}
	return may(g.Total.Slots, &granted, &used, class, 1, false)
}

// MayPrefill is MaySlot for the tokens of one request. One that is larger than all that may be
// under way waits until nothing else is.
func (g *Grant) MayPrefill(u *Use, class int, tokens uint32) bool {
	var granted, used [policy.Classes]uint32
	for c := range used {
		granted[c], used[c] = g.Class[c].Prefill, u.Class[c].Prefill
	}
	return may(g.Total.Prefill, &granted, &used, class, tokens, true)
}

// may decides for one resource. Each class is charged to its own part first and then to the parts
// of the classes below it; a class may take what doesn't make more of the use uncovered. So a
// class whose part was taken away drains without standing in the way of the others. With alone,
// a need that is larger than a part is met while nothing of it is in use.
func may(total uint32, granted, used *[policy.Classes]uint32, class int, need uint32, alone bool) bool {
	if total == NoLimit {
		return true
	}
	var inUse, suffix, uncovered int64
	above := int64(-1 << 62) // the largest of the sums that the request adds to
	for c := len(used) - 1; c >= 0; c-- {
		inUse += int64(used[c])
		suffix += int64(used[c]) - int64(granted[c])
		uncovered = max(uncovered, suffix)
		if c <= class {
			above = max(above, suffix)
		}
	}
	if inUse == 0 && alone && total > 0 {
		return class == 0 || granted[class] > 0
	}
	if inUse+int64(need) > int64(total) {
		return false
	}
	return class == 0 || above+int64(need) <= uncovered || alone && used[class] == 0 && granted[class] > 0
}

// sub is a - b, and 0 where that is negative.
func sub[T uint32 | uint64](a, b T) T {
	if a < b {
		return 0
	}
	return a - b
}
