package dialect

import (
	"github.com/tidwall/gjson"

	"github.com/warmpath/warmpath/sim/text"
)

func (p *Parser) chat(f *fields) *Error {
	if !f.messages.IsArray() || len(f.messages.Raw) < 3 || !f.messages.Get("0").Exists() {
		return badRequest("messages: want a list with at least one message")
	}
	p.tools(f.tools)
	var err *Error
	f.messages.ForEach(func(_, m gjson.Result) bool {
		if err = p.message(m); err != nil {
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	p.rendering.Generate()
	p.endPrompt()
	return nil
}

func (p *Parser) tools(tools gjson.Result) {
	if tools.IsArray() && tools.Get("0").Exists() {
		p.rendering.ToolDefinitions(tools.Raw)
	}
}

// message renders one chat message or Anthropic turn.
func (p *Parser) message(m gjson.Result) *Error {
	if !m.IsObject() {
		return badRequest("messages: want objects")
	}
	var role, name string
	var content, calls gjson.Result
	m.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "role":
			role = v.String()
		case "content":
			content = v
		case "tool_calls":
			calls = v
		case "tool_call_id":
			name = v.String()
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
	p.content(content)
	calls.ForEach(func(_, call gjson.Result) bool {
		p.rendering.ToolCall(call.Get("function.name").String(), call.Get("function.arguments").String())
		return true
	})
	p.rendering.Close()
	return nil
}

// content renders a string, a list of parts, or nothing for null.
func (p *Parser) content(v gjson.Result) {
	switch {
	case v.Type == gjson.String:
		p.rendering.Text(v.Str)
	case v.IsArray():
		v.ForEach(func(_, part gjson.Result) bool {
			p.part(part)
			return true
		})
	}
}

func (p *Parser) part(part gjson.Result) {
	switch kind := part.Get("type").String(); kind {
	case "text", "input_text", "output_text":
		p.rendering.Text(part.Get("text").String())
	case "refusal":
		p.rendering.Text(part.Get("refusal").String())
	case "image_url", "input_image":
		url := part.Get("image_url")
		if url.IsObject() {
			url = url.Get("url")
		}
		p.rendering.Image(url.String())
	case "image":
		p.rendering.Image(part.Get("source").Raw)
	case "input_audio", "audio", "audio_url":
		p.rendering.Audio(part.Raw)
	case "tool_use":
		p.rendering.ToolCall(part.Get("name").String(), part.Get("input").Raw)
	case "tool_result":
		p.rendering.Open("tool")
		p.rendering.Text(part.Get("tool_use_id").String())
		p.content(part.Get("content"))
		p.rendering.Close()
	case "thinking", "redacted_thinking", "reasoning":
		// Earlier thinking is not shown to the model again.
	default:
		if part.Type == gjson.String {
			p.rendering.Text(part.Str)
			return
		}
		p.rendering.Text(part.Raw)
	}
}

// plain reads the four forms of a prompt: a string, a list of strings, a list
// of token ids, a list of such lists.
func (p *Parser) plain(name string, v gjson.Result) *Error {
	if v.Type == gjson.String {
		p.string(v.Str)
		return nil
	}
	wrong := badRequest("%s: want a string, a list of strings, a list of token ids or a list of those", name)
	if !v.IsArray() {
		return wrong
	}
	var err *Error
	ids := 0
	v.ForEach(func(_, item gjson.Result) bool {
		switch {
		case item.Type == gjson.Number && len(p.ends) == 0:
			if err = p.id(item); err != nil {
				return false
			}
			ids++
		case item.Type == gjson.String && ids == 0:
			p.string(item.Str)
		case item.IsArray() && ids == 0:
			item.ForEach(func(_, id gjson.Result) bool {
				err = p.id(id)
				return err == nil
			})
			p.endPrompt()
		default:
			err = wrong
		}
		return err == nil
	})
	switch {
	case err != nil:
		return err
	case ids > 0:
		p.endPrompt()
	case len(p.ends) == 0:
		return badRequest("%s: the list is empty", name)
	}
	return nil
}

// string renders a plain prompt. Engines put a begin-of-text token before it,
// so even an empty string is a prompt of one token.
func (p *Parser) string(s string) {
	p.rendering.Open("")
	p.rendering.Text(s)
	p.endPrompt()
}

func (p *Parser) id(v gjson.Result) *Error {
	if v.Type != gjson.Number || v.Num < 0 || v.Num >= 1<<31 || v.Num != float64(uint32(v.Num)) {
		return badRequest("token ids: want whole numbers from 0 to 2147483647, got %.40s", v.Raw)
	}
	p.rendering.Tokens = append(p.rendering.Tokens, text.Token(v.Num))
	return nil
}

func (p *Parser) responses(f *fields) *Error {
	p.tools(f.tools)
	if f.instructions.Type == gjson.String {
		p.rendering.Message("system", f.instructions.Str)
	}
	switch {
	case f.input.Type == gjson.String:
		p.rendering.Message("user", f.input.Str)
	case f.input.IsArray() && f.input.Get("0").Exists():
		var err *Error
		f.input.ForEach(func(_, item gjson.Result) bool {
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

func (p *Parser) item(item gjson.Result) *Error {
	switch item.Get("type").String() {
	case "function_call", "custom_tool_call":
		p.rendering.Open("assistant")
		p.rendering.ToolCall(item.Get("name").String(), item.Get("arguments").String()+item.Get("input").String())
		p.rendering.Close()
		return nil
	case "function_call_output", "custom_tool_call_output":
		p.rendering.Open("tool")
		p.rendering.Text(item.Get("call_id").String())
		p.content(item.Get("output"))
		p.rendering.Close()
		return nil
	case "reasoning", "item_reference":
		return nil
	}
	return p.message(item)
}

func (p *Parser) messages(f *fields) *Error {
	if f.system.Exists() && f.system.Type != gjson.Null {
		p.tools(f.tools)
		p.rendering.Open("system")
		p.content(f.system)
		p.rendering.Close()
		f.tools = gjson.Result{}
	}
	if p.request.MaxTokens == 0 {
		return badRequest("max_tokens: required")
	}
	return p.chat(f)
}
