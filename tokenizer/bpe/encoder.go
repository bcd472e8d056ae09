// Package bpe turns a prompt's text into the token ids an engine will see, and ids back into
// text, exactly as Hugging Face's tokenizers do for byte-level BPE.
//
// A text travels through it like this: Encode cuts it at added tokens (added.go); each part
// between them is looked up in the memo by its content (memo.go); a part that is new is
// repaired where it is no UTF-8, normalized, cut into pieces by tokenizer/pretoken, and each
// piece is found in the cache of short pieces, is a token by itself, or is merged (merge.go).
// Parts are independent of each other, so a conversation's next turn costs its new messages.
//
// Nothing here looks at a clock and nothing grows without a bound: work is counted in units,
// caches have fixed sizes, and in the steady state no call allocates.
package bpe

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/warmpath/warmpath/shared/texthash"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/utf8text"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// Config sizes an Encoder. The zero value of a field is its default.
type Config struct {
	// CacheEntries is the size of the cache of short pieces, a power of two; 32 bytes each.
	// Default 8,192. Larger ones fall out of the processor's second-level cache.
	CacheEntries int
	// MemoIDs is the size of the message memo in ids, 4 bytes each. Default 262,144: the memo
	// holds about 1 MB of text. Negative: no memo.
	MemoIDs int
	// MemoEntries is the number of texts the memo can hold, a power of two; 32 bytes each.
	// Default 4,096.
	MemoEntries int
}

// Encoder encodes texts with one vocabulary. It owns its caches and scratch memory and is not
// safe for concurrent use: one per VM, or one per goroutine.
type Encoder struct {
	v     *vocab.Vocab
	kind  pretoken.Kind
	raw   finder // added tokens found before normalization
	plain finder // those found after it

	table  vocab.Table
	powers [vocab.MaxTokenBytes + 1]uint64 // powers[n] = Multiplier^n
	pairs  []uint32                        // index of the token of two ASCII bytes, by first<<7 | second
	chars  []char                          // cache of characters of more than a byte
	spans  []span                          // cache of short parts of pieces
	cache  [][2]entry                      // two places for each hash: the second for what is new, the first for what came again there
	shift  uint8                           // 64 - bits of the cache
	memo   memo

	normal []byte // scratch: a normalized part
	spaced []byte // scratch: a part with a space in front
	short  short
	long   long
	left   int // units that may still be spent
	known  int // bytes of the part that the memo knew by stretches
}

// entry of the cache of short pieces: up to 15 bytes and up to 4 ids.
type entry struct {
	// low holds the first 8 bytes of the piece, high the rest; high's top byte is
	// again | count of ids << 4 | length of the piece, 0 for an unused entry.
	low, high uint64
	ids       [4]uint32
}

const (
	cachedBytes = 15
	cachedIDs   = 4
	keyMask     = 0x0fffffffffffffff // of high, without again and the count
	again       = 1 << 63            // of high in the second place: the piece came again
)

// New returns an encoder. It allocates all that it will need for ordinary texts: about 0.4 MB
// beside the memo.
func New(v *vocab.Vocab, c Config) *Encoder {
	if c.CacheEntries <= 0 {
		c.CacheEntries = 8192
	}
	log := uint8(bits.Len(uint(max(c.CacheEntries, 16) - 1)))
	e := &Encoder{
		v: v, kind: v.Kind, cache: make([][2]entry, 1<<(log-1)), shift: 65 - log,
		table: v.Table(), pairs: make([]uint32, 1<<14),
		chars: make([]char, 1<<charBits), spans: make([]span, 1<<spanBits), long: long{block: blockBytes},
	}
	e.raw.set(v, v.RawAdded)
	e.plain.set(v, v.NormalAdded)
	e.memo.set(c)
	e.powers[0] = 1
	for i := 1; i < len(e.powers); i++ {
		e.powers[i] = e.powers[i-1] * vocab.Multiplier
	}
	var pair [2]byte
	for i := range e.pairs {
		pair[0], pair[1] = byte(i>>7), byte(i&127)
		e.pairs[i] = v.Find(vocab.HashBytes(pair[:]), pair[:])
	}
	return e
}

// Vocab returns the encoder's vocabulary.
func (e *Encoder) Vocab() *vocab.Vocab { return e.v }

// Options of one Encode.
type Options struct {
	// AddSpecial puts the vocabulary's BOS (and EOS) around the text, as engines do for
	// completions and embeddings; chat templates write their own.
	AddSpecial bool
	// Budget is what may be spent, in units: one for each byte of new text of ordinary cost,
	// see cost; a sixteenth of it for what the memo knows. At most 0: no limit.
	Budget int
	// Marks are ascending offsets into the text, such as the ends of its turns.
	Marks []int
	// MarkIDs has at least the length of Marks and receives for each the number of ids that lie
	// wholly before it, or -1 where the budget ended first. In a part whose length normalization
	// changed, that is the number of ids before the part.
	MarkIDs []int
	// From is where to begin: 0, or the place of a Cut of an earlier Encode. The text up to there
	// must be as it was then; it is not looked at, and its ids are not among those appended.
	From int
	// Cuts, if not empty, has at least the length of Marks and receives for each the last Cut at
	// or before it; {From, 0} where there is none since From.
	Cuts []Cut
}

// Cut is a place in a text where it may be gone on from: just behind an added token. The ids
// before it depend on the text before it only.
type Cut struct {
	At  int // offset into the text
	IDs int // ids before it, counted from Options.From
}

// Result tells what Encode did.
type Result struct {
	// Covered is the length of the beginning of the text that the ids stand for: all of it
	// unless the budget was spent. Where the budget ends in a part that normalization changed,
	// the part's beginning.
	Covered int
	// Cut is the last one in what is covered; {From, 0} if there is none.
	Cut Cut
	// Exhausted is set when the budget was spent before the end.
	Exhausted bool
	// Fresh and Memoised are the bytes that were tokenised and that the memo knew.
	Fresh, Memoised int
}

// Encode appends the ids of text to dst. Added tokens in the text become their ids, as in
// engines, which render a whole conversation first and tokenise it then. What is no UTF-8 is
// read as U+FFFD, one for each maximal part of a sequence that cannot be continued.
//
// When the budget is spent, Encode stops between two pieces; the ids so far are the beginning
// of what they would be without a limit.
func (e *Encoder) Encode(dst []uint32, text []byte, o Options) ([]uint32, Result) {
	r := Result{Covered: o.From, Cut: Cut{At: o.From}}
	first := len(dst)
	e.left = o.Budget
	if o.Budget <= 0 {
		e.left = math.MaxInt
	}
	if o.AddSpecial && o.From == 0 {
		dst = append(dst, e.v.Before...)
	}
	marks := marks{offsets: o.Marks, ids: o.MarkIDs, cuts: o.Cuts}
	e.raw.begin()
	ok := true
	for at, from := o.From, o.From; ; {
		m, found, sought := e.seek(&e.raw, text, at, from)
		if !sought {
			// What was looked through counts as far as a piece surely ends.
			through := text[from:m.start]
			if m.start = from; len(e.plain.list) == 0 {
				m.start += lastEnd(through)
			}
		}
		begin := len(dst)
		marks.answer(from+1, begin-first, &r)
		if m.start > from {
			var covered int
			dst, covered, ok = e.part(dst, text[from:m.start], &r)
			r.Covered = from + covered
			e.within(&marks, dst, first, begin, from, &r)
			if !ok {
				break
			}
		}
		if !sought {
			r.Covered, ok = m.start, false
			break
		}
		if !found {
			r.Covered = len(text)
			break
		}
		marks.answer(m.end, len(dst)-first, &r)
		dst = append(dst, e.raw.list[m.which].ID)
		at, from = m.next, m.end
		if e.raw.closes(m.which) {
			r.Cut = Cut{from, len(dst) - first}
		}
	}
	rest := -1
	if ok {
		rest = len(dst) - first
	}
	marks.answer(math.MaxInt, rest, &r)
	r.Exhausted = !ok
	if ok && o.AddSpecial {
		dst = append(dst, e.v.After...)
	}
	return dst, r
}

// seek finds the next added token, as next does; sought is false when half of the budget ended
// before, which leaves the other half for the text that was looked through.
func (e *Encoder) seek(f *finder, text []byte, at, from int) (m match, found, sought bool) {
	tries := e.left / (2 * tryUnits)
	f.tries = tries
	m, found = f.next(text, at, from)
	if f.tries < 0 {
		e.left -= tries * tryUnits
		return m, false, false
	}
	e.left -= (tries - f.tries) * tryUnits
	return m, found, true
}

// marks are the places that Encode was asked about; those that are answered are taken off.
type marks struct {
	offsets, ids []int
	cuts         []Cut
}

// answer says of all marks before an offset that so many ids lie before them.
func (m *marks) answer(before, ids int, r *Result) {
	for len(m.offsets) > 0 && m.offsets[0] < before {
		m.ids[0] = ids
		if len(m.cuts) > 0 {
			m.cuts[0] = r.Cut
			m.cuts = m.cuts[1:]
		}
		m.offsets, m.ids = m.offsets[1:], m.ids[1:]
	}
}

// within answers the marks in what is covered of a part that begins at from and whose ids are
// dst[begin:].
func (e *Encoder) within(m *marks, dst []uint32, first, begin, from int, r *Result) {
	if len(m.offsets) == 0 || m.offsets[0] >= r.Covered {
		return
	}
	total := 0
	for _, id := range dst[begin:] {
		total += e.bytes(id)
	}
	position := r.Covered - total // one before the part if it got a space in front
	if position != from && (position != from-1 || e.v.Flags&vocab.FlagPrefixSpace == 0) {
		m.answer(r.Covered, begin-first, r)
		return
	}
	ids := begin
	for len(m.offsets) > 0 && m.offsets[0] < r.Covered {
		for ids < len(dst) && position+e.bytes(dst[ids]) <= m.offsets[0] {
			position += e.bytes(dst[ids])
			ids++
		}
		m.answer(m.offsets[0]+1, ids-first, r)
	}
}

// bytes returns the length of what an id stands for.
func (e *Encoder) bytes(id uint32) int {
	if n := len(e.v.Token(id)); n > 0 {
		return n
	}
	a, _ := e.v.FindAdded(id)
	return int(a.Bytes)
}

// part appends the ids of a text between two added tokens. It returns how much of it they
// cover, and false when the budget is spent.
func (e *Encoder) part(dst []uint32, text []byte, r *Result) ([]uint32, int, bool) {
	memoise := e.memo.takes(len(text))
	var key texthash.Sum
	if memoise {
		if e.left -= len(text) / memoUnits; e.left < 0 {
			return dst, 0, false
		}
		key = e.memo.key(text)
		var hit bool
		if dst, hit = e.memo.get(dst, key); hit {
			r.Memoised += len(text)
			return dst, len(text), true
		}
	}
	begin := len(dst)
	e.known = 0
	plain := utf8text.Replaced(text)
	changed := len(plain) != len(text) || &plain[0] != &text[0]
	whole := true
	if e.v.Flags&vocab.FlagNFC != 0 {
		var normal bool
		if plain, normal, whole = e.normalized(plain); !normal {
			changed = true
		}
	}
	covered, ok := 0, true
	if len(plain) > 0 {
		dst, covered, ok = e.plainParts(dst, plain)
	}
	ok = ok && whole
	if cap(e.normal) > 16*keptBytes {
		e.normal = nil
	}
	switch {
	case ok:
		covered = len(text)
		if memoise {
			e.memo.put(key, dst[begin:])
		}
	case changed:
		covered = 0
	}
	known := min(e.known, covered)
	r.Memoised += known
	r.Fresh += covered - known
	return dst, covered, ok
}

// plainParts cuts at the added tokens that are found in normalized text.
func (e *Encoder) plainParts(dst []uint32, text []byte) ([]uint32, int, bool) {
	if len(e.plain.list) == 0 {
		return e.pieces(dst, text)
	}
	e.plain.begin()
	for at, from := 0, 0; ; {
		m, found, sought := e.seek(&e.plain, text, at, from)
		if !sought {
			return dst, from, false
		}
		if m.start > from {
			var covered int
			var ok bool
			if dst, covered, ok = e.pieces(dst, text[from:m.start]); !ok {
				return dst, from + covered, false
			}
		}
		if !found {
			return dst, len(text), true
		}
		dst = append(dst, e.plain.list[m.which].ID)
		at, from = m.next, m.end
	}
}

// pieces pre-tokenises text and appends the ids of its pieces.
func (e *Encoder) pieces(dst []uint32, text []byte) ([]uint32, int, bool) {
	if e.v.Flags&vocab.FlagPrefixSpace != 0 && text[0] != ' ' {
		e.spaced = append(append(e.spaced[:0], ' '), text...)
		dst, covered, ok := e.words(dst, e.spaced)
		return dst, max(covered-1, 0), ok
	}
	return e.words(dst, text)
}

// words appends the ids of a text that needs no more preparation. A long one goes through the
// memo stretch by stretch.
func (e *Encoder) words(dst []uint32, text []byte) ([]uint32, int, bool) {
	if len(text) <= wholeBytes || !e.memo.store.Takes() {
		return e.run(dst, text, 0, len(text))
	}
	for at := 0; at < len(text); {
		end, certain := stretch(text, at)
		if !certain {
			var ok bool
			if dst, at, ok = e.run(dst, text, at, end); !ok {
				return dst, at, false
			}
			continue
		}
		if e.left -= (end - at + memoUnits - 1) / memoUnits; e.left < 0 {
			return dst, at, false
		}
		key := e.memo.key(text[at:end])
		key.High ^= stretchMark
		var hit bool
		if dst, hit = e.memo.get(dst, key); hit {
			e.known += end - at
			at = end
			continue
		}
		begin := len(dst)
		var ok bool
		if dst, at, ok = e.run(dst, text, at, end); !ok {
			return dst, at, false
		}
		e.memo.put(key, dst[begin:])
	}
	return dst, len(text), true
}

// run appends the ids of the pieces from text[at] to the first that ends at end or beyond. It
// returns where it stopped, and false if the budget was spent.
func (e *Encoder) run(dst []uint32, text []byte, at, end int) ([]uint32, int, bool) {
	last := end
	left := e.left
	for at < last {
		end := pretoken.Next(e.kind, text, at)
		n := end - at
		if left -= cost(n); left < 0 {
			e.left = left
			return dst, at, false
		}
		if n > cachedBytes {
			dst = e.piece(dst, text[at:end])
			at = end
			continue
		}
		var low, high uint64
		if at+16 <= len(text) {
			b := text[at : at+16]
			low, high = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
			if n < 8 {
				low, high = low&(1<<(8*n&63)-1), 0
			} else {
				high &= 1<<((8*n-64)&63) - 1
			}
		} else {
			low, high = loadEnd(text[at:end])
		}
		high |= uint64(n) << 56
		set := &e.cache[(low^high*mixHigh)*mix>>(e.shift&63)]
		slot := &set[0]
		if slot.low != low || slot.high&keyMask != high {
			if slot = &set[1]; slot.low != low || slot.high&keyMask != high {
				have := len(dst)
				dst = e.piece(dst, text[at:end])
				if count := len(dst) - have; count <= cachedIDs && count > 0 {
					if set[1].high&again != 0 {
						set[0] = set[1]
					}
					set[1].low, set[1].high = low, high|uint64(count)<<60
					copy(set[1].ids[:], dst[have:])
				}
				at = end
				continue
			}
			slot.high |= again
		}
		dst = append(dst, slot.ids[0])
		if count := slot.high >> 60 & 7; count > 1 {
			dst = append(dst, slot.ids[1:count]...)
		}
		at = end
	}
	e.left = left
	return dst, at, true
}

const (
	mix     = 0x9e3779b97f4a7c15
	mixHigh = 0xc2b2ae3d27d4eb4f
)

// loadEnd reads up to 15 bytes as two little-endian numbers where 16 cannot be read.
func loadEnd(b []byte) (low, high uint64) {
	for i, c := range b {
		if i < 8 {
			low |= uint64(c) << (8 * i)
		} else {
			high |= uint64(c) << (8 * (i - 8))
		}
	}
	return low, high
}

// cost is what a piece of n bytes costs, whatever the caches hold: a unit a byte, and more for
// pieces that are merged with a heap.
func cost(n int) int {
	if n > shortBytes {
		return n * longUnits
	}
	return n
}

// Decode appends the text of ids; unknown ids stand for nothing. With skipSpecial, special
// tokens are left out. The text need not be UTF-8 where ids end within a character.
func (e *Encoder) Decode(dst []byte, ids []uint32, skipSpecial bool) []byte {
	for _, id := range ids {
		dst = e.v.AppendToken(dst, id, skipSpecial)
	}
	return dst
}
