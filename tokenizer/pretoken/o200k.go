package pretoken

import "github.com/warmpath/warmpath/tokenizer/ucd"

// o200k finds the end of the piece at text[at] by
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
// Tekken's has no contractions. A mark may be the optional first character or the
// start of the word itself; both ways match the same.
func o200k(text []byte, at int, v variant) int {
	first := text[at]
	class, next := ascii[first], at+1
	if class == wide {
		var size int
		class, size = ucd.ClassAt(text, at)
		next = at + size
	}
	if class&(ucd.Letter|ucd.Mark) != 0 {
		return casedWord(text, at, v)
	}
	if class == ucd.Number {
		if v&singleDigits != 0 {
			return next
		}
		return upTo3Numbers(text, next)
	}
	if next < len(text) && !isLineEnd(first) {
		second, size := ascii[text[next]], 1
		if second == wide {
			second, size = ucd.ClassAt(text, next)
		}
		if second&(ucd.Letter|ucd.Mark) != 0 {
			return casedWord(text, next, v)
		}
		if first == ' ' && second&(ucd.Space|ucd.Number) == 0 {
			class = second
			next += size
		}
	}
	if class != ucd.Space {
		end := asciiSymbols(text, next)
		if end < len(text) && text[end] >= 0x80 {
			end = runOutside(text, end, ucd.Letter|ucd.Number|ucd.Space)
		}
		return lineEndsAndSlashes(text, end)
	}
	return spaces(text, at)
}

// casedWord returns the end of the word at text[at], a letter or mark: the first two
// alternatives without their optional first character.
//
// The first alternative takes upper case as far as it goes and then wants lower case.
// Where none follows, it gives back until the last character that counts as both
// (other letters and marks), so the word ends after that one. Where there is none
// either, the second alternative takes the upper case alone.
func casedWord(text []byte, at int, v variant) int {
	const both = ucd.OtherLetter | ucd.Mark
	end, lastBoth := at, at
	for end < len(text) {
		class, size := ascii[text[end]], 1
		if class == wide {
			class, size = ucd.ClassAt(text, end)
		}
		if class&(ucd.Upper|both) == 0 {
			if class == ucd.Lower {
				end = run(text, end+size, ucd.Lower|both)
				lastBoth = at
			}
			break
		}
		end += size
		if class != ucd.Upper {
			lastBoth = end
		}
	}
	if lastBoth > at {
		end = lastBoth
	}
	if v&contractions != 0 && end < len(text) && text[end] == '\'' {
		return contraction(text, end)
	}
	return end
}

// lineEndsAndSlashes returns the end of [\r\n/]* at text[at].
func lineEndsAndSlashes(text []byte, at int) int {
	for at < len(text) && (isLineEnd(text[at]) || text[at] == '/') {
		at++
	}
	return at
}
