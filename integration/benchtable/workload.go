package main

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warmpath/warmpath/shared/table"
)

const (
	workers = 64
	// systems is how many system prompts the conversations share.
	systems = 64
	// bodies is how many different lookups there are.
	bodies = 4096
	// batchEntries is one batch of a base, small enough for the copies' ring.
	batchEntries = 2000
)

// checkpoint is one position of a prompt.
type checkpoint struct {
	fingerprint uint64
	end         uint32
	turn        bool
}

// workload is a table and what is asked of it. Everything comes from one seed.
type workload struct {
	size    int
	bits    uint8
	entries []table.Entry // in order of their fingerprints
	lookups [][]byte      // bodies of /lookup
	rng     *rand.Rand

	added []uint64 // by changes, oldest first
}

// newWorkload makes conversations until the table has n entries. A prompt has
// 20 to 60 checkpoints: those of its system prompt, which several workers
// hold, then its own, held by one or two. Of the lookups 70 % follow up a
// conversation by some new text, 15 % begin one behind a known system prompt,
// and 15 % know nothing. A third of the conversations gets two thirds of them.
func newWorkload(n int) *workload {
	w := &workload{size: n, bits: sizeClass(n), rng: rand.New(rand.NewPCG(uint64(n), 7))}
	var shared [systems][]checkpoint
	for i := range shared {
		shared[i] = w.chain(nil, 10+w.rng.IntN(10))
		w.hold(shared[i], 4+w.rng.IntN(3))
	}
	var conversations [][]checkpoint
	for len(w.entries) < n {
		system := shared[w.popular(systems)]
		c := w.chain(system, 8+w.rng.IntN(30))
		w.hold(c[len(system):], 1+w.rng.IntN(2))
		conversations = append(conversations, c)
	}
	w.entries = w.entries[:n]
	slices.SortFunc(w.entries, byFingerprint)
	for range bodies {
		var prompt []checkpoint
		switch kind := w.rng.IntN(100); {
		case kind < 70:
			prompt = w.chain(conversations[w.popular(len(conversations))], 2+w.rng.IntN(5))
		case kind < 85:
			prompt = w.chain(shared[w.popular(systems)], 8+w.rng.IntN(30))
		default:
			prompt = w.chain(nil, 20+w.rng.IntN(40))
		}
		w.lookups = append(w.lookups, encodePrompt(prompt))
	}
	return w
}

// newPrompts makes a table of n entries in which conversations of a kind are, and looks up what is
// said next in them: real prompts, of which every one is new and its conversation known.
func newPrompts(t talks, n int) *workload {
	w := &workload{size: n, bits: sizeClass(n), rng: rand.New(rand.NewPCG(uint64(n), 7))}
	p := newPlayer(t, 1000)
	for range 6000 {
		p.pool.now = p.pool.now.Add(40 * time.Millisecond)
		s, _ := p.next()
		path := slices.Clone(s.path())
		p.answer(s, path, p.pool.find(path, lookupBudget))
	}
	for fp, holders := range p.pool.truth {
		e := table.Entry{Fingerprint: fp}
		copy(e.Refs[:], holders)
		w.entries = append(w.entries, e)
	}
	slices.SortFunc(w.entries, byFingerprint)
	w.entries = w.entries[:min(n, len(w.entries))]
	for len(w.entries) < n {
		w.entries = append(w.entries, table.Entry{Fingerprint: w.rng.Uint64() | 1, Refs: w.refs(1)})
	}
	slices.SortFunc(w.entries, byFingerprint)
	for range bodies {
		s := *p.open[w.rng.IntN(len(p.open))]
		s.tokens, s.ends = slices.Clone(s.tokens), slices.Clone(s.ends)
		s.say(w.rng, t.user)
		var prompt []checkpoint
		for _, c := range s.path() {
			prompt = append(prompt, checkpoint{c.Fingerprint, c.End, c.TurnEnd})
		}
		w.lookups = append(w.lookups, encodePrompt(prompt))
	}
	return w
}

func byFingerprint(a, b table.Entry) int { return cmp.Compare(a.Fingerprint, b.Fingerprint) }

// sizeClass is the control service's choice: a page is three quarters full at
// most, on average.
func sizeClass(n int) uint8 {
	bits := uint8(6)
	for bits < 16 && n>>bits > table.PageEntries*3/4 {
		bits += 2
	}
	return bits
}

// popular picks below n: the lower third twice as often as the others.
func (w *workload) popular(n int) int {
	if w.rng.IntN(2) == 0 {
		return w.rng.IntN(max(n/3, 1))
	}
	return w.rng.IntN(n)
}

// chain appends n new checkpoints to a copy of a prefix.
func (w *workload) chain(prefix []checkpoint, n int) []checkpoint {
	out := slices.Clone(prefix)
	end := uint32(0)
	if len(prefix) > 0 {
		end = prefix[len(prefix)-1].end
	}
	for i := range n {
		end += 1 + uint32(w.rng.IntN(12))
		out = append(out, checkpoint{fingerprint: w.rng.Uint64() | 1, end: end, turn: i%4 == 3 || i == n-1})
	}
	return out
}

// hold puts checkpoints into the table, each held by the same workers.
func (w *workload) hold(chain []checkpoint, holders int) {
	refs := w.refs(holders)
	for _, c := range chain {
		w.entries = append(w.entries, table.Entry{Fingerprint: c.fingerprint, Refs: refs})
	}
}

func (w *workload) refs(holders int) (refs [table.InlineRefs]uint16) {
	first := w.rng.IntN(workers)
	for i := range holders {
		refs[i] = uint16(1 + (first+i*7)%workers)
	}
	return refs
}

func encodePrompt(prompt []checkpoint) (b []byte) {
	for _, c := range prompt {
		end := c.end
		if c.turn {
			end |= 1 << 31
		}
		b = binary.LittleEndian.AppendUint64(b, c.fingerprint)
		b = binary.LittleEndian.AppendUint32(b, end)
	}
	return b
}

// batches are the bodies of /changes that fill the table, without sequence.
func (w *workload) batches() (out [][]byte) {
	for chunk := range slices.Chunk(w.entries, batchEntries) {
		out = append(out, encodeEntries(chunk))
	}
	return out
}

// someChanges are n changes as a busy fleet makes them, in order of their
// fingerprints: two in five are other holders of what is there, the rest are
// new entries and, from then on, the removal of as many old ones.
func (w *workload) someChanges(n int) []byte {
	var out []table.Entry
	for range n * 2 / 5 {
		e := w.entries[w.rng.IntN(len(w.entries))]
		e.Refs = w.refs(1 + w.rng.IntN(3))
		out = append(out, e)
	}
	for len(out) < n {
		if len(w.added) > 10*n && len(out)%2 == 0 {
			out = append(out, table.Entry{Fingerprint: w.added[0]})
			w.added = w.added[1:]
			continue
		}
		fp := w.rng.Uint64() | 1
		w.added = append(w.added, fp)
		out = append(out, table.Entry{Fingerprint: fp, Refs: w.refs(1)})
	}
	slices.SortFunc(out, byFingerprint)
	return encodeEntries(out)
}

func encodeEntries(entries []table.Entry) (b []byte) {
	for i := range entries {
		b = table.AppendEntry(b, &entries[i])
	}
	return b
}

// oracle answers a lookup from a map: the hash and the longest match that the
// guest should find.
func (w *workload) oracle(known map[uint64][table.InlineRefs]uint16, body []byte) (hash uint64, longest uint32) {
	best := map[uint16]uint32{}
	for ; len(body) > 0; body = body[12:] {
		end := binary.LittleEndian.Uint32(body[8:]) &^ (1 << 31)
		for _, ref := range known[binary.LittleEndian.Uint64(body)] {
			if ref != 0 {
				best[ref] = max(best[ref], end)
			}
		}
	}
	for ref, units := range best {
		hash += (uint64(ref)<<32 | uint64(units)) * 0x9e3779b97f4a7c15
		longest = max(longest, units)
	}
	return hash, longest
}

func (w *workload) known() map[uint64][table.InlineRefs]uint16 {
	known := make(map[uint64][table.InlineRefs]uint16, len(w.entries))
	for i := range w.entries {
		known[w.entries[i].Fingerprint] = w.entries[i].Refs
	}
	return known
}
