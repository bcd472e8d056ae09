package chat

import "bytes"

// harmony is the format of gpt-oss, which vLLM writes by OpenAI's library
// (entrypoints/openai/parser/harmony_utils.py, oss-harmony 0.0.11) and not by a
// template: a system turn with today's date and the effort of reasoning, a
// developer turn with instructions and tools, and one message for each channel
// of an assistant's turn. An assistant's reasoning is dropped once a later turn
// of it has a final answer.
//
// The library tokenises contents as plain text, and the parts of one apart
// (Result.Breaks). A content that spells a special token would become one here,
// so it ends the exact text.
const (
	harmonySystem = "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" +
		"Knowledge cutoff: 2024-06\nCurrent date: "
	harmonyChannels = "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message."
	harmonyCalls    = "\nCalls to these tools must go to the commentary channel: 'functions'."
	harmonyEnd      = "<|end|>"
)

// harmonyMessage reads a turn as it is, without the repairs that vLLM makes for
// templates.
func (r *Renderer) harmonyMessage(m *message, f *messageFields) {
	m.role = roleOf(m.name)
	if m.role == roleOther {
		r.stop(Refused)
		return
	}
	r.harmonyContent(m, f.content)
	if m.role == roleAssistant {
		i := f.reasoning
		if i == 0 {
			i = f.reasoningContent
		}
		if i > 0 {
			if r.kind(i) != '"' {
				r.stop(Unknown)
				return
			}
			m.reasoning = r.str(i)
		}
		r.readCalls(m, f.toolCalls)
	}
	if f.callID > 0 {
		if r.kind(f.callID) != '"' {
			r.stop(Refused)
			return
		}
		m.callID = r.str(f.callID)
	}
}

// harmonyContent reads a content; hasContent is false where there is no text at
// all.
func (r *Renderer) harmonyContent(m *message, i int) {
	switch r.kind(i) {
	case 'n':
		return
	case '"':
		m.content, m.hasContent = r.str(i), true
		return
	case '[':
	default:
		r.stop(Refused)
		return
	}
	from, n := len(r.arena), 0
	for at := i + 1; ; n++ {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			break
		}
		text := e
		if r.body[e] == '{' {
			text = r.vllmPart(e)
			if text > 0 && r.stopped == Complete && string(r.partType(e)) == "refusal" {
				text = 0 // its text isn't read
			}
		}
		at = r.w.Skip(e)
		if r.stopped != Complete {
			break
		}
		before := len(r.arena)
		if text > 0 {
			if r.body[text] != '"' {
				r.stop(Refused)
				break
			}
			r.gather(text)
			m.hasContent = true
		}
		m.blank = m.blank || n == 0 && len(r.arena) == from
		if before > from && len(r.arena) > before {
			r.split(m, before-from)
		}
	}
	m.content = r.since(from)
}

// split notes that a part of m's content begins at that offset of it.
func (r *Renderer) split(m *message, at int) {
	if m.numSplits == 0 {
		m.splits = len(r.splits)
	}
	r.splits = append(r.splits, at)
	m.numSplits++
}

// partType returns the type of the part at i.
func (r *Renderer) partType(i int) []byte {
	kind := 0
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			return r.w.Word(kind)
		}
		if string(m.Name) == "type" {
			kind = m.Value
		}
		at = r.w.Skip(m.Value)
	}
}

// harmony writes the conversation.
func (r *Renderer) harmony() {
	effort := "medium"
	if r.opts.effort != nil {
		switch effort = string(r.opts.effort); effort {
		case "low", "medium", "high":
		default:
			r.stop(Refused)
			return
		}
	}
	r.lit(harmonySystem)
	r.out = appendISODay(r.out, r.day)
	r.lit("\n\nReasoning: ")
	r.lit(effort)
	r.lit(harmonyChannels)
	if len(r.tools) > 0 {
		r.lit(harmonyCalls)
	}
	r.lit(harmonyEnd)
	r.end()

	first := 0
	var instructions *message
	if m := &r.msgs[0]; m.role == roleSystem || m.role == roleDeveloper {
		instructions, first = m, 1
		if !r.enter(m) {
			return
		}
	}
	if len(r.tools) > 0 || instructions != nil && len(instructions.content) > 0 {
		if !r.harmonyDeveloper(instructions, true) {
			return
		}
	}
	final := len(r.msgs) - 1 // the last answer; reasoning before it is dropped
	for final >= first && !r.isFinal(&r.msgs[final]) {
		final--
	}
	for i := first; i < len(r.msgs); i++ {
		m := &r.msgs[i]
		if !r.going() || !r.enter(m) {
			return
		}
		ok := true
		switch m.role {
		case roleAssistant:
			// Reasoning of the last answer's own turn stands before it: dropped too.
			ok = r.harmonyAssistant(m, i <= final)
		case roleTool:
			ok = r.harmonyAnswer(m)
		case roleUser:
			r.lit("<|start|>user<|message|>")
			ok = r.harmonyText(m)
		default:
			if m.hasContent {
				ok = r.harmonyDeveloper(m, false)
			}
		}
		if !ok {
			return
		}
		r.end()
	}
	r.lit("<|start|>assistant")
	r.end()
}

// isFinal tells whether m is an assistant's turn with an answer for the user.
func (r *Renderer) isFinal(m *message) bool {
	return m.role == roleAssistant && m.numCalls == 0 && len(m.content) > 0 && !m.blank
}

// special tells whether text spells one of gpt-oss's special tokens.
func special(text []byte) bool {
	for {
		i := bytes.Index(text, []byte("<|"))
		if i < 0 {
			return false
		}
		text = text[i+2:]
		n := bytes.Index(text[:min(len(text), len("reserved_200000|>"))], []byte("|>"))
		if n < 0 {
			continue
		}
		switch name := text[:n]; string(name) {
		case "startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call", "endofprompt":
			return true
		default:
			if bytes.HasPrefix(name, []byte("reserved_2")) {
				return true
			}
		}
	}
}

// plain writes text that the library tokenises as plain text.
func (r *Renderer) plain(text []byte) bool {
	if special(text) {
		r.stop(Unknown)
		return false
	}
	r.put(text)
	return true
}

// harmonyText writes a content and the message's end.
func (r *Renderer) harmonyText(m *message) bool {
	for _, at := range r.splits[m.splits : m.splits+m.numSplits] {
		r.breakAt(len(r.out) + at)
	}
	ok := r.plain(m.content)
	r.lit(harmonyEnd)
	return ok
}

func (r *Renderer) harmonyAssistant(m *message, drop bool) bool {
	calls := r.callsOf(m)
	if len(calls) > 0 && len(m.content) > 0 {
		r.lit("<|start|>assistant<|channel|>commentary<|message|>")
		if !r.plain(m.content) {
			return false
		}
		r.lit(harmonyEnd)
	}
	if len(m.reasoning) > 0 && !drop {
		r.lit("<|start|>assistant<|channel|>analysis<|message|>")
		if !r.plain(m.reasoning) {
			return false
		}
		r.lit(harmonyEnd)
	}
	for j := range calls {
		c := &calls[j]
		if c.object > 0 {
			r.stop(Refused)
			return false
		}
		if !simpleName(c.name) {
			r.stop(Unknown)
			return false
		}
		r.lit("<|start|>assistant to=functions.")
		r.put(c.name)
		r.lit("<|channel|>commentary json<|message|>")
		if !r.plain(c.args) {
			return false
		}
		r.lit("<|call|>")
	}
	if r.isFinal(m) {
		r.lit("<|start|>assistant<|channel|>final<|message|>")
		return r.harmonyText(m)
	}
	return true
}

// simpleName tells whether a function's name leaves no doubt how a header with
// it is tokenised.
func simpleName(name []byte) bool {
	for _, c := range name {
		if c != '_' && c != '-' && c != '.' && (c|0x20 < 'a' || c|0x20 > 'z') && c-'0' > 9 {
			return false
		}
	}
	return true
}

// harmonyAnswer writes a tool's turn under the name of the call it answers.
func (r *Renderer) harmonyAnswer(m *message) bool {
	var name []byte
	if r.spend(len(r.calls)); r.stopped != Complete {
		return false
	}
	for j := len(r.calls) - 1; j >= 0; j-- {
		if c := &r.calls[j]; c.hasID && string(c.id) == string(m.callID) {
			name = c.name
			break
		}
	}
	if !simpleName(name) {
		r.stop(Unknown)
		return false
	}
	r.lit("<|start|>functions.")
	r.put(name)
	r.lit("<|channel|>commentary to=assistant<|message|>")
	ok := r.plain(m.content)
	r.lit(harmonyEnd)
	return ok
}

// harmonyDeveloper writes a developer turn with instructions and tools.
func (r *Renderer) harmonyDeveloper(m *message, tools bool) bool {
	r.lit("<|start|>developer<|message|>")
	sections := ""
	if m != nil && m.hasContent {
		r.lit("# Instructions\n\n")
		if !r.plain(m.content) {
			return false
		}
		sections = "\n\n"
	}
	if tools && len(r.tools) > 0 {
		r.lit(sections)
		r.lit("# Tools\n\n## functions\n\nnamespace functions {\n\n")
		for i := range r.tools {
			from := len(r.out)
			r.harmonyTool(&r.tools[i])
			if len(r.out) > r.max {
				// A part says less than the whole about how it is tokenised.
				r.max = min(r.max, from)
				return false
			}
			if special(r.out[from:]) {
				r.stop(Unknown)
			}
			if r.stopped != Complete {
				return false
			}
		}
		r.lit("} // namespace functions")
	}
	r.lit(harmonyEnd)
	r.end()
	return r.stopped == Complete
}

// harmonyTool writes a definition as a TypeScript type.
func (r *Renderer) harmonyTool(t *tool) {
	if t.description > 0 {
		text := r.str(t.description)
		for len(text) > 0 {
			line := text
			if n := bytes.IndexByte(text, '\n'); n >= 0 {
				line, text = text[:n], text[n+1:]
				if n > 0 && line[n-1] == '\r' {
					line = line[:n-1]
				}
			} else {
				text = nil
			}
			r.lit("// ")
			r.put(line)
			r.lit("\n")
		}
	}
	r.lit("type ")
	r.put(r.str(t.name))
	if t.parameters == 0 {
		r.lit(" = () => any;\n\n")
		return
	}
	r.finite(t.parameters)
	r.lit(" = (_: ")
	r.typeScript(t.parameters, t.addType, 0, 0)
	r.lit(") => any;\n\n")
}

// finite stops where the value at i holds a number that Python reads as infinite:
// the library refuses it, shown or not.
func (r *Renderer) finite(i int) {
	end := r.w.Skip(i)
	for digits := 0; i < end; i++ {
		switch c := r.body[i]; {
		case c == '"':
			i, _ = r.w.StringEnd(i + 1)
		case c-'0' <= 9:
			if digits++; digits < 300 {
				continue
			}
			r.stop(Unknown)
		case digits > 0 && c|0x20 == 'e':
			from := i - 1
			for from > 0 && (r.body[from]-'0' <= 9 || r.body[from] == '.' || r.body[from] == '-') {
				from--
			}
			at := len(r.out)
			r.compactJSON(from + 1)
			r.out = r.out[:at]
		}
		digits = 0
	}
}

// appendISODay appends a day, counted from 1970-01-01, as 2026-07-04.
func appendISODay(dst []byte, day int) []byte {
	year, month, date := civil(day)
	for unit := 1000; unit > 0; unit /= 10 {
		dst = append(dst, byte('0'+year/unit%10))
	}
	return append(dst, '-', byte('0'+month/10), byte('0'+month%10), '-', byte('0'+date/10), byte('0'+date%10))
}
