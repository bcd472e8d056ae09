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
	cut := v&singleDigits != 0
	class, size := classAt(text, at)
	next := at + size
	if cut && isDigit(text, at, class) {
		return next
	}
	if first == ' ' && next < len(text) {
		second, more := classAt(text, next)
		if second != ucd.Space && !(cut && isDigit(text, next, second)) {
			class = second
			next += more
		}
	}
	switch {
	case class&ucd.Letter != 0:
		return run(text, next, ucd.Letter)
	case class == ucd.Number:
		return run(text, next, ucd.Number)
	case class != ucd.Space:
		end := runOutside(text, next, ucd.Letter|ucd.Number|ucd.Space)
		if cut {
			return next + untilNewDigit(text[next:end])
		}
		return end
	}
	end, last := next, at
	for end < len(text) {
		class, size = classAt(text, end)
		if class != ucd.Space {
			break
		}
		last = end
		end += size
	}
	// At the end of what the pattern sees no character is left to what follows.
	if end == len(text) || last == at || cut && isDigit(text, end, class) {
		return end
	}
	return last
}

// The digits that Unicode 17 added. Hugging Face's Digits asks Rust's standard
// library, which has them, while the patterns' engine has Unicode 16.
const (
	tolongSikiDigits = "\xF0\x91\xB7" // U+11DE0 to U+11DE9: then A0 to A9
	tangutNumbers    = "\xF0\x96\xBF" // U+16FF4 to U+16FF6: then B4 to B6
)

// isDigit reports whether Digits cuts out the code point of that class at text[at].
func isDigit(text []byte, at int, class ucd.Class) bool {
	if class != 0 || text[at] != 0xF0 || len(text)-at < 4 {
		return class == ucd.Number
	}
	last := text[at+3]
	switch string(text[at : at+3]) {
	case tolongSikiDigits:
		return last >= 0xA0 && last <= 0xA9
	case tangutNumbers:
		return last >= 0xB4 && last <= 0xB6
	}
	return false
}

// untilNewDigit returns where in text, which has no \p{N}, such a digit stands.
func untilNewDigit(text []byte) int {
	for i, b := range text {
		if b == 0xF0 && isDigit(text, i, 0) {
			return i
		}
	}
	return len(text)
}

func allLower(text []byte) bool {
	for _, b := range text {
		if b < 'a' || b > 'z' {
			return false
		}
	}
	return true
}
