package body

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var bodyEndpoints = []Endpoint{ChatCompletions, Completions, Responses, Messages, Embeddings}

// A writer spells a tree as JSON in one of its many forms.
type writer struct {
	rng   *rand.Rand
	plain bool // the shortest form
	out   []byte
}

func (w *writer) chance(percent int) bool { return !w.plain && w.rng.IntN(100) < percent }

func (w *writer) space() {
	for w.chance(15) {
		w.out = append(w.out, " \t\n\r"[w.rng.IntN(4)])
	}
}

func (w *writer) str(s string) {
	w.out = append(w.out, '"')
	for _, r := range s {
		short := bytes.IndexByte([]byte("\"\\\b\f\n\r\t/"), byte(r))
		switch {
		case r < utf8.RuneSelf && short >= 0 && (w.plain || w.chance(60)) && (short != 7 || !w.plain):
			w.out = append(w.out, '\\', `"\bfnrt/`[short])
		case r < ' ' || r == '"' || r == '\\' || w.chance(5):
			for _, unit := range utf16Units(r) {
				hex := "000" + strconv.FormatUint(uint64(unit), 16)
				w.out = append(append(w.out, '\\', 'u'), hex[len(hex)-4:]...)
			}
		default:
			w.out = utf8.AppendRune(w.out, r)
		}
	}
	w.out = append(w.out, '"')
}

func utf16Units(r rune) []uint16 {
	if r < 0x10000 {
		return []uint16{uint16(r)}
	}
	r -= 0x10000
	return []uint16{uint16(0xD800 + r>>10), uint16(0xDC00 + r&0x3FF)}
}

func (w *writer) value(v any) {
	w.space()
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case json.Number:
		w.out = append(w.out, v...)
	case string:
		w.str(v)
	case array:
		w.out = append(w.out, '[')
		for i, e := range v {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.value(e)
		}
		w.space()
		w.out = append(w.out, ']')
	case object:
		w.out = append(w.out, '{')
		for i, p := range v {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.space()
			w.str(p.name)
			w.space()
			w.out = append(w.out, ':')
			w.value(p.value)
		}
		w.space()
		w.out = append(w.out, '}')
	}
	w.space()
}

// A maker grows random bodies that lean towards the forms that clients send.
type maker struct{ *rand.Rand }

func (m maker) pick(list ...string) string { return list[m.IntN(len(list))] }

func (m maker) str() string {
	s := ""
	for range m.IntN(4) {
		s += m.pick("", "Hello", "world", " ", "\n", "\t", "\"", "\\", "/", "\x01", "é", "港", "🚢", "\u2028", "\x7f",
			"the tide is low and the green barge waits for her pilot, says the clerk of the harbour; nobody hurries. ",
			"a line that is long enough to be remembered\nand has its break somewhere in the middle of it, \"quoted\" even. ")
	}
	return s
}

func (m maker) number() json.Number {
	return json.Number(m.pick("0", "7", "-1", "1.0", "2e5", "1.0e-1", "12345678901234567890", "4294967295", "4294967296", "-0"))
}

func (m maker) any(depth int) any {
	switch n := m.IntN(10); {
	case n < 4 || depth == 0:
		return m.str()
	case n == 4:
		return nil
	case n == 5:
		return m.IntN(2) == 0
	case n == 6:
		return m.number()
	case n == 7:
		list := array{}
		for range m.IntN(4) {
			list = append(list, m.any(depth-1))
		}
		return list
	}
	o := object{}
	for range m.IntN(4) {
		o = append(o, pair{m.pick("a", "name", "cache_control", "type", "text", "", "description", m.str()), m.any(depth - 1)})
	}
	return o
}

// or returns v, or sometimes something that does not belong there.
func (m maker) or(v any) any {
	if m.IntN(15) == 0 {
		return m.any(2)
	}
	return v
}

func (m maker) part(depth int) any {
	kind := m.pick("text", "text", "text", "input_text", "image_url", "input_audio", "tool_use", "tool_result", "thinking", "refusal", "odd")
	o := object{{"type", m.or(kind)}}
	for range m.IntN(3) + 1 {
		name := m.pick("text", "text", "image_url", "cache_control", "name", "input", "content", "thinking", "refusal", "id")
		v := m.any(2)
		if name == "content" && depth > 0 {
			v = m.content(depth - 1)
		}
		o = append(o, pair{name, m.or(v)})
	}
	if m.IntN(2) == 0 {
		slices.Reverse(o)
	}
	return m.or(o)
}

func (m maker) content(depth int) any {
	switch m.IntN(8) {
	case 0:
		return nil
	case 1, 2, 3:
		list := array{}
		for range m.IntN(4) {
			list = append(list, m.part(depth))
		}
		return list
	}
	return m.or(m.str())
}

func (m maker) message() any {
	o := object{}
	if m.IntN(8) > 0 {
		o = append(o, pair{"role", m.or(m.pick("system", "user", "assistant", "tool", "developer"))})
	}
	o = append(o, pair{"content", m.content(2)})
	for range m.IntN(3) {
		switch name := m.pick("name", "tool_calls", "function_call", "reasoning_content", "refusal", "type", "arguments", "output", "role", "tool_call_id"); name {
		case "tool_calls":
			call := object{{"id", "c1"}, {"function", m.or(object{{"name", m.str()}, {"arguments", m.or(m.str())}})}}
			o = append(o, pair{name, m.or(array{m.or(call)})})
		case "type":
			o = append(o, pair{name, m.pick("message", "function_call", "function_call_output", "reasoning")})
		default:
			o = append(o, pair{name, m.or(m.str())})
		}
	}
	m.Shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
	return m.or(o)
}

func (m maker) prompt() any {
	ids := func() any {
		list := array{}
		for range m.IntN(90) {
			list = append(list, json.Number(strconv.Itoa(m.IntN(1<<20))))
		}
		if m.IntN(8) == 0 {
			list = append(list, m.number())
		}
		return list
	}
	switch m.IntN(5) {
	case 0:
		return array{m.or(m.str()), m.str(), m.or(m.str())}
	case 1:
		return ids()
	case 2:
		return array{m.or(ids()), ids()}
	case 3:
		return array{}
	}
	return m.or(m.str())
}

func (m maker) body(ep Endpoint) object {
	messages := array{}
	for range m.IntN(5) {
		messages = append(messages, m.message())
	}
	tools := array{}
	for range m.IntN(3) {
		tools = append(tools, m.any(3))
	}
	all := object{
		{"model", m.or(m.str())},
		{"temperature", m.number()},
		{"stream", true},
		{"max_tokens", m.number()},
		{"metadata", object{{"model", "decoy"}, {"messages", m.any(2)}}},
		{"cache_salt", m.str()},
		{m.str(), m.any(3)},
	}
	if m.IntN(3) == 0 {
		all = append(all, pair{m.pick("tools", "functions"), m.or(tools)})
	}
	switch ep {
	case Completions:
		all = append(all, pair{"prompt", m.prompt()})
	case Embeddings:
		all = append(all, pair{"input", m.prompt()})
	case Responses:
		all = append(all, pair{"input", m.or(messages)}, pair{"instructions", m.content(1)})
	default:
		all = append(all, pair{"messages", m.or(messages)}, pair{"system", m.content(1)})
	}
	if m.IntN(4) == 0 {
		all = append(all, all[m.IntN(len(all))], pair{"messages", m.or(messages)})
	}
	m.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// compare checks one valid body against the oracle.
func compare(t rapid.TB, req *Request, ep Endpoint, b []byte) []byte {
	tree, err := parseTree(b)
	if err != nil {
		t.Fatalf("the oracle cannot read %q: %v", b, err)
	}
	body, ok := tree.(object)
	if !ok {
		t.Fatalf("no object: %q", b)
	}
	reason := Scan(b, ep, req)
	field := map[Endpoint]string{ChatCompletions: "messages", Messages: "messages", Completions: "prompt", Responses: "input", Embeddings: "input"}[ep]
	if body.get(field) == nil && (ep != Embeddings || body.get("messages") == nil) {
		if reason != NoPromptField {
			t.Fatalf("Scan: %v, want %v for %q", reason, NoPromptField, b)
		}
		return nil
	}
	if reason != OK {
		t.Fatalf("Scan: %v for %q", reason, b)
	}
	if want, ok := body.get("model").(string); ok && string(req.Model) != want || !ok && req.Model != nil {
		t.Fatalf("Model %q, want %q", req.Model, want)
	}
	if want, ok := body.get("cache_salt").(string); ok && string(req.CacheSalt) != want {
		t.Fatalf("CacheSalt %q, want %q", req.CacheSalt, want)
	}
	want, wantReason := oracleRender(ep, body)
	var got record
	out := Render(req, &got, 0)
	if out.Reason != wantReason {
		t.Fatalf("Render: %v, want %v for %s", out.Reason, wantReason, b)
	}
	if out.Reason == BadPromptType {
		return nil
	}
	if string(got.text) != want.out {
		t.Fatalf("%s\ngot  %q\nwant %q", b, got.text, want.out)
	}
	if !slices.Equal(got.turns, want.turns) {
		t.Fatalf("turns end at %v, want %v for %s", got.turns, want.turns, b)
	}
	if out.Media != want.media || out.PromptTokens != want.tokens || out.Prompts != want.prompts || out.Bytes != len(got.text) || out.LoadBytes < out.Bytes || out.Truncated {
		t.Fatalf("%+v, want media %d, tokens %d, prompts %d for %s", out, want.media, want.tokens, want.prompts, b)
	}
	// Cut anywhere, what the sink gets is a prefix with the same turn ends.
	if limit := len(got.text) / 2; limit > 0 {
		var cut record
		short := Render(req, &cut, limit)
		if !bytes.Equal(cut.text, got.text[:limit]) || !short.Truncated || short.Bytes != limit {
			t.Fatalf("cut at %d: %+v, %q of %q", limit, short, cut.text, got.text)
		}
		if n := len(cut.turns); !slices.Equal(cut.turns, got.turns[:n]) || n < len(got.turns) && got.turns[n] < limit {
			t.Fatalf("cut at %d: turns end at %v of %v", limit, cut.turns, got.turns)
		}
		var head record
		begun := Begin(req, &head, limit)
		if !bytes.Equal(head.text, cut.text) || !slices.Equal(head.turns, cut.turns) || !begun.Truncated || begun.Turns > short.Turns {
			t.Fatalf("begun up to %d: %+v, %q %v, want %q %v", limit, begun, head.text, head.turns, cut.text, cut.turns)
		}
	}
	return got.text
}

func TestRenderingEqualsThePlainWay(t *testing.T) {
	req := new(Request)
	rapid.Check(t, func(t *rapid.T) {
		m := maker{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		ep := rapid.SampledFrom(bodyEndpoints).Draw(t, "endpoint")
		for range 20 {
			tree := m.body(ep)
			plain, odd := writer{plain: true}, writer{rng: m.Rand}
			plain.value(tree)
			odd.value(tree)
			a := compare(t, req, ep, plain.out)
			b := compare(t, req, ep, odd.out)
			if !bytes.Equal(a, b) {
				t.Fatalf("spelling matters:\n%s\n%s", plain.out, odd.out)
			}
		}
	})
}

// agree checks that b is accepted exactly if encoding/json accepts it.
func agree(t rapid.TB, req *Request, ep Endpoint, b []byte) Reason {
	reason := Scan(b, ep, req)
	first := bytes.TrimLeft(b, " \t\r\n")
	switch valid := json.Valid(b); {
	case len(first) > 0 && first[0] != '{':
		if reason != NotObject {
			t.Fatalf("%v, want %v for %q", reason, NotObject, b)
		}
	case valid && reason != OK && reason != NoPromptField && reason != TooDeep:
		t.Fatalf("%v for valid %q", reason, b)
	case !valid && reason != BadJSON && reason != TooDeep:
		t.Fatalf("%v for invalid %q", reason, b)
	}
	return reason
}

func TestMutatedBodiesAreJudgedAsByEncodingJSON(t *testing.T) {
	req := new(Request)
	rapid.Check(t, func(t *rapid.T) {
		m := maker{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
		ep := bodyEndpoints[m.IntN(len(bodyEndpoints))]
		w := writer{rng: m.Rand}
		w.value(m.body(ep))
		for range 50 {
			b := slices.Clone(w.out)
			at := m.IntN(len(b))
			switch m.IntN(4) {
			case 0:
				b[at] = m.pick("\"", "\\", "{", "}", "[", "]", ",", ":", "0", "-", ".", "e", "n", "u", " ", "\x00", "\x1f", "\xff", "\x80")[0]
			case 1:
				b = slices.Delete(b, at, at+1)
			case 2:
				b = b[:at]
			case 3:
				b = slices.Insert(b, at, []byte(m.pick("\"", "\\", "{", "}", "[", "]", ",", "1", "\\u12", "null", "\xf8"))...)
			}
			if agree(t, req, ep, b) == OK {
				Render(req, new(record), 0)
			}
		}
	})
}

func FuzzScan(f *testing.F) {
	for i, s := range []string{
		`{"messages":[{"role":"user","content":"Hi"}],"model":"m"}`,
		`{"model":"m","prompt":[[1,2],[3]]}`,
		`{"input":[{"type":"function_call","name":"f","arguments":"{}"}],"instructions":"x"}`,
		`{"system":[{"type":"text","text":"\ud83d\udea2","cache_control":{}}],"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]}]}`,
		`{"input":["a","b\u0000"],"mod\u0065l":"x"}`,
	} {
		f.Add([]byte(s), uint8(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, ep uint8) {
		req := new(Request)
		endpoint := bodyEndpoints[int(ep)%len(bodyEndpoints)]
		if reason := agree(t, req, endpoint, b); reason != OK && reason != NoPromptField {
			return
		}
		Render(req, new(record), 0)
		if utf8.Valid(b) {
			compare(t, req, endpoint, b)
		}
	})
}
