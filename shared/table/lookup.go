package table

import (
	"math/bits"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Match is the longest prefix of the request that one worker holds.
type Match struct {
	Ref uint16
	// Units is the End of the deepest checkpoint the worker holds.
	Units uint32
}

// turnEndProbes turn ends are probed before anything else: a follow-up turn repeats the
// position where the last answer or question ended.
const turnEndProbes = 3

// Lookup finds the longest match of every worker. It owns its scratch memory and can be used
// for one request after the other; not safe for concurrent use.
type Lookup struct {
	// Bits is the size class of the table (Meta.Bits). Set it before Find.
	Bits uint8
	// Set returns the bitmap of an overflow set: bit r%8 of byte r/8 tells that ref r holds the
	// checkpoint. nil, or a nil result, leaves the entry's inline refs.
	Set func(id uint32) []byte
	// Pool lists the refs that a universal entry without a known set stands for. nil leaves the
	// inline refs.
	Pool []uint16

	checkpoints []fingerprint.Checkpoint
	get         func(page uint32) Page
	left        int // gets left
	gets        int
	deepest     uint32

	pages   [fingerprint.MaxCheckpoints]uint32 // by checkpoint: the page it is in
	state   [fingerprint.MaxCheckpoints]probe
	entries [fingerprint.MaxCheckpoints]Entry

	// crowded tells by a few bits of a page's number whether another checkpoint may be in the
	// same page; most are alone in theirs.
	crowded [crowds / 64]uint64

	units   []uint32 // by ref: longest match so far
	touched []uint16 // refs with units > 0, in the order found
	order   []uint64 // the same as Find sorts them
	// Checkpoints of a prompt often have the same holders: those beyond the inline ones that were
	// recorded last, and the End up to which.
	othersOf  uint32 // Entry.Info, 0 for none
	othersEnd uint32
}

// crowds is a power of two, a few times fingerprint.MaxCheckpoints.
const crowds = 1024

type probe uint8

const (
	unprobed probe = iota
	absent
	present
)

// Find appends the longest match of every worker to out, longest first, equal ones by ref, and
// returns it. cps ascend by End; more than fingerprint.MaxCheckpoints: the deepest count.
//
// get returns a page of the table, or an empty Page when it is absent; the page needs to be
// valid only until the next call. budget bounds the calls of get. No page is asked for twice.
//
// Order of the search: the deepest turn ends; then every position beyond the best one found,
// deepest first, so that missing entries in between (an engine evicts leaf first, and events
// get lost) hide nothing; then towards the start for workers with shorter matches. The last
// step uses that a worker which holds a checkpoint holds all before it: where two positions
// list the same workers, nothing between them is asked for.
//
// With a budget of at least twice the number of checkpoints the deepest present checkpoint is always
// found. With less, not every position is asked for: a short shared prefix under a long new text is
// still found, what lost entries hide is little, and a prompt that nobody has costs about half of the
// budget.
func (l *Lookup) Find(cps []fingerprint.Checkpoint, get func(page uint32) Page, budget int, out []Match) []Match {
	l.gets, l.deepest = 0, 0
	if over := len(cps) - fingerprint.MaxCheckpoints; over > 0 {
		cps = cps[over:]
	}
	if len(cps) == 0 || !ValidBits(l.Bits) {
		return out
	}
	l.checkpoints, l.get, l.left = cps, get, budget
	l.othersOf, l.othersEnd = 0, 0
	clear(l.state[:len(cps)])
	clear(l.crowded[:])
	var taken [crowds / 64]uint64
	for i := range cps {
		page := PageIndex(cps[i].Fingerprint, l.Bits)
		l.pages[i] = page
		at, bit := page%crowds/64, uint64(1)<<(page%64)
		l.crowded[at] |= taken[at] & bit
		taken[at] |= bit
	}

	deepest := l.findDeepest()
	if deepest >= 0 {
		l.deepest = cps[deepest].End
		l.findShorter(deepest)
	}

	// Sorted as numbers, which is quicker than by a function: most units first, then
	// the lowest ref.
	l.order = l.order[:0]
	for _, ref := range l.touched {
		l.order = append(l.order, uint64(^l.units[ref])<<16|uint64(ref))
		l.units[ref] = 0
	}
	l.touched = l.touched[:0]
	l.checkpoints, l.get = nil, nil
	slices.Sort(l.order)
	for _, o := range l.order {
		out = append(out, Match{Ref: uint16(o), Units: ^uint32(o >> 16)})
	}
	return out
}

// Gets returns the number of pages the last Find asked for.
func (l *Lookup) Gets() int { return l.gets }

// Deepest returns the End of the deepest checkpoint that the last Find saw in the table,
// whether or not a live worker holds it; 0 for none.
func (l *Lookup) Deepest() uint32 { return l.deepest }

// probe tells whether checkpoint i is in the table. It gets the page if need be and then
// answers for every other checkpoint in that page too.
func (l *Lookup) probe(i int) probe {
	if l.state[i] != unprobed || l.left <= 0 {
		return l.state[i]
	}
	index := l.pages[i]
	l.left--
	l.gets++
	page := l.get(index)
	l.read(page, i)
	if l.crowded[index%crowds/64]&(1<<(index%64)) != 0 {
		for j, other := range l.pages[:len(l.checkpoints)] {
			if other == index && l.state[j] == unprobed {
				l.read(page, j)
			}
		}
	}
	return l.state[i]
}

// read looks checkpoint i up in its page.
func (l *Lookup) read(page Page, i int) {
	l.state[i] = absent
	if at, found := page.search(l.checkpoints[i].Fingerprint); found {
		l.state[i] = present
		l.entries[i] = page.At(at)
	}
}

// findDeepest returns the index of the deepest present checkpoint, -1 if there is none.
func (l *Lookup) findDeepest() int {
	best := -1
	probes := 0
	for i := len(l.checkpoints) - 1; i >= 0 && probes < turnEndProbes; i-- {
		if !l.checkpoints[i].TurnEnd {
			continue
		}
		probes++
		if l.probe(i) == present {
			best = i
			break
		}
	}

	// Where half of the budget cannot pay for every position beyond best, every stride-th is asked for.
	open := l.open(best)
	if open <= l.left/2 || l.left < 2 {
		return l.deepestIn(best, len(l.checkpoints))
	}
	stride := (open + l.left/2 - 1) / (l.left / 2)
	for i := 0; i < witnesses && best < 0; i++ {
		if l.probe(i) == present {
			best = i
		}
	}
	if best < 0 {
		stride *= 2
	}
	return l.findStriding(best, stride)
}

// witnesses are the first checkpoints, which whoever has anything of a prompt has, too. They cost
// nothing where it is known, as findShorter asks for the first one anyway. Where both are absent most
// likely all are, and half as many samples have to confirm that. Of one, a lost event would be taken for it.
const witnesses = 2

// convincing is how many positions in a row have to be absent before those beyond are taken to be: with
// fewer, lost entries hide others where samples are close together.
const convincing = 3

// findStriding is findDeepest beyond index best by samples, stride apart. Whoever holds a checkpoint
// holds all before it: where no sample is present, only what lies before the shallowest can be. From
// the deepest sample that is present, the search goes on until all positions between two samples are
// absent, and no fewer than are convincing: entries may be missing anywhere.
func (l *Lookup) findStriding(best, stride int) int {
	i := len(l.checkpoints) - 1
	for i > best && l.probe(i) != present {
		i -= stride
	}
	if i <= best {
		if best < 0 {
			return l.findBefore(i + stride)
		}
		return l.deepestIn(best, min(i+stride, len(l.checkpoints)))
	}
	best = l.deepestIn(i, min(i+stride, len(l.checkpoints)))
	for i += stride; i < len(l.checkpoints); i += stride {
		deeper := l.deepestIn(best, min(i+stride, len(l.checkpoints)))
		if deeper == best && i+stride-best > convincing {
			break
		}
		best = deeper
	}
	return best
}

// findBefore is findDeepest before index high, where neither that nor the witnesses are present: it asks
// for the middle, then for that of the first half.
func (l *Lookup) findBefore(high int) int {
	for high > 1 {
		middle := high / 2
		if l.probe(middle) == present {
			return l.deepestIn(middle, high)
		}
		high = middle
	}
	return -1
}

// deepestIn returns the deepest present checkpoint in (low, high), or low.
func (l *Lookup) deepestIn(low, high int) int {
	for i := high - 1; i > low; i-- {
		if l.probe(i) == present {
			return i
		}
	}
	return low
}

// open counts the checkpoints beyond index i that have not been probed.
func (l *Lookup) open(i int) int {
	n := 0
	for _, s := range l.state[i+1 : len(l.checkpoints)] {
		if s == unprobed {
			n++
		}
	}
	return n
}

// findShorter records the holders of the deepest checkpoint and then looks for workers that
// hold less.
func (l *Lookup) findShorter(deepest int) {
	l.record(deepest)
	for first := range deepest {
		if l.probe(first) == present {
			l.behindFirstTurn(first, deepest)
			break
		}
		if l.left <= 0 {
			break
		}
	}
	// Whatever pages were fetched on the way may name more workers: it costs no get to look.
	for i := deepest - 1; i >= 0; i-- {
		if l.state[i] == present {
			l.record(i)
		}
	}
}

// behindFirstTurn is between with a guess: whoever else holds something holds the
// system prompt, to the end of the first turn and no further. Where that is so,
// two gets tell; where it isn't, they divide as any others would.
func (l *Lookup) behindFirstTurn(low, high int) {
	if !l.adds(low) {
		return
	}
	turn := low
	for turn < high-1 && !l.checkpoints[turn].TurnEnd {
		turn++
	}
	if turn < high-1 && l.probe(turn) == present && l.probe(turn+1) == present {
		l.between(turn+1, high)
		l.between(turn, turn+1)
		high = turn
	}
	l.between(low, high)
}

// between finds the matches that end in [low, high): low is present, and the holders of high
// have been recorded. It bisects, deeper half first.
func (l *Lookup) between(low, high int) {
	if !l.adds(low) {
		return
	}
	if middle := l.presentBetween(low, high); middle > low {
		l.between(middle, high)
		l.between(low, middle)
		return
	}
	l.record(low)
}

// presentBetween returns a present checkpoint strictly between low and high, the one nearest
// to the middle, or -1.
func (l *Lookup) presentBetween(low, high int) int {
	middle := int(uint(low+high) / 2)
	for distance := 0; distance < high-low; distance++ {
		for _, i := range [2]int{middle - distance, middle + distance} {
			if i <= low || i >= high {
				continue
			}
			if l.probe(i) == present {
				return i
			}
		}
	}
	return -1
}

// adds tells whether checkpoint i lists a worker that has not been found yet.
func (l *Lookup) adds(i int) bool {
	e := &l.entries[i]
	for _, ref := range e.Refs {
		if ref != 0 && !l.found(ref) {
			return true
		}
	}
	bitmap, pool := l.others(i)
	for at, word := range bitmap {
		for ; word != 0; word &= word - 1 {
			if ref := uint16(at*8 + bits.TrailingZeros8(word)); ref != 0 && !l.found(ref) {
				return true
			}
		}
	}
	for _, ref := range pool {
		if ref != 0 && !l.found(ref) {
			return true
		}
	}
	return false
}

func (l *Lookup) found(ref uint16) bool { return int(ref) < len(l.units) && l.units[ref] > 0 }

// record notes checkpoint i as a match of every worker it lists.
func (l *Lookup) record(i int) {
	e, end := &l.entries[i], l.checkpoints[i].End
	// The whole set first, as it ascends: matches found in order are sorted soon.
	bitmap, pool := l.others(i)
	for at, word := range bitmap {
		for ; word != 0; word &= word - 1 {
			l.note(uint16(at*8+bits.TrailingZeros8(word)), end)
		}
	}
	for _, ref := range pool {
		l.note(ref, end)
	}
	for _, ref := range e.Refs {
		l.note(ref, end)
	}
	if bitmap != nil || pool != nil {
		l.othersOf, l.othersEnd = e.Info, end
	}
}

// note records a match of one worker.
func (l *Lookup) note(ref uint16, end uint32) {
	if ref == 0 {
		return
	}
	if int(ref) >= len(l.units) {
		grown := make([]uint32, max(int(ref)+1, 2*len(l.units)))
		copy(grown, l.units)
		l.units = grown
	}
	switch units := l.units[ref]; {
	case units == 0:
		l.touched = append(l.touched, ref)
		l.units[ref] = end
	case units < end:
		l.units[ref] = end
	}
}

// others are the workers that entry i lists beyond the inline ones, a bitmap or the pool. Those
// that have been recorded with a match as long are left out.
func (l *Lookup) others(i int) (bitmap []byte, pool []uint16) {
	e := &l.entries[i]
	if e.Info == 0 || e.Info == l.othersOf && l.checkpoints[i].End <= l.othersEnd {
		return nil, nil
	}
	if id := e.Overflow(); id != 0 && l.Set != nil {
		if bitmap = l.Set(id); bitmap != nil {
			return bitmap[:min(len(bitmap), MaxBitmapBytes)], nil
		}
	}
	if e.Universal() {
		return nil, l.Pool
	}
	return nil, nil
}

// MaxBitmapBytes is the size of a bitmap over all refs.
const MaxBitmapBytes = 65536 / 8
