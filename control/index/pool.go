package index

import "github.com/warmpath/warmpath/shared/fingerprint"

// poolStats is what the requests of one pool have in common.
type poolStats struct {
	tokensPerUnit float64
	window        []positions // ring of the last requests
	next          int
	fresh         int // requests since the last answer
	candidate     int
	agreed        int // answers in a row that said candidate
}

// positions holds the fingerprints of one request at the first ringPositions
// positions of the schedule; 0 where the prompt is shorter.
type positions [ringPositions]uint64

const (
	ringPositions = 44 // every 4 units to 64, every 16 to 512
	ringWindow    = 512
	ringFresh     = 64 // new requests between two answers
	ringAgree     = 3  // equal answers before one is given out
)

func (x *Index) poolOf(name string) *poolStats {
	p := x.pools[name]
	if p == nil {
		p = &poolStats{tokensPerUnit: fingerprint.UnitTokens}
		x.pools[name] = p
	}
	return p
}

// learnRatio follows how many tokens a unit of this pool's text really is.
func (p *poolStats) learnRatio(ratio float64, units uint32) {
	if units < 16 || ratio < 2 || ratio > 128 {
		return
	}
	p.tokensPerUnit += 0.02 * (ratio - p.tokensPerUnit)
}

// ringPosition returns the index of a schedule position, -1 when end isn't one
// of the first ringPositions.
func ringPosition(end uint32) int {
	switch {
	case end <= 64 && end%4 == 0:
		return int(end/4) - 1
	case end > 64 && end <= 512 && end%16 == 0:
		return 15 + int((end-64)/16)
	default:
		return -1
	}
}

// ringUnits is the reverse of ringPosition.
func ringUnits(position int) int {
	if position < 16 {
		return (position + 1) * 4
	}
	return 64 + (position-15)*16
}

func (p *poolStats) saw(path []Checkpoint) {
	var at positions
	for _, c := range path {
		if i := ringPosition(c.End); i >= 0 {
			at[i] = c.Fingerprint
		}
	}
	if len(p.window) < ringWindow {
		p.window = append(p.window, at)
	} else {
		p.window[p.next] = at
		p.next = (p.next + 1) % ringWindow
	}
	p.fresh++
}

// RingUnits returns the discriminating position of a pool in units: the first
// schedule position that at most half of the recent requests share. ok is
// false while there is too little to tell or the answer isn't stable. Call it
// about once a second.
func (x *Index) RingUnits(pool string) (units int, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.pools[pool]
	if p == nil {
		return 0, false
	}
	if p.fresh >= ringFresh {
		p.fresh = 0
		found := p.discriminating()
		if found == p.candidate {
			p.agreed++
		} else {
			p.candidate, p.agreed = found, 1
		}
	}
	return p.candidate, p.agreed >= ringAgree
}

func (p *poolStats) discriminating() int {
	for position := range ringPositions {
		if !p.majority(position) {
			return ringUnits(position)
		}
	}
	return ringUnits(ringPositions - 1)
}

// majority reports whether one fingerprint is shared by more than half of the
// window at the position (Boyer and Moore's vote, then a count).
func (p *poolStats) majority(position int) bool {
	var candidate uint64
	votes := 0
	for i := range p.window {
		switch f := p.window[i][position]; {
		case f == 0:
		case votes == 0:
			candidate, votes = f, 1
		case f == candidate:
			votes++
		default:
			votes--
		}
	}
	if candidate == 0 {
		return false
	}
	count := 0
	for i := range p.window {
		if p.window[i][position] == candidate {
			count++
		}
	}
	return count*2 > len(p.window)
}
