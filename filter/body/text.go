package body

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Eight bytes are examined at a time in one 64-bit word. The constants repeat
// a byte in each lane.
const (
	lanes     = 0x0101010101010101
	highBits  = 0x80 * lanes
	flagEsc   = 1 << 0 // the string holds at least one escape
	flagStray = 1 << 1 // a byte 0xF8..0xFF was seen
)

// specialLanes has the high bit of every lane set that holds a quote, a
// backslash or a control character. Lanes above the first such one may be set
// wrongly (borrows run upwards), the first never is.
//
// Flipping bit 1 moves the quote (0x22) to 0x20 and permutes the controls
// among themselves, while space becomes 0x22: one comparison finds both.
func specialLanes(x uint64) uint64 {
	q := x ^ 0x02*lanes
	s := x ^ '\\'*lanes
	return ((q-0x21*lanes)&^q | (s-lanes)&^s) & highBits
}

// quoteOrEscLanes is specialLanes for text already known to hold no control
// characters.
func quoteOrEscLanes(x uint64) uint64 {
	q := x ^ '"'*lanes
	s := x ^ '\\'*lanes
	return ((q-lanes)&^q | (s-lanes)&^s) & highBits
}

// strayLanes has the high bit of each lane set that holds 0xF8..0xFF.
func strayLanes(x uint64) uint64 {
	return x & (x << 1) & (x << 2) & (x << 3) & (x << 4) & highBits
}

// scanString validates a JSON string whose first byte after the opening quote
// is b[i]. It returns the index of the closing quote and flags, or -1.
func scanString(b []byte, i int) (end, flags int) {
	for {
		var stray uint64
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			if x&highBits != 0 {
				stray |= strayLanes(x)
			}
			if m := specialLanes(x); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if stray != 0 {
			flags |= flagStray
		}
		// Fewer than eight bytes are left, or b[i] is special.
		for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
			if b[i] >= 0xF8 {
				flags |= flagStray
			}
			i++
		}
		if i >= len(b) || b[i] < 0x20 {
			return -1, 0
		}
		if b[i] == '"' {
			return i, flags
		}
		flags |= flagEsc
		if i+1 >= len(b) {
			return -1, 0
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(b) || hex4(b[i+2:i+6]) < 0 {
				return -1, 0
			}
			i += 6
		default:
			return -1, 0
		}
	}
}

// hex4 returns the value of four hex digits, or -1.
func hex4(b []byte) rune {
	var v rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}

// unescape decodes the valid escape that begins at s[0] into dst (at least
// utf8.UTFMax bytes). It returns how many bytes of s it took and how many of
// dst it filled. Surrogate pairs are joined; half of one becomes U+FFFD.
func unescape(dst, s []byte) (taken, filled int) {
	switch c := s[1]; c {
	case 'b':
		dst[0] = '\b'
	case 'f':
		dst[0] = '\f'
	case 'n':
		dst[0] = '\n'
	case 'r':
		dst[0] = '\r'
	case 't':
		dst[0] = '\t'
	case 'u':
		r, taken := hex4(s[2:]), 6
		if utf16.IsSurrogate(r) {
			pair := rune(utf8.RuneError)
			if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
				pair = utf16.DecodeRune(r, hex4(s[8:]))
			}
			if r = pair; r != utf8.RuneError {
				taken = 12
			}
		}
		return taken, utf8.EncodeRune(dst, r)
	default: // quote, backslash, slash stand for themselves
		dst[0] = c
	}
	return 2, 1
}

// appendUnescaped appends the decoded form of a valid string body.
func appendUnescaped(dst, s []byte) []byte {
	var char [utf8.UTFMax]byte
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			i++
			continue
		}
		taken, filled := unescape(char[:], s[i:])
		dst = append(dst, char[:filled]...)
		i += taken
	}
	return dst
}

// maxKeyBytes is longer than any field name that means something here.
const maxKeyBytes = 32

// unescapeKey decodes a field name into scratch. A name that does not fit is
// none of ours, and comes back empty.
func unescapeKey(scratch *[maxKeyBytes + utf8.UTFMax]byte, s []byte) []byte {
	n := 0
	for i := 0; i < len(s); {
		if n > maxKeyBytes {
			return nil
		}
		if s[i] != '\\' {
			scratch[n] = s[i]
			n++
			i++
			continue
		}
		taken, filled := unescape(scratch[n:], s[i:])
		n += filled
		i += taken
	}
	if n > maxKeyBytes {
		return nil
	}
	return scratch[:n]
}
