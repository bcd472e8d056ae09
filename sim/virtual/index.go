package virtual

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/sim/engine"
)

// index is the cache-location table as all gateways see it: which worker holds
// which checkpoint, from engines' events and from dispatches, both after a
// delay. It keeps checkpoints that somebody was asked for, as the real table
// does, and forgets those that nobody holds.
type index struct {
	delays   Delays
	rng      *rand.Rand
	chunks   chunks
	known    []checkpoints // by chunk
	gone     farewells     // removed holders
	expiring farewells     // predictions
}

func newIndex(delays Delays, rng *rand.Rand) *index {
	return &index{delays: delays, rng: rng, chunks: newChunks()}
}

// checkpoints are the known ones among a chunk's blocks.
type checkpoints struct {
	blocks uint16  // one bit each
	places []place // of these
}

// place is one checkpoint with its holders.
type place struct{ holders []holder }

type holder struct {
	worker     int32
	from       time.Duration // visible from then on
	until      time.Duration // and no longer; 0 for no end
	confirmed  bool          // an event said so
	generation uint32
}

// has tells whether a block's checkpoint is known, and where among the places it stands or would.
func (c *checkpoints) has(h engine.BlockHash) (at int, known bool) {
	bit := uint16(1) << (h % chunkBlocks)
	return bits.OnesCount16(c.blocks & (bit - 1)), c.blocks&bit != 0
}

// placeOf returns a checkpoint's place, nil if it isn't known.
func (x *index) placeOf(h engine.BlockHash) *place {
	n := x.chunks.of(h)
	if n == unknown {
		return nil
	}
	c := &x.known[n]
	at, known := c.has(h)
	if !known {
		return nil
	}
	return &c.places[at]
}

// know returns a checkpoint's place, from now on known.
func (x *index) know(h engine.BlockHash) *place {
	n := int(x.chunks.open(h))
	if n == len(x.known) {
		x.known = append(x.known, checkpoints{})
	}
	c := &x.known[n]
	at, known := c.has(h)
	if !known {
		c.blocks |= 1 << (h % chunkBlocks)
		c.places = slices.Insert(c.places, at, place{})
	}
	return &c.places[at]
}

// tidy drops holders of a checkpoint, and what then has none.
func (x *index) tidy(h engine.BlockHash, drop func(k holder) bool) {
	p := x.placeOf(h)
	if p == nil {
		return
	}
	if p.holders = slices.DeleteFunc(p.holders, drop); len(p.holders) > 0 {
		return
	}
	c := &x.known[x.chunks.of(h)]
	at, _ := c.has(h)
	c.places = slices.Delete(c.places, at, at+1)
	if c.blocks &^= 1 << (h % chunkBlocks); c.blocks == 0 {
		x.chunks.drop(h)
	}
}

// predicted lasts this long without an event that confirms it.
const predictedFor = time.Minute

// never is when gateways see what they haven't been told.
const never = time.Duration(math.MaxInt64)

// prediction is that a worker will hold a request's checkpoints.
type prediction struct {
	request    *Request
	worker     int
	generation uint32
	positions  []int // of what isn't seen yet
}

// predict notes that worker will hold the request's checkpoints. Gateways see it when they are told.
func (x *index) predict(now time.Duration, r *Request, worker int, generation uint32, positions []int) prediction {
	news := prediction{request: r, worker: worker, generation: generation}
	for _, p := range positions {
		h := r.blocks[p-1]
		e := x.know(h)
		from := never
		k := e.of(worker, generation)
		switch {
		case k == nil:
			e.holders = append(e.holders, holder{worker: int32(worker), from: from, until: now + predictedFor, generation: generation})
		case k.confirmed && k.until == 0:
			continue // better known than this
		default:
			if k.until > now { // seen without a gap
				from = k.from
			}
			*k = holder{worker: int32(worker), from: from, until: now + predictedFor, generation: generation}
		}
		if from > now {
			news.positions = append(news.positions, p)
		}
		x.expiring.add(now+predictedFor, h)
	}
	return news
}

// tell lets gateways see predictions from a time on.
func (x *index) tell(from time.Duration, predictions []prediction) {
	for i := range predictions {
		p := &predictions[i]
		for _, at := range p.positions {
			e := x.placeOf(p.request.blocks[at-1])
			if e == nil {
				continue
			}
			if k := e.of(p.worker, p.generation); k != nil {
				k.from = min(k.from, from)
			}
		}
	}
}

func (p *place) of(worker int, generation uint32) *holder {
	for i := range p.holders {
		if k := &p.holders[i]; k.worker == int32(worker) && k.generation == generation {
			return k
		}
	}
	return nil
}

// event takes an engine's word: a block is there, or has gone. Some get lost.
func (x *index) event(now time.Duration, worker int, generation uint32, h engine.BlockHash, there bool) {
	e := x.placeOf(h)
	if e == nil {
		return
	}
	if x.delays.EventLoss > 0 && x.rng.Float64() < x.delays.EventLoss {
		return
	}
	k := e.of(worker, generation)
	seen := now + x.delays.Event
	switch {
	case there && k == nil:
		e.holders = append(e.holders, holder{worker: int32(worker), from: seen, confirmed: true, generation: generation})
	case there:
		if k.until > 0 && k.until <= now { // gone from the table meanwhile
			k.from = seen
		}
		k.confirmed, k.until, k.from = true, 0, min(k.from, seen)
	case k != nil:
		k.until = seen
		x.gone.add(k.until, h)
	}
}

// forget drops what a worker held: it came back empty, under a new generation.
func (x *index) forget(worker int) {
	for first := range x.chunks.numbers {
		for i := range engine.BlockHash(chunkBlocks) {
			x.tidy(first+i, func(k holder) bool { return k.worker == int32(worker) })
		}
	}
}

// sweep forgets holders whose time is over.
func (x *index) sweep(now time.Duration) {
	over := func(k holder) bool { return k.until > 0 && k.until < now }
	for _, list := range []*farewells{&x.gone, &x.expiring} {
		for h, ok := list.before(now); ok; h, ok = list.before(now) {
			x.tidy(h, over)
		}
	}
}

// farewells are checkpoints that lose a holder, in order of time.
type farewells struct {
	list []farewell
	next int
}

type farewell struct {
	at   time.Duration
	hash engine.BlockHash
}

func (f *farewells) add(at time.Duration, h engine.BlockHash) {
	if f.next > len(f.list)/2 { // rather than grow
		f.list, f.next = append(f.list[:0], f.list[f.next:]...), 0
	}
	f.list = append(f.list, farewell{at, h})
}

// before takes the first one whose time was before now.
func (f *farewells) before(now time.Duration) (engine.BlockHash, bool) {
	if f.next == len(f.list) || f.list[f.next].at >= now {
		return 0, false
	}
	f.next++
	return f.list[f.next-1].hash, true
}

// find returns the deepest checkpoint of every worker, in units.
func (x *index) find(now time.Duration, r *Request, positions []int, generations []uint32, deepest []int32, matches []table.Match) []table.Match {
	for i := len(positions) - 1; i >= 0; i-- {
		e := x.placeOf(r.blocks[positions[i]-1])
		if e == nil {
			continue
		}
		for _, k := range e.holders {
			if k.from > now || k.until > 0 && k.until <= now || k.generation != generations[k.worker] || deepest[k.worker] != 0 {
				continue
			}
			deepest[k.worker] = int32(positions[i])
			matches = append(matches, table.Match{Ref: refOf(int(k.worker)), Units: uint32(positions[i])})
		}
	}
	for _, m := range matches {
		deepest[workerOf(m.Ref)] = 0
	}
	return matches
}

func refOf(worker int) uint16 { return uint16(worker + 1) }
func workerOf(ref uint16) int { return int(ref) - 1 }

// positions are the checkpoints of a prompt in units (blocks of 16 tokens), as
// package fingerprint keeps them: every 4 to 64, every 16 to 512, every 64
// beyond, the turns' ends and the last whole unit, thinned to MaxCheckpoints.
func positions(dst []int, r *Request) []int {
	units := r.Prompt / engine.BlockTokens
	turns := r.ends
	for len(turns) > 0 && turns[len(turns)-1] > units {
		turns = turns[:len(turns)-1]
	}
	turns = turns[max(0, len(turns)-maxTurnEnds):]

	// The sparse part's stride doubles each time the schedule has no room left.
	const close = denseEnd/4 + (middleEnd-denseEnd)/16
	sparse := 64
	for units/sparse > middleEnd/sparse && close+units/sparse-middleEnd/sparse > fingerprint.MaxCheckpoints {
		sparse *= 2
	}
	// Turn ends take their room from all of it.
	room := fingerprint.MaxCheckpoints - len(turns) - 1
	every := 1
	for scheduledUnits(units, sparse, every) > room {
		every *= 2
	}
	turn := 0
	for at := 4; at <= units; at = nextUnit(at, sparse) {
		if at%every != 0 {
			continue
		}
		for turn < len(turns) && turns[turn] < at {
			dst = append(dst, turns[turn])
			turn++
		}
		if turn < len(turns) && turns[turn] == at {
			turn++
		}
		dst = append(dst, at)
	}
	dst = append(dst, turns[turn:]...)
	if units > 0 && (len(dst) == 0 || dst[len(dst)-1] < units) {
		dst = append(dst, units)
	}
	return dst
}

const (
	maxTurnEnds = 224
	denseEnd    = 64
	middleEnd   = 512
)

func nextUnit(at, sparse int) int {
	switch {
	case at < denseEnd:
		return at + 4
	case at < middleEnd:
		return at + 16
	}
	return (at/sparse + 1) * sparse
}

func scheduledUnits(units, sparse, every int) int {
	n := 0
	for at := 4; at <= units; at = nextUnit(at, sparse) {
		if at%every == 0 {
			n++
		}
	}
	return n
}
