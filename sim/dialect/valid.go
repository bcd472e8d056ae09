package dialect

// valid reports whether b is one JSON value, in which case it returns it
// without the space around it. It keeps the open containers in a slice of its
// own, so depth costs a byte each and no stack.
func valid(b []byte) (node, bool) {
	var open []byte
	start := skipSpace(b, 0)
	at := start
	for {
		// A value.
		if at == len(b) {
			return nil, false
		}
		switch c := b[at]; c {
		case '{', '[':
			at = skipSpace(b, at+1)
			if at == len(b) {
				return nil, false
			}
			if b[at] != c+2 { // '{'+2 is '}', '['+2 is ']'
				open = append(open, c)
				if c == '{' {
					if at = validKey(b, at); at < 0 {
						return nil, false
					}
				}
				continue
			}
			at++
		case '"':
			at = validString(b, at)
		case 't':
			at = validWord(b, at, "true")
		case 'f':
			at = validWord(b, at, "false")
		case 'n':
			at = validWord(b, at, "null")
		default:
			at = validNumber(b, at)
		}
		if at < 0 {
			return nil, false
		}
		// What follows it.
		for {
			if len(open) == 0 {
				return b[start:at], skipSpace(b, at) == len(b)
			}
			at = skipSpace(b, at)
			if at == len(b) {
				return nil, false
			}
			top := open[len(open)-1]
			if b[at] == top+2 {
				open = open[:len(open)-1]
				at++
				continue
			}
			if b[at] != ',' {
				return nil, false
			}
			at = skipSpace(b, at+1)
			if top == '{' {
				if at = validKey(b, at); at < 0 {
					return nil, false
				}
			}
			break
		}
	}
}

// The following return where the thing at at ends, or -1.

// validKey passes a key, its colon and the space around.
func validKey(b []byte, at int) int {
	if at == len(b) || b[at] != '"' {
		return -1
	}
	if at = validString(b, at); at < 0 {
		return -1
	}
	at = skipSpace(b, at)
	if at == len(b) || b[at] != ':' {
		return -1
	}
	return skipSpace(b, at+1)
}

func validString(b []byte, at int) int {
	for at++; ; {
		at = indexSpecial(b, at)
		if at == len(b) || b[at] < 0x20 {
			return -1
		}
		if b[at] == '"' {
			return at + 1
		}
		if at+1 == len(b) {
			return -1
		}
		switch b[at+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			at += 2
		case 'u':
			if at+6 > len(b) {
				return -1
			}
			for _, c := range b[at+2 : at+6] {
				if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
					return -1
				}
			}
			at += 6
		default:
			return -1
		}
	}
}

func validWord(b []byte, at int, word string) int {
	if end := at + len(word); end <= len(b) && string(b[at:end]) == word {
		return end
	}
	return -1
}

func validNumber(b []byte, at int) int {
	digits := func() bool {
		from := at
		for at < len(b) && b[at] >= '0' && b[at] <= '9' {
			at++
		}
		return at > from
	}
	if b[at] == '-' {
		at++
	}
	if at < len(b) && b[at] == '0' {
		at++
	} else if !digits() {
		return -1
	}
	if at < len(b) && b[at] == '.' {
		at++
		if !digits() {
			return -1
		}
	}
	if at < len(b) && b[at]|0x20 == 'e' {
		at++
		if at < len(b) && (b[at] == '+' || b[at] == '-') {
			at++
		}
		if !digits() {
			return -1
		}
	}
	return at
}
