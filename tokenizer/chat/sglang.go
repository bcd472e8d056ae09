package chat

// SGLang reads a message into a model of its own (srt/entrypoints/openai/
// protocol.py) and hands the template what is left of it without the nulls
// (serving_chat.py, process_content_for_template_format).

// sglangMessage fills m.
func (r *Renderer) sglangMessage(m *message, f *messageFields) {
	m.name = r.lowered(m.name)
	m.role = roleOf(m.name)
	switch string(m.name) {
	case "user":
		if f.content == 0 {
			r.stop(Refused)
		}
	case "system", "assistant", "tool", "function", "developer", "latest_reminder", "root":
	default:
		r.stop(Refused)
	}
	m.content = r.sglangContent(f.content)
	if m.role == roleUser {
		return // all other fields are dropped
	}
	if f.tools > 0 {
		r.stop(Unknown)
	}
	if f.callID > 0 {
		if r.kind(f.callID) != '"' {
			r.stop(Refused)
			return
		}
		m.callID, m.hasCallID = r.str(f.callID), true
	}
	if f.reasoningContent > 0 {
		if r.kind(f.reasoningContent) != '"' {
			r.stop(Refused)
			return
		}
		m.reasoning, m.hasReasoning = r.str(f.reasoningContent), true
	}
	m.hasCalls = f.toolCalls > 0
	r.readCalls(m, f.toolCalls)
	if m.role == roleAssistant {
		r.checkArguments(m)
	}
}

// checkArguments refuses what SGLang refuses even where the template doesn't
// show it: arguments that are no JSON object.
func (r *Renderer) checkArguments(m *message) {
	from := len(r.out)
	for i := range r.callsOf(m) {
		if c := &r.callsOf(m)[i]; c.args != nil && r.stopped == Complete {
			r.arguments(c)
			r.out = r.out[:from]
		}
	}
}

// lowered returns a role in lower case: SGLang takes any.
func (r *Renderer) lowered(name []byte) []byte {
	upper := false
	for _, c := range name {
		upper = upper || c >= 'A' && c <= 'Z'
	}
	if !upper {
		return name
	}
	from := len(r.arena)
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		r.arena = append(r.arena, c)
	}
	return r.since(from)
}

// sglangContent returns a message's content as one text: the text parts joined
// by spaces.
func (r *Renderer) sglangContent(i int) []byte {
	switch r.kind(i) {
	case 'n':
		return nil
	case '"':
		return r.str(i)
	case '[':
	default:
		r.stop(Refused)
		return nil
	}
	from, first := len(r.arena), true
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			break
		}
		if r.body[e] != '{' {
			r.stop(Refused)
			break
		}
		text := r.sglangPart(e)
		at = r.w.Skip(e)
		if r.stopped != Complete {
			break
		}
		if !first {
			r.arena = append(r.arena, ' ')
		}
		first = false
		r.gather(text)
	}
	return r.since(from)
}

// sglangPart returns where the text of the part at i is.
func (r *Renderer) sglangPart(i int) int {
	kind, text := 0, 0
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		switch string(m.Name) {
		case "type":
			kind = m.Value
		case "text":
			text = m.Value
		}
		at = r.w.Skip(m.Value)
	}
	if string(r.w.Word(kind)) != "text" {
		r.stop(Media)
		return 0
	}
	if r.kind(text) != '"' {
		r.stop(Refused)
		return 0
	}
	return text
}

// lastAssistant makes a user's turn of an assistant's that ends the
// conversation, or (continue_final_message) takes it off: its text is then
// tokenised apart and appended.
func (r *Renderer) lastAssistant() {
	n, resume := len(r.msgs)-1, r.opts.resume
	r.opts.resume = false // its template isn't told
	last := &r.msgs[n]
	if last.role != roleAssistant || last.stopped != Complete {
		return
	}
	if resume {
		r.opts.prefill = last.content
		r.msgs = r.msgs[:n]
		return
	}
	*last = message{role: roleUser, name: userName, content: last.content}
}

var userName = []byte("user")
