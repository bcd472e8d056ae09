package jsontext

import (
	"bytes"
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
	for {
		var stray uint64
		rest := b[i:]
		for len(rest) >= 8 {
			x := binary.LittleEndian.Uint64(rest)
			if x&highBits != 0 {
				stray |= strayLanes(x)
			}
			if m := specialLanes(x); m != 0 {
				rest = rest[bits.TrailingZeros64(m)>>3:]
				break
			}
			rest = rest[8:]
		}
		i = len(b) - len(rest)
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
		// Escapes often follow one another: stay here until something else comes.
		for {
			if i >= len(b) || b[i] < 0x20 {
				return -1, 0
			}
			if b[i] == '"' {
				return i, flags
			}
			if b[i] != '\\' {
				break
			}
			flags |= flagEsc
			switch {
			case i+1 >= len(b):
				return -1, 0
			case shortEscapes[b[i+1]] != 0:
				i += 2
			case b[i+1] == 'u' && i+6 <= len(b) && hex4(b[i+2:i+6]) >= 0:
				i += 6
			default:
				return -1, 0
			}
		}
	}
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
	s, d := src, dst
	for len(d) >= DecodeRoom && len(s) > 0 {
		if len(s) >= 8 {
			x := binary.LittleEndian.Uint64(s)
			binary.LittleEndian.PutUint64(d, x)
			esc := x ^ '\\'*lanes
			m := (esc - lanes) &^ esc & highBits
			if m == 0 {
				s, d = s[8:], d[8:]
				continue
			}
			k := bits.TrailingZeros64(m) >> 3
			s, d = s[k:], d[k:]
		} else if s[0] != '\\' {
			d[0] = s[0]
			s, d = s[1:], d[1:]
			continue
		}
		for len(s) > 0 && s[0] == '\\' && len(d) >= DecodeRoom {
			if c := shortEscapes[s[1]]; c != 0 {
				d[0] = c
				s, d = s[2:], d[1:]
				continue
			}
			t, f := unescape(d, s)
			s, d = s[t:], d[f:]
		}
	}
	return len(src) - len(s), len(dst) - len(d)
}

// AppendDecoded appends the decoded form of the valid string body s.
func AppendDecoded(dst, s []byte) []byte {
	n := len(dst)
	dst = slices.Grow(dst, len(s)+DecodeRoom)
	_, filled := Decode(dst[n:cap(dst)], s)
	return dst[:n+filled]
}

// HasLoneSurrogate tells whether the valid string body s holds half of a
// surrogate pair. Such a string is no Unicode text: Decode and AppendDecoded
// put U+FFFD there, Python keeps it and fails when text is made of it.
func HasLoneSurrogate(s []byte) bool {
	for i := 0; i < len(s); {
		k := bytes.IndexByte(s[i:], '\\')
		if k < 0 {
			return false
		}
		i += k
		if s[i+1] != 'u' {
			i += 2
			continue
		}
		r := hex4(s[i+2:])
		i += 6
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' || utf16.DecodeRune(r, hex4(s[i+2:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
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
