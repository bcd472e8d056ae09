package chat

// tool is one definition: indices of values in the body, 0 where absent or null.
type tool struct {
	name, description, parameters, strict int
	order                                 [3]toolField // as the client gave them, those that are absent last
	addType                               bool         // the parameters get "type": "object"
}

// toolField is one that engines always write, even if it wasn't given.
type toolField uint8

const (
	toolNone toolField = iota
	toolDescription
	toolName
	toolParameters
)

// vllmOrder is that of vLLM's own type, whatever the client's was.
var vllmOrder = [3]toolField{toolName, toolDescription, toolParameters}

// maxTools bounds the list.
const maxTools = 1024

// readTools reads the definitions at i.
func (r *Renderer) readTools(i int) {
	if i == 0 {
		return
	}
	if r.kind(i) != '[' {
		r.stop(Refused)
		return
	}
	if r.tmpl.engine == SGLang {
		r.readToolChoice()
	}
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			break
		}
		if r.body[e] != '{' {
			r.stop(Refused)
			return
		}
		if len(r.tools) == maxTools {
			r.stop(TooMany)
			return
		}
		t := tool{}
		at = r.readTool(e, &t)
		if r.opts.toolChoice == nil || t.name > 0 && string(r.str(t.name)) == string(r.opts.toolChoice) {
			r.tools = append(r.tools, t)
		}
	}
	if len(r.tools) == 0 && r.tmpl.engine == VLLM {
		r.stop(Refused)
	}
	if r.opts.noTools {
		r.tools = r.tools[:0]
	}
}

// readToolChoice reads which tools SGLang shows to the model.
func (r *Renderer) readToolChoice() {
	i := r.top[fieldToolChoice]
	switch r.kind(i) {
	case 'n':
	case '"':
		switch string(r.w.Word(i)) {
		case "auto", "required":
		case "none":
			r.opts.noTools = true
		default:
			r.stop(Refused)
		}
	case '{':
		for at := i + 1; ; {
			m, ok := r.w.Member(at)
			if !ok {
				break
			}
			if string(m.Name) == "function" && r.body[m.Value] == '{' {
				for k := m.Value + 1; ; {
					n, ok := r.w.Member(k)
					if !ok {
						break
					}
					if string(n.Name) == "name" && r.body[n.Value] == '"' {
						r.opts.toolChoice = r.str(n.Value)
					}
					k = r.w.Skip(n.Value)
				}
			}
			at = r.w.Skip(m.Value)
		}
		if r.opts.toolChoice == nil {
			r.stop(Refused)
		}
	default:
		r.stop(Refused)
	}
}

// readTool reads the definition at i and returns the index after it.
func (r *Renderer) readTool(i int, t *tool) int {
	function, at := false, i+1
	for {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		switch string(m.Name) {
		case "type":
			if string(r.w.Word(m.Value)) != "function" {
				r.stop(Unknown)
			}
		case "function":
			if function = r.body[m.Value] == '{'; function {
				at = r.readFunction(m.Value, t)
				continue
			}
		case "defer_loading":
			if r.body[m.Value] != 'n' {
				r.stop(Unknown)
			}
		}
		at = r.w.Skip(m.Value)
	}
	if !function {
		r.stop(Refused)
	}
	return r.after(at, '}')
}

// after returns the index after the closing bracket that comes next.
func (r *Renderer) after(i int, bracket byte) int {
	for r.body[i] != bracket {
		i++
	}
	return i + 1
}

// readFunction reads the inner object at i and returns the index after it.
func (r *Renderer) readFunction(i int, t *tool) int {
	*t = tool{}
	given, at := 0, i+1
	for {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		value, kind := m.Value, r.body[m.Value]
		if kind == 'n' {
			value = 0
		}
		f := toolNone
		switch string(m.Name) {
		case "name":
			if kind != '"' {
				r.stop(Refused)
			}
			f, t.name = toolName, value
		case "description":
			if kind != '"' && value > 0 {
				r.stop(Refused)
			}
			f, t.description = toolDescription, value
		case "parameters":
			if kind != '{' && value > 0 {
				r.stop(Unknown)
			}
			f, t.parameters = toolParameters, value
		case "strict":
			if kind != 't' && kind != 'f' && value > 0 {
				r.stop(Unknown)
			}
			t.strict = value
			if given < 3 && value > 0 && r.tmpl.engine == SGLang {
				r.stop(Unknown)
			}
		case "defer_loading":
			if value > 0 {
				r.stop(Unknown)
			}
		}
		if f != toolNone && !t.has(f) {
			t.order[given] = f
			given++
		}
		at = r.w.Skip(m.Value)
	}
	if t.name == 0 {
		r.stop(Refused)
	}
	for _, f := range [...]toolField{toolDescription, toolName, toolParameters} {
		if !t.has(f) {
			t.order[given] = f
			given++
		}
	}
	if r.tmpl.engine == VLLM {
		t.order = vllmOrder
	}
	return r.after(at, '}')
}

func (t *tool) has(f toolField) bool {
	return t.order[0] == f || t.order[1] == f || t.order[2] == f
}

// dumpTool writes a definition as the template's tojson does with what the
// engine has made of it: always with a description and parameters, without
// what the engine doesn't know.
func (r *Renderer) dumpTool(t *tool, indent int) {
	d := dumper{r: r, src: r.body, indent: indent, types: r.tmpl.engine == SGLang}
	r.lit("{")
	d.level++
	d.newline()
	r.lit(`"type": "function"`)
	d.comma()
	r.lit(`"function": `)
	r.dumpFunction(&d, t)
	if r.tmpl.engine == SGLang {
		d.comma()
		r.lit(`"defer_loading": null`)
	}
	d.level--
	d.newline()
	r.lit("}")
}

func (r *Renderer) dumpFunction(d *dumper, t *tool) {
	r.lit("{")
	d.level++
	d.newline()
	for n, f := range t.order {
		if n > 0 {
			d.comma()
		}
		value, types := 0, false
		switch f {
		case toolDescription:
			r.lit(`"description": `)
			value = t.description
		case toolName:
			r.lit(`"name": `)
			value = t.name
		case toolParameters:
			r.lit(`"parameters": `)
			value, types = t.parameters, true
		}
		if value == 0 {
			r.lit("null")
			continue
		}
		d.types = types && r.tmpl.engine == SGLang
		d.addType = types && t.addType
		d.value(value)
		if !r.going() {
			return
		}
	}
	if t.strict > 0 {
		d.comma()
		r.lit(`"strict": `)
		d.value(t.strict)
	}
	d.level--
	d.newline()
	r.lit("}")
}
