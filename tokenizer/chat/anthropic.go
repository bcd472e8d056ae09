package chat

// vLLM makes a chat request of an Anthropic one (entrypoints/anthropic/
// serving.py): system blocks are joined, tool results become tool turns before
// the user's turn that held them, thinking becomes reasoning.

// readAnthropic reads the body of /v1/messages.
func (r *Renderer) readAnthropic() {
	if r.tmpl.engine != VLLM {
		r.stop(Unknown)
		return
	}
	r.opts.generate = true
	if r.top[fieldKVTransfer] > 0 {
		r.kvTransfer(r.top[fieldKVTransfer])
	}
	r.anthropicEffort()
	r.readArguments()
	r.anthropicTools(r.top[fieldTools])
	r.anthropicSystem(r.top[fieldSystem])
	i := r.top[fieldMessages]
	if r.kind(i) != '[' {
		r.stop(Refused)
		return
	}
	for at := i + 1; ; {
		e, ok := r.nextObject(at, len(r.msgs), maxMessages)
		if !ok {
			return
		}
		at = r.anthropicMessage(e)
	}
}

// anthropicEffort reads output_config.effort and thinking.type. Thinking that
// is off is reasoning_effort "none", or "low" where the template doesn't tell
// "none" from other efforts, as Harmony and templates without thinking don't.
func (r *Renderer) anthropicEffort() {
	if i := r.top[fieldOutputConfig]; i > 0 {
		r.readEffort(r.memberOf(i, "effort"))
	}
	if i := r.top[fieldThinking]; i > 0 {
		switch string(r.w.Word(r.memberOf(i, "type"))) {
		case "disabled":
			r.opts.noThinking = r.tmpl.family == familyQwen3
			r.opts.effort = lowEffort
		case "enabled", "adaptive":
		default:
			r.stop(Refused)
		}
	}
}

var lowEffort = []byte("low")

// memberOf returns where the value of a member of the object at i is: the last
// one's, and 0 where there is none, or null.
func (r *Renderer) memberOf(i int, name string) int {
	if r.kind(i) != '{' {
		r.stop(Refused)
		return 0
	}
	value := 0
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		if string(m.Name) == name {
			value = m.Value
		}
		at = r.w.Skip(m.Value)
	}
	if r.kind(value) == 'n' {
		return 0
	}
	return value
}

// anthropicTools reads the definitions at i.
func (r *Renderer) anthropicTools(i int) {
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
			break
		}
		if len(r.tools) == maxTools {
			r.stop(TooMany)
			return
		}
		t := tool{order: vllmOrder}
		t.parameters = r.memberOf(e, "input_schema")
		if r.stopped == Complete {
			r.flatTool(e, &t)
			if r.kind(t.parameters) != '{' {
				r.stop(Refused)
				return
			}
			t.addType = !r.hasMember(t.parameters, "type")
		}
		r.tools = append(r.tools, t)
		at = r.w.Skip(e)
	}
	if len(r.tools) == 0 {
		r.stop(Unknown) // templates tell an empty list from none
	}
}

// hasMember tells whether the object at i has a member of that name, be it null.
func (r *Renderer) hasMember(i int, name string) bool {
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			return false
		}
		if string(m.Name) == name {
			return true
		}
		at = r.w.Skip(m.Value)
	}
}

// flatTool reads name, description and strict of the definition at i.
func (r *Renderer) flatTool(i int, t *tool) {
	t.name, t.description, t.strict = r.memberOf(i, "name"), r.memberOf(i, "description"), r.memberOf(i, "strict")
	switch {
	case r.kind(t.name) != '"', t.description > 0 && r.body[t.description] != '"':
		r.stop(Refused)
	case t.strict > 0 && r.body[t.strict] != 't' && r.body[t.strict] != 'f', r.memberOf(i, "defer_loading") > 0:
		r.stop(Unknown)
	}
}

// mergesSystem tells whether vLLM puts system turns within the conversation into
// the leading one: it does for templates that refuse them, or that it can't try.
func (r *Renderer) mergesSystem() bool {
	return r.tmpl.family == familyMistralNemo || r.tmpl.family == familyGPTOSS
}

// anthropicSystem reads the system text at i, and that of system turns where
// they are merged.
func (r *Renderer) anthropicSystem(i int) {
	from := len(r.arena)
	switch r.kind(i) {
	case 'n':
	case '"':
		r.gather(i)
	case '[':
		r.systemBlocks(i)
	default:
		r.stop(Refused)
	}
	if r.mergesSystem() && r.kind(r.top[fieldMessages]) == '[' {
		for at := r.top[fieldMessages] + 1; r.stopped == Complete; {
			e, ok := r.w.Element(at)
			if !ok {
				break
			}
			if r.body[e] == '{' && string(r.w.Word(r.memberOf(e, "role"))) == "system" {
				r.systemText(r.memberOf(e, "content"))
			}
			at = r.w.Skip(e)
		}
	}
	text := r.since(from)
	if len(text) == 0 || r.stopped != Complete {
		return
	}
	r.msgs = append(r.msgs, r.systemMessage(text))
}

// systemMessage makes a system turn; the chat endpoint strips the billing line
// for templates.
func (r *Renderer) systemMessage(text []byte) message {
	if r.tmpl.family != familyGPTOSS {
		text = withoutBilling(text)
	}
	return message{role: roleSystem, name: systemName, content: text, hasContent: true}
}

// systemText gathers the text of a system turn.
func (r *Renderer) systemText(i int) {
	switch r.kind(i) {
	case '"':
		from := len(r.arena)
		r.gather(i)
		if isBilling(r.arena[from:]) {
			r.arena = r.arena[:from]
		}
	case '[':
		r.systemBlocks(i)
	default:
		r.stop(Refused)
	}
}

func isBilling(text []byte) bool {
	return len(text) >= len(billing) && string(text[:len(billing)]) == billing
}

// systemBlocks gathers the texts of the blocks at i but those that begin with a
// billing line.
func (r *Renderer) systemBlocks(i int) {
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			return
		}
		b := r.readBlock(e)
		at = r.w.Skip(e)
		switch {
		case r.stopped != Complete:
		case b.kind == blockText:
			if b.text > 0 {
				from := len(r.arena)
				r.gather(b.text)
				if isBilling(r.arena[from:]) {
					r.arena = r.arena[:from]
				}
			}
		case b.kind == blockToolChange:
			r.stop(Unknown)
		}
	}
}

// blockKind is the type of a content block.
type blockKind uint8

const (
	blockText blockKind = iota + 1
	blockImage
	blockToolUse
	blockToolResult
	blockThinking
	blockNothing // leaves nothing in the prompt
	blockToolChange
)

// block is a content block: indices of its values.
type block struct {
	kind                                            blockKind
	text, id, name, input, useID, content, thinking int
}

// readBlock reads the content block at i.
func (r *Renderer) readBlock(i int) block {
	b := block{}
	if r.body[i] != '{' {
		r.stop(Refused)
		return b
	}
	kind := 0
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		value, want := m.Value, byte('"')
		if r.body[value] == 'n' {
			value = 0
		}
		switch string(m.Name) {
		case "type":
			kind = value
		case "text":
			b.text = value
		case "id":
			b.id = value
		case "name":
			b.name = value
		case "input":
			b.input, want = value, '{'
		case "tool_use_id":
			b.useID = value
		case "content":
			b.content, want = value, 0
		case "thinking":
			b.thinking = value
		default:
			want = 0
		}
		if value > 0 && want > 0 && r.body[value] != want {
			r.stop(Refused)
		}
		at = r.w.Skip(m.Value)
	}
	switch string(r.w.Word(kind)) {
	case "text":
		b.kind = blockText
	case "image":
		b.kind = blockImage
	case "tool_use":
		b.kind = blockToolUse
	case "tool_result":
		b.kind = blockToolResult
	case "thinking":
		b.kind = blockThinking
	case "redacted_thinking", "tool_reference":
		b.kind = blockNothing
	case "tool_addition", "tool_removal":
		b.kind = blockToolChange
	default:
		r.stop(Refused)
	}
	return b
}

// anthropicMessage reads the turn at i and returns the index after it.
func (r *Renderer) anthropicMessage(i int) int {
	role, content := r.memberOf(i, "role"), r.memberOf(i, "content")
	next := r.w.Skip(i)
	m := message{calls: len(r.calls)}
	switch string(r.w.Word(role)) {
	case "user":
		m.role, m.name = roleUser, userName
	case "assistant":
		m.role, m.name = roleAssistant, assistantName
	case "system":
		if !r.mergesSystem() {
			r.inlineSystem(content)
		}
		return next
	default:
		r.stop(Refused)
		return next
	}
	switch r.kind(content) {
	case '"':
		m.content, m.hasContent = r.str(content), true
	case '[':
		r.anthropicBlocks(&m, content)
	default:
		r.stop(Refused)
	}
	if r.stopped == Complete && m.role == roleUser && !m.hasContent {
		return next // it held tool results only
	}
	m.hasCalls = m.numCalls > 0
	m.stopped, r.stopped = r.stopped, Complete
	r.msgs = append(r.msgs, m)
	return next
}

var assistantName = []byte("assistant")

func (r *Renderer) inlineSystem(content int) {
	from := len(r.arena)
	r.systemText(content)
	text := r.since(from)
	if len(text) == 0 && r.stopped == Complete {
		return
	}
	m := r.systemMessage(text)
	if r.tmpl.family == familyDeclarative && r.tmpl.decl != &chatML {
		r.stop(Unknown) // whether the template takes it there isn't declared
	}
	m.stopped, r.stopped = r.stopped, Complete
	r.msgs = append(r.msgs, m)
}

// anthropicBlocks reads the blocks at i into m, and tool results into turns of
// their own. Texts are gathered last: tool results lie in the arena too.
func (r *Renderer) anthropicBlocks(m *message, i int) {
	texts, thoughts := 0, 0
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			break
		}
		b := r.readBlock(e)
		at = r.w.Skip(e)
		if r.stopped != Complete {
			break
		}
		switch b.kind {
		case blockText:
			if b.text > 0 && r.body[b.text+1] != '"' {
				texts++
			}
		case blockImage:
			r.stop(Media)
		case blockThinking:
			if b.thinking > 0 {
				thoughts++
			}
		case blockToolUse:
			r.toolUse(m, &b)
		case blockToolResult:
			if m.role != roleUser {
				r.stop(Unknown)
				break
			}
			r.toolResult(&b)
		case blockToolChange:
			r.stop(Refused)
		}
	}
	if texts > 0 {
		m.content, m.hasContent = r.joinBlocks(m, i, blockText), true
	}
	if thoughts > 0 {
		m.reasoning, m.hasReasoning = r.joinBlocks(m, i, blockThinking), true
	}
}

// joinBlocks returns the texts of one kind of blocks: of text, those that aren't
// empty by line breaks (apart, for Harmony), of thinking all without a break.
func (r *Renderer) joinBlocks(m *message, i int, kind blockKind) []byte {
	from := len(r.arena)
	for at := i + 1; r.stopped == Complete; {
		e, ok := r.w.Element(at)
		if !ok {
			break
		}
		b := r.readBlock(e)
		at = r.w.Skip(e)
		if b.kind != kind {
			continue
		}
		text := b.text
		if kind == blockThinking {
			text = b.thinking
		}
		if text == 0 {
			continue
		}
		before := len(r.arena)
		if kind == blockText && before > from && r.body[text+1] != '"' {
			if r.tmpl.family == familyGPTOSS {
				r.split(m, before-from)
			} else {
				r.arena = append(r.arena, '\n')
			}
		}
		r.gather(text)
	}
	return r.since(from)
}

// toolUse adds the call of a tool_use block.
func (r *Renderer) toolUse(m *message, b *block) {
	if len(r.calls) == maxCalls {
		r.stop(TooMany)
		return
	}
	c := call{id: noID, hasID: true}
	if b.id > 0 && r.body[b.id+1] != '"' {
		c.id = r.str(b.id)
	}
	if b.name > 0 {
		c.name = r.str(b.name)
	}
	switch {
	case r.tmpl.family != familyGPTOSS:
		c.object = b.input
	case b.input == 0:
		c.args = emptyObject
	default:
		// Harmony shows the text that json.dumps makes of it. It is written into
		// the prompt's buffer and moved to the arena.
		n, from := len(r.out), len(r.arena)
		d := dumper{r: r, src: r.body, ascii: true}
		d.value(b.input)
		r.arena = append(r.arena, r.out[n:]...)
		r.out = r.out[:n]
		c.args = r.since(from)
	}
	r.calls = append(r.calls, c)
	m.numCalls++
}

var (
	// noID stands for the id that vLLM makes of the time.
	noID        = []byte("call_0000000000")
	emptyObject = []byte("{}")
)

// toolResult makes a tool's turn of a tool_result block.
func (r *Renderer) toolResult(b *block) {
	if len(r.msgs) >= maxMessages {
		r.stop(TooMany)
		return
	}
	t := message{role: roleTool, name: roleToolName, hasContent: true, hasCallID: true, callID: noID[:0]}
	if b.useID > 0 {
		t.callID = r.str(b.useID)
	}
	switch r.kind(b.content) {
	case 'n':
	case '"':
		t.content = r.str(b.content)
	case '[':
		t.content = r.resultTexts(b.content)
	default:
		r.stop(Refused)
	}
	t.stopped = r.stopped // it is a tool's turn all the same
	r.msgs = append(r.msgs, t)
}

var roleToolName = []byte("tool")

// resultTexts joins the texts of a tool's result by line breaks.
func (r *Renderer) resultTexts(i int) []byte {
	from, n := len(r.arena), 0
	for at := i + 1; ; {
		e, ok := r.w.Element(at)
		if !ok || r.stopped != Complete {
			break
		}
		at = r.w.Skip(e)
		if r.body[e] != '{' {
			r.stop(Refused)
			break
		}
		switch string(r.w.Word(r.memberOf(e, "type"))) {
		case "text":
			if n > 0 {
				r.arena = append(r.arena, '\n')
			}
			n++
			switch text := r.memberOf(e, "text"); r.kind(text) {
			case '"':
				r.gather(text)
			default:
				r.stop(Unknown)
			}
		case "image":
			r.stop(Media)
		case "tool_reference":
			r.stop(Unknown)
		}
	}
	return r.since(from)
}
