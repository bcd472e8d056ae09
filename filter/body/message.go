package body

// The fields of a message, an item of /v1/responses, or a content part. What
// is not listed does not reach the prompt (ids, cache_control, annotations).
const (
	partRole = iota
	partName
	partType
	partContent
	partText
	partRefusal
	partThinking
	partToolCalls
	partFunctionCall
	partArguments
	partInput
	partOutput
	numPartFields
)

// fields holds the index of each field's value in an object, 0 where it is
// absent or null. Of duplicates the last counts.
type fields [numPartFields]int

// arguments is where a tool call's arguments are, whatever their name.
func (f *fields) arguments() int {
	if f[partArguments] > 0 {
		return f[partArguments]
	}
	return f[partInput]
}

// fields reads the object at i and returns the index after it.
func (r *renderer) fields(i int, f *fields) int {
	for i++; ; {
		m, ok := r.Member(i)
		if !ok {
			break
		}
		at := -1
		switch string(m.Name) {
		case "role":
			at = partRole
		case "name":
			at = partName
		case "type":
			at = partType
		case "content":
			at = partContent
		case "text":
			at = partText
		case "refusal":
			at = partRefusal
		case "thinking", "reasoning_content", "reasoning":
			at = partThinking
		case "tool_calls":
			at = partToolCalls
		case "function_call":
			at = partFunctionCall
		case "arguments":
			at = partArguments
		case "input":
			at = partInput
		case "output":
			at = partOutput
		}
		if at >= 0 {
			f[at] = m.Value
			if r.req.body[m.Value] == 'n' {
				f[at] = 0
			}
		}
		i = r.Skip(m.Value)
	}
	for r.req.body[i] != '}' {
		i++
	}
	return i + 1
}

// message renders the turn that the object at i describes.
func (r *renderer) message(i int) int {
	var f fields
	next := r.fields(i, &f)
	r.turn()
	if f[partRole] > 0 {
		r.label(f[partRole])
		if f[partName] > 0 {
			r.put(markPart)
			r.label(f[partName])
		}
		r.put(markBody)
		r.messageContent(&f)
		r.end()
		return next
	}
	switch kind := f[partType]; string(r.Word(kind)) {
	case "function_call", "custom_tool_call":
		r.ours("assistant")
		r.put(markBody)
		r.call(f[partName], f.arguments())
	case "function_call_output", "custom_tool_call_output":
		r.ours("tool")
		r.put(markBody)
		r.content(f[partOutput], false)
	case "message":
		r.put(markBody)
		r.messageContent(&f)
	default:
		if kind == 0 {
			r.put(markBody)
			r.messageContent(&f)
			break
		}
		// Reasoning, references, calls of built-in tools.
		r.label(kind)
		r.put(markBody)
		r.compact(i, 1)
	}
	r.end()
	return next
}

func (r *renderer) messageContent(f *fields) {
	if at := f[partThinking]; at > 0 {
		r.put(markPart)
		r.ours("thinking")
		r.put(markBody)
		r.value(at)
	}
	r.content(f[partContent], false)
	if at := f[partRefusal]; at > 0 {
		r.put(markPart)
		r.ours("refusal")
		r.put(markBody)
		r.value(at)
	}
	if at := f[partToolCalls]; at > 0 {
		r.toolCalls(at)
	}
	if at := f[partFunctionCall]; at > 0 {
		r.toolCall(at)
	}
}

// toolCalls renders the calls that an assistant turn of a chat made.
func (r *renderer) toolCalls(at int) {
	if r.req.body[at] != '[' {
		r.compact(at, 0)
		return
	}
	for i := at + 1; ; {
		c, ok := r.Element(i)
		if !ok {
			return
		}
		i = r.toolCall(c)
	}
}

// toolCall renders {"function":{"name","arguments"}} or the inner object alone.
func (r *renderer) toolCall(at int) int {
	b := r.req.body
	if b[at] != '{' {
		return r.compact(at, 0)
	}
	next, inner := at, at
	for i := at + 1; ; {
		m, ok := r.Member(i)
		if !ok {
			next = i
			break
		}
		if b[m.Value] == '{' && (string(m.Name) == "function" || string(m.Name) == "custom") {
			inner = m.Value
		}
		i = r.Skip(m.Value)
	}
	for b[next] != '}' {
		next++
	}
	var f fields
	r.fields(inner, &f)
	r.call(f[partName], f.arguments())
	return next + 1
}

// call renders a tool call from its name and arguments, either may be absent.
func (r *renderer) call(name, arguments int) {
	r.put(markCall)
	if name > 0 {
		r.value(name)
	}
	r.put(markBody)
	if arguments > 0 {
		r.value(arguments)
	}
}

// value renders a string as text and anything else as compact JSON.
func (r *renderer) value(at int) int {
	if r.req.body[at] == '"' {
		return r.str(at)
	}
	return r.compact(at, 0)
}

// content renders a message's content: a string, or parts. Absent, null and
// empty are the same; a single text part is the same as its string. Parts
// within a part's content (nested) are not opened again.
func (r *renderer) content(at int, nested bool) {
	if at == 0 {
		return
	}
	b := r.req.body
	switch b[at] {
	case 'n':
	case '[':
		first := true
		for i := at + 1; ; {
			p, ok := r.Element(i)
			if !ok {
				return
			}
			i = r.part(p, first, nested)
			first = false
		}
	case '{':
		r.part(at, true, nested)
	default:
		r.value(at)
	}
}

// part renders one part of a content list.
func (r *renderer) part(at int, first, nested bool) int {
	b := r.req.body
	if b[at] != '{' {
		if !first {
			r.put(markPart)
		}
		return r.value(at)
	}
	var f fields
	next := r.fields(at, &f)
	kind := f[partType]
	what := 0 // the field that holds this kind's text
	switch string(r.Word(kind)) {
	case "text", "input_text", "output_text":
		what = partText
	case "thinking":
		what = partThinking
	case "refusal":
		what = partRefusal
	case "tool_use":
		r.call(f[partName], f[partInput])
		return next
	case "tool_result":
		if !nested {
			r.put(markPart)
			r.label(kind)
			r.put(markBody)
			r.content(f[partContent], true)
			return next
		}
	case "image_url", "image", "input_image", "image_pil", "image_embeds",
		"input_audio", "audio_url", "audio", "video_url", "video",
		"file", "input_file", "document":
		// The engine makes tokens of these that the text does not show.
		r.media(at, kind)
		return next
	default:
		if kind == 0 {
			what = partText
		}
	}
	switch {
	case what > 0 && f[what] > 0 && what == partText:
		if !first {
			r.put(markPart)
		}
		r.value(f[what])
	case what > 0 && f[what] > 0:
		r.put(markPart)
		r.label(kind)
		r.put(markBody)
		r.value(f[what])
	default:
		r.put(markPart)
		if kind > 0 {
			r.label(kind)
		}
		r.put(markBody)
		r.compact(at, 1)
	}
	return next
}
