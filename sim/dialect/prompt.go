package dialect

import (
	"github.com/warmpath/warmpath/sim/text"
)

func (p *Parser) chat(f *fields) *Error {
	if f.messages.kind() != list || f.messages.isEmpty() {
		return badRequest("messages: want a list with at least one message")
	}
	p.tools(f.tools)
	var err *Error
	f.messages.items(func(m node) bool {
		err = p.message(m)
		return err == nil
	})
	if err != nil {
		return err
	}
	p.rendering.Generate()
	p.endPrompt()
	return nil
}

func (p *Parser) tools(tools node) {
	if tools.kind() == list && !tools.isEmpty() {
		p.rendering.ToolDefinitions(string(tools))
	}
}

// message renders one chat message or Anthropic turn.
func (p *Parser) message(m node) *Error {
	if m.kind() != object {
		return badRequest("messages: want objects")
	}
	var role, name string
	var content, calls node
	m.fields(func(key string, v node) bool {
		switch key {
		case "role":
			role = v.text()
		case "content":
			content = v
		case "tool_calls":
			calls = v
		case "tool_call_id":
			name = v.text()
		}
		return true
	})
	if role == "" {
		return badRequest("messages: a message has no role")
	}
	p.rendering.Open(role)
	if role == "tool" {
		p.rendering.Text(name)
	}
	if err := p.content(content, 0); err != nil {
		return err
	}
	calls.items(func(call node) bool {
		function := call.get("function")
		p.rendering.ToolCall(function.get("name").text(), function.get("arguments").text())
		return true
	})
	p.rendering.Close()
	return nil
}

// maxParts bounds how deep tool results may hold lists of parts. Each level is
// read again for each level above it, so without a bound a small body could
// keep a core busy for minutes.
const maxParts = 4

// content renders a string, a list of parts, or nothing for null.
func (p *Parser) content(v node, depth int) *Error {
	switch v.kind() {
	case str:
		p.text(v)
	case list:
		if depth == maxParts {
			return badRequest("content: parts are nested more than %d deep", maxParts)
		}
		var err *Error
		v.items(func(part node) bool {
			err = p.part(part, depth)
			return err == nil
		})
		return err
	}
	return nil
}

// text renders a string's value.
func (p *Parser) text(v node) {
	if v.kind() != str {
		return
	}
	plain, ok := v.plain()
	if !ok {
		p.scratch = v.appendText(p.scratch[:0])
		plain = p.scratch
	}
	p.rendering.Tokens = text.AppendTokens(p.rendering.Tokens, plain)
}

func (p *Parser) part(part node, depth int) *Error {
	if part.kind() == str {
		p.text(part)
		return nil
	}
	switch part.get("type").text() {
	case "text", "input_text", "output_text":
		p.text(part.get("text"))
	case "refusal":
		p.text(part.get("refusal"))
	case "image_url", "input_image":
		url := part.get("image_url")
		if url.kind() == object {
			url = url.get("url")
		}
		p.rendering.Image(string(url))
	case "image":
		p.rendering.Image(string(part.get("source")))
	case "input_audio", "audio", "audio_url":
		p.rendering.Audio(string(part))
	case "tool_use":
		p.rendering.ToolCall(part.get("name").text(), string(part.get("input")))
	case "tool_result":
		p.rendering.Open("tool")
		p.text(part.get("tool_use_id"))
		if err := p.content(part.get("content"), depth+1); err != nil {
			return err
		}
		p.rendering.Close()
	case "thinking", "redacted_thinking", "reasoning":
		// Earlier thinking is not shown to the model again.
	default:
		p.rendering.Text(string(part))
	}
	return nil
}

// plain reads the four forms of a prompt: a string, a list of strings, a list
// of token ids, a list of such lists.
func (p *Parser) plain(name string, v node) *Error {
	if v.kind() == str {
		p.string(v)
		return nil
	}
	wrong := badRequest("%s: want a string, a list of strings, a list of token ids or a list of those", name)
	if v.kind() != list {
		return wrong
	}
	if v.isEmpty() {
		return badRequest("%s: the list is empty", name)
	}
	var err *Error
	ids := 0
	v.items(func(item node) bool {
		switch kind := item.kind(); {
		case kind == number && len(p.ends) == 0:
			err = p.id(item)
			ids++
		case kind == str && ids == 0:
			p.string(item)
		case kind == list && ids == 0:
			item.items(func(id node) bool {
				err = p.id(id)
				return err == nil
			})
			p.endPrompt()
		default:
			err = wrong
		}
		return err == nil
	})
	if ids > 0 {
		p.endPrompt()
	}
	return err
}

// string renders a plain prompt. Engines put a begin-of-text token before it,
// so even an empty string is a prompt of one token.
func (p *Parser) string(v node) {
	p.rendering.Open("")
	p.text(v)
	p.endPrompt()
}

func (p *Parser) id(v node) *Error {
	id := v.float()
	if v.kind() != number || id < 0 || id >= 1<<31 || id != float64(uint32(id)) {
		return badRequest("token ids: want whole numbers from 0 to 2147483647, got %.40s", []byte(v))
	}
	p.rendering.Tokens = append(p.rendering.Tokens, text.Token(id))
	return nil
}

func (p *Parser) responses(f *fields) *Error {
	p.tools(f.tools)
	if f.instructions.kind() == str {
		p.rendering.Open("system")
		p.text(f.instructions)
		p.rendering.Close()
	}
	switch {
	case f.input.kind() == str:
		p.rendering.Open("user")
		p.text(f.input)
		p.rendering.Close()
	case f.input.kind() == list && !f.input.isEmpty():
		var err *Error
		f.input.items(func(item node) bool {
			err = p.item(item)
			return err == nil
		})
		if err != nil {
			return err
		}
	default:
		return badRequest("input: want a string or a list of items")
	}
	p.rendering.Generate()
	p.endPrompt()
	return nil
}

func (p *Parser) item(item node) *Error {
	switch item.get("type").text() {
	case "function_call", "custom_tool_call":
		p.rendering.Open("assistant")
		p.rendering.ToolCall(item.get("name").text(), item.get("arguments").text()+item.get("input").text())
		p.rendering.Close()
		return nil
	case "function_call_output", "custom_tool_call_output":
		p.rendering.Open("tool")
		p.text(item.get("call_id"))
		if err := p.content(item.get("output"), 0); err != nil {
			return err
		}
		p.rendering.Close()
		return nil
	case "reasoning", "item_reference":
		return nil
	}
	return p.message(item)
}

func (p *Parser) messages(f *fields) *Error {
	if p.request.MaxTokens == 0 {
		return badRequest("max_tokens: required")
	}
	if f.system.given() {
		p.tools(f.tools)
		f.tools = nil
		p.rendering.Open("system")
		if err := p.content(f.system, 0); err != nil {
			return err
		}
		p.rendering.Close()
	}
	return p.chat(f)
}
