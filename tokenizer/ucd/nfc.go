package ucd

import (
	"encoding/binary"
	"unicode/utf8"
)

// The property codes of nfcBlocks. Every later code is a combining class, three for
// each (Quick_Check Yes, No, Maybe) in ascending order, so codes order marks.
const (
	inert       = iota // a starter that composes with nothing before it
	decomposes         // a starter that NFC replaces
	maybe              // a starter that may compose with what stands before it
	nonstarters        // first code with a combining class
)

// IsNFC reports whether text is surely in NFC: false means that NFC may change it.
// ASCII passes eight bytes at a time.
func IsNFC(text []byte) bool {
	return normalUntil(text, 0) == len(text)
}

// NFC appends the Unicode 9 NFC form of text to dst, which must not overlap it. It
// takes time linear in text, however many marks stand in a row, and no memory beside
// dst. Broken bytes are copied.
func NFC(dst, text []byte) []byte {
	dst, _, _ = NFCWithin(dst, text, len(text))
	return dst
}

// NFCWithin is NFC for a caller whose time is limited: it rewrites at most so many bytes
// of text; those that are normal already cost next to nothing and are copied. It returns
// how many bytes it read, whose NFC form is the beginning of that of text, and how many
// of them it rewrote.
func NFCWithin(dst, text []byte, most int) (_ []byte, read, rewritten int) {
	for at := 0; ; {
		end := normalUntil(text, at)
		dst = append(dst, text[at:end]...)
		if end == len(text) {
			return dst, end, rewritten
		}
		limit := min(len(text), end+most-rewritten)
		for limit < len(text) && limit > end && !utf8.RuneStart(text[limit]) {
			limit--
		}
		if limit == end {
			return dst, end, rewritten
		}
		have := len(dst)
		dst, at = rewrite(dst, text[:limit], end)
		rewritten += at - end
		if at == limit && at < len(text) { // more marks may follow
			return dst[:have], end, rewritten
		}
	}
}

// Boundary returns the last place in text, not after at, where it may be cut: the NFC
// forms of the two parts are together that of the whole. 0 if there is none before.
// A caller that has time for so many bytes only normalises text[:Boundary(text, n)].
func Boundary(text []byte, at int) int {
	if at >= len(text) {
		return len(text)
	}
	for ; at > 0; at-- {
		if utf8.RuneStart(text[at]) {
			if code, _ := propertyAt(text, at); code == inert {
				return at
			}
		}
	}
	return 0
}

// normalUntil returns the end of what is surely normal from at on, cut before a
// starter that nothing before it can change.
func normalUntil(text []byte, at int) int {
	boundary, last := at, uint8(inert)
	for at < len(text) {
		for len(text)-at >= 8 && binary.LittleEndian.Uint64(text[at:])&0x8080808080808080 == 0 {
			at += 8
			boundary, last = at-1, inert
		}
		if at >= len(text) {
			break
		}
		if text[at] < utf8.RuneSelf {
			boundary, last = at, inert
			at++
			continue
		}
		code, size := propertyAt(text, at)
		switch {
		case code == inert:
			boundary, last = at, inert
		case code < nonstarters, (code-nonstarters)%3 != 0, code < last:
			return boundary
		default:
			last = code
		}
		at += size
	}
	return len(text)
}

// baseRoom is kept free before the marks of a sequence: what their base becomes is
// known only after all of them were seen.
const baseRoom = utf8.UTFMax

// sequence is a starter and the marks after it, on its way into dst.
type sequence struct {
	dst    []byte
	base   rune  // -1 before the first starter
	marks  int   // dst[marks:] holds the marks
	last   uint8 // class of the last one
	sorted bool
	// The marks can be read again from the skip-th code point on that text[from:]
	// decomposes to.
	from, skip int
}

// rewrite appends the NFC form of text from at, a boundary, up to the next one, and
// returns where that is.
func rewrite(dst, text []byte, at int) ([]byte, int) {
	var s sequence
	s.begin(dst, -1, at, 0)
	var parts [longestMapping]rune
	next := at
	for next < len(text) {
		r, size := utf8.DecodeRune(text[next:])
		code := property(r)
		if code == inert && next > at {
			break
		}
		if r == utf8.RuneError && size == 1 {
			// Nothing composes with a broken byte. It can only stand first, so
			// nothing waits either.
			s.dst = append(s.dst[:s.marks-baseRoom], text[next])
			s.begin(s.dst, -1, next+1, 0)
			next++
			continue
		}
		for k, part := range parts[:decompose(&parts, r, code)] {
			if class := classOf(property(part)); class != 0 {
				s.sorted = s.sorted && class >= s.last
				s.last = class
				s.dst = utf8.AppendRune(s.dst, part)
				continue
			}
			s.composeMarks(text)
			if whole, ok := compose(s.base, part); ok && len(s.dst) == s.marks {
				s.base, s.from, s.skip = whole, next, k+1
				s.last, s.sorted = 0, true
				continue
			}
			s.begin(s.end(), part, next, k+1)
		}
		next += size
	}
	s.composeMarks(text)
	return s.end(), next
}

func (s *sequence) begin(dst []byte, base rune, from, skip int) {
	dst = append(dst, make([]byte, baseRoom)...)
	*s = sequence{dst: dst, base: base, marks: len(dst), sorted: true, from: from, skip: skip}
}

// composeMarks puts the marks in order and into the base where they fit.
func (s *sequence) composeMarks(text []byte) {
	if len(s.dst) == s.marks {
		return
	}
	if !s.sorted {
		s.sort(text)
	}
	kept, last := s.marks, uint8(0)
	for at := s.marks; at < len(s.dst); {
		mark, size := utf8.DecodeRune(s.dst[at:])
		class := classOf(property(mark))
		// A mark of the class of one before it is blocked by that one.
		if last < class {
			if whole, ok := compose(s.base, mark); ok {
				s.base = whole
				at += size
				continue
			}
		}
		last = class
		kept += copy(s.dst[kept:], s.dst[at:at+size])
		at += size
	}
	s.dst = s.dst[:kept]
}

// sort orders the marks by class, those of one class as they stood: a counting sort
// that reads them again from text.
func (s *sequence) sort(text []byte) {
	var place [(nfcCodes-nonstarters)/3 + 1]int
	for at := s.marks; at < len(s.dst); {
		mark, size := utf8.DecodeRune(s.dst[at:])
		place[classOf(property(mark))] += size
		at += size
	}
	next := s.marks
	for class, size := range place {
		place[class] = next
		next += size
	}
	var parts [longestMapping]rune
	skip := s.skip
	for at, left := s.from, len(s.dst)-s.marks; left > 0; {
		r, size := utf8.DecodeRune(text[at:])
		at += size
		for _, mark := range parts[:decompose(&parts, r, property(r))] {
			if skip > 0 {
				skip--
				continue
			}
			class := classOf(property(mark))
			n := utf8.EncodeRune(s.dst[place[class]:place[class]+utf8.RuneLen(mark)], mark)
			place[class] += n
			left -= n
		}
	}
}

// end closes the gap between the base and its marks.
func (s *sequence) end() []byte {
	at := s.marks - baseRoom
	if s.base >= 0 {
		at += utf8.EncodeRune(s.dst[at:s.marks], s.base)
	}
	return append(s.dst[:at], s.dst[s.marks:]...)
}
