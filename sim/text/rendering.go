package text

// A Rendering is a prompt in the engine's chat format, built message by
// message. The zero value is an empty prompt. It is not safe for concurrent
// use.
type Rendering struct {
	Tokens []Token
}

// Reset empties r and keeps its memory.
func (r *Rendering) Reset() { r.Tokens = r.Tokens[:0] }

// Open starts a message of the role ("system", "user", "assistant", "tool";
// "developer" is read as system, anything else is a role of its own name).
func (r *Rendering) Open(role string) {
	switch role {
	case "system", "developer":
		r.Tokens = append(r.Tokens, markSystem)
	case "user":
		r.Tokens = append(r.Tokens, markUser)
	case "assistant":
		r.Tokens = append(r.Tokens, markAssistant)
	case "tool", "function":
		r.Tokens = append(r.Tokens, markTool)
	default:
		r.Tokens = append(r.Tokens, markOther)
		r.Text(role)
	}
}

// Text appends plain text.
func (r *Rendering) Text(s string) { r.Tokens = AppendTokens(r.Tokens, s) }

// Close ends the message that Open started.
func (r *Rendering) Close() { r.Tokens = append(r.Tokens, markEnd) }

// Message appends a whole message.
func (r *Rendering) Message(role, content string) {
	r.Open(role)
	r.Text(content)
	r.Close()
}

// ToolDefinitions appends the raw JSON of the request's tools, as the engine
// shows them to the model ahead of the conversation.
func (r *Rendering) ToolDefinitions(raw string) {
	r.Tokens = append(r.Tokens, markTools)
	r.Text(raw)
	r.Close()
}

// ToolCall appends one tool call of the open assistant message.
func (r *Rendering) ToolCall(name, arguments string) {
	r.Tokens = append(r.Tokens, markToolCall)
	r.Text(name)
	r.Text(arguments)
}

// Image stands in for an image whose URL or data is given: one marker and as
// many placeholder tokens as a 512-pixel tile costs in common models, all
// derived from the content so that different images never share a block.
func (r *Rendering) Image(source string) {
	r.media(markImage, source, 256)
}

// Audio stands in for an audio clip in the same way.
func (r *Rendering) Audio(source string) {
	r.media(markAudio, source, 64)
}

func (r *Rendering) media(mark Token, source string, placeholders int) {
	h := uint32(fnvOffset32)
	for i := range len(source) {
		h = (h ^ uint32(source[i])) * fnvPrime32
	}
	r.Tokens = append(r.Tokens, mark)
	for range placeholders {
		r.Tokens = append(r.Tokens, Token(h)&^markerBit)
	}
}

// Generate closes the prompt with the marker that opens the answer. An
// assistant message of the next turn starts with the same marker.
func (r *Rendering) Generate() { r.Tokens = append(r.Tokens, markAssistant) }
