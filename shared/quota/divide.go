package quota

import "github.com/warmpath/warmpath/shared/policy"

// Shares is how a pool's capacity is split.
type Shares struct {
	// Class is the share of each class, together at most 1.
	Class [policy.Classes]float64
	// Lend is the part of what is left over that classes below P0 may have beyond their shares, 0 to
	// 1. The controller takes it back when P0 misses its objective.
	Lend float64
}

// Split is capacity split among the classes.
type Split struct {
	Class [policy.Classes]float64
	// Spare is what nobody asks for.
	Spare float64
}

// Divide splits capacity by what the classes ask for: each gets what it asks for up to its share,
// and what is left goes to those that ask for more, P0 first. No class is left without its share
// while it asks for it, whatever the others ask for.
func Divide(capacity float64, demand [policy.Classes]float64, shares *Shares) Split {
	var s Split
	left := capacity
	for c := range demand {
		s.Class[c] = min(demand[c], shares.Class[c]*capacity)
		left -= s.Class[c]
	}
	left = max(left, 0)
	more := min(demand[0]-s.Class[0], left)
	s.Class[0] += more
	left -= more
	lent := left * shares.Lend
	for c := 1; c < len(demand); c++ {
		more := min(demand[c]-s.Class[c], lent)
		s.Class[c] += more
		lent -= more
		left -= more
	}
	s.Spare = max(left, 0)
	return s
}

// level is the water level at which what the gateways ask for, each capped at level x its weight,
// sums up to capacity, which is less than all of it.
func level(capacity float64, gateways []*holding, of func(h *holding) (asked, weight float64)) float64 {
	// Each round takes those out that get all they ask for, which raises the level of the others.
	for below := 0.0; ; {
		left, weights := capacity, 0.0
		for _, h := range gateways {
			if asked, weight := of(h); asked <= below*weight {
				left -= asked
			} else {
				weights += weight
			}
		}
		if weights == 0 || left <= below*weights*(1+1e-9) {
			return below
		}
		below = left / weights
	}
}
