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
	return g.MaySlot(u, class) && (prefill == 0 || g.MayPrefill(u, class))
}

// MaySlot tells whether one more slot of a class may be taken: the total has room, and either
// the class and those below it leave something of what they have together, or it is P0, which
// may use all.
func (g *Grant) MaySlot(u *Use, class int) bool {
	var granted, used [policy.Classes]uint32
	for c := range used {
		granted[c], used[c] = g.Class[c].Slots, u.Class[c].Slots
	}
	return may(g.Total.Slots, &granted, &used, class)
}

// MayPrefill is MaySlot for the tokens of one more request, whatever their number: the last one may
// go beyond what is granted. Otherwise a small part would be no use to a large prompt, and a part
// that is not a multiple of the prompts would never be used up.
//
// And a class may take its own part though others, to whom it was lent, still fill the total. To
// wait until they are done would put no less work before the request, as it would only wait here
// and not in an engine; and here it would wait for this gateway's alone.
func (g *Grant) MayPrefill(u *Use, class int) bool {
	if u.Class[class].Prefill < g.Class[class].Prefill {
		return true
	}
	var granted, used [policy.Classes]uint32
	for c := range used {
		granted[c], used[c] = g.Class[c].Prefill, u.Class[c].Prefill
	}
	return may(g.Total.Prefill, &granted, &used, class)
}

// may decides for one resource whether there is room for one more. A class may take its own part.
// Beyond it, each class is charged to its own part first and then to the parts of the classes below
// it, and may take what doesn't make more of the use uncovered. So a class whose part was taken away
// drains without standing in the way of the others.
func may(total uint32, granted, used *[policy.Classes]uint32, class int) bool {
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
	return inUse < int64(total) && (class == 0 || used[class] < granted[class] || above < uncovered)
}

// sub is a - b, and 0 where that is negative.
func sub[T uint32 | uint64](a, b T) T {
	if a < b {
		return 0
	}
	return a - b
}

// Nobody stands for a class in which nobody waits, in the needs that Turn takes.
const Nobody = NoLimit

// Turn is the class whose first waiter gets the next slot, -1 for none; need is what that waiter
// has to prefill, or Nobody. First comes who has not got its own part, P0 before P1; only then,
// in the same order, who takes what others leave. So no class with a share waits behind one that
// has more than its own.
func (g *Grant) Turn(u *Use, need *[policy.Classes]uint32) int {
	for c := range len(need) - 1 {
		own := u.Class[c].Slots < g.Class[c].Slots && u.Class[c].Prefill < g.Class[c].Prefill
		if need[c] != Nobody && own && g.May(u, c, need[c]) {
			return c
		}
	}
	for c := range need {
		if need[c] != Nobody && g.May(u, c, need[c]) {
			return c
		}
	}
	return -1
}
