package pretoken

import "github.com/warmpath/warmpath/tokenizer/ucd"

// gpt2 finds the end of the piece at text[at] by
//
//	's|'t|'re|'ve|'m|'ll|'d
//	 ?\p{L}+
//	 ?\p{N}+
//	 ?[^\s\p{L}\p{N}]+
//	\s+(?!\S)
//	\s+
//
// With singleDigits each number was cut out before, so the pattern sees the text
// between two of them as if it were all there is.
func gpt2(text []byte, at int, v variant) int {
	first := text[at]
	if first == '\'' {
		// The pattern's letters are lower case.
		if end := contraction(text, at); end > at && allLower(text[at+1:end]) {
			return end
		}
	}
	class, size := classAt(text, at)
	next := at + size
	if first == ' ' && next < len(text) {
		if second, more := classAt(text, next); second != ucd.Space && (second != ucd.Number || v&singleDigits == 0) {
			class = second
			next += more
		}
	}
	switch {
	case class&ucd.Letter != 0:
		return run(text, next, ucd.Letter)
	case class == ucd.Number && v&singleDigits != 0:
		return next
	case class == ucd.Number:
		return run(text, next, ucd.Number)
	case class != ucd.Space:
		return runOutside(text, next, ucd.Letter|ucd.Number|ucd.Space)
	}
	end, last := next, at
	class = 0
	for end < len(text) {
		class, size = classAt(text, end)
		if class != ucd.Space {
			break
		}
		last = end
		end += size
	}
	// At the end of what the pattern sees no character is left to what follows.
	if end == len(text) || last == at || class == ucd.Number && v&singleDigits != 0 {
		return end
	}
	return last
}

func allLower(text []byte) bool {
	for _, b := range text {
		if b < 'a' || b > 'z' {
			return false
		}
	}
	return true
}
