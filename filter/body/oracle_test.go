package body

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"

	"github.com/minio/highwayhash"
)

// The oracle renders a body the plain way: encoding/json builds a tree,
// recursion walks it, strings are glued together.

type (
	object []pair
	array  []any
	pair   struct {
		name  string
		value any
	}
)

// parseTree returns nil, json.Number, bool, string, array or object, with the
// order and the duplicates of fields kept.
func parseTree(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return parseValue(d)
}

func parseValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := array{}
		for d.More() {
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			o = append(o, pair{name.(string), v})
		}
		_, err = d.Token()
		return o, err
	}
	return token, nil
}

// get returns the last value of any of the names.
func (o object) get(names ...string) any {
	for i := len(o) - 1; i >= 0; i-- {
		if slices.Contains(names, o[i].name) {
			return o[i].value
		}
	}
	return nil
}

type oracle struct {
	out     string
	turns   []int
	text    bool
	media   int
	bad     bool
	tokens  int
	prompts int
}

func (o *oracle) end() {
	o.out += "\xff"
	o.turns = append(o.turns, len(o.out))
}

func (o *oracle) addText(s string) {
	o.out += s
	o.text = o.text || s != ""
}

func (o *oracle) label(v any) {
	if s, ok := v.(string); ok {
		o.out += s
	}
}

func oracleCompact(v any, level, cacheLevel int) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return string(v)
	case string:
		return "\xfd" + v + "\xfd"
	case array:
		s := "["
		for i, e := range v {
			if i > 0 {
				s += ","
			}
			s += oracleCompact(e, level+1, cacheLevel)
		}
		return s + "]"
	case object:
		s := ""
		for _, p := range v {
			if level == cacheLevel && p.name == "cache_control" {
				continue
			}
			if s != "" {
				s += ","
			}
			s += "\xfd" + p.name + "\xfd" + oracleCompact(p.value, level+1, cacheLevel)
		}
		return "{" + s + "}"
	}
	panic("no such value")
}

// hasLeaf tells whether a compact form holds anything but structure.
func hasLeaf(v any, level, cacheLevel int) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case array:
		return slices.ContainsFunc(v, func(e any) bool { return hasLeaf(e, level+1, cacheLevel) })
	case object:
		return slices.ContainsFunc(v, func(p pair) bool {
			return (level != cacheLevel || p.name != "cache_control") && (p.name != "" || hasLeaf(p.value, level+1, cacheLevel))
		})
	}
	return true
}

func (o *oracle) compact(v any, cacheLevel int) {
	o.out += oracleCompact(v, 1, cacheLevel)
	o.text = o.text || hasLeaf(v, 1, cacheLevel)
}

func (o *oracle) value(v any) {
	if s, ok := v.(string); ok {
		o.addText(s)
	} else {
		o.compact(v, 0)
	}
}

func (o *oracle) system(v any) {
	if v != nil {
		o.out += "\xf8system\xf9"
		o.content(v, false)
		o.end()
	}
}

func (o *oracle) head(body object) {
	for _, name := range []string{"tools", "functions"} {
		if list, ok := body.get(name).(array); ok && len(list) > 0 {
			o.out += "\xf8\xfc\xf9"
			o.compact(list, 2)
			o.end()
		}
	}
	o.named(body, "documents")
}

func (o *oracle) named(body object, name string) {
	if v := body.get(name); v != nil {
		o.out += "\xf8\xfa" + name + "\xf9"
		o.compact(v, 0)
		o.end()
	}
}

func (o *oracle) messages(v any) {
	list, ok := v.(array)
	if !ok {
		o.bad = true
		return
	}
	for _, e := range list {
		m, ok := e.(object)
		if !ok {
			o.bad = true
			return
		}
		o.message(m)
	}
}

func (o *oracle) message(m object) {
	o.out += "\xf8"
	arguments := m.get("arguments")
	if arguments == nil {
		arguments = m.get("input")
	}
	kind := m.get("type")
	switch {
	case m.get("role") != nil:
		o.label(m.get("role"))
		if m.get("name") != nil {
			o.out += "\xfa"
			o.label(m.get("name"))
		}
		o.out += "\xf9"
		o.messageContent(m)
	case kind == "function_call" || kind == "custom_tool_call":
		o.out += "assistant\xf9"
		o.call(m.get("name"), arguments)
	case kind == "function_call_output" || kind == "custom_tool_call_output":
		o.out += "tool\xf9"
		o.content(m.get("output"), false)
	case kind == nil || kind == "message":
		o.out += "\xf9"
		o.messageContent(m)
	default:
		o.label(kind)
		o.out += "\xf9"
		o.compact(m, 1)
	}
	o.end()
}

func (o *oracle) messageContent(m object) {
	if v := m.get("thinking", "reasoning_content", "reasoning"); v != nil {
		o.out += "\xfathinking\xf9"
		o.value(v)
	}
	o.content(m.get("content"), false)
	if v := m.get("refusal"); v != nil {
		o.out += "\xfarefusal\xf9"
		o.value(v)
	}
	if v := m.get("tool_calls"); v != nil {
		if list, ok := v.(array); ok {
			for _, c := range list {
				o.toolCall(c)
			}
		} else {
			o.compact(v, 0)
		}
	}
	if v := m.get("function_call"); v != nil {
		o.toolCall(v)
	}
}

func (o *oracle) toolCall(v any) {
	c, ok := v.(object)
	if !ok {
		o.compact(v, 0)
		return
	}
	for _, p := range c {
		if inner, ok := p.value.(object); ok && (p.name == "function" || p.name == "custom") {
			c = inner
		}
	}
	arguments := c.get("arguments")
	if arguments == nil {
		arguments = c.get("input")
	}
	o.call(c.get("name"), arguments)
}

func (o *oracle) call(name, arguments any) {
	o.out += "\xfc"
	if name != nil {
		o.value(name)
	}
	o.out += "\xf9"
	if arguments != nil {
		o.value(arguments)
	}
}

func (o *oracle) content(v any, nested bool) {
	switch v := v.(type) {
	case nil:
	case array:
		for i, p := range v {
			o.part(p, i == 0, nested)
		}
	case object:
		o.part(v, true, nested)
	default:
		o.value(v)
	}
}

func (o *oracle) part(v any, first, nested bool) {
	p, ok := v.(object)
	if !ok {
		if !first {
			o.out += "\xfa"
		}
		o.value(v)
		return
	}
	kind, _ := p.get("type").(string)
	thinking := p.get("thinking", "reasoning_content", "reasoning")
	switch {
	case p.get("text") != nil && (p.get("type") == nil || kind == "text" || kind == "input_text" || kind == "output_text"):
		if !first {
			o.out += "\xfa"
		}
		o.value(p.get("text"))
	case kind == "tool_use":
		o.call(p.get("name"), p.get("input"))
	case kind == "tool_result" && !nested:
		o.out += "\xfatool_result\xf9"
		o.content(p.get("content"), true)
	case kind == "thinking" && thinking != nil:
		o.out += "\xfathinking\xf9"
		o.value(thinking)
	case kind == "refusal" && p.get("refusal") != nil:
		o.out += "\xfarefusal\xf9"
		o.value(p.get("refusal"))
	case slices.Contains([]string{
		"image_url", "image", "input_image", "input_audio", "audio_url", "audio",
		"video_url", "video", "file", "input_file", "document", "image_pil", "image_embeds",
	}, kind):
		o.media++
		sum := highwayhash.Sum128([]byte(oracleCompact(p, 1, 1)), digestKey)
		o.out += "\xfb" + kind + "\xf9" + string(sum[:])
	default:
		o.out += "\xfa"
		o.label(p.get("type"))
		o.out += "\xf9"
		o.compact(p, 1)
	}
}

// raw renders the prompt forms of completions and embeddings; only the first
// prompt of a list stays in out.
func (o *oracle) raw(v any) {
	o.prompts = 1
	if s, ok := v.(string); ok {
		o.addText(s)
		o.end()
		return
	}
	list, ok := v.(array)
	if !ok {
		o.bad = true
		return
	}
	if len(list) == 0 {
		return
	}
	_, strings := list[0].(string)
	_, lists := list[0].(array)
	if !strings && !lists {
		o.ids(list)
		return
	}
	o.prompts = len(list)
	var key oracle
	for i, e := range list {
		s, isString := e.(string)
		ids, isList := e.(array)
		switch {
		case strings && isString:
			o.addText(s)
			o.end()
		case lists && isList:
			o.ids(ids)
		default:
			o.bad = true
		}
		if i == 0 {
			key = *o
		}
	}
	o.out, o.turns, o.text = key.out, key.turns, key.text
}

func (o *oracle) ids(list array) {
	o.out += "\xfe"
	for _, e := range list {
		number, ok := e.(json.Number)
		id, err := strconv.ParseUint(string(number), 10, 64)
		if !ok || err != nil || bits.Len64(id) > 32 {
			o.bad = true
			return
		}
		o.out += string([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
		o.text = true
		o.tokens++
	}
	o.end()
}

// oracleRender renders a valid body whose top level is an object and whose
// prompt field is there.
func oracleRender(ep Endpoint, body object) (*oracle, Reason) {
	o := &oracle{prompts: 1}
	switch ep {
	case ChatCompletions:
		o.head(body)
		o.messages(body.get("messages"))
	case Messages:
		o.head(body)
		o.system(body.get("system"))
		o.messages(body.get("messages"))
	case Responses:
		o.head(body)
		o.named(body, "prompt")
		o.named(body, "previous_response_id")
		o.system(body.get("instructions"))
		if s, ok := body.get("input").(string); ok {
			o.out += "\xf8user\xf9"
			o.addText(s)
			o.end()
		} else {
			o.messages(body.get("input"))
		}
	case Completions:
		o.raw(body.get("prompt"))
	case Embeddings:
		if v := body.get("input"); v != nil {
			o.raw(v)
		} else {
			o.messages(body.get("messages"))
		}
	}
	switch {
	case o.bad:
		return o, BadPromptType
	case !o.text:
		return o, Empty
	}
	return o, OK
}
