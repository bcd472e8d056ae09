package jsontext

// What the next byte that is not space may be.
const (
	wantKeyOrEnd   = iota // just after {
	wantKey               // after a comma in an object
	wantValueOrEnd        // just after [
	wantValue             // after a colon, or a comma in an array
	wantCommaOrEnd        // after a value
)

// Scan takes text in the place of what the Doc held before.
//
// The whole of it is checked (RFC 8259, at most MaxDepth levels; like
// encoding/json, bytes in strings need not be UTF-8). If that fails the Doc is
// empty: half a text gives no half answer.
func (d *Doc) Scan(text []byte) Fault {
	d.Reset()
	d.text = text
	fault := d.scan()
	if fault != None {
		d.Reset()
	}
	return fault
}

func (d *Doc) scan() Fault {
	b := d.text
	if len(b) > MaxBytes {
		return TooLong
	}
	i := SkipSpace(b, 0)
	if i >= len(b) {
		return Invalid
	}
	if b[i] != '{' {
		return NotObject
	}
	i++
	var (
		isObject [MaxDepth / 64]uint64 // one bit per level
		depth    = 1
		state    = wantKeyOrEnd
		last     top  // of a top-level member that wasn't noted
		member   *top // the top-level member we are in
	)
	isObject[0] = 1 << 1 // levels count from 1
	for depth > 0 {
		if i = SkipSpace(b, i); i >= len(b) {
			return Invalid
		}
		c := b[i]
		switch state {
		case wantKeyOrEnd, wantKey:
			if c == '}' && state == wantKeyOrEnd {
				state = wantCommaOrEnd
				continue // closed there
			}
			if c != '"' {
				return Invalid
			}
			end, flags := scanString(b, i+1)
			if end < 0 {
				return Invalid
			}
			d.noteString(i+1, end, flags)
			if depth == 1 {
				member = &last
				if d.numTop < maxTops {
					member = &d.tops[d.numTop]
				}
				d.numTop++
				member.name, member.nameEnd = uint32(i+1), uint32(end)
				if flags&flagEsc != 0 {
					member.nameEnd |= escBit
				}
			}
			if i = SkipSpace(b, end+1); i >= len(b) || b[i] != ':' {
				return Invalid
			}
			if i = SkipSpace(b, i+1); i >= len(b) {
				return Invalid
			}
			if depth == 1 {
				member.value = uint32(i)
			}
			state = wantValue

		case wantValue, wantValueOrEnd:
			next := wantCommaOrEnd
			switch {
			case c == '"':
				end, flags := scanString(b, i+1)
				if end < 0 {
					return Invalid
				}
				d.noteString(i+1, end, flags)
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
					return Invalid
				}
				if isObject[depth>>6]>>(depth&63)&1 == 0 {
					i = scanIDs(b, i)
				}
			default:
				if i = scanLiteral(b, i); i < 0 {
					return Invalid
				}
			}
			state = next
			if depth == 1 {
				member.end = uint32(i)
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
					member.end = uint32(i + 1)
				}
			default:
				return Invalid
			}
			i++
		}
	}
	if SkipSpace(b, i) < len(b) {
		return Invalid
	}
	return None
}

// SkipSpace returns the index of the first byte at or after i that is not
// JSON's white space; len(b) if there is none.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
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
