package chat

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/warmpath/warmpath/shared/jsontext"
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

// keySpan is a member of an object being dumped: where in the output its name
// and value lie.
type keySpan struct{ from, value, end int }

// dumper writes json.dumps(json.loads(src), ensure_ascii=False, indent=...).
//
// Differences to the source's bytes: one space after each comma and colon (or
// line breaks and indent), escapes only where JSON demands them, floats as
// Python's repr, and of several members of one name only the last value, at the
// first one's place.
type dumper struct {
	r       *Renderer
	src     []byte
	dialect dialect
	indent  int  // spaces a level; 0: all on one line
	level   int  // the level the value stands at
	types   bool // stop at a schema type that SGLang would rewrite
	ascii   bool // ensure_ascii=True: escape all that isn't ASCII
	addType bool // add "type": "object" to the first object, which has no type
	invalid bool // src is not JSON; what was written is to be dropped
}

// dump appends the JSON value at src[i] and returns the index after it. It
// stops the Renderer at what can't be written exactly; where src may be
// invalid, the caller looks at d.invalid.
func (d *dumper) dump(i int) int {
	r := d.r
	if i >= len(d.src) {
		d.invalid = true
		return i
	}
	switch c := d.src[i]; c {
	case '"':
		return d.str(i)
	case '{':
		return d.object(i)
	case '[':
		return d.array(i)
	case 't':
		return d.literal(i, "true", "true")
	case 'f':
		return d.literal(i, "false", "false")
	case 'n':
		return d.literal(i, "null", "null")
	case 'N':
		return d.constant(i, "NaN")
	case 'I':
		return d.constant(i, "Infinity")
	case '-':
		if i+1 < len(d.src) && d.src[i+1] == 'I' {
			return d.constant(i, "-Infinity")
		}
		return d.number(i)
	default:
		if c-'0' > 9 {
			d.invalid = true
			return i
		}
		if len(r.out) > r.max {
			return i
		}
		return d.number(i)
	}
}

// value is dump for a whole value. One that doesn't fit lowers the cap to where
// it begins: what comes later in it may change what was written before.
func (d *dumper) value(i int) int {
	r, from := d.r, len(d.r.out)
	i = d.dump(i)
	if len(r.out) > r.max {
		r.max = min(r.max, from)
	}
	return i
}

// ok tells whether to go on.
func (d *dumper) ok() bool { return !d.invalid && d.r.going() }

func (d *dumper) literal(i int, word, as string) int {
	if len(d.src)-i < len(word) || string(d.src[i:i+len(word)]) != word {
		d.invalid = true
		return i
	}
	d.r.lit(as)
	return i + len(word)
}

func (d *dumper) constant(i int, word string) int {
	if d.dialect != pythonJSON {
		d.invalid = true // serde_json refuses what Python has read
		return i
	}
	return d.literal(i, word, word)
}

// line begins a new line where there is an indent.
func (d *dumper) line() {
	if d.indent == 0 {
		return
	}
	d.r.lit("\n")
	for range d.indent * d.level {
		d.r.out = append(d.r.out, ' ')
	}
}

// comma separates two values.
func (d *dumper) comma() {
	if d.dialect == serdeJSON {
		d.r.lit(",")
		return
	}
	if d.indent == 0 {
		d.r.lit(", ")
		return
	}
	d.r.lit(",")
	d.line()
}

func (d *dumper) array(i int) int {
	if d.level >= maxDepth {
		d.r.stop(TooMany)
		return i
	}
	d.r.lit("[")
	d.level++
	i = jsontext.SkipSpace(d.src, i+1)
	if i < len(d.src) && d.src[i] == ']' {
		d.level--
		d.r.lit("]")
		return i + 1
	}
	d.line()
	for {
		i = jsontext.SkipSpace(d.src, d.dump(i))
		if !d.ok() {
			return i
		}
		if i >= len(d.src) || d.src[i] != ',' {
			break
		}
		d.comma()
		i = jsontext.SkipSpace(d.src, i+1)
	}
	if i >= len(d.src) || d.src[i] != ']' {
		d.invalid = true
		return i
	}
	d.level--
	d.line()
	d.r.lit("]")
	return i + 1
}

func (d *dumper) object(i int) int {
	r := d.r
	if d.level >= maxDepth {
		r.stop(TooMany)
		return i
	}
	addType := d.addType
	d.addType = false
	r.lit("{")
	d.level++
	i = jsontext.SkipSpace(d.src, i+1)
	if i < len(d.src) && d.src[i] == '}' {
		if addType {
			d.line()
			r.lit(objectType)
		}
		d.level--
		if addType {
			d.line()
		}
		r.lit("}")
		return i + 1
	}
	first := len(r.keys)
	d.line()
	for {
		if i >= len(d.src) || d.src[i] != '"' {
			d.invalid = true
			return i
		}
		before := len(r.out)
		k := keySpan{from: before}
		i = jsontext.SkipSpace(d.src, d.str(i))
		if !d.ok() {
			return i
		}
		if i >= len(d.src) || d.src[i] != ':' {
			d.invalid = true
			return i
		}
		r.lit(":")
		if d.dialect != serdeJSON {
			r.lit(" ")
		}
		k.value = len(r.out)
		i = jsontext.SkipSpace(d.src, i+1)
		if d.types {
			d.checkType(r.out[k.from:], i)
		}
		i = jsontext.SkipSpace(d.src, d.dump(i))
		if !d.ok() {
			return i
		}
		k.end = len(r.out)
		if dup := d.duplicate(first, k); dup >= 0 {
			d.replace(dup, k)
		} else {
			r.keys = append(r.keys, k)
		}
		if i >= len(d.src) || d.src[i] != ',' {
			break
		}
		d.comma()
		i = jsontext.SkipSpace(d.src, i+1)
	}
	if i >= len(d.src) || d.src[i] != '}' {
		d.invalid = true
		return i
	}
	// After a duplicate the text ends with a comma that nothing follows.
	r.out = r.out[:r.keys[len(r.keys)-1].end]
	r.keys = r.keys[:first]
	if addType {
		d.comma()
		r.lit(objectType)
	}
	d.level--
	d.line()
	r.lit("}")
	return i + 1
}

const objectType = `"type": "object"`

// maxMembers bounds the search for duplicates.
const maxMembers = 1024

// duplicate returns the member of the object whose members begin at first that
// has k's name, or -1.
func (d *dumper) duplicate(first int, k keySpan) int {
	r := d.r
	if len(r.keys)-first > maxMembers {
		r.stop(TooMany)
		return -1
	}
	name := r.out[k.from:k.value]
	for j := first; j < len(r.keys); j++ {
		if m := r.keys[j]; m.value-m.from == len(name) && bytes.Equal(r.out[m.from:m.value], name) {
			return j
		}
	}
	return -1
}

// replace puts the value of k, which stands at the end of the output, in the
// place of member dup's.
func (d *dumper) replace(dup int, k keySpan) {
	r := d.r
	old := r.keys[dup]
	last := r.keys[len(r.keys)-1].end // without the comma before k
	grown := (k.end - k.value) - (old.end - old.value)
	r.out = append(r.out, r.out[old.end:last]...)
	n := copy(r.out[old.value:], r.out[k.value:])
	r.out = r.out[:old.value+n]
	r.keys[dup].end += grown
	for j := dup + 1; j < len(r.keys); j++ {
		r.keys[j].from += grown
		r.keys[j].value += grown
		r.keys[j].end += grown
	}
	// The comma that follows k's predecessor is written again by the caller.
	if r.replaced++; r.replaced > maxReplaced {
		r.stop(TooMany)
	}
}

// maxReplaced bounds the work on duplicate names in one request.
const maxReplaced = 64

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

// schemaTypes are JSON Schema's own names of types.
var schemaTypes = [...]string{"string", "number", "integer", "boolean", "array", "object", "null"}

// checkType stops where SGLang would rewrite a schema's type: it makes
// schemaTypes of the names that databases use, and drops repeated ones.
func (d *dumper) checkType(name []byte, i int) {
	if string(name) != `"type": ` || i >= len(d.src) {
		return
	}
	s, seen := d.src, uint(0)
	if s[i] == '[' {
		for i++; i < len(s) && s[i] != ']'; i++ {
			if s[i] == '"' {
				i = d.typeWord(i, &seen)
			}
		}
		return
	}
	if s[i] == '"' {
		d.typeWord(i, &seen)
	}
}

// typeWord checks the word at i and returns its closing quote's index.
func (d *dumper) typeWord(i int, seen *uint) int {
	end := bytes.IndexByte(d.src[i+1:], '"')
	if end < 0 {
		return len(d.src)
	}
	end += i + 1
	for n, word := range schemaTypes {
		if bit := uint(1) << n; string(d.src[i+1:end]) == word && *seen&bit == 0 {
			*seen |= bit
			return end
		}
	}
	d.r.stop(Unknown)
	return end
}
