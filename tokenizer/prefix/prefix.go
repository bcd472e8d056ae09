// Package prefix turns a rendered prompt into the chain of fingerprints over its tokens, and
// remembers how: a prompt that begins like an earlier one costs what is new in it.
//
// A prompt travels through it like this: its text is hashed from turn's end to turn's end, which
// gives each of its beginnings a name; the longest beginning that is known puts the chain where it
// was then; what follows is tokenised and chained, and on the way the state of the chain is noted
// where a next prompt could part. What is remembered is a pure function of what the name is made
// of, so the checkpoints are the same with it and without it.
package prefix

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/texthash"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/recent"
)

const (
	// memoEntries beginnings of about 400 bytes each, and memoCheckpoints of 16 bytes, are
	// remembered: 0.8 MB. A conversation of 100 KB has 75 checkpoints and is noted once or twice a
	// request.
	memoEntries     = 1024
	memoCheckpoints = 24 << 10
	// leastBytes is how much text is worth a note: less is tokenised as fast.
	leastBytes = 256
	// lastTurns ends of turns are noted, and the first, which many conversations share.
	lastTurns = 8
)

// Memo remembers the beginnings of prompts. The zero Memo is ready. It is not concurrent.
type Memo struct {
	hash  texthash.Hasher
	store recent.Store[note, fingerprint.Checkpoint]

	keys        []texthash.Sum // of the text up to each end
	ids         []uint32
	markIDs     []int
	cuts        []bpe.Cut
	checkpoints []fingerprint.Checkpoint
}

// note is what is remembered of a beginning, beside the checkpoints.
type note struct {
	end    int // of the text that has the name
	at     int // where tokenising goes on: at end or a little before
	tokens int // before at
	state  fingerprint.State
}

// Prompt is a rendered prompt.
type Prompt struct {
	Salt uint64 // of the chain
	Text []byte
	Ends []int // of its turns: ascending offsets into Text
	// AddSpecial puts the vocabulary's special tokens around the text.
	AddSpecial bool
	// Open tells that the text ends within a turn: what would follow could change its last tokens,
	// so a unit of them is left out.
	Open bool
	// Budget is what may be spent on tokenising, in bpe's units.
	Budget int
}

// Result is what was done.
type Result struct {
	bpe.Result
	Tokens int // in the chain
}

// Chain puts the prompt's tokens into the chain, from its salt on.
func (m *Memo) Chain(chain *fingerprint.Chain, e *bpe.Encoder, p Prompt) Result {
	chain.Watch(0) // tokens have no ring key
	if !m.store.Takes() {
		m.store = recent.New[note, fingerprint.Checkpoint](memoEntries, memoCheckpoints)
	}
	m.name(e, &p)
	known := note{}
	first := m.restore(chain, p.Ends, &known)
	if first < 0 {
		first = 0
		chain.Reset(p.Salt)
	}
	marks := p.Ends[first:]
	for len(m.markIDs) < len(marks) {
		m.markIDs, m.cuts = append(m.markIDs, 0), append(m.cuts, bpe.Cut{})
	}
	ids, encoded := e.Encode(m.ids[:0], p.Text, bpe.Options{
		AddSpecial: p.AddSpecial, Budget: p.Budget, From: known.at, Marks: marks, MarkIDs: m.markIDs, Cuts: m.cuts,
	})
	m.ids = ids
	encoded.Memoised += known.at
	if p.Open && !encoded.Exhausted {
		ids = ids[:max(encoded.Cut.IDs, len(ids)-fingerprint.UnitTokens)]
	}
	at, noted := 0, known.at
	for i, end := range m.markIDs[:len(marks)] {
		if end < at || end > len(ids) {
			break // beyond the budget
		}
		turn, cut := first+i, m.cuts[i]
		// A cut before the end of the turn before would need a chain that goes back.
		if cut.At >= noted+leastBytes && (turn == 0 || turn >= len(p.Ends)-lastTurns && cut.At >= p.Ends[turn-1]) {
			chain.WriteTokens(ids[at:cut.IDs])
			at, noted = cut.IDs, cut.At
			m.keep(chain, m.keys[turn], note{end: marks[i], at: noted, tokens: known.tokens + at})
		}
		chain.WriteTokens(ids[at:end])
		chain.TurnEnd()
		at = end
	}
	chain.WriteTokens(ids[at:])
	return Result{encoded, known.tokens + len(ids)}
}

// name gives each beginning of the prompt that ends with a turn its name. It is made of all that
// its checkpoints depend on: the salt, the vocabulary, what stands before the text, the text, and
// where turns end in it.
func (m *Memo) name(e *bpe.Encoder, p *Prompt) {
	m.hash.Reset()
	m.hash.Add(p.Salt)
	vocabulary := e.Vocab().Sum()
	m.hash.Add(binary.LittleEndian.Uint64(vocabulary[:]))
	special := uint64(0)
	if p.AddSpecial {
		special = 1
	}
	m.hash.Add(special)
	m.keys = m.keys[:0]
	from := 0
	for _, end := range p.Ends {
		m.hash.Write(p.Text[from:end])
		m.keys = append(m.keys, m.hash.Sum())
		from = end
	}
}

// restore puts the chain to the end of the longest beginning that is known, tells of it in known,
// and returns the first turn whose end was not in the chain then; -1 if none is known.
func (m *Memo) restore(chain *fingerprint.Chain, ends []int, known *note) int {
	for turn := len(ends) - 1; turn >= 0; turn-- {
		found, ok := m.store.Get(m.keys[turn])
		if !ok || found.Note.end != ends[turn] {
			continue
		}
		*known = *found.Note
		chain.Restore(&known.state, found.First, found.Rest)
		if found.Old {
			m.keep(chain, m.keys[turn], *known)
		}
		return turn
	}
	return -1
}

// keep notes the chain's state.
func (m *Memo) keep(chain *fingerprint.Chain, key texthash.Sum, n note) {
	n.state, m.checkpoints = chain.Save(m.checkpoints[:0])
	m.store.Put(key, &n, m.checkpoints)
}
