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
	list   []vocab.Added // ascending by content
	first  [256]bool     // bytes that a token begins with
	second [256]bool     // bytes that follow them; all true if a token is a single byte
	only   int           // the one byte that all begin with, -1 if there are several
	tries  int           // how many places may still be looked at closely
}

// tryUnits is the cost of a look at a place where an added token could begin, whether one does
// or not. Text that is full of such places, "<|<|<|", is what makes it worth counting.
const tryUnits = 4

func (f *finder) set(v *vocab.Vocab, list []vocab.Added) {
	f.v, f.list, f.only = v, list, -1
	for i, a := range list {
		content := v.Content(a)
		f.first[content[0]] = true
		if i == 0 {
			f.only = int(content[0])
		} else if f.only != int(content[0]) {
			f.only = -1
		}
		if len(content) > 1 {
			f.second[content[1]] = true
			continue
		}
		for b := range f.second {
			f.second[b] = true
		}
	}
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
	for at < len(text) {
		if f.only >= 0 {
			n := bytes.IndexByte(text[at:], byte(f.only))
			if n < 0 {
				break
			}
			at += n
		} else if !f.first[text[at]] {
			at++
			continue
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
