package bpe

import (
	"unicode/utf8"

	"github.com/warmpath/warmpath/tokenizer/ucd"
)

// aheadBytes beyond the end of a piece are more than any rule looks at, but for white space,
// which normalization leaves white space.
const aheadBytes = 64

// normalized returns the NFC form of a part; normal tells that this is the part itself. What is
// rewritten costs a unit a byte, and half of the budget is left for tokenising it. Where that
// is not enough for all of it, whole is false and the form ends where a piece does, whatever
// would follow.
func (e *Encoder) normalized(text []byte) (_ []byte, normal, whole bool) {
	reach := len(text) // no text beyond it can be paid for
	if e.left < reach {
		reach = min(reach, e.left*memoUnits+aheadBytes)
	}
	if ucd.IsNFC(text[:reach]) {
		return text, true, true
	}
	reach = ucd.Boundary(text, reach)
	var read, rewritten int
	e.normal, read, rewritten = ucd.NFCWithin(e.normal[:0], text[:reach], e.left/2)
	e.left -= rewritten
	if read == len(text) {
		return e.normal, false, true
	}
	if len(e.plain.list) > 0 {
		return nil, false, false // an added token could stand across the end
	}
	return e.normal[:lastEnd(e.normal)], false, false
}

// lastEnd returns the last place in the beginning of a text that is the end of a piece in all
// kinds of pretoken, 0 if there is none. It is at
//
//	no white space | space      a space is taken along by what follows, never by what stands before
//	letter | newline            only white space and punctuation take newlines along
//	letter | number             no piece has both
//	letter | 。                 punctuation beyond ASCII: no word takes it along that stands before
func lastEnd(text []byte) int {
	for end := len(text) - 1; end > 0; end-- {
		if c := text[end]; c > ' ' && c < '0' || c > '9' && c < utf8.RuneSelf || !utf8.RuneStart(c) {
			continue
		}
		here, _ := ucd.ClassAt(text, end)
		before, _ := utf8.DecodeLastRune(text[:end])
		switch class := ucd.Of(before); {
		case text[end] == ' ':
			if class&ucd.Space == 0 {
				return end
			}
		case class&ucd.Letter != 0 && (text[end] == '\n' || here&(ucd.Number|ucd.Punct|ucd.Symbol) != 0):
			return end
		}
	}
	return 0
}
