package virtual

import (
	"math/rand/v2"
	"time"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/sim/engine"
)

// index is the cache-location table as all gateways see it: which worker holds
// which checkpoint, from engines' events and from dispatches, both after a
// delay. It keeps checkpoints that somebody was asked for, as the real table
// does, and forgets those that nobody holds.
type index struct {
	delays Delays
	rng    *rand.Rand
	known  map[engine.BlockHash]*place
	gone   []farewell // in order of time
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

type farewell struct {
	at   time.Duration
	hash engine.BlockHash
}

// predicted lasts this long without an event that confirms it.
const predictedFor = time.Minute

// predict notes that worker will hold the request's checkpoints.
func (x *index) predict(now time.Duration, r *Request, worker int, generation uint32, positions []int) {
	for _, p := range positions {
		h := r.blocks[p-1]
		e := x.known[h]
		if e == nil {
			e = &place{}
			x.known[h] = e
		}
		if k := e.of(worker, generation); k != nil {
			if !k.confirmed || k.until > 0 {
				*k = holder{worker: int32(worker), from: min(k.from, now+x.delays.Prediction), until: now + predictedFor, generation: generation}
				if k.from < now-time.Hour {
					k.from = now + x.delays.Prediction
				}
			}
		} else {
			e.holders = append(e.holders, holder{worker: int32(worker), from: now + x.delays.Prediction, until: now + predictedFor, generation: generation})
		}
		x.gone = append(x.gone, farewell{now + predictedFor, h})
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
	e := x.known[h]
	if e == nil {
		return
	}
	if x.delays.EventLoss > 0 && x.rng.Float64() < x.delays.EventLoss {
		return
	}
	k := e.of(worker, generation)
	switch {
	case there && k == nil:
		e.holders = append(e.holders, holder{worker: int32(worker), from: now + x.delays.Event, confirmed: true, generation: generation})
	case there:
		k.confirmed, k.until = true, 0
	case k != nil:
		k.until = now + x.delays.Event
		x.gone = append(x.gone, farewell{k.until, h})
	}
}

// sweep forgets holders whose time is over.
func (x *index) sweep(now time.Duration) {
	n := 0
	for n < len(x.gone) && x.gone[n].at < now-time.Second {
		h := x.gone[n].hash
		n++
		e := x.known[h]
		if e == nil {
			continue
		}
		kept := e.holders[:0]
		for _, k := range e.holders {
			if k.until == 0 || k.until >= now {
				kept = append(kept, k)
			}
		}
		if e.holders = kept; len(kept) == 0 {
			delete(x.known, h)
		}
	}
	if n > 4096 || n == len(x.gone) {
		x.gone = append(x.gone[:0], x.gone[n:]...)
	} else {
		x.gone = x.gone[n:]
	}
}

// find returns the deepest checkpoint of every worker, in units.
func (x *index) find(now time.Duration, r *Request, positions []int, generations []uint32, deepest []int32, matches []table.Match) []table.Match {
	for i := len(positions) - 1; i >= 0; i-- {
		e := x.known[r.blocks[positions[i]-1]]
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

// positions are the checkpoints of a prompt in units (blocks of 16 tokens), by
// the schedule of package fingerprint: every 4 to 64, every 16 to 512, every 64
// beyond, the turns' ends and the last whole unit.
func positions(dst []int, r *Request) []int {
	units := r.Prompt / engine.BlockTokens
	end := 0
	for at := 4; ; {
		for end < len(r.ends) && r.ends[end] <= min(at, units) {
			if r.ends[end] < at {
				dst = append(dst, r.ends[end])
			}
			end++
		}
		if at > units {
			break
		}
		dst = append(dst, at)
		switch {
		case at < 64:
			at += 4
		case at < 512:
			at += 16
		default:
			at += 64
		}
	}
	if units > 0 && (len(dst) == 0 || dst[len(dst)-1] < units) {
		dst = append(dst, units)
	}
	return dst
}
