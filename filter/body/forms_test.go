package body

import (
	"bytes"
	"strings"
	"testing"
)

func TestFollowUpTurnRepeatsTheFirst(t *testing.T) {
	turns := []string{
		`{"role":"system","content":"You are the desk clerk."}`,
		`{"role":"user","content":"Which pier\nholds the green barge?"}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"look","arguments":"{}"}}]}`,
		`{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"four"}]}`,
		`{"role":"user","content":[{"type":"text","text":"And this?"},{"type":"image_url","image_url":{"url":"http://a/b.png"}}]}`,
		`{"role":"assistant","content":"Five."}`,
	}
	const tools = `"tools":[{"type":"function","function":{"name":"look"}}],"messages":[`
	var last rendered
	for n := 1; n <= len(turns); n++ {
		r := render(t, ChatCompletions, []byte(`{`+tools+strings.Join(turns[:n], ",")+`]}`))
		if len(r.turns) != n+1 || r.turns[n] != len(r.text) {
			t.Fatalf("%d messages end at %v of %d", n, r.turns, len(r.text))
		}
		if !bytes.HasPrefix(r.text, last.text) {
			t.Fatalf("%d messages do not begin as %d did:\n%q\n%q", n, n-1, r.text, last.text)
		}
		last = r
	}
}

func TestSameConversationInOtherDialectsIsTheSamePrompt(t *testing.T) {
	chat := render(t, ChatCompletions, []byte(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"four"}]}`))
	responses := render(t, Responses, []byte(`{"instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"four"}]}`))
	if !bytes.Equal(chat.text, responses.text) {
		t.Errorf("chat      %q\nresponses %q", chat.text, responses.text)
	}
	anthropic := render(t, Messages, []byte(`{"system":"Be brief.","messages":[{"role":"user","content":"Hi"}]}`))
	if !bytes.HasPrefix(chat.text, anthropic.text) {
		t.Errorf("chat      %q\nmessages  %q", chat.text, anthropic.text)
	}
}

func TestWhatIsNoPromptDoesNotEnter(t *testing.T) {
	want := render(t, Messages, []byte(`{"system":"Be brief.","tools":[{"name":"f","input_schema":{}}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}]}`))
	for _, s := range []string{
		`{"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"tools":[{"cache_control":{"type":"ephemeral"},"name":"f","input_schema":{}}],"messages":[{"role":"user","content":[{"cache_control":null,"text":"Hi","type":"text"}]},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{},"cache_control":{}}]}],"top_k":5,"metadata":{"user_id":"u"},"stop_sequences":["x"]}`,
		`{"tools":[{"name":"f","cach\u0065_control":[],"input_schema":{ }}],"system":"Be brief.","messages":[{"id":"m1","role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{ } }]}]}`,
	} {
		if got := render(t, Messages, []byte(s)); !bytes.Equal(got.text, want.text) {
			t.Errorf("got  %q\nwant %q", got.text, want.text)
		}
	}
	// A parameter that happens to have that name does enter.
	other := render(t, Messages, []byte(`{"system":"Be brief.","tools":[{"name":"f","input_schema":{"cache_control":{}}}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}]}`))
	if bytes.Equal(other.text, want.text) {
		t.Error("a tool's parameter got lost")
	}
}

func TestBoundariesCannotBeForged(t *testing.T) {
	bodies := []string{
		`{"messages":[{"role":"user","content":"ab"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`,
		`{"messages":[{"role":"user","name":"a","content":"b"}]}`,
		`{"messages":[{"role":"usera","content":"b"}]}`,
		"{\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\xf8user\xf9b\"}]}",
		`{"messages":[{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"b","arguments":""}}]}]}`,
		`{"messages":[{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"","arguments":"b"}}]}]}`,
		`{"messages":[{"role":"user","content":{"a":"b"}}]}`,
		`{"messages":[{"role":"user","content":{"a":["b"]}}]}`,
		`{"messages":[{"role":"user","content":{"a\"b":1}}]}`,
		`{"messages":[{"role":"user","content":"{\"a\":\"b\"}"}]}`,
		`{"tools":["a"],"messages":[{"role":"user","content":"b"}]}`,
		`{"tools":[1,2],"messages":[{"role":"user","content":"b"}]}`,
		`{"tools":[12],"messages":[{"role":"user","content":"b"}]}`,
		`{"documents":["a"],"messages":[{"role":"user","content":"b"}]}`,
	}
	seen := map[string]string{}
	for _, s := range bodies {
		r := render(t, ChatCompletions, []byte(s))
		if other, ok := seen[string(r.text)]; ok {
			t.Errorf("rendered alike:\n%q\n%q", s, other)
		}
		seen[string(r.text)] = s
	}
	// Token ids never equal text, not even that of the same bytes.
	ids := render(t, Completions, []byte(`{"prompt":[1094861636]}`)) // "DCBA"
	text := render(t, Completions, []byte(`{"prompt":"DCBA"}`))
	if bytes.Equal(ids.text, text.text) {
		t.Error("ids pass for text")
	}
}

func TestBadPromptTypes(t *testing.T) {
	req := new(Request)
	for s, ep := range map[string]Endpoint{
		`{"messages":"Hi"}`:                       ChatCompletions,
		`{"messages":{"role":"user"}}`:            ChatCompletions,
		`{"messages":["Hi"]}`:                     Messages,
		`{"messages":[{"content":"Hi"},7]}`:       ChatCompletions,
		`{"prompt":7}`:                            Completions,
		`{"prompt":true}`:                         Completions,
		`{"prompt":{"text":"Hi"}}`:                Completions,
		`{"prompt":["a",7]}`:                      Completions,
		`{"prompt":[7,"a"]}`:                      Completions,
		`{"prompt":[[7],"a"]}`:                    Completions,
		`{"prompt":[7,null]}`:                     Completions,
		`{"prompt":[1.5]}`:                        Completions,
		`{"prompt":[-1]}`:                         Completions,
		`{"prompt":[1e3]}`:                        Completions,
		`{"prompt":[4294967296]}`:                 Completions,
		`{"prompt":[99999999999999999999999999]}`: Completions,
		`{"prompt":[[1],[2.0]]}`:                  Completions,
		`{"input":7}`:                             Responses,
		`{"input":["Hi"]}`:                        Responses,
		`{"input":{}}`:                            Embeddings,
	} {
		if reason := Scan([]byte(s), ep, req); reason != OK {
			t.Errorf("%s: Scan says %v", s, reason)
		}
		if out := Render(req, new(record), 0); out.Reason != BadPromptType {
			t.Errorf("%s: %v, want %v", s, out.Reason, BadPromptType)
		}
	}
	for s, ep := range map[string]Endpoint{
		`{"prompt":[]}`: Completions, `{"prompt":[[]]}`: Completions, `{"prompt":""}`: Completions, `{"prompt":["","b"]}`: Completions,
		`{"input":""}`: Responses, `{"input":[]}`: Responses, `{"input":[[],[1]]}`: Embeddings,
	} {
		Scan([]byte(s), ep, req)
		if out := Render(req, new(record), 0); out.Reason != Empty {
			t.Errorf("%s: %v, want %v", s, out.Reason, Empty)
		}
	}
}

func TestCapLeavesATruePrefix(t *testing.T) {
	ids := `{"prompt":[` + strings.Repeat("7, 0, 70000,", 200) + `1]}`
	r := render(t, Completions, []byte(ids))
	if r.PromptTokens != 601 || r.Bytes != 1+4*601+1 {
		t.Fatalf("%d tokens, %d bytes", r.PromptTokens, r.Bytes)
	}
	var cut record
	out := Render(r.req, &cut, 101)
	if out.Reason != OK || !out.Truncated || out.PromptTokens != 601 || out.LoadBytes != r.Bytes || !bytes.Equal(cut.text, r.text[:101]) {
		t.Errorf("%+v, %d bytes", out, len(cut.text))
	}
	// What lies beyond the cap still counts as load, in text as well.
	text := render(t, ChatCompletions, []byte(`{"messages":[{"role":"user","content":"`+strings.Repeat("the tide is low ", 500)+`"},{"role":"user","content":"x"}]}`))
	out = Render(text.req, new(record), 1000)
	if out.Reason != OK || out.Bytes != 1000 || out.LoadBytes != text.Bytes || out.Turns != 2 {
		t.Errorf("%+v, want a load of %d", out, text.Bytes)
	}
}
