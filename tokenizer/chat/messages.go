package chat

import "github.com/warmpath/warmpath/shared/jsontext"

// role of a turn.
type role uint8

const (
	roleOther role = iota
	roleSystem
	roleUser
	roleAssistant
	roleTool
	roleDeveloper
)

//
//go:noinline
func roleOf(name []byte) role {
	switch string(name) {
	case "system":
		return roleSystem
	case "user":
		return roleUser
	case "assistant":
		return roleAssistant
	case "tool":
		return roleTool
	case "developer":
		return roleDeveloper
	}
	return roleOther
}

// message is one turn as the engine hands it to the template.
type message struct {
	role         role
	name         []byte // of the role
	content      []byte
	hasContent   bool // Harmony: also if it is empty
	splits       int  // Harmony: where parts meet, in Renderer.splits
	numSplits    int
	blank        bool // Harmony: the first part is empty, which hides an answer
	reasoning    []byte
	hasReasoning bool
	calls        int // the first of its calls in Renderer.calls
	numCalls     int
	hasCalls     bool   // even if it is a list of none
	callID       []byte // of the call that a tool's turn answers
	hasCallID    bool
	stopped      Reason // Complete, or why the turn can't be rendered
}

// call is a tool call of an assistant's turn.
type call struct {
	id    []byte
	hasID bool
	name  []byte
	// args is the arguments' JSON text: given as a string, or (object) the
	// value's place in the body.
	args   []byte
	object int
}

// conversation renders what is made of turns.
func (r *Renderer) conversation(req Request) {
	switch req.Endpoint {
	case Chat:
		r.readOptions()
		r.readTools(r.top[fieldTools])
		r.readMessages(r.top[fieldMessages])
	case Responses:
		r.readResponses()
	case Messages:
		r.readAnthropic()
	default:
		r.stop(Unknown)
	}
	if r.stopped != Complete {
		return
	}
	if len(r.msgs) == 0 {
		r.stop(Refused)
		return
	}
	r.adapt()
	if r.stopped == Complete {
		r.template()
	}
}

// adapt does what the engine does to the turns as a whole.
func (r *Renderer) adapt() {
	if r.tmpl.engine == SGLang {
		r.lastAssistant()
		if len(r.msgs) == 0 {
			r.stop(Refused)
		}
		return
	}
	if r.tmpl.family != familyGPTOSS {
		r.developers()
	}
}

// template writes the turns.
func (r *Renderer) template() {
	switch r.tmpl.family {
	case familyQwen25:
		r.qwen25()
	case familyQwen3:
		r.qwen3()
	case familyLlama3:
		r.llama3()
	case familyLlama31, familyLlama32:
		r.llama31()
	case familyMistralNemo:
		r.mistralNemo()
	case familyDeepSeekV3:
		r.deepSeekV3()
	case familyGPTOSS:
		r.harmony()
	case familyDeclarative:
		r.declarative(r.tmpl.decl)
	default:
		r.stop(NoTemplate)
	}
}

// readMessages reads the turns of a chat request.
func (r *Renderer) readMessages(i int) {
	if r.kind(i) != '[' {
		r.stop(Refused)
		return
	}
	for at := i + 1; ; {
		e, ok := r.nextObject(at, len(r.msgs), maxMessages)
		if !ok {
			return
		}
		at = r.readMessage(e)
	}
}

// nextObject returns the next element at or after at of a list of objects, of
// which have are read and most are taken. It answers false at the list's end and
// where rendering has to stop.
func (r *Renderer) nextObject(at, have, most int) (int, bool) {
	e, ok := r.w.Element(at)
	switch {
	case !ok || r.stopped != Complete:
		return 0, false
	case r.body[e] != '{':
		r.stop(Refused)
		return 0, false
	case have >= most:
		r.stop(TooMany)
		return 0, false
	}
	return e, true
}

// messageFields holds where the fields of a message are; 0: absent or null.
type messageFields struct {
	role, content, reasoning, reasoningContent, toolCalls, callID, tools int
}

// readMessage reads the turn at i and returns the index after it. What keeps it
// from being rendered is kept with the turn: those before it are still exact.
func (r *Renderer) readMessage(i int) int {
	var f messageFields
	at := i + 1
	for {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		value := m.Value
		if r.body[value] == 'n' {
			value = 0
		}
		switch string(m.Name) {
		case "role":
			f.role = value
		case "content":
			f.content = value
		case "reasoning":
			f.reasoning = value
		case "reasoning_content":
			f.reasoningContent = value
		case "tool_calls":
			f.toolCalls = value
		case "tool_call_id":
			f.callID = value
		case "tools":
			f.tools = value
		}
		at = r.w.Skip(m.Value)
	}
	next := r.after(at, '}')
	if r.kind(f.role) != '"' {
		r.stop(Refused)
		return next
	}
	m := message{name: r.str(f.role), calls: len(r.calls)}
	switch {
	case r.tmpl.family == familyGPTOSS:
		r.harmonyMessage(&m, &f)
	case r.tmpl.engine == SGLang:
		r.sglangMessage(&m, &f)
	default:
		r.vllmMessage(&m, &f)
	}
	m.stopped, r.stopped = r.stopped, Complete
	r.msgs = append(r.msgs, m)
	return next
}

// readCalls reads the tool calls at i into m.
func (r *Renderer) readCalls(m *message, i int) {
	if r.kind(i) != '[' {
		if i > 0 {
			r.stop(Refused)
		}
		return
	}
	for at := i + 1; ; {
		e, ok := r.nextObject(at, len(r.calls), maxCalls)
		if !ok {
			return
		}
		at = r.readCall(e)
		m.numCalls++
	}
}

func (r *Renderer) readCall(i int) int {
	c := call{}
	function := 0
	at := i + 1
	for {
		m, ok := r.w.Member(at)
		if !ok {
			break
		}
		switch string(m.Name) {
		case "id":
			switch r.kind(m.Value) {
			case '"':
				c.id, c.hasID = r.str(m.Value), true
			case 'n':
				c.id, c.hasID = nil, false
			default:
				r.stop(Refused)
			}
		case "type":
			if string(r.w.Word(m.Value)) != "function" {
				r.stop(Unknown)
			}
		case "function":
			function = m.Value
		}
		at = r.w.Skip(m.Value)
	}
	next := r.after(at, '}')
	if r.kind(function) != '{' {
		r.stop(Refused)
		return next
	}
	named := false
	for k := function + 1; ; {
		m, ok := r.w.Member(k)
		if !ok {
			break
		}
		switch string(m.Name) {
		case "name":
			named = r.kind(m.Value) == '"'
			if named {
				c.name = r.str(m.Value)
			}
		case "arguments":
			c.args, c.object = nil, 0
			switch r.kind(m.Value) {
			case '"':
				c.args = r.str(m.Value)
			case '{':
				c.object = m.Value
			case 'n':
			default:
				r.stop(Refused)
			}
		}
		k = r.w.Skip(m.Value)
	}
	if !named {
		r.stop(Refused)
	}
	r.calls = append(r.calls, c)
	return next
}

// callsOf returns the tool calls of m.
//
//go:noinline
func (r *Renderer) callsOf(m *message) []call {
	return r.calls[m.calls : m.calls+m.numCalls]
}

// arguments writes a call's arguments as the template's tojson does with what
// the engine has made of them.
func (r *Renderer) arguments(c *call) {
	if c.object > 0 {
		d := dumper{r: r, src: r.body}
		d.value(c.object)
		return
	}
	sglang := r.tmpl.engine == SGLang
	if c.args == nil && sglang {
		r.lit("null")
		return
	}
	from := len(r.out)
	if i := jsontext.SkipSpace(c.args, 0); i < len(c.args) && c.args[i] == '{' {
		d := dumper{r: r, src: c.args}
		if sglang {
			d.dialect = orJSON
		}
		i = d.value(i)
		if !r.going() || !d.invalid && jsontext.SkipSpace(c.args, i) == len(c.args) {
			return
		}
		r.keys = r.keys[:0]
	}
	// No object, or no JSON at all.
	r.out = r.out[:from]
	if sglang {
		r.stop(Refused)
		return
	}
	r.lit("{}")
}
