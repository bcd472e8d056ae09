package chat

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// dialect is whose JSON parser reads.
type dialect uint8

const (
	pythonJSON dialect = iota // json.loads: NaN and Infinity, whole numbers of any size
	orJSON                    // orjson.loads: as RFC 8259; beyond 64 bits a whole number becomes a float
	serdeJSON                 // json.loads, then serde_json, which writes floats its own way and no spaces
)

// maxIntDigits is the longest whole number that Python reads (sys.int_info).
const maxIntDigits = 4300

// str writes the string at i, which need not be valid.
func (d *dumper) str(i int) int {
	r, s := d.r, d.src
	r.lit(`"`)
	i++
	from := i
	high := byte(0)
	for {
		if i >= len(s) {
			d.invalid = true
			return i
		}
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			high |= c
			i++
			continue
		}
		if high >= 0x80 && !utf8.Valid(s[from:i]) {
			r.stop(BadText)
			return i
		}
		if d.ascii {
			r.out = appendASCII(r.out, s[from:i])
		} else {
			r.put(s[from:i])
		}
		if c == '"' {
			r.lit(`"`)
			return i + 1
		}
		if c < 0x20 {
			d.invalid = true
			return i
		}
		if i = d.escape(i); !d.ok() {
			return i
		}
		from, high = i, 0
	}
}

// escape writes what the escape at i stands for, escaped if JSON demands it.
func (d *dumper) escape(i int) int {
	s := d.src
	if i+1 >= len(s) {
		d.invalid = true
		return i
	}
	switch c := s[i+1]; c {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		d.r.out = append(d.r.out, '\\', c)
		return i + 2
	case '/':
		d.r.out = append(d.r.out, '/')
		return i + 2
	case 'u':
	default:
		d.invalid = true
		return i
	}
	u := hex4(s, i+2)
	if u < 0 {
		d.invalid = true
		return i
	}
	i += 6
	if u >= 0xD800 && u < 0xE000 {
		low := rune(-1)
		if i+1 < len(s) && s[i] == '\\' && s[i+1] == 'u' {
			low = hex4(s, i+2)
		}
		if u >= 0xDC00 || low < 0xDC00 || low >= 0xE000 {
			d.r.stop(BadText)
			return i
		}
		u = 0x10000 + (u-0xD800)<<10 + (low - 0xDC00)
		i += 6
	}
	if d.ascii && u >= 0x7F {
		d.r.out = appendUnicodeEscape(d.r.out, u)
	} else {
		d.r.out = appendEscaped(d.r.out, u)
	}
	return i
}

const hexDigits = "0123456789abcdef"

// appendASCII appends text, which needs no other escapes, with all that isn't
// ASCII escaped.
func appendASCII(dst, text []byte) []byte {
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text)
		if c < 0x7F {
			dst = append(dst, byte(c))
		} else {
			dst = appendUnicodeEscape(dst, c)
		}
		text = text[n:]
	}
	return dst
}

// appendUnicodeEscape appends c as one or two \u escapes.
func appendUnicodeEscape(dst []byte, c rune) []byte {
	if c >= 0x10000 {
		c -= 0x10000
		dst = appendUnicodeEscape(dst, 0xD800+c>>10)
		c = 0xDC00 + c&0x3FF
	}
	return append(dst, '\\', 'u', hexDigits[c>>12], hexDigits[c>>8&15], hexDigits[c>>4&15], hexDigits[c&15])
}

// hex4 returns the value of the four hex digits at i, or -1.
func hex4(s []byte, i int) rune {
	if i+4 > len(s) {
		return -1
	}
	v := rune(0)
	for _, c := range s[i : i+4] {
		switch {
		case c-'0' <= 9:
			v = v<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return v
}

// appendEscaped appends c as json.dumps writes it inside a string.
func appendEscaped(dst []byte, c rune) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', byte(c))
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	}
	if c < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return utf8.AppendRune(dst, c)
}

// appendJSONString appends text as json.dumps(text, ensure_ascii=False).
func appendJSONString(dst, text []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range text {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		dst = appendEscaped(dst, rune(c))
		from = i + 1
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

// number writes the number at i as Python does after reading it.
func (d *dumper) number(i int) int {
	s, from := d.src, i
	if s[i] == '-' {
		i++
	}
	digits := i
	for i < len(s) && s[i]-'0' <= 9 {
		i++
	}
	if i == digits || s[digits] == '0' && i > digits+1 {
		d.invalid = true
		return i
	}
	whole := i
	if i+1 < len(s) && s[i] == '.' && s[i+1]-'0' <= 9 {
		for i++; i < len(s) && s[i]-'0' <= 9; i++ {
		}
	}
	if i+1 < len(s) && s[i]|0x20 == 'e' {
		j := i + 1
		if s[j] == '+' || s[j] == '-' {
			j++
		}
		if j < len(s) && s[j]-'0' <= 9 {
			for i = j; i < len(s) && s[i]-'0' <= 9; i++ {
			}
		}
	}
	if i == whole {
		d.whole(s[from:i], s[digits:i])
		return i
	}
	d.float(s[from:i])
	return i
}

// whole writes a whole number, text with its sign and digits without.
func (d *dumper) whole(text, digits []byte) {
	r := d.r
	switch {
	case len(digits) == 1 && digits[0] == '0':
		r.lit("0") // also -0
	case d.dialect != pythonJSON && len(digits) >= 19 && !fits64(text):
		d.float(text)
	case len(digits) > maxIntDigits:
		r.stop(Refused)
	default:
		r.put(text)
	}
}

// fits64 tells whether a whole number fits int64 or uint64.
func fits64(text []byte) bool {
	limit := "18446744073709551615"
	if text[0] == '-' {
		text, limit = text[1:], "9223372036854775808"
	}
	return len(text) < len(limit) || len(text) == len(limit) && string(text) <= limit
}

func (d *dumper) float(text []byte) {
	f, err := strconv.ParseFloat(string(text), 64)
	if math.IsInf(f, 0) {
		if d.dialect != pythonJSON {
			d.invalid = true
			return
		}
		err = nil
	}
	if err != nil {
		d.invalid = true
		return
	}
	if d.dialect == serdeJSON {
		d.r.out = appendFloatRust(d.r.out, f)
		return
	}
	d.r.out = appendFloat(d.r.out, f)
}

// appendFloatRust appends a finite f as serde_json does: the same digits as
// Python's, in positional notation from 1e-5, exponents without padding.
func appendFloatRust(dst []byte, f float64) []byte {
	if a := math.Abs(f); a >= 1e-4 && a < 1e16 || a == 0 {
		return appendFloat(dst, f)
	} else if a >= 1e-5 && a < 1 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst) - 2; dst[n] == '0' && (dst[n-1] == '-' || dst[n-1] == '+') {
		dst = append(dst[:n], dst[n+1])
	}
	return dst
}

// appendFloat appends f as Python's repr does, and json.dumps with it: the
// shortest digits that read back as f, in positional notation from 1e-4 to
// below 1e16.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	if a := math.Abs(f); a == 0 || a >= 1e-4 && a < 1e16 {
		from := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
		if bytes.IndexByte(dst[from:], '.') < 0 {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 64) // two digits of exponent at least, as Python
}
