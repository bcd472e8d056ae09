package chat

import "bytes"

const (
	imStart = "<|im_start|>"
	imEnd   = "<|im_end|>\n"
)

// toolsHead and toolsTail stand around the definitions in Qwen's system turn.
const (
	qwenToolsHead = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
	qwenToolsTail = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
		"<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>" + imEnd
	qwenDefault = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
)

// qwenTools writes the definitions, and the end of the system turn.
func (r *Renderer) qwenTools() {
	r.lit(qwenToolsHead)
	for i := range r.tools {
		r.lit("\n")
		r.dumpTool(&r.tools[i], 0)
		if !r.going() {
			return
		}
	}
	r.lit(qwenToolsTail)
	r.end()
}

// qwen25 is the template of Qwen2.5: a default system text, tools in the system
// turn, tools' answers in user turns.
func (r *Renderer) qwen25() {
	first := &r.msgs[0]
	r.lit(imStart + "system\n")
	if first.role == roleSystem {
		if !r.content(first, 0) {
			return
		}
	} else {
		r.lit(qwenDefault)
	}
	if len(r.tools) > 0 {
		r.lit("\n\n")
		r.qwenTools()
	} else {
		r.lit(imEnd)
		r.end()
	}
	for i := range r.msgs {
		m := &r.msgs[i]
		if !r.going() || !r.enter(m) {
			return
		}
		switch {
		case m.role == roleUser, m.role == roleSystem && i > 0, m.role == roleAssistant && m.numCalls == 0:
			r.lit(imStart)
			r.put(m.name)
			r.lit("\n")
			if !r.content(m, i) {
				return
			}
			r.lit(imEnd)
		case m.role == roleAssistant:
			r.lit(imStart + "assistant")
			if len(m.content) > 0 || r.resumes(i) {
				r.lit("\n")
				if !r.content(m, i) {
					return
				}
			}
			for j := range r.callsOf(m) {
				r.lit("\n")
				r.qwenCall(&r.callsOf(m)[j])
			}
			r.lit(imEnd)
		case m.role == roleTool:
			if !r.qwenToolAnswer(m, i) {
				return
			}
		}
		r.end()
	}
	r.generate(imStart+"assistant\n", "")
}

// qwenCall writes a tool call.
func (r *Renderer) qwenCall(c *call) {
	r.lit("<tool_call>\n{\"name\": \"")
	r.put(c.name)
	r.lit("\", \"arguments\": ")
	r.arguments(c)
	r.lit("}\n</tool_call>")
}

// qwenToolAnswer writes a tool's turn: those that follow one another share one
// user turn.
func (r *Renderer) qwenToolAnswer(m *message, i int) bool {
	if i == 0 || r.msgs[i-1].role != roleTool {
		r.lit(imStart + "user")
	}
	r.lit("\n<tool_response>\n")
	if !r.content(m, i) {
		return false
	}
	r.lit("\n</tool_response>")
	if i+1 == len(r.msgs) || r.msgs[i+1].role != roleTool {
		r.lit(imEnd)
	}
	return true
}

// qwen3 is the template of Qwen3: as Qwen2.5's without a default system text,
// and assistants' reasoning is kept only after the user's last question.
func (r *Renderer) qwen3() {
	first := &r.msgs[0]
	switch {
	case len(r.tools) > 0:
		r.lit(imStart + "system\n")
		if first.role == roleSystem {
			if !r.content(first, 0) {
				return
			}
			r.lit("\n\n")
		}
		r.qwenTools()
	case first.role == roleSystem:
		r.lit(imStart + "system\n")
		if !r.content(first, 0) {
			return
		}
		r.lit(imEnd)
		r.end()
	}
	query := r.lastQuery()
	for i := range r.msgs {
		m := &r.msgs[i]
		if !r.going() || !r.enter(m) {
			return
		}
		switch {
		case m.role == roleUser, m.role == roleSystem && i > 0:
			r.lit(imStart)
			r.put(m.name)
			r.lit("\n")
			if !r.content(m, i) {
				return
			}
			r.lit(imEnd)
		case m.role == roleAssistant:
			if !r.qwen3Assistant(m, i, query) {
				return
			}
		case m.role == roleTool:
			if !r.qwenToolAnswer(m, i) {
				return
			}
		}
		r.end()
	}
	empty := ""
	if r.opts.noThinking {
		empty = "<think>\n\n</think>\n\n"
	}
	r.generate(imStart+"assistant\n", empty)
}

// lastQuery returns the index of the user's last turn that isn't a tool's
// answer in disguise; the last index if there is none.
func (r *Renderer) lastQuery() int {
	for i := len(r.msgs) - 1; i >= 0; i-- {
		m := &r.msgs[i]
		if m.role != roleUser {
			continue
		}
		if m.stopped != Complete {
			// Whether it counts isn't known; reasoning before it may go.
			return i
		}
		if !bytes.HasPrefix(m.content, toolOpen) || !bytes.HasSuffix(m.content, toolClose) {
			return i
		}
	}
	return len(r.msgs) - 1
}

var (
	toolOpen   = []byte("<tool_response>")
	toolClose  = []byte("</tool_response>")
	thinkOpen  = []byte("<think>")
	thinkClose = []byte("</think>")
)

func (r *Renderer) qwen3Assistant(m *message, i, query int) bool {
	content, reasoning := m.content, m.reasoning
	if !m.hasReasoning && bytes.Contains(content, thinkClose) {
		if r.resumes(i) {
			r.stop(Unknown)
			return false
		}
		head := content[:bytes.Index(content, thinkClose)]
		content = trimLeft(content[bytes.LastIndex(content, thinkClose)+len(thinkClose):], '\n')
		head = trimRight(head, '\n')
		if k := bytes.LastIndex(head, thinkOpen); k >= 0 {
			head = head[k+len(thinkOpen):]
		}
		reasoning = trimLeft(head, '\n')
	}
	last := i == len(r.msgs)-1
	r.lit(imStart + "assistant\n")
	if i > query && (last || len(reasoning) > 0) {
		r.lit("<think>\n")
		r.put(trimLeft(trimRight(reasoning, '\n'), '\n'))
		r.lit("\n</think>\n\n")
		r.put(trimLeft(content, '\n'))
	} else {
		r.put(content)
	}
	if r.resumes(i) {
		return false
	}
	calls := r.callsOf(m)
	for j := range calls {
		if j > 0 || len(content) > 0 {
			r.lit("\n")
		}
		r.qwenCall(&calls[j])
	}
	r.lit(imEnd)
	return true
}

func trimLeft(s []byte, c byte) []byte {
	for len(s) > 0 && s[0] == c {
		s = s[1:]
	}
	return s
}

func trimRight(s []byte, c byte) []byte {
	for len(s) > 0 && s[len(s)-1] == c {
		s = s[:len(s)-1]
	}
	return s
}
