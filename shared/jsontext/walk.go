package jsontext

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Walker moves over a text that Scan has found valid, so it checks nothing. A
// value is named by the index of its first byte. Several may walk one Doc.
type Walker struct {
	doc  *Doc
	hint int // the long string that will probably be asked for next
	name nameText
	word nameText
}

// Reset puts the Walker before the beginning of d.
func (w *Walker) Reset(d *Doc) {
	w.doc, w.hint = d, 0
}

// Member returns what stands at or after i inside an object: i is just after
// the opening brace or after the value before. Without one, the object's
// closing brace is the next byte that is not space.
func (w *Walker) Member(i int) (Member, bool) {
	b := w.doc.text
	for b[i] != '"' {
		if b[i] == '}' {
			return Member{}, false
		}
		i++ // space or comma
	}
	end, esc := w.StringEnd(i + 1)
	name := b[i+1 : end]
	if esc {
		name = unescapeName(&w.name, name)
	}
	for i = end + 1; b[i] != ':'; i++ {
	}
	return Member{name, SkipSpace(b, i+1)}, true
}

// Element returns the index of the next element of an array: i is just after
// the opening bracket or after the element before.
func (w *Walker) Element(i int) (int, bool) {
	b := w.doc.text
	i = SkipSpace(b, i)
	if b[i] == ',' {
		i = SkipSpace(b, i+1)
	}
	return i, b[i] != ']'
}

// Skip returns the index after the value that begins at i.
func (w *Walker) Skip(i int) int {
	b := w.doc.text
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			i, _ = w.StringEnd(i + 1)
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // after a number or literal without space
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// Word returns the decoded string at i, empty where it is no string or (if
// escaped) longer than MaxName. It holds until the next call.
func (w *Walker) Word(i int) []byte {
	b := w.doc.text
	if i == 0 || b[i] != '"' {
		return nil
	}
	end, esc := w.StringEnd(i + 1)
	if esc {
		return unescapeName(&w.word, b[i+1:end])
	}
	return b[i+1 : end]
}

// StringEnd returns the closing quote's index of the string whose first byte
// (after the opening quote) is text[start], and whether it holds escapes.
func (w *Walker) StringEnd(start int) (end int, esc bool) {
	// A walk comes to long strings in their order, and to most of them twice.
	longs := w.doc.longs[:w.doc.numLong]
	if w.hint < len(longs) && longs[w.hint].start == uint32(start) {
		w.hint++
		return longs[w.hint-1].place()
	}
	if at := w.hint - 1; at >= 0 && at < len(longs) && longs[at].start == uint32(start) {
		return longs[at].place()
	}
	b := w.doc.text
	i := start
	for {
		if i-start >= longStringBytes {
			if at, ok := w.long(uint32(start)); ok {
				w.hint = at + 1
				return longs[at].place()
			}
			start = math.MaxInt // not remembered: don't ask again
		}
		i = nextQuoteOrEsc(b, i, longStringBytes)
		if i >= len(b) {
			return len(b), esc
		}
		switch b[i] {
		case '"':
			return i, esc
		case '\\':
			esc = true
			i += 2
		}
	}
}

// place returns where a remembered string ends and whether it holds escapes.
func (l longString) place() (end int, esc bool) { return int(l.end &^ escBit), l.end&escBit != 0 }

// long finds the remembered string that begins at start.
func (w *Walker) long(start uint32) (int, bool) {
	d := w.doc
	lo, hi := 0, d.numLong
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if d.longs[mid].start < start {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < d.numLong && d.longs[lo].start == start
}

// nextQuoteOrEsc returns the index of the first quote or backslash at or after
// i, or gives up after about limit bytes and returns where it is.
func nextQuoteOrEsc(b []byte, i, limit int) int {
	for stop := i + limit; i+8 <= len(b); i += 8 {
		if m := quoteOrEscLanes(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		if i >= stop {
			return i
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}
