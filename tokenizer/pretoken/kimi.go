package pretoken

import (
	"unicode/utf8"

	"github.com/warmpath/warmpath/tokenizer/ucd"
)

// kimi finds the end of the piece at text[at] by
//
//	[\p{Han}]+
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
// which is o200k with the Han script apart. Han has numbers, marks and symbols too;
// the later alternatives take those along where they don't stand first.
func kimi(text []byte, at int) int {
	first := text[at]
	class, next := ascii[first], at+1
	if class == wide {
		var size int
		class, size = ucd.ClassAt(text, at)
		next = at + size
		if isHan(text, at) {
			for next < len(text) && isHan(text, next) {
				_, size = ucd.ClassAt(text, next)
				next += size
			}
			return next
		}
	}
	if class&word != 0 {
		return casedWordBeforeHan(text, at)
	}
	if class == ucd.Number {
		return upTo3Numbers(text, next)
	}
	if next < len(text) && !isLineEnd(first) {
		second, size := classAt(text, next)
		if second&word != 0 && !isHan(text, next) {
			return casedWordBeforeHan(text, next)
		}
		if first == ' ' && second&(ucd.Space|ucd.Number|ucd.Letter) == 0 {
			class = second
			next += size
		}
	}
	if class != ucd.Space {
		return lineEnds(text, runOutside(text, next, ucd.Letter|ucd.Number|ucd.Space))
	}
	return spaces(text, at)
}

// casedWordBeforeHan is casedWord, but a character of the Han script ends the word.
func casedWordBeforeHan(text []byte, at int) int {
	end, lastBoth := at, at
	lower := false
	for end < len(text) {
		class, size := classAt(text, end)
		if class&word == 0 || class == ucd.Upper && lower || isHan(text, end) {
			break
		}
		end += size
		switch {
		case class == ucd.Lower:
			lower = true
		case class != ucd.Upper && !lower:
			lastBoth = end
		}
	}
	if !lower && lastBoth > at {
		end = lastBoth
	}
	return contraction(text, end)
}

// han are the ranges of \p{Han} in Unicode 16.
var han = [...][2]rune{
	{0x4E00, 0x9FFF},
	{0x2E80, 0x2E99},
	{0x2E9B, 0x2EF3},
	{0x2F00, 0x2FD5},
	{0x3005, 0x3005},
	{0x3007, 0x3007},
	{0x3021, 0x3029},
	{0x3038, 0x303B},
	{0x3400, 0x4DBF},
	{0xF900, 0xFA6D},
	{0xFA70, 0xFAD9},
	{0x16FE2, 0x16FE3},
	{0x16FF0, 0x16FF1},
	{0x20000, 0x2A6DF},
	{0x2A700, 0x2B739},
	{0x2B740, 0x2B81D},
	{0x2B820, 0x2CEA1},
	{0x2CEB0, 0x2EBE0},
	{0x2EBF0, 0x2EE5D},
	{0x2F800, 0x2FA1D},
	{0x30000, 0x3134A},
	{0x31350, 0x323AF},
}

// isHan reports whether the code point at text[at] is of the Han script.
func isHan(text []byte, at int) bool {
	if text[at] < 0xE2 {
		return false
	}
	r, _ := utf8.DecodeRune(text[at:])
	for _, within := range han {
		if r >= within[0] && r <= within[1] {
			return true
		}
	}
	return false
}
