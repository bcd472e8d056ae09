package body

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// What the next byte that is not space may be.
const (
	wantKeyOrEnd   = iota // just after {
	wantKey               // after a comma in an object
	wantValueOrEnd        // just after [
	wantValue             // after a colon, or a comma in an array
	wantCommaOrEnd        // after a value
)

// Scan reads the request in b as one of endpoint ep into req, whose earlier
// content is lost. b must stay as it is until Render has been called.
//
// The whole of b is checked (RFC 8259, at most MaxDepth levels; like
// encoding/json, bytes in strings need not be UTF-8). If that fails no field
// of req is set: half a body gives no half answer. With NoPromptField the small
// fields are set and there is nothing to render.
func Scan(b []byte, ep Endpoint, req *Request) Reason {
	req.reset(b, ep)
	if reason := req.scan(); reason != OK {
		req.reset(nil, ep)
		return reason
	}
	req.readSmall()
	if !req.hasPrompt() {
		return NoPromptField
	}
	return OK
}

// hasPrompt tells whether the endpoint's prompt field is there.
func (req *Request) hasPrompt() bool {
	switch req.Endpoint {
	case ChatCompletions, Messages:
		return req.present(fieldMessages)
	case Completions:
		return req.present(fieldPrompt)
	case Responses:
		return req.present(fieldInput)
	case Embeddings:
		return req.present(fieldInput) || req.present(fieldMessages)
	}
	return false
}

func (req *Request) scan() Reason {
	b := req.body
	if len(b) > maxBodyBytes {
		return OverCap
	}
	i := skipSpace(b, 0)
	if i >= len(b) {
		return BadJSON
	}
	if b[i] != '{' {
		return NotObject
	}
	i++
	var (
		isObject [MaxDepth / 64]uint64 // one bit per level
		depth    = 1
		state    = wantKeyOrEnd
		top      field // the top-level field we are in
	)
	isObject[0] = 1 << 1 // levels count from 1
	for depth > 0 {
		if i = skipSpace(b, i); i >= len(b) {
			return BadJSON
		}
		c := b[i]
		switch state {
		case wantKeyOrEnd, wantKey:
			if c == '}' && state == wantKeyOrEnd {
				state = wantCommaOrEnd
				continue // closed there
			}
			if c != '"' {
				return BadJSON
			}
			end, flags := scanString(b, i+1)
			if end < 0 {
				return BadJSON
			}
			req.noteString(i+1, end, flags, top)
			if depth == 1 {
				top = topField(b[i+1:end], flags)
			}
			if i = skipSpace(b, end+1); i >= len(b) || b[i] != ':' {
				return BadJSON
			}
			if i = skipSpace(b, i+1); i >= len(b) {
				return BadJSON
			}
			if depth == 1 {
				req.spans[top].start = i
			}
			state = wantValue

		case wantValue, wantValueOrEnd:
			next := wantCommaOrEnd
			switch {
			case c == '"':
				end, flags := scanString(b, i+1)
				if end < 0 {
					return BadJSON
				}
				req.noteString(i+1, end, flags, top)
				i = end + 1
			case c == '{' || c == '[':
				if depth == MaxDepth-1 {
					return TooDeep
				}
				depth++
				bit := uint64(1) << (depth & 63)
				if c == '{' {
					isObject[depth>>6] |= bit
					next = wantKeyOrEnd
				} else {
					isObject[depth>>6] &^= bit
					next = wantValueOrEnd
				}
				i++
			case c == ']' && state == wantValueOrEnd:
				// closed below
			case c == '-' || c >= '0' && c <= '9':
				if i = scanNumber(b, i); i < 0 {
					return BadJSON
				}
				if isObject[depth>>6]>>(depth&63)&1 == 0 {
					i = scanIDs(b, i)
				}
			default:
				if i = scanLiteral(b, i); i < 0 {
					return BadJSON
				}
			}
			state = next
			if depth == 1 {
				req.spans[top].end = i
			}

		case wantCommaOrEnd:
			object := isObject[depth>>6]>>(depth&63)&1 != 0
			switch {
			case c == ',' && object:
				state = wantKey
			case c == ',':
				state = wantValue
			case c == '}' && object, c == ']' && !object:
				if depth--; depth == 1 {
					req.spans[top].end = i + 1
				}
			default:
				return BadJSON
			}
			i++
		}
	}
	if skipSpace(b, i) < len(b) {
		return BadJSON
	}
	return OK
}

// noteString remembers where a long string of the prompt ends.
func (req *Request) noteString(start, end, flags int, top field) {
	if flags&flagStray != 0 {
		req.stray = true
	}
	if end-start < longStringBytes || top < fieldMessages || req.numLong == maxLongStrings {
		return
	}
	l := longString{uint32(start), uint32(end)}
	if flags&flagEsc != 0 {
		l.end |= longStringEsc
	}
	req.longs[req.numLong] = l
	req.numLong++
}

// topField classifies a top-level name as an engine would: after decoding.
func topField(name []byte, flags int) field {
	if flags&flagEsc != 0 {
		var scratch [maxKeyBytes + utf8.UTFMax]byte
		return fieldOf(unescapeKey(&scratch, name))
	}
	return fieldOf(name)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// nextQuoteOrEsc returns the index of the first quote or backslash at or after
// i, or gives up after about limit bytes and returns where it is.
func nextQuoteOrEsc(b []byte, i, limit int) int {
	for stop := i + limit; i+8 <= len(b); i += 8 {
		if m := quoteOrEscLanes(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		if i >= stop {
			return i
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// scanNumber returns the index after the number at i, or -1.
func scanNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		if i = scanDigits(b, i); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i] == '.' {
		if i = scanDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return scanDigits(b, i)
	}
	return i
}

// scanIDs goes on from the end of a number in a list for as long as a comma
// and a plain whole number follow. Lists of token ids are long and nothing
// else, so they get a loop of their own. It returns the end of the last number
// it took; whatever comes next is checked as usual.
func scanIDs(b []byte, i int) int {
	for i < len(b) && b[i] == ',' {
		j := i + 1
		if j < len(b) && b[j] == ' ' {
			j++
		}
		from := j
		for j < len(b) && b[j]-'0' <= 9 {
			j++
		}
		if j == from || b[from] == '0' || j == len(b) || b[j] != ',' && b[j] != ']' {
			return i
		}
		i = j
	}
	return i
}

// scanDigits returns the index after one or more digits, or -1.
func scanDigits(b []byte, i int) int {
	from := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == from {
		return -1
	}
	return i
}

// scanLiteral returns the index after true, false or null at i, or -1.
func scanLiteral(b []byte, i int) int {
	switch rest := b[i:]; {
	case len(rest) >= 4 && string(rest[:4]) == "true", len(rest) >= 4 && string(rest[:4]) == "null":
		return i + 4
	case len(rest) >= 5 && string(rest[:5]) == "false":
		return i + 5
	}
	return -1
}
