package dialect

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A node is one JSON value within a body that valid has passed: its bytes
// without the space around them. Looking into it copies nothing and jumps over
// what is not asked for, which keeps a worker's cost per request far below that
// of a decoder that builds values.
type node []byte

type kind uint8

const (
	absent kind = iota
	null
	boolean
	number
	str
	list
	object
)

func (n node) kind() kind {
	if len(n) == 0 {
		return absent
	}
	switch n[0] {
	case '{':
		return object
	case '[':
		return list
	case '"':
		return str
	case 't', 'f':
		return boolean
	case 'n':
		return null
	}
	return number
}

func (n node) isTrue() bool { return len(n) > 0 && n[0] == 't' }

// given reports whether the value is there and not null.
func (n node) given() bool { return n.kind() > null }

// fields calls f for each key of an object, in order, until it returns false.
// Keys are unescaped.
func (n node) fields(f func(key string, v node) bool) {
	if n.kind() != object {
		return
	}
	for at := skipSpace(n, 1); n[at] != '}'; {
		end := skipString(n, at)
		key := string(n[at:end].appendText(nil))
		at = skipSpace(n, skipSpace(n, end)+1) // the colon
		end = skipValue(n, at)
		if !f(key, n[at:end]) {
			return
		}
		at = skipComma(n, end)
	}
}

// items calls f for each value of a list until it returns false.
func (n node) items(f func(v node) bool) {
	if n.kind() != list {
		return
	}
	for at := skipSpace(n, 1); n[at] != ']'; {
		end := skipValue(n, at)
		if !f(n[at:end]) {
			return
		}
		at = skipComma(n, end)
	}
}

// isEmpty reports whether a list or object has nothing in it.
func (n node) isEmpty() bool {
	c := n[skipSpace(n, 1)]
	return c == ']' || c == '}'
}

// get returns the value of the last field with this key.
func (n node) get(key string) node {
	var found node
	n.fields(func(k string, v node) bool {
		if k == key {
			found = v
		}
		return true
	})
	return found
}

// plain returns the bytes of a string that has no escapes.
func (n node) plain() ([]byte, bool) {
	body := n[1 : len(n)-1]
	return body, bytes.IndexByte(body, '\\') < 0
}

// text returns a string's value, and "" for anything else.
func (n node) text() string {
	if n.kind() != str {
		return ""
	}
	return string(n.appendText(nil))
}

// appendText appends a string's value. Half a surrogate pair becomes U+FFFD.
func (n node) appendText(dst []byte) []byte {
	body := n[1 : len(n)-1]
	for at := 0; ; {
		end := bytes.IndexByte(body[at:], '\\')
		if end < 0 {
			return append(dst, body[at:]...)
		}
		end += at
		dst = append(dst, body[at:end]...)
		switch c := body[end+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(body[end+2:])
			end += 4
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if len(body) >= end+8 && body[end+2] == '\\' && body[end+3] == 'u' {
					low = hex4(body[end+4:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					end += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default: // " \ /
			dst = append(dst, c)
		}
		at = end + 2
	}
}

func hex4(b []byte) rune {
	v, err := strconv.ParseUint(string(b[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(v)
}

// float returns a number's value.
func (n node) float() float64 {
	v, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return -1 // out of range: no setting of ours can be that large
	}
	return v
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// indexSpecial finds the first quote, backslash or control character from at
// on, or len(b).
func indexSpecial(b []byte, at int) int {
	for ; at+8 <= len(b); at += 8 {
		w := binary.LittleEndian.Uint64(b[at:])
		quote, slash := w^(lows*'"'), w^(lows*'\\')
		found := ((quote-lows)&^quote | (slash-lows)&^slash | (w-lows*0x20)&^w) & highs
		if found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
	}
	for ; at < len(b); at++ {
		if c := b[at]; c == '"' || c == '\\' || c < 0x20 {
			return at
		}
	}
	return at
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\r' || b[at] == '\t') {
		at++
	}
	return at
}

func skipComma(b []byte, at int) int {
	at = skipSpace(b, at)
	if b[at] == ',' {
		at = skipSpace(b, at+1)
	}
	return at
}

// skipString returns the end of the string whose quote is at at.
func skipString(b []byte, at int) int {
	for at++; ; at++ {
		at += bytes.IndexByte(b[at:], '"')
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at + 1
		}
	}
}

// skipValue returns the end of the value that starts at at.
func skipValue(b []byte, at int) int {
	switch b[at] {
	case '"':
		return skipString(b, at)
	case '{', '[':
		for depth := 0; ; {
			switch b[at] {
			case '"':
				at = skipString(b, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
			at++
		}
	}
	for at < len(b) && b[at] != ',' && b[at] != '}' && b[at] != ']' && b[at] > ' ' {
		at++
	}
	return at
}
