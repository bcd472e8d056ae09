package bpe

import (
	"bytes"
	"unicode/utf8"

	"github.com/warmpath/warmpath/tokenizer/ucd"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// finder finds added tokens as HF's AddedVocabulary does: of those that begin leftmost the
// longest, then the next one after its end.
type finder struct {
	v      *vocab.Vocab
	list   []vocab.Added  // ascending by content
	first  [256]bool      // bytes that a token begins with
	second [256]bool      // bytes that follow them; all true if a token is a single byte
	starts []byte         // the same bytes as first, if they are few; nil otherwise
	places [fewStarts]int // where each of starts comes next in the text that is looked through
	tries  int            // how many places may still be looked at closely
	closed []uint8        // what closes found out about each token: unknown, closing or open
}

const (
	unknown uint8 = iota
	closing
	open
)

// fewStarts is up to how many different bytes are leapt to, each by itself. Published
// vocabularies have one or two.
const fewStarts = 4

// tryUnits is the cost of a look at a place where an added token could begin, whether one does
// or not. Text that is full of such places, "<|<|<|", is what makes it worth counting.
const tryUnits = 4

func (f *finder) set(v *vocab.Vocab, list []vocab.Added) {
	f.v, f.list, f.closed = v, list, make([]uint8, len(list))
	for _, a := range list {
		content := v.Content(a)
		f.first[content[0]] = true
		if len(content) > 1 {
			f.second[content[1]] = true
			continue
		}
		for b := range f.second {
			f.second[b] = true
		}
	}
	for b, begins := range f.first {
		if begins {
			f.starts = append(f.starts, byte(b))
		}
	}
	if len(f.starts) > fewStarts {
		f.starts = nil
	}
}

// begin prepares for another text.
func (f *finder) begin() {
	for i := range f.places {
		f.places[i] = -1
	}
}

// closes tells whether nothing that stands behind a token can undo that it was found: neither does
// it look at what follows, nor can what follows make a part of a longer token of it.
func (f *finder) closes(which int) bool {
	if f.closed[which] == unknown {
		f.closed[which] = closing
		if a := f.list[which]; a.Flags&(vocab.AddedSingleWord|vocab.AddedRStrip) != 0 || f.grows(f.v.Content(a)) {
			f.closed[which] = open
		}
	}
	return f.closed[which] == closing
}

// grows tells whether content stands in a token that goes on behind it.
func (f *finder) grows(content []byte) bool {
	for _, a := range f.list {
		if longer := f.v.Content(a); len(longer) > len(content) && bytes.Contains(longer[:len(longer)-1], content) {
			return true
		}
	}
	return false
}

// leap returns the first place at or after at where a token may begin, len(text) if there is
// none. What lies beyond the nearest one is remembered until it is passed.
func (f *finder) leap(text []byte, at int) int {
	if f.starts == nil {
		for at < len(text) && !f.first[text[at]] {
			at++
		}
		return at
	}
	least := len(text)
	for i, b := range f.starts {
		if f.places[i] < at {
			f.places[i] = len(text)
			if n := bytes.IndexByte(text[at:], b); n >= 0 {
				f.places[i] = at + n
			}
		}
		least = min(least, f.places[i])
	}
	return least
}

// match is an added token in a text.
type match struct {
	start, end int // what the token takes, white space that it strips included
	next       int // where to look for the next one
	which      int // position in the list
}

// next returns the first added token at or after text[at:]; text[:from] is already taken.
// Without one, start is the end of the text, or where tries ended.
func (f *finder) next(text []byte, at, from int) (match, bool) {
	if len(f.list) == 0 {
		return match{start: len(text)}, false
	}
	for {
		if at = f.leap(text, at); at == len(text) {
			break
		}
		if at+1 < len(text) && !f.second[text[at+1]] {
			at++
			continue
		}
		if f.tries--; f.tries < 0 {
			return match{start: at}, false
		}
		which, n := f.longest(text[at:])
		if n == 0 {
			at++
			continue
		}
		m := match{start: at, end: at + n, next: at + n, which: which}
		at += n
		flags := f.list[which].Flags
		if flags == 0 || flags == vocab.AddedSpecial {
			return m, true
		}
		if flags&vocab.AddedSingleWord != 0 && (wordBefore(text[:m.start]) || wordAfter(text[m.end:])) {
			continue
		}
		if flags&vocab.AddedLStrip != 0 {
			m.start = max(spaceBefore(text[:m.start]), from)
		}
		if flags&vocab.AddedRStrip != 0 {
			m.end += spaceAfter(text[m.end:])
		}
		return m, true
	}
	return match{start: len(text)}, false
}

// longest returns the longest token that text begins with, and its length, 0 if there is none.
// The range of tokens that share what was read so far gets narrower with every byte.
func (f *finder) longest(text []byte) (which, length int) {
	lo, hi := 0, len(f.list)
	for depth := 0; depth < len(text); depth++ {
		c := text[depth]
		lo = f.search(lo, hi, depth, int(c))
		hi = f.search(lo, hi, depth, int(c)+1)
		if lo == hi {
			break
		}
		if int(f.list[lo].Bytes) == depth+1 {
			which, length = lo, depth+1
		}
	}
	return which, length
}

// search returns the first of list[lo:hi] whose byte at depth is at least c; those that end
// before depth come first.
func (f *finder) search(lo, hi, depth, c int) int {
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		a := &f.list[mid]
		if int(a.Bytes) <= depth || int(f.v.Text[int(a.Content)+depth]) < c {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// spaceBefore returns where the white space begins that text ends with.
func spaceBefore(text []byte) int {
	for len(text) > 0 {
		r, size := utf8.DecodeLastRune(text)
		if ucd.Of(r)&ucd.Space == 0 {
			break
		}
		text = text[:len(text)-size]
	}
	return len(text)
}

// spaceAfter returns the length of the white space that text begins with.
func spaceAfter(text []byte) int {
	at := 0
	for at < len(text) {
		class, size := ucd.ClassAt(text, at)
		if class&ucd.Space == 0 {
			break
		}
		at += size
	}
	return at
}

func wordBefore(text []byte) bool {
	r, size := utf8.DecodeLastRune(text)
	return size > 0 && isWord(r)
}

func wordAfter(text []byte) bool {
	r, size := utf8.DecodeRune(text)
	return size > 0 && isWord(r)
}
