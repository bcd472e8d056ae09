package chat

import "testing"

// The same conversation in other words of JSON is the same prompt.
func TestWhatMeansTheSameIsTheSamePrompt(t *testing.T) {
	for _, pair := range []struct {
		ep   Endpoint
		a, b string
	}{
		{Responses, `{"input":"Which pier?"}`, `{"input":[{"role":"user","content":"Which pier?"}]}`},
		{Responses, `{"input":"Which pier?"}`, `{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Which pier?"}]}]}`},
		{Chat, `{"messages":[{"role":"user","content":"\ud83d\ude80 caf\u00e9\/"}]}`, `{"messages":[{"role":"user","content":"🚀 café/"}]}`},
		{Chat, `{"messages":[{"role":"user","content":"hi"}]}`, `{"seed":1,"messages":[{"name":"n","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}],"role":"user"}],"tools":null,"x":{}}`},
		{Chat, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":""}]}`, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant"},{"role":"user","content":[]}]}`},
		{Chat, `{"messages":[{"role":"user","content":"one"}]}`, `{"messages":[{"role":"user","content":"two"}],"messages":[{"role":"system","role":"user","content":"0","content":"one"}]}`},
	} {
		for _, family := range []string{"qwen2.5", "qwen3", "llama3.1", "deepseek-v3", "chatml"} {
			tmpl := named(t, family, "vllm")
			a, b := renderAt(t, tmpl, []byte(pair.a), pair.ep), renderAt(t, tmpl, []byte(pair.b), pair.ep)
			if a.Stopped != Complete || b.Stopped != Complete || string(a.Text) != string(b.Text) {
				t.Errorf("%s:\n%s (%s) %q\n%s (%s) %q", family, pair.a, a.Stopped, a.Text, pair.b, b.Stopped, b.Text)
			}
		}
	}
}

// Another split, role or name is another prompt, whatever the letters.
func TestWhatMeansSomethingElseIsAnotherPrompt(t *testing.T) {
	call := func(name, arguments string) string {
		return `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"` + name + `","arguments":"` + arguments + `"}}]},{"role":"tool","tool_call_id":"a","content":"r"}]}`
	}
	bodies := []string{
		`{"messages":[{"role":"system","content":"ab"},{"role":"user","content":"c"}]}`,
		`{"messages":[{"role":"system","content":"a"},{"role":"user","content":"bc"}]}`,
		`{"messages":[{"role":"user","content":"ab"},{"role":"assistant","content":"c"}]}`,
		call("f", `{}`), call("g", `{}`), call("f", `{\"a\":1}`), call("f", `{\"a\":1.0}`),
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","strict":false}}]}`,
		`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"enable_thinking":false}}`,
		`{"messages":[{"role":"user","content":"x"}]}`,
	}
	seen := map[string]string{}
	for _, body := range bodies {
		res := render(t, named(t, "qwen3", "vllm"), []byte(body))
		if other, ok := seen[string(res.Text)]; ok || res.Stopped != Complete {
			t.Errorf("%s: as %s (%s)", body, other, res.Stopped)
		}
		seen[string(res.Text)] = body
	}
}
