package chat

// vLLM makes chat messages of the items of a Responses request
// (entrypoints/openai/responses/utils.py): an assistant's reasoning, text and
// calls that follow one another become one turn.

// readResponses reads the body of /v1/responses.
func (r *Renderer) readResponses() {
	if r.tmpl.engine != VLLM || r.tmpl.family == familyGPTOSS {
		r.stop(Unknown)
		return
	}
	switch {
	case r.top[fieldPreviousResponse] > 0:
		r.stop(State)
	case r.top[fieldPrompt] > 0:
		r.stop(Refused)
	case r.top[fieldPreviousInput] > 0:
		r.stop(Unknown)
	}
	r.opts.generate, r.nameFirst = true, true
	if i := r.top[fieldReasoning]; i > 0 {
		r.readEffort(r.memberOf(i, "effort"))
	}
	r.readArguments()
	r.responsesTools(r.top[fieldTools])
	if i := r.top[fieldInstructions]; i > 0 {
		if r.kind(i) != '"' {
			r.stop(Refused)
			return
		}
		if text := r.str(i); len(text) > 0 {
			r.msgs = append(r.msgs, r.systemMessage(text))
		}
	}
	i := r.top[fieldInput]
	switch r.kind(i) {
	case '"':
		r.msgs = append(r.msgs, message{role: roleUser, name: userName, content: r.str(i)})
		return
	case '[':
	default:
		r.stop(Refused)
		return
	}
	for at := i + 1; ; {
		e, ok := r.nextObject(at, len(r.msgs), maxMessages)
		if !ok {
			return
		}
		at = r.readItem(e)
	}
}

// responsesTools reads the definitions at i, which are flat.
func (r *Renderer) responsesTools(i int) {
	if i == 0 {
		return
	}
	if r.kind(i) != '[' {
		r.stop(Refused)
		return
	}
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			return
		}
		if len(r.tools) == maxTools {
			r.stop(TooMany)
			return
		}
		t := tool{order: vllmOrder}
		if string(r.w.Word(r.memberOf(e, "type"))) != "function" {
			r.stop(Unknown) // built-in and custom tools
			return
		}
		r.flatTool(e, &t)
		if t.parameters = r.memberOf(e, "parameters"); t.parameters > 0 && r.body[t.parameters] != '{' {
			r.stop(Refused)
		}
		r.tools = append(r.tools, t)
		at = r.w.Skip(e)
	}
}

// item is one of a Responses request: indices of its values.
type item struct {
	id, kind, role, content, status, callID, name, arguments, output, summary, encrypted, namespace, reasoning int
}

func (r *Renderer) itemFields(i int) item {
	it := item{}
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			return it
		}
		value := m.Value
		if r.body[value] == 'n' {
			value = 0
		}
		switch string(m.Name) {
		case "id":
			it.id = value
		case "type":
			it.kind = value
		case "role":
			it.role = value
		case "content":
			it.content = value
		case "status":
			it.status = value
		case "call_id":
			it.callID = value
		case "name":
			it.name = value
		case "arguments":
			it.arguments = value
		case "output":
			it.output = value
		case "summary":
			it.summary = value
		case "encrypted_content":
			it.encrypted = value
		case "namespace":
			it.namespace = value
		case "reasoning", "reasoning_content", "tool_calls", "tools":
			it.reasoning = value
		}
		at = r.w.Skip(m.Value)
	}
}

// readItem reads the item at i and returns the index after it.
func (r *Renderer) readItem(i int) int {
	it, next := r.itemFields(i), r.w.Skip(i)
	var last *message // the assistant's turn that it may go on with
	if n := len(r.msgs); n > 0 && r.msgs[n-1].role == roleAssistant && r.msgs[n-1].stopped == Complete {
		last = &r.msgs[n-1]
	}
	m := message{role: roleAssistant, name: assistantName, calls: len(r.calls)}
	kind := r.w.Word(it.kind)
	switch {
	case it.reasoning > 0 || r.unfinished(it.status):
		r.stop(Unknown)
	case string(kind) == "function_call":
		if last == nil {
			r.itemCall(&m, &it)
			break
		}
		r.itemCall(last, &it)
		if r.stopped == Complete {
			return next
		}
	case string(kind) == "reasoning":
		m.reasoning, m.hasReasoning = r.itemReasoning(&it), true
		if last != nil && !last.hasReasoning && r.stopped == Complete {
			last.reasoning, last.hasReasoning = m.reasoning, true
			return next
		}
	case string(kind) == "function_call_output":
		m.role, m.name = roleTool, roleToolName
		if r.kind(it.callID) != '"' || it.output == 0 {
			r.stop(Refused)
			break
		}
		m.callID, m.hasCallID = r.str(it.callID), true
		m.content = r.vllmContent(it.output, false)
	case len(kind) > 0 && string(kind) != "message" || it.kind > 0 && len(kind) == 0:
		r.stop(Unknown)
	case string(r.w.Word(it.role)) == "assistant" && r.kind(it.content) == '"' && it.id > 0:
		r.stop(Refused) // only parts are an output message's content
	case string(r.w.Word(it.role)) == "assistant":
		m.content, m.hasContent = r.itemText(it.content), true
		if last != nil && !last.hasContent && r.stopped == Complete {
			last.content, last.hasContent = m.content, true
			return next
		}
	case r.kind(it.role) == '"':
		m.name = r.str(it.role)
		m.role = roleOf(m.name)
		if m.role == roleOther || m.role == roleTool || it.content == 0 {
			r.stop(Unknown)
			break
		}
		m.content = r.vllmContent(it.content, m.role == roleSystem)
	default:
		r.stop(Refused)
	}
	if last != nil && r.stopped != Complete {
		last.stopped = r.stopped // it may have gone on with this
	}
	m.stopped, r.stopped = r.stopped, Complete
	r.msgs = append(r.msgs, m)
	return next
}

// unfinished tells whether a status asks for the turn to be gone on with.
func (r *Renderer) unfinished(status int) bool {
	word := r.w.Word(status)
	return string(word) == "in_progress" || string(word) == "incomplete"
}

func (r *Renderer) itemCall(m *message, it *item) {
	if r.kind(it.name) != '"' || r.kind(it.arguments) != '"' || r.kind(it.callID) != '"' {
		r.stop(Refused)
		return
	}
	if it.namespace > 0 {
		r.stop(Unknown)
		return
	}
	if len(r.calls) == maxCalls {
		r.stop(TooMany)
		return
	}
	c := call{id: r.str(it.callID), hasID: true, name: r.str(it.name), args: r.str(it.arguments)}
	if r.stopped != Complete {
		return
	}
	r.calls = append(r.calls, c)
	m.numCalls++
	m.hasCalls = true
}

// itemReasoning returns the first text of a reasoning item's content, or of its
// summary.
func (r *Renderer) itemReasoning(it *item) []byte {
	if it.encrypted > 0 && (r.body[it.encrypted] != '"' || r.body[it.encrypted+1] != '"') {
		r.stop(Refused)
		return nil
	}
	if r.kind(it.summary) != '[' {
		r.stop(Refused)
		return nil
	}
	for _, list := range [...]int{it.content, it.summary} {
		if list == 0 {
			continue
		}
		if r.kind(list) != '[' {
			r.stop(Refused)
			return nil
		}
		if e, ok := r.w.Element(list + 1); ok {
			return r.firstText(e)
		}
	}
	return nil
}

func (r *Renderer) firstText(part int) []byte {
	text := r.memberOf(part, "text")
	if r.stopped != Complete || r.kind(text) != '"' {
		r.stop(Unknown)
		return nil
	}
	return r.str(text)
}

// itemText returns an assistant's content: a text, or the first part's. vLLM
// drops the others.
func (r *Renderer) itemText(i int) []byte {
	switch r.kind(i) {
	case '"':
		return r.str(i)
	case '[':
		if e, ok := r.w.Element(i + 1); ok {
			return r.firstText(e)
		}
	}
	r.stop(Unknown)
	return nil
}
