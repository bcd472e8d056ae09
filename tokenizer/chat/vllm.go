package chat

import "bytes"

// vLLM reads a message as vllm/renderers/chat_utils.py does
// (_parse_chat_message_content, _postprocess_messages) for templates whose
// content is a string, which all of this package's are.

// vllmMessage fills m.
func (r *Renderer) vllmMessage(m *message, f *messageFields) {
	m.role = roleOf(m.name)
	m.content = r.vllmContent(f.content, m.role == roleSystem)
	switch m.role {
	case roleAssistant:
		i := f.reasoning
		if i == 0 {
			i = f.reasoningContent
		}
		if i > 0 {
			if r.kind(i) != '"' {
				r.stop(Unknown)
				return
			}
			m.reasoning, m.hasReasoning = r.str(i), true
		}
		r.readCalls(m, f.toolCalls)
		m.hasCalls = m.numCalls > 0 // an empty list is taken away
	case roleTool:
		if f.callID > 0 {
			if r.kind(f.callID) != '"' {
				r.stop(Refused)
				return
			}
			m.callID, m.hasCallID = r.str(f.callID), true
		}
	case roleDeveloper:
		if f.tools > 0 {
			r.stop(Unknown)
		}
	}
}

// vllmContent returns a message's content as one text: of parts those that
// aren't empty, joined by line breaks.
func (r *Renderer) vllmContent(i int, system bool) []byte {
	switch r.kind(i) {
	case 'n':
		return nil
	case '"':
		text := r.str(i)
		if system {
			text = withoutBilling(text)
		}
		return text
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
		part := e
		if r.body[e] == '{' {
			part = r.vllmPart(e)
		}
		at = r.w.Skip(e)
		if r.stopped != Complete {
			break
		}
		if part == 0 {
			continue
		}
		if r.body[part] != '"' {
			r.stop(Refused)
			break
		}
		before := len(r.arena)
		if !first {
			r.arena = append(r.arena, '\n')
		}
		text := len(r.arena)
		r.gather(part)
		if system {
			r.arena = r.arena[:text+len(withoutBillingAt(r.arena, text))]
		}
		if len(r.arena) == text {
			r.arena = r.arena[:before] // an empty part leaves nothing
			continue
		}
		first = false
	}
	return r.since(from)
}

// vllmPart returns where the text of the part at i is, 0 if it has none.
func (r *Renderer) vllmPart(i int) int {
	kind, text, thinking, refusal := 0, 0, 0, 0
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		value := m.Value
		if r.body[value] == 'n' {
			value = 0
		}
		switch string(m.Name) {
		case "type":
			kind = value
		case "text":
			text = value
		case "thinking":
			thinking = value
		case "refusal":
			refusal = value
		case "uuid", "image_url", "image_pil", "image_embeds", "audio_embeds", "video_embeds",
			"prompt_embeds", "audio_url", "input_audio", "video_url", "tool_reference":
			if value > 0 {
				r.stop(Media)
			}
		}
		at = r.w.Skip(m.Value)
	}
	switch string(r.w.Word(kind)) {
	case "text", "input_text", "output_text":
		return text
	case "thinking":
		return thinking
	case "refusal":
		return refusal
	}
	r.stop(Media)
	return 0
}

// billing begins a line that a client puts before its system text. It changes
// with every request, so vLLM takes it out.
const billing = "x-anthropic-billing-header"

func withoutBilling(text []byte) []byte {
	if len(text) < len(billing) || string(text[:len(billing)]) != billing {
		return text
	}
	n := bytes.IndexByte(text, '\n')
	if n < 0 {
		return nil
	}
	return text[n+1:]
}

// withoutBillingAt moves what is left of the text that begins at from to there.
func withoutBillingAt(arena []byte, from int) []byte {
	text := arena[from:]
	left := withoutBilling(text)
	return text[:copy(text, left)]
}

// developers makes system turns of developer turns and then one system turn, in
// front, of all of them, as vLLM does for templates that don't know that role.
func (r *Renderer) developers() {
	found := false
	for i := range r.msgs {
		if m := &r.msgs[i]; m.role == roleDeveloper {
			m.role, m.name = roleSystem, systemName
			found = true
		}
	}
	if !found {
		return
	}
	apart := false
	for i := range r.msgs {
		if m := &r.msgs[i]; m.role == roleSystem {
			r.stop(m.stopped)
			apart = apart || i > 0
		}
	}
	if !apart || r.stopped != Complete {
		return
	}
	n, from := len(r.msgs), len(r.arena)
	for i := range r.msgs {
		if m := &r.msgs[i]; m.role == roleSystem && len(m.content) > 0 {
			if len(r.arena) > from {
				r.arena = append(r.arena, "\n\n"...)
			}
			r.arena = append(r.arena, m.content...)
		}
	}
	r.msgs = append(r.msgs, message{role: roleSystem, name: systemName, content: r.since(from)})
	for i := range n {
		if r.msgs[i].role != roleSystem {
			r.msgs = append(r.msgs, r.msgs[i])
		}
	}
	r.msgs = r.msgs[:copy(r.msgs, r.msgs[n:])]
}

var systemName = []byte("system")
