package config

import (
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

func text(key string, v gjson.Result, most int) (string, error) {
	if v.Type != gjson.String {
		return "", &Error{Key: key, Detail: "must be a string, not " + found(v)}
	}
	if len(v.Str) > most {
		return "", &Error{Key: key, Detail: "is longer than " + strconv.Itoa(most) + " bytes"}
	}
	for i := 0; i < len(v.Str); i++ {
		if v.Str[i] < 0x20 || v.Str[i] == 0x7f {
			return "", &Error{Key: key, Detail: "holds a control character at byte " + strconv.Itoa(i)}
		}
	}
	return v.Str, nil
}

func filled(key string, v gjson.Result, most int) (string, error) {
	s, err := text(key, v, most)
	if err == nil && s == "" {
		err = &Error{Key: key, Detail: "must not be empty"}
	}
	return s, err
}

// name is a value that becomes part of shared-data keys and metric names.
func name(key string, v gjson.Result, most int) (string, error) {
	s, err := filled(key, v, most)
	if err != nil {
		return "", err
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "", &Error{Key: key, Detail: "use only a-z, 0-9 and '-', not " + strconv.Quote(s[i:i+1])}
		}
	}
	return s, nil
}

// header is the name of a request header, in lower case as HTTP/2 has it.
func header(key string, v gjson.Result) (string, error) {
	s, err := filled(key, v, 128)
	if err != nil {
		return "", err
	}
	b := []byte(s)
	for i, c := range b {
		switch {
		case c >= 'A' && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return "", &Error{Key: key, Detail: "is not a header name: " + strconv.Quote(s[i:i+1]) + " is not allowed"}
		}
	}
	return string(b), nil
}

func boolean(key string, v gjson.Result) (bool, error) {
	if v.Type != gjson.True && v.Type != gjson.False {
		return false, &Error{Key: key, Detail: "must be true or false, not " + found(v)}
	}
	return v.Bool(), nil
}

func number(key string, v gjson.Result, least, most int) (int, error) {
	n, err := strconv.Atoi(v.Raw)
	if v.Type != gjson.Number || err != nil {
		return 0, &Error{Key: key, Detail: "must be a whole number, not " + found(v)}
	}
	if n < least || n > most {
		return 0, &Error{Key: key, Detail: strconv.Itoa(n) + " is outside " + strconv.Itoa(least) + ".." + strconv.Itoa(most)}
	}
	return n, nil
}

func duration(key string, v gjson.Result, leastMillis, mostMillis int) (time.Duration, error) {
	n, err := number(key, v, leastMillis, mostMillis)
	return time.Duration(n) * time.Millisecond, err
}

func millis(d time.Duration) string {
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// found shows a value in an error line, cut to a readable length.
func found(v gjson.Result) string {
	if len(v.Raw) > 40 {
		return v.Raw[:40] + "..."
	}
	return v.Raw
}

func blank(raw []byte) bool {
	for _, c := range raw {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return false
		}
	}
	return true
}

// tooDeep looks for nesting beyond maxDepth without recursion: the validator
// that follows recurses, and the proxy's stack is not ours to fill.
func tooDeep(raw []byte) (at int, deep bool) {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return i, true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return 0, false
}
