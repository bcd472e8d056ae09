package jsontext

import (
	"encoding/binary"
	"math/bits"
	"slices"
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
	s := b[i:]
	for {
		for len(s) >= 16 {
			x, y := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
			if (x|y)&highBits != 0 && strayLanes(x)|strayLanes(y) != 0 {
				flags |= flagStray
			}
			m, n := specialLanes(x), specialLanes(y)
			if m|n == 0 {
				s = s[16:]
				continue
			}
			s = s[first(m, n):]
			if s[0] != '\\' || len(s) < 2 || shortEscapes[s[1]] == 0 {
				break
			}
			flags |= flagEsc
			s = s[2:]
		}
		if len(s) == 0 {
			return -1, 0
		}
		switch c := s[0]; {
		case c == '"':
			return len(b) - len(s), flags
		case c == '\\':
			n := escapeBytes(s)
			if n == 0 {
				return -1, 0
			}
			flags |= flagEsc
			s = s[n:]
		case c < 0x20:
			return -1, 0
		default: // fewer than sixteen bytes are left
			if c >= 0xF8 {
				flags |= flagStray
			}
			s = s[1:]
		}
	}
}

// first returns which of sixteen bytes is the first whose lane is set in m, or
// in n for the second eight.
func first(m, n uint64) int {
	if m != 0 {
		return bits.TrailingZeros64(m) >> 3
	}
	return 8 + bits.TrailingZeros64(n)>>3
}

// escapeBytes returns the length of the escape that b begins with, 0 if it is none.
func escapeBytes(b []byte) int {
	switch {
	case len(b) < 2:
	case shortEscapes[b[1]] != 0:
		return 2
	case b[1] == 'u' && len(b) >= 6 && hex4(b[2:6]) >= 0:
		return 6
	}
	return 0
}

// hexDigits maps a hex digit to its value and all else to -1.
var hexDigits = func() (t [256]int8) {
	for c := range t {
		switch {
		case c >= '0' && c <= '9':
			t[c] = int8(c - '0')
		case c >= 'a' && c <= 'f':
			t[c] = int8(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			t[c] = int8(c - 'A' + 10)
		default:
			t[c] = -1
		}
	}
	return t
}()

// hex4 returns the value of four hex digits, or less than 0.
func hex4(b []byte) rune {
	_ = b[3]
	return rune(hexDigits[b[0]])<<12 | rune(hexDigits[b[1]])<<8 | rune(hexDigits[b[2]])<<4 | rune(hexDigits[b[3]])
}

// unescape decodes the valid escape that begins at s[0] into dst (at least
// utf8.UTFMax bytes). It returns how many bytes of s it took and how many of
// dst it filled. Surrogate pairs are joined; half of one becomes U+FFFD.
func unescape(dst, s []byte) (taken, filled int) {
	if c := shortEscapes[s[1]]; c != 0 {
		dst[0] = c
		return 2, 1
	}
	r, taken := hex4(s[2:]), 6
	if r >= 0x800 && r < 0xD800 { // most scripts that need escapes
		dst[0], dst[1], dst[2] = 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F
		return 6, 3
	}
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
}

// shortEscapes maps the second byte of an escape to what it stands for; 0 for
// the u of longer ones.
var shortEscapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// DecodeRoom is the room that Decode wants to have left in dst.
const DecodeRoom = 16

// Decode decodes the valid string body src into dst, until src ends or dst has
// less than DecodeRoom bytes left. It returns how many bytes of src it took
// and how many of dst it filled. It may write beyond those.
func Decode(dst, src []byte) (taken, filled int) {
	taken, filled, _ = decode(dst, src, 0)
	return taken, filled
}

// AppendDecoded appends the decoded form of the valid string body s.
func AppendDecoded(dst, s []byte) []byte {
	n := len(dst)
	dst = slices.Grow(dst, len(s)+DecodeRoom)
	_, filled := Decode(dst[n:cap(dst)], s)
	return dst[:n+filled]
}

// AppendText is AppendDecoded for a string that has to be Unicode text. It
// answers false, and appends nothing, where s holds bytes that are no UTF-8, or
// half of a surrogate pair, which Python keeps and fails at when text is made
// of it.
func AppendText(dst, s []byte) ([]byte, bool) {
	n := len(dst)
	dst = slices.Grow(dst, len(s)+DecodeRoom)
	_, filled, ok := decode(dst[n:cap(dst)], s, highBits)
	if !ok {
		filled = 0
	}
	return dst[:n+filled], ok
}

// decode is Decode with inspect = 0. With inspect = highBits it looks at all
// that is not ASCII, and ends with false at what is no text.
func decode(dst, src []byte, inspect uint64) (taken, filled int, ok bool) {
	s, d, ok := src, dst, true
	for {
		for len(s) >= 16 && len(d) >= DecodeRoom {
			x, y := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
			binary.LittleEndian.PutUint64(d, x)
			binary.LittleEndian.PutUint64(d[8:], y)
			m, n := escLanes(x)|x&inspect, escLanes(y)|y&inspect
			if m|n == 0 {
				s, d = s[16:], d[16:]
				continue
			}
			k := first(m, n)
			s, d = s[k:], d[k:]
			if s[0] != '\\' || shortEscapes[s[1]] == 0 {
				break
			}
			d[0] = shortEscapes[s[1]]
			s, d = s[2:], d[1:]
		}
		if len(s) == 0 || len(d) < DecodeRoom {
			break
		}
		taken, filled := 1, 1
		switch {
		case s[0] == '\\':
			if taken, filled = unescape(d, s); inspect != 0 && taken == 6 && utf16.IsSurrogate(hex4(s[2:])) {
				ok = false
			}
		case s[0] < utf8.RuneSelf || inspect == 0:
			d[0] = s[0]
		default:
			taken = characters(s)
			filled = copy(d, s[:taken])
			ok = taken > 0
		}
		if !ok {
			break
		}
		s, d = s[taken:], d[filled:]
	}
	return len(src) - len(s), len(dst) - len(d), ok
}

// escLanes has the high bit of every lane set that holds a backslash; lanes
// above the first one may be set wrongly.
func escLanes(x uint64) uint64 {
	esc := x ^ '\\'*lanes
	return (esc - lanes) &^ esc & highBits
}

// IsText tells whether s is UTF-8.
func IsText(s []byte) bool {
	for len(s) >= 8 {
		high := binary.LittleEndian.Uint64(s) & highBits
		if high == 0 {
			s = s[8:]
			continue
		}
		s = s[bits.TrailingZeros64(high)>>3:]
		n := characters(s)
		if n == 0 {
			return false
		}
		s = s[n:]
	}
	return utf8.Valid(s)
}

// characters returns the length of the characters beyond ASCII that s begins with; at what is no
// character they end.
func characters(s []byte) int {
	rest := s
	for len(rest) > 0 && rest[0] >= utf8.RuneSelf {
		n := 0
		if len(rest) >= 4 { // most of them have two or three bytes
			switch x := binary.LittleEndian.Uint32(rest); {
			case x&0xC0C0F0 == 0x8080E0 && byte(x) != 0xE0 && byte(x) != 0xED:
				n = 3
			case x&0xC0E0 == 0x80C0 && byte(x) >= 0xC2:
				n = 2
			}
		}
		if n == 0 {
			var c rune
			if c, n = utf8.DecodeRune(rest); c == utf8.RuneError && n != 3 {
				break
			}
		}
		rest = rest[n:]
	}
	return len(s) - len(rest)
}

// unescapeName decodes a name into scratch. One that does not fit is none that
// anybody asks for, and comes back empty.
func unescapeName(scratch *nameText, s []byte) []byte {
	n := 0
	for i := 0; i < len(s); {
		if n > MaxName {
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
	if n > MaxName {
		return nil
	}
	return scratch[:n]
}
