package pretoken

import "github.com/warmpath/warmpath/tokenizer/ucd"

// cl100k finds the end of the piece at text[at] by
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
// Of these, at most one can match at a letter, a number or a line end; elsewhere the
// next code point decides.
func cl100k(text []byte, at int, v variant) int {
	letter := ucd.Letter
	if v&marks != 0 {
		letter |= ucd.Mark
	}
	class, size := classAt(text, at)
	next := at + size
	if class&letter != 0 {
		return run(text, next, letter)
	}
	if class == ucd.Number {
		if v&singleDigits != 0 {
			return next
		}
		return upTo3Numbers(text, next)
	}
	first := text[at]
	if first == '\'' {
		if end := contraction(text, at); end > at {
			return end
		}
	}
	if next < len(text) && !isLineEnd(first) {
		second, size := classAt(text, next)
		if second&letter != 0 {
			return run(text, next+size, letter)
		}
		if first == ' ' && second&(ucd.Space|ucd.Number) == 0 {
			return lineEnds(text, runOutside(text, next+size, letter|ucd.Number|ucd.Space))
		}
	}
	if class != ucd.Space {
		return lineEnds(text, runOutside(text, next, letter|ucd.Number|ucd.Space))
	}
	if v&tail != 0 {
		if end := run(text, next, ucd.Space); end == len(text) {
			return end
		}
	}
	return spaces(text, at)
}
