package chat

import "unicode/utf8"

// isSpace tells whether Python's str.strip takes c for white space
// (str.isspace): Unicode's spaces and the separators among the controls.
func isSpace(c rune) bool {
	switch {
	case c < 0x80:
		return c >= '\t' && c <= '\r' || c >= 0x1C && c <= ' '
	case c < 0x1680:
		return c == 0x85 || c == 0xA0
	}
	return c == 0x1680 || c >= 0x2000 && c <= 0x200A || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000
}

func trimSpace(s []byte) []byte { return trimSpaceRight(trimSpaceLeft(s)) }

func trimSpaceLeft(s []byte) []byte {
	for len(s) > 0 {
		c, n := utf8.DecodeRune(s)
		if !isSpace(c) {
			break
		}
		s = s[n:]
	}
	return s
}

func trimSpaceRight(s []byte) []byte {
	for len(s) > 0 {
		c, n := utf8.DecodeLastRune(s)
		if !isSpace(c) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

// runeCount is Python's len of a text.
func runeCount(s []byte) int { return utf8.RuneCount(s) }
