// Package utf8text makes valid UTF-8 of any bytes, as engines do before they
// tokenise: every maximal part of a sequence that can't be continued becomes one
// U+FFFD (Unicode 16, section 3.9, "U+FFFD Substitution of Maximal Subparts";
// bytes.decode("utf-8", errors="replace") in Python). Go's own conversions put
// one U+FFFD per byte, which would be other tokens.
package utf8text

import "unicode/utf8"

const replacement = "\uFFFD"

// Replaced returns text with what is no UTF-8 replaced. Valid text is returned
// as it is, without a copy.
func Replaced(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/4+8)
	for i := 0; i < len(text); {
		if r, size := utf8.DecodeRune(text[i:]); r != utf8.RuneError || size > 1 {
			out = append(out, text[i:i+size]...)
			i += size
			continue
		}
		out = append(out, replacement...)
		i += subpart(text[i:])
	}
	return out
}

// subpart returns the length of the longest prefix of text, which is no whole
// character, that could begin one: at least 1.
func subpart(text []byte) int {
	first := text[0]
	// The range of the second byte shuts out overlong forms, surrogates and what
	// lies beyond U+10FFFF (Unicode 16, table 3-7).
	low, high, want := byte(0x80), byte(0xBF), 0
	switch {
	case first < 0xC2 || first > 0xF4:
		return 1
	case first < 0xE0:
		want = 2
	case first < 0xF0:
		want = 3
	default:
		want = 4
	}
	switch first {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	n := 1
	for n < want && n < len(text) && text[n] >= low && text[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}
