package chat

// schema is what the Harmony library reads of a JSON schema: indices of values
// in the body, 0 where absent. Unlike elsewhere a null is a value.
type schema struct {
	oneOf, kind, description, properties, required, title, examples, fallback, nullable, enum, items int
}

// readSchema reads the schema at i, which need not be an object.
func (r *Renderer) readSchema(i int, s *schema) {
	if r.body[i] != '{' {
		return
	}
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			return
		}
		switch string(m.Name) {
		case "oneOf":
			s.oneOf = m.Value
		case "type":
			s.kind = m.Value
		case "description":
			s.description = m.Value
		case "properties":
			s.properties = m.Value
		case "required":
			s.required = m.Value
		case "title":
			s.title = m.Value
		case "examples":
			s.examples = m.Value
		case "default":
			s.fallback = m.Value
		case "nullable":
			s.nullable = m.Value
		case "enum":
			s.enum = m.Value
		case "items":
			s.items = m.Value
		}
		at = r.w.Skip(m.Value)
	}
}

// is tells whether there is a value at i whose first byte is c.
//
//go:noinline
func (r *Renderer) is(i int, c byte) bool { return i > 0 && r.body[i] == c }

// indent writes n spaces.
//
//go:noinline
func (r *Renderer) indent(n int) {
	for range n {
		r.out = append(r.out, ' ')
	}
}

// maxSchemaDepth bounds the recursion.
const maxSchemaDepth = 32

// typeScript writes the schema at i as a TypeScript type, as the Harmony
// library does (json_schema_to_typescript): the indent is in spaces. With
// asObject the schema has no type and is that of an object.
func (r *Renderer) typeScript(i int, asObject bool, indent, depth int) {
	if depth > maxSchemaDepth {
		r.stop(TooMany)
	}
	if !r.going() {
		return
	}
	var s schema
	r.readSchema(i, &s)
	switch {
	case r.is(s.oneOf, '['):
		r.variants(s.oneOf, indent, depth)
	case r.is(s.kind, '[') && r.typeList(s.kind):
	case asObject:
		r.typeObject(&s, indent, depth)
	case r.is(s.kind, '"'):
		switch string(r.w.Word(s.kind)) {
		case "object":
			r.typeObject(&s, indent, depth)
		case "string":
			if !r.is(s.enum, '[') || !r.enumValues(s.enum) {
				r.lit("string")
			}
		case "number", "integer":
			r.lit("number")
		case "boolean":
			r.lit("boolean")
		case "array":
			if s.items == 0 {
				r.lit("Array<any>")
				return
			}
			r.typeScript(s.items, false, indent, depth+1)
			r.lit("[]")
		default:
			r.lit("any")
		}
	default:
		r.lit("any")
	}
}

// typeList writes a list of types as a union, and tells whether there were any.
func (r *Renderer) typeList(i int) bool {
	n := 0
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok {
			return n > 0
		}
		if r.body[e] == '"' {
			if n > 0 {
				r.lit(" | ")
			}
			n++
			if string(r.w.Word(e)) == "integer" {
				r.lit("number")
			} else {
				r.put(r.str(e))
			}
		}
		at = r.w.Skip(e)
	}
}

// enumValues writes the strings of a list as a union.
func (r *Renderer) enumValues(i int) bool {
	n := 0
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok {
			return n > 0
		}
		if r.body[e] == '"' {
			if n > 0 {
				r.lit(" | ")
			}
			n++
			r.quoted(e)
		}
		at = r.w.Skip(e)
	}
}

// quoted writes a string in quotes, without escapes.
func (r *Renderer) quoted(i int) {
	r.lit(`"`)
	r.put(r.str(i))
	r.lit(`"`)
}

// comment writes "// " and the string at i, if it is one, on a line.
func (r *Renderer) comment(i, indent int) {
	if r.is(i, '"') {
		r.indent(indent)
		r.lit("// ")
		r.put(r.str(i))
		r.lit("\n")
	}
}

// variants writes the alternatives of a oneOf that stands for itself.
func (r *Renderer) variants(i, indent, depth int) {
	for at := i + 1; r.going(); {
		e, ok := r.w.Element(at)
		if !ok {
			return
		}
		r.lit("\n")
		r.indent(indent)
		r.lit(" | ")
		var s schema
		r.readSchema(e, &s)
		r.nullableType(e, &s, indent+3, depth)
		described := r.is(s.description, '"')
		if described {
			r.lit(" // ")
			r.put(r.str(s.description))
		}
		if s.fallback > 0 {
			if !described {
				r.lit(" //")
			}
			r.lit(" ")
			r.fallback(&s, true)
		}
		at = r.w.Skip(e)
	}
}

// nullableType writes the type of the schema at i, with null if it says so.
func (r *Renderer) nullableType(i int, s *schema, indent, depth int) {
	from := len(r.out)
	r.typeScript(i, false, indent, depth+1)
	if r.is(s.nullable, 't') && !contains(r.out[from:], "null") {
		r.lit(" | null")
	}
}

func contains(text []byte, word string) bool {
	for i := 0; i+len(word) <= len(text); i++ {
		if string(text[i:i+len(word)]) == word {
			return true
		}
	}
	return false
}

// fallback writes a default. A string stands in quotes unless the schema lists
// its values; where it does and (quoteEnum) the place is one that doesn't care,
// it is JSON.
func (r *Renderer) fallback(s *schema, quoteEnum bool) {
	r.lit("default: ")
	if !r.is(s.fallback, '"') {
		r.compactJSON(s.fallback)
		return
	}
	listed := r.is(s.enum, '[') && r.elements(s.enum, 1) > 0
	switch {
	case !listed:
		r.quoted(s.fallback)
	case quoteEnum:
		r.compactJSON(s.fallback)
	default:
		r.put(r.str(s.fallback))
	}
}

// compactJSON writes a value as serde_json does.
func (r *Renderer) compactJSON(i int) {
	d := dumper{r: r, src: r.body, dialect: serdeJSON}
	d.value(i)
	if d.invalid {
		r.stop(Refused)
	}
}

// typeObject writes an object type with its properties.
func (r *Renderer) typeObject(s *schema, indent, depth int) {
	r.comment(s.description, indent)
	r.lit("{\n")
	if r.is(s.properties, '{') {
		first := len(r.keys)
		for at := s.properties + 1; r.going(); {
			m, ok := r.w.Member(at)
			if !ok {
				break
			}
			name := at
			for r.body[name] != '"' {
				name++
			}
			r.once(first, name)
			r.property(name, m.Value, s.required, indent, depth)
			at = r.w.Skip(m.Value)
		}
		r.keys = r.keys[:first]
	}
	r.indent(indent)
	r.lit("}")
}

// once stops where a property's name comes again: Python would have kept the
// last of them.
func (r *Renderer) once(first, name int) {
	r.spend(len(r.keys) - first)
	for _, k := range r.keys[first:] {
		if r.stopped != Complete {
			return
		}
		if r.sameString(k.from, name) {
			r.stop(Unknown)
		}
	}
	r.keys = append(r.keys, keySpan{from: name})
}

// sameString tells whether the strings at a and b are the same text.
func (r *Renderer) sameString(a, b int) bool {
	endA, escA := r.w.StringEnd(a + 1)
	endB, escB := r.w.StringEnd(b + 1)
	if !escA && !escB {
		return string(r.body[a:endA]) == string(r.body[b:endB])
	}
	from := len(r.arena)
	same := string(r.str(a)) == string(r.str(b))
	r.arena = r.arena[:from]
	return same
}

// property writes one property; name is the index of its name's quote.
func (r *Renderer) property(name, value, required, indent, depth int) {
	var s schema
	r.readSchema(value, &s)
	if r.is(s.title, '"') {
		r.comment(s.title, indent)
		r.indent(indent)
		r.lit("//\n")
	}
	if s.oneOf == 0 {
		r.comment(s.description, indent)
	}
	if r.is(s.examples, '[') && r.elements(s.examples, 1) > 0 {
		r.indent(indent)
		r.lit("// Examples:\n")
		for at := s.examples + 1; ; {
			e, ok := r.w.Element(at)
			if !ok {
				break
			}
			if r.body[e] == '"' {
				r.indent(indent)
				r.lit("// - ")
				r.quoted(e)
				r.lit("\n")
			}
			at = r.w.Skip(e)
		}
	}
	if r.is(s.oneOf, '[') {
		r.unionProperty(name, &s, required, indent, depth)
		return
	}
	r.propertyName(name, required, indent)
	r.lit(": ")
	r.nullableType(value, &s, indent+4, depth)
	r.lit(",")
	if s.oneOf == 0 && s.fallback > 0 {
		r.lit(" // ")
		r.fallback(&s, false)
	}
	r.lit("\n")
}

func (r *Renderer) propertyName(name, required, indent int) {
	r.indent(indent)
	r.put(r.str(name))
	if r.is(required, '[') {
		for at := required + 1; r.stopped == Complete; {
			e, ok := r.w.Element(at)
			if !ok {
				break
			}
			if r.spend(1); r.body[e] == '"' && r.sameString(e, name) {
				return
			}
			at = r.w.Skip(e)
		}
	}
	r.lit("?")
}

// unionProperty writes a property of alternatives, each on a line of its own.
func (r *Renderer) unionProperty(name int, s *schema, required, indent, depth int) {
	var first schema
	if e, ok := r.w.Element(s.oneOf + 1); ok {
		r.readSchema(e, &first)
	}
	described := r.is(s.description, '"')
	above := described && !(r.is(first.description, '"') && r.sameString(first.description, s.description))
	if above {
		r.comment(s.description, indent)
	}
	if s.fallback > 0 {
		r.indent(indent)
		r.lit("// ")
		r.fallback(s, false)
		r.lit("\n")
	}
	r.propertyName(name, required, indent)
	r.lit(":\n")
	n := 0
	for at := s.oneOf + 1; r.going(); n++ {
		e, ok := r.w.Element(at)
		if !ok {
			break
		}
		var v schema
		r.readSchema(e, &v)
		r.indent(indent)
		r.lit(" | ")
		r.nullableType(e, &v, indent+3, depth)
		comment := false
		if (n > 0 || !above) && r.is(v.description, '"') && !(described && r.sameString(v.description, s.description)) {
			r.lit(" // ")
			r.put(r.str(v.description))
			comment = true
		}
		if v.fallback > 0 {
			if !comment {
				r.lit(" //")
			}
			r.lit(" ")
			r.fallback(&v, false)
		}
		r.lit("\n")
		at = r.w.Skip(e)
	}
	r.indent(indent)
	r.lit(",\n")
}
