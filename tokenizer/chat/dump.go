package chat

import (
	"bytes"

	"github.com/warmpath/warmpath/shared/jsontext"
)

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

// container is an array or an object that is open.
type container struct {
	firstKey int // in Renderer.keys: where an object's members begin, -1 for an array
	key      keySpan
	addType  bool
}

// keySpan is a member of an object being dumped: where in the output its name
// and value lie.
type keySpan struct{ from, value, end int }

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
//
//go:noinline
func (d *dumper) ok() bool { return !d.invalid && d.r.going() }

// fail ends the dump: src is no JSON.
//
//go:noinline
func (d *dumper) fail(i int) int {
	d.invalid = true
	return i
}

// line begins a new line.
//
//go:noinline
func (d *dumper) line(out []byte, level int) []byte {
	out = append(out, '\n')
	n := d.indent * level
	for ; n > len(blanks); n -= len(blanks) {
		out = append(out, blanks...)
	}
	return append(out, blanks[:n]...)
}

const blanks = "                                                                "

// newline begins a new line, where there is an indent, for what is written
// around the values.
func (d *dumper) newline() {
	if d.indent > 0 {
		d.r.out = d.line(d.r.out, d.level)
	}
}

// comma separates two values that are written one by one.
func (d *dumper) comma() {
	if d.indent == 0 {
		d.r.lit(", ")
		return
	}
	d.r.lit(",")
	d.newline()
}

const objectType = `"type": "object"`

// plain tells of each byte whether it stands for itself in a JSON string, and
// is ASCII.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x7F; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// dump appends the JSON value at src[i] and returns the index after it. It
// stops the Renderer at what can't be written exactly; where src may be
// invalid, the caller looks at d.invalid.
//
// It is one loop without calls for what is common: a call costs more in the
// module than the bytes between two of them.
func (d *dumper) dump(i int) int {
	r, s := d.r, d.src
	out, depth := r.out, 0
	pretty, comma, colon := d.indent > 0, ", ", ": "
	switch {
	case d.dialect == serdeJSON:
		comma, colon = ",", ":"
	case pretty:
		comma = ","
	}
	for {
		// A value begins here.
		for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t') {
			i++
		}
		if i >= len(s) {
			r.out = out
			return d.fail(i)
		}
		c := s[i]
		if c == '{' || c == '[' {
			if d.level+depth >= maxDepth {
				r.out = out
				r.stop(TooMany)
				return i
			}
			f := &r.open[depth]
			depth++
			*f = container{firstKey: -1}
			if c == '{' {
				f.firstKey, f.addType = len(r.keys), d.addType
				d.addType = false
			}
			out = append(out, c)
			for i++; i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t'); i++ {
			}
			if i < len(s) && s[i] == c+2 { // ASCII's ] and } stand two after [ and {
				if f.addType {
					if pretty {
						out = d.line(out, d.level+depth)
					}
					out = append(out, objectType...)
					if pretty {
						out = d.line(out, d.level+depth-1)
					}
				}
				out = append(out, c+2)
				i++
				depth--
			} else {
				if pretty {
					out = d.line(out, d.level+depth)
				}
				if c == '[' {
					continue
				}
				goto member
			}
		} else if c == '"' {
			from := i
			for i++; i < len(s) && plain[s[i]]; i++ {
			}
			if i < len(s) && s[i] == '"' {
				i++
				out = append(out, s[from:i]...)
			} else {
				r.out = out
				if i = d.str(from); !d.ok() {
					return i
				}
				out = r.out
			}
		} else {
			r.out = out
			if i = d.scalar(i); !d.ok() {
				return i
			}
			out = r.out
		}
		// A value is complete: what follows, and which containers end?
		for {
			if depth == 0 {
				r.out = out
				return i
			}
			f := &r.open[depth-1]
			if f.firstKey >= 0 {
				f.key.end = len(out)
				r.out = out
				d.keep(f)
				if !d.ok() {
					return i
				}
				out = r.out
			}
			for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t') {
				i++
			}
			if i >= len(s) {
				r.out = out
				return d.fail(i)
			}
			if s[i] == ',' {
				i++
				out = append(out, comma...)
				if pretty {
					out = d.line(out, d.level+depth)
				}
				if len(out) > r.max {
					r.out = out
					return i
				}
				if f.firstKey >= 0 {
					goto member
				}
				break
			}
			object := f.firstKey >= 0
			if object != (s[i] == '}') || !object && s[i] != ']' {
				r.out = out
				return d.fail(i)
			}
			if object {
				// After a duplicate the text ends with a comma that nothing follows.
				out = out[:r.keys[len(r.keys)-1].end]
				r.keys = r.keys[:f.firstKey]
				if f.addType {
					out = append(out, comma...)
					if pretty {
						out = d.line(out, d.level+depth)
					}
					out = append(out, objectType...)
				}
			}
			depth--
			if pretty {
				out = d.line(out, d.level+depth)
			}
			out = append(out, s[i])
			i++
		}
		continue

	member:
		for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t') {
			i++
		}
		if i >= len(s) || s[i] != '"' {
			r.out = out
			return d.fail(i)
		}
		f := &r.open[depth-1]
		f.key.from = len(out)
		from := i
		for i++; i < len(s) && plain[s[i]]; i++ {
		}
		if i < len(s) && s[i] == '"' {
			i++
			out = append(out, s[from:i]...)
		} else {
			r.out = out
			if i = d.str(from); !d.ok() {
				return i
			}
			out = r.out
		}
		for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t') {
			i++
		}
		if i >= len(s) || s[i] != ':' {
			r.out = out
			return d.fail(i)
		}
		i++
		if d.types {
			d.checkType(out[f.key.from:], i)
			if !d.ok() {
				return i
			}
		}
		out = append(out, colon...)
		f.key.value = len(out)
	}
}

// scalar writes what is neither a string nor a container.
func (d *dumper) scalar(i int) int {
	s := d.src
	switch c := s[i]; {
	case c-'0' <= 9:
		// Most numbers are short and whole, and stay as they are.
		j := i + 1
		for j < len(s) && s[j]-'0' <= 9 {
			j++
		}
		if j-i > 18 || c == '0' && j > i+1 || j < len(s) && (s[j] == '.' || s[j]|0x20 == 'e') {
			return d.number(i)
		}
		d.r.put(s[i:j])
		return j
	case c == '-':
		if i+1 < len(s) && s[i+1] == 'I' {
			return d.constant(i, "-Infinity")
		}
		return d.number(i)
	case c == 't':
		return d.literal(i, "true")
	case c == 'f':
		return d.literal(i, "false")
	case c == 'n':
		return d.literal(i, "null")
	case c == 'N':
		return d.constant(i, "NaN")
	case c == 'I':
		return d.constant(i, "Infinity")
	}
	return d.fail(i)
}

func (d *dumper) literal(i int, word string) int {
	if len(d.src)-i < len(word) || string(d.src[i:i+len(word)]) != word {
		return d.fail(i)
	}
	d.r.lit(word)
	return i + len(word)
}

func (d *dumper) constant(i int, word string) int {
	if d.dialect != pythonJSON {
		return d.fail(i) // serde_json refuses what Python has read
	}
	return d.literal(i, word)
}

// keep notes f's last member, or puts its value in the place of an earlier one
// of that name.
func (d *dumper) keep(f *container) {
	r := d.r
	keys := r.keys[f.firstKey:]
	if r.spend(len(keys)); r.stopped != Complete {
		return
	}
	k := f.key
	size := k.value - k.from
	for j := range keys {
		if m := &keys[j]; m.value-m.from == size && string(r.out[m.from:m.value]) == string(r.out[k.from:k.value]) {
			d.replace(f.firstKey+j, k)
			return
		}
	}
	r.keys = append(r.keys, k)
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

// schemaTypes are JSON Schema's own names of types.
var schemaTypes = [...]string{"string", "number", "integer", "boolean", "array", "object", "null"}

// checkType stops where SGLang would rewrite a schema's type: it makes
// schemaTypes of the names that databases use, and drops repeated ones.
func (d *dumper) checkType(name []byte, i int) {
	if i = jsontext.SkipSpace(d.src, i); string(name) != `"type"` || i >= len(d.src) {
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
