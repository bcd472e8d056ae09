package main

import (
	"math/rand/v2"
	"slices"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// lengthFigures say what looking up prompts of two messages costs, by their length: those that nobody
// has, and those that begin as another one did, which ended its messages elsewhere. So nothing is found
// by a turn's end.
type lengthFigures struct {
	Tokens      int     `json:"tokens"`
	Checkpoints int     `json:"checkpoints"`
	Workers     int     `json:"workers"`
	Lost        float64 `json:"lost"` // share of the entries that the table lacks
	New         gets    `json:"gets_new"`
	Known       gets    `json:"gets_known_in_part"`
	// Found is the share of the tokens of the longest matches that was found.
	Found float64 `json:"tokens_found"`
}

type gets struct {
	P50 int `json:"p50"`
	P99 int `json:"p99"`
}

// getsOf sorts counts.
func getsOf(counts []int) gets { return gets{quantile(counts, 50), quantile(counts, 99)} }

var lookupLengths = []int{512, 1024, 2048, 4096, 8192, 16_384, 65_536}

// measureLengths looks so many prompts of each length up, of each kind.
func measureLengths(prompts int) (all []lengthFigures) {
	for _, workers := range []int{40, 1000} {
		for _, lost := range []float64{0, 0.1, 0.3} {
			for _, tokens := range lookupLengths {
				all = append(all, measureLength(tokens, workers, lost, prompts))
			}
		}
	}
	return all
}

func measureLength(tokens, workers int, lost float64, prompts int) lengthFigures {
	rng := rand.New(rand.NewPCG(uint64(tokens), uint64(workers)))
	p := newLookupPool(0)
	f := lengthFigures{Tokens: tokens, Workers: workers, Lost: lost}
	var fresh, known []int
	found, held := uint64(0), uint64(0)
	for range prompts {
		s := written(rng, tokens*3/4, tokens/4)
		path := slices.Clone(s.path())
		f.Checkpoints = len(path)
		p.find(path, lookupBudget)
		fresh = append(fresh, p.lookup.Gets())

		other := written(rng, tokens)
		copy(other.tokens[:1+rng.IntN(tokens)], s.tokens)
		p.hold(slices.Clone(other.path()), 1+rng.IntN(workers/8), workers, lost, rng)
		_, deepest := p.longest(path)
		p.find(path, lookupBudget)
		known = append(known, p.lookup.Gets())
		found, held = found+uint64(p.lookup.Deepest()), held+uint64(deepest)
	}
	f.New, f.Known, f.Found = getsOf(fresh), getsOf(known), float64(found)/float64(max(held, 1))
	return f
}

// written is a prompt of new text, in messages of so many tokens.
func written(rng *rand.Rand, messages ...int) *session {
	s := &session{}
	for _, n := range messages {
		for range n {
			s.tokens = append(s.tokens, rng.Uint32N(150_000))
		}
		s.ends = append(s.ends, len(s.tokens))
	}
	return s
}

// hold puts a prompt into the table: some workers have all of it, others a part. Entries get lost
// whole, whoever has them.
func (p *lookupPool) hold(path []fingerprint.Checkpoint, holders, workers int, lost float64, rng *rand.Rand) {
	upTo := map[uint16]int{}
	for range holders {
		upTo[uint16(1+rng.IntN(workers))] = min(len(path), 1+rng.IntN(2*len(path)))
	}
	for i, c := range path {
		var refs []uint16
		for ref, n := range upTo {
			if i < n {
				refs = append(refs, ref)
			}
		}
		if slices.Sort(refs); len(refs) > 0 && rng.Float64() >= lost {
			p.put(c.Fingerprint, refs)
		}
	}
}

// put sets an entry's holders, none to remove it.
func (p *lookupPool) put(key uint64, holders []uint16) {
	at := table.PageIndex(key, p.bits)
	page := p.pages[at]
	if page == nil {
		page = make(table.Page, table.PageBytes)
		page.Init(p.bits, at)
		p.pages[at] = page
	}
	if len(holders) == 0 {
		page.Remove(key)
		delete(p.truth, key)
		return
	}
	e := table.Entry{Fingerprint: key}
	copy(e.Refs[:], holders)
	if len(holders) > table.InlineRefs {
		id := uint32(len(p.sets) + 1)
		bitmap := make([]byte, int(slices.Max(holders))/8+1)
		for _, ref := range holders {
			bitmap[ref/8] |= 1 << (ref % 8)
		}
		p.sets[id] = bitmap
		e.SetOverflow(id)
	}
	page.Put(&e)
	p.truth[key] = slices.Clone(holders)
}
