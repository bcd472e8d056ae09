package chat

// mistralNemo is the template of Mistral-Nemo as its tokenizer_config.json has
// it (engines in Hugging Face mode; vLLM's --tokenizer-mode mistral renders
// otherwise). Tools stand before the last user turn, the system text in the last
// turn if that is the user's; turns must alternate.
func (r *Renderer) mistralNemo() {
	first := 0
	var system *message
	if r.msgs[0].role == roleSystem {
		system, first = &r.msgs[0], 1
		if !r.enter(system) {
			return // wherever it is to be written
		}
	}
	lastUser := -1 // the last user turn, or an earlier one that says the same
	for i := len(r.msgs) - 1; i >= first && lastUser < 0; i-- {
		if r.msgs[i].role == roleUser {
			lastUser = i
		}
	}
	n := 0
	for i := first; i < len(r.msgs); i++ {
		m := &r.msgs[i]
		if m.role == roleTool || string(m.name) == "tool_results" || m.hasCalls {
			continue
		}
		if (m.role == roleUser) != (n%2 == 0) {
			r.stop(Refused)
			return
		}
		n++
	}
	r.lit("<s>")
	for i := first; i < len(r.msgs); i++ {
		m := &r.msgs[i]
		if !r.going() || !r.enter(m) {
			return
		}
		switch {
		case m.role == roleUser:
			if !r.mistralUser(m, i, system, r.sameTurn(i, lastUser)) {
				return
			}
		case m.hasCalls:
			if !r.mistralCalls(m) {
				return
			}
			if r.resumes(i) {
				r.stop(Refused)
				return
			}
		case string(m.name) == "tool_calls":
			r.stop(Unknown)
			return
		case m.role == roleAssistant:
			if !r.content(m, i) {
				return
			}
			r.lit("</s>")
		case m.role == roleTool || string(m.name) == "tool_results":
			if !r.mistralAnswer(m, i) {
				return
			}
		default:
			r.stop(Refused)
			return
		}
		r.end()
	}
	r.generate("", "")
}

// sameTurn tells whether turn i equals turn last: the template compares turns
// by what they hold, so a user who repeats the last question gets the tools
// before each.
func (r *Renderer) sameTurn(i, last int) bool {
	if i == last {
		return true
	}
	if r.resumes(last) {
		return false // its text has a mark at its end
	}
	return string(r.msgs[i].content) == string(r.msgs[last].content)
}

func (r *Renderer) mistralUser(m *message, i int, system *message, tools bool) bool {
	if tools && len(r.tools) > 0 {
		r.lit("[AVAILABLE_TOOLS][")
		for j := range r.tools {
			if j > 0 {
				r.lit(", ")
			}
			r.mistralTool(&r.tools[j])
			if !r.going() {
				return false
			}
		}
		r.lit("][/AVAILABLE_TOOLS]")
	}
	r.lit("[INST]")
	if i == len(r.msgs)-1 && system != nil {
		r.put(system.content)
		r.lit("\n\n")
	}
	if !r.content(m, i) {
		return false
	}
	r.lit("[/INST]")
	return true
}

// mistralTool writes a definition; its strings are not escaped.
func (r *Renderer) mistralTool(t *tool) {
	r.lit(`{"type": "function", "function": {`)
	d := dumper{r: r, src: r.body, level: 1}
	for n, f := range t.order {
		if n > 0 {
			r.lit(", ")
		}
		switch f {
		case toolDescription:
			r.lit(`"description": `)
			r.mistralString(t.description)
		case toolName:
			r.lit(`"name": `)
			r.mistralString(t.name)
		case toolParameters:
			r.lit(`"parameters": `)
			if t.parameters == 0 {
				r.lit("null")
				break
			}
			d.types, d.addType = r.tmpl.engine == SGLang, t.addType
			d.value(t.parameters)
			d.types = false
		}
		if !r.going() {
			return
		}
	}
	if t.strict > 0 {
		r.lit(`, "strict": `)
		d.value(t.strict)
	}
	r.lit("}}")
}

func (r *Renderer) mistralString(i int) {
	if i == 0 {
		r.lit("null")
		return
	}
	r.lit(`"`)
	r.put(r.str(i))
	r.lit(`"`)
}

// callIDLength is what the template demands of tool calls' ids.
const callIDLength = 9

// mistralCalls writes an assistant's tool calls; its text is left out.
func (r *Renderer) mistralCalls(m *message) bool {
	r.lit("[TOOL_CALLS][")
	calls := r.callsOf(m)
	for j := range calls {
		c := &calls[j]
		if j > 0 {
			r.lit(", ")
		}
		// The order is that of the engine's own type.
		if r.tmpl.engine == SGLang || r.nameFirst {
			r.lit(`{"name": `)
			r.out = appendJSONString(r.out, c.name)
			r.lit(`, "arguments": `)
			r.arguments(c)
		} else {
			r.lit(`{"arguments": `)
			r.arguments(c)
			r.lit(`, "name": `)
			r.out = appendJSONString(r.out, c.name)
		}
		if !c.hasID || runeCount(c.id) != callIDLength {
			r.stop(Refused)
		}
		if !r.going() {
			return false
		}
		r.lit(`, "id": "`)
		r.put(c.id)
		r.lit(`"}`)
	}
	if len(calls) > 0 {
		r.lit("]</s>")
	}
	return true
}

func (r *Renderer) mistralAnswer(m *message, i int) bool {
	r.lit(`[TOOL_RESULTS]{"content": `)
	if !m.hasCallID || runeCount(m.callID) != callIDLength {
		r.stop(Refused)
		return false
	}
	if !r.content(m, i) {
		return false
	}
	r.lit(`, "call_id": "`)
	r.put(m.callID)
	r.lit(`"}[/TOOL_RESULTS]`)
	return true
}
