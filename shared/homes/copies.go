package homes

import (
	"slices"
	"time"
)

const (
	// patience is how long a copy of up to patienceUnits may take to be made: four times what a 70B
	// model on two H100 computes that in. A longer one has so much more: it has more slices, and each
	// waits for a step of its worker.
	patience      = 3 * time.Second
	patienceUnits = 512 // 8,192 tokens
	// tolerated failures in a row end all slices for leaveAlone: where gateways can't reach workers,
	// or engines refuse what they send, every copy would come later by patience.
	tolerated  = 4
	leaveAlone = 10 * time.Minute
	// soonGone: a copy that is missed so soon after it was begun is left to requests. Nothing evicts
	// what is used all the time: what the engine reports is something else, and it holds the copy.
	soonGone = time.Minute
	// MaxMaking bounds the copies that one maker has to make at once: each is a request under way
	// with the prefix's ids for its body. What is beyond is made by requests.
	MaxMaking = 32
	// maxUnits is the longest prefix that is made in slices, 64K tokens: each slice's request has all
	// of it up to there, and the module has no room for the ids of more.
	maxUnits = 4096
	// maxCopies bounds those of all makers of a pool: gateways are told of all of them, 24 bytes each.
	maxCopies = 512
)

// Copy is a copy of a prefix that a gateway makes at a worker, in slices: by requests of its own,
// each of them a bit more of the prefix than the one before.
type Copy struct {
	// Ref is the worker's.
	Ref uint16
	// Maker is the gateway that makes it, one of those that Plan was given.
	Maker uint64
}

// Counts of the copies that were made in slices since the planner began.
type Counts struct {
	Begun uint64
	// Made: their makers told of them (Planner.Made).
	Made uint64
	// Failed were not there in time. Copies that are neither were made by a request meanwhile, are
	// being made, or aren't wanted any more.
	Failed uint64
}

// state of a copy at a worker that was chosen as a home.
type state uint8

const (
	// missed: it isn't there, or not there any more. If that is so at the next plan it is made in
	// slices; for a moment it is missed when a prediction is taken back.
	missed state = iota
	// making: a maker makes it.
	making
	// told: the maker says that it is made.
	told
	// there: the worker holds it.
	there
	// left to requests, until it is there.
	left
)

type copyKey struct {
	fingerprint uint64
	ref         uint16
}

// entry is a copy of a prefix at a worker that was chosen as its home.
type entry struct {
	state
	given           bool   // made, or being made, in slices
	counted         bool   // as made
	maker           uint64 // the last that it was given to
	begun           time.Duration
	deadline, final time.Duration // another maker has more time, not beyond final
	proofs          uint64        // copyBook.proofs when it was begun
	plan            uint64        // the last that it was in
}

// copyBook is who makes which copies.
type copyBook struct {
	entries map[copyKey]*entry
	counts  Counts

	proofs uint64 // copies that makers told of
	streak int    // failures in a row, each without a proof since it was begun
	alone  bool   // slices are left alone until then
	until  time.Duration

	// Of the plan that is being made.
	plan   uint64
	now    time.Duration
	makers []uint64 // none: nothing is made in slices
	spread map[uint16]bool
	busy   map[uint64]int
	all    int // copies being made
}

func newCopyBook() copyBook {
	return copyBook{entries: map[copyKey]*entry{}, busy: map[uint64]int{}, spread: map[uint16]bool{}}
}

// Made tells that a maker has computed the whole of a prefix at a worker, and reports whether that
// is a copy that it was to make. holds may show the same sooner, and of a request's copy too; only
// this tells that slices work, and without it some copies that come late end them.
func (p *Planner) Made(fingerprint uint64, ref uint16, maker uint64) bool {
	b := &p.copies
	e := b.entries[copyKey{fingerprint, ref}]
	if e == nil || !e.given || e.maker != maker {
		return false
	}
	b.proofs++
	b.streak = 0
	if !e.counted && e.state != left {
		e.counted = true
		b.counts.Made++
	}
	if e.state == making {
		e.state = told
	}
	return true
}

// Counts returns what has become of the copies made in slices.
func (p *Planner) Counts() Counts { return p.copies.counts }

// LeftAlone tells whether no copies are made in slices as too many have failed, and until when.
func (p *Planner) LeftAlone() (until time.Duration, alone bool) {
	return p.copies.until, p.copies.alone
}

// begin starts a plan.
func (b *copyBook) begin(now time.Duration, workers []Worker, makers []uint64) {
	b.plan++
	clear(b.spread)
	for _, w := range workers {
		if w.Spread {
			b.spread[w.Ref] = true
		}
	}
	b.now, b.makers = now, makers
	if b.alone = b.alone && now < b.until; b.alone {
		b.makers = nil
	}
	clear(b.busy)
	b.all = 0
	for _, e := range b.entries {
		if e.state == making {
			b.busy[e.maker]++
			b.all++
		}
	}
}

// end forgets the copies that the plan has no more.
func (b *copyBook) end() {
	for key, e := range b.entries {
		if e.plan != b.plan {
			delete(b.entries, key)
		}
	}
	b.makers = nil
}

// divide parts the workers that were chosen for a prefix into homes and those that get their copies
// in slices, both ascending.
func (b *copyBook) divide(x *hot, chosen []uint16, old *Prefix, holds func(ref uint16) bool) (homes []uint16, copies []Copy) {
	if len(b.makers) == 0 && len(b.entries) == 0 {
		return chosen, nil
	}
	homes = chosen[:0]
	for _, ref := range chosen {
		key := copyKey{x.fingerprint, ref}
		e, held := b.entries[key], holds(ref)
		switch {
		case b.spread[ref]:
			homes = append(homes, ref)
			continue
		case e != nil:
			b.step(e, x, ref, held)
		case len(b.makers) > 0 && x.units <= maxUnits:
			e = &entry{}
			b.entries[key] = e
			// A home was given to be made by a request a moment ago.
			if held || old == nil || !slices.Contains(old.Homes, ref) {
				b.step(e, x, ref, held)
			}
		default:
			homes = append(homes, ref)
			continue
		}
		e.plan = b.plan
		if e.state == making {
			copies = append(copies, Copy{Ref: ref, Maker: e.maker})
		} else {
			homes = append(homes, ref)
		}
	}
	return homes, copies
}

// step brings a copy to now.
func (b *copyBook) step(e *entry, x *hot, ref uint16, held bool) {
	switch {
	case held:
		e.state = there
	case e.state == there:
		e.state = missed
		if e.given && b.now-e.begun < soonGone {
			e.state = left
		}
	case e.state == missed:
		e.begun, e.proofs, e.counted = b.now, b.proofs, false
		e.final = b.now + 2*patienceFor(x.units)
		b.give(e, x, ref)
	case e.state == told:
		e.state = left
	case e.state != making:
	case len(b.makers) == 0:
		e.state = missed
	case b.now >= e.deadline:
		e.state = left
		b.failed(e, x)
	case !slices.Contains(b.makers, e.maker):
		b.give(e, x, ref)
	}
}

// give has a copy made by the maker that comes first for it, of those that have room: the others
// keep theirs when one comes or goes. Where most of the prefix's requests come from one of them, it
// makes all: they bring the tokens. Without one it is missed.
func (b *copyBook) give(e *entry, x *hot, ref uint16) {
	best, found := uint64(0), false
	for _, maker := range b.makers {
		if b.all >= maxCopies {
			break
		}
		if b.busy[maker] >= MaxMaking {
			continue
		}
		if maker == x.sender {
			best, found = maker, true
			break
		}
		if !found || rank(maker, x.fingerprint, ref) > rank(best, x.fingerprint, ref) {
			best, found = maker, true
		}
	}
	if e.state = missed; !found {
		return
	}
	if !e.given || e.begun == b.now {
		b.counts.Begun++
	}
	e.state, e.given, e.maker = making, true, best
	e.deadline = min(b.now+patienceFor(x.units), e.final)
	b.busy[best]++
	b.all++
}

// failed counts a copy that wasn't there in time. It tells nothing of slices where others were made
// since it was begun: its worker has much to do. Nor where no request has come lately that begins with
// the prefix: nobody could bring its tokens.
func (b *copyBook) failed(e *entry, x *hot) {
	b.counts.Failed++
	if b.proofs != e.proofs || b.now-x.last > patience/2 {
		return
	}
	if b.streak++; b.streak >= tolerated {
		b.alone, b.until, b.makers = true, b.now+leaveAlone, nil
	}
}

// patienceFor is how long a copy of so many units may take.
func patienceFor(units uint32) time.Duration {
	return max(patience, patience*time.Duration(units)/patienceUnits)
}

// rank orders the makers of a copy, for each copy by chance (rendezvous hashing).
func rank(maker, fingerprint uint64, ref uint16) uint64 {
	x := maker ^ fingerprint ^ uint64(ref)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
