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
	first := text[at]
	class, next := ascii[first], at+1
	if class == wide {
		var size int
		class, size = ucd.ClassAt(text, at)
		next = at + size
	}
	if class&letter != 0 {
		return run(text, next, letter)
	}
	if class == ucd.Number {
		if v&singleDigits != 0 {
			return next
		}
		return upTo3Numbers(text, next)
	}
	if first == '\'' {
		if end := contraction(text, at); end > at {
			return end
		}
	}
	if next < len(text) && !isLineEnd(first) {
		second, size := ascii[text[next]], 1
		if second == wide {
			second, size = ucd.ClassAt(text, next)
		}
		if second&letter != 0 {
			end := asciiLetters(text, next+size)
			if end == len(text) || text[end] < 0x80 {
				return end
			}
			return run(text, end, letter)
		}
		if first == ' ' && second&(ucd.Space|ucd.Number) == 0 {
			class = second
			next += size
		}
	}
	if class != ucd.Space {
		end := asciiSymbols(text, next)
		if end < len(text) && text[end] >= 0x80 {
			end = runOutside(text, end, letter|ucd.Number|ucd.Space)
		}
		return lineEnds(text, end)
	}
	if v&tail != 0 {
		if end := run(text, next, ucd.Space); end == len(text) {
			return end
		}
	}
	return spaces(text, at)
}
