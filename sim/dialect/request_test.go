package dialect

import (
	"strings"
	"testing"

	"github.com/warmpath/warmpath/sim/text"
	"github.com/warmpath/warmpath/sim/workload"
)

var goodBodies = []struct {
	endpoint Endpoint
	body     string
	prompts  int
}{
	{Chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`, 1},
	{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`, 1},
	{Chat, `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"},{"role":"user"}],"tools":[{"type":"function","function":{"name":"f"}}]}`, 1},
	{Chat, "\r\n{ \"messages\" : [ { \"content\":\"Hello\", \"role\":\"user\" } ], \"seed\":12345678901234567890, \"n\":null, \"model\":\"m\" }", 1},
	{Completions, `{"model":"m","prompt":"a b c"}`, 1},
	{Completions, `{"model":"m","prompt":["a","b",""]}`, 3},
	{Completions, `{"model":"m","prompt":[1,2,3]}`, 1},
	{Completions, `{"model":"m","prompt":[[1,2],[3]]}`, 2},
	{Responses, `{"model":"m","input":"Hello"}`, 1},
	{Responses, `{"model":"m","instructions":"Short.","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},{"type":"function_call","name":"f","arguments":"{}","call_id":"1"},{"type":"function_call_output","call_id":"1","output":"ok"},{"type":"reasoning","summary":[]}]}`, 1},
	{Messages, `{"model":"m","max_tokens":5,"system":[{"type":"text","text":"Short.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"ok"}]},"plain"]}]}`, 1},
	{Embeddings, `{"model":"m","input":["a","b"]}`, 2},
}

func parse(t testing.TB, endpoint Endpoint, body string) *Request {
	t.Helper()
	var p Parser
	r, err := p.Parse(endpoint, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func print(t testing.TB, endpoint Endpoint, body string) uint64 {
	t.Helper()
	return text.Fingerprint(parse(t, endpoint, body).Prompts[0])
}

func TestEveryFormOfAPromptIsRead(t *testing.T) {
	for _, c := range goodBodies {
		r := parse(t, c.endpoint, c.body)
		if len(r.Prompts) != c.prompts || r.Model != "m" {
			t.Errorf("%s: %d prompts for model %q", c.body, len(r.Prompts), r.Model)
		}
	}
	ids := parse(t, Completions, `{"prompt":[5,6,2147483647]}`).Prompts[0]
	if len(ids) != 3 || ids[0] != 5 || ids[2] != 1<<31-1 {
		t.Errorf("ids %v", ids)
	}
}

func TestPromptIsTheSameWhateverTheSpelling(t *testing.T) {
	want := print(t, Chat, `{"model":"m","messages":[{"role":"user","content":"Grüße 😀 \"x\""}]}`)
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"Gr\u00fc\u00dfe \ud83d\ude00 \u0022x\u0022"}],"temperature":0.1}`,
		`{"messages":[{"content":"Grüße 😀 \"x\"","role":"user","name":null}] , "max_tokens":3}`,
		`{"messages":"x","messages":[{"role":"critic","role":"user","content":[{"type":"text","text":"Grüße 😀 \"x\""}]}]}`,
	} {
		if print(t, Chat, body) != want {
			t.Errorf("another prompt: %s", body)
		}
	}
	if print(t, Responses, `{"input":"Grüße 😀 \"x\""}`) != want {
		t.Error("a bare string of the responses endpoint is another prompt than one user message")
	}
	if print(t, Responses, `{"input":[{"role":"user","content":"Grüße 😀 \"x\""}]}`) != want {
		t.Error("an item list is another prompt than the chat messages")
	}
}

func TestWhatTheModelSeesIsInThePrompt(t *testing.T) {
	seen := map[uint64]string{}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"ab cd"}]}`,
		`{"messages":[{"role":"user","content":"ab"},{"role":"user","content":" cd"}]}`,
		`{"messages":[{"role":"system","content":"ab cd"}]}`,
		`{"messages":[{"role":"user","content":"ab cd"}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[{"role":"user","content":"ab cd"}],"tools":[{"type":"function","function":{"name":"g"}}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"ab cd"},{"type":"image_url","image_url":{"url":"data:1"}}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"ab cd"},{"type":"image_url","image_url":{"url":"data:2"}}]}]}`,
		`{"messages":[{"role":"assistant","content":"ab cd","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"messages":[{"role":"assistant","content":"ab cd","tool_calls":[{"function":{"name":"f","arguments":"{1}"}}]}]}`,
	} {
		f := print(t, Chat, body)
		if other, dup := seen[f]; dup {
			t.Errorf("the same prompt:\n%s\n%s", other, body)
		}
		seen[f] = body
	}
}

func TestLastOfTwoKeysWins(t *testing.T) {
	r := parse(t, Chat, `{"model":"allowed","mod\u0065l":"blocked","max_tokens":9,"max_tokens":null,"messages":[{"role":"user","content":"x"}],"text":"{\"model\":\"z\"}"}`)
	if r.Model != "blocked" || r.MaxTokens != 0 {
		t.Errorf("model %q, max_tokens %d", r.Model, r.MaxTokens)
	}
}

func TestSettingsAreRead(t *testing.T) {
	r := parse(t, Chat, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":77,"ignore_eos":true,"n":2,"cache_salt":"s","messages":[{"role":"user","content":"x"}]}`)
	if !r.Stream || !r.IncludeUsage || r.MaxTokens != 77 || !r.IgnoreEOS || r.N != 2 || r.CacheSalt != "s" {
		t.Errorf("%+v", r)
	}
}

func TestBadBodiesAreRefusedWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		endpoint Endpoint
		body     string
		want     string
	}{
		{Chat, `[]`, "not a JSON object"},
		{Chat, `{"messages":[]}`, "messages"},
		{Chat, `{"messages":{}}`, "messages"},
		{Chat, `{"messages":["x"]}`, "messages"},
		{Chat, `{"messages":[{"content":"x"}]}`, "no role"},
		{Chat, `{"messages":[{"role":"user","content":"\xff"}]}`, "not valid JSON"},
		{Chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "UTF-8"},
		{Chat, `{"model":7,"messages":[{"role":"user","content":"x"}]}`, "model"},
		{Chat, `{"max_tokens":1.5,"messages":[{"role":"user","content":"x"}]}`, "max_tokens"},
		{Chat, `{"max_tokens":"9","messages":[{"role":"user","content":"x"}]}`, "max_tokens"},
		{Chat, `{"max_tokens":1e999,"messages":[{"role":"user","content":"x"}]}`, "max_tokens"},
		{Chat, `{"n":0,"messages":[{"role":"user","content":"x"}]}`, "n:"},
		{Chat, `{"cache_salt":"","messages":[{"role":"user","content":"x"}]}`, "cache_salt"},
		{Completions, `{}`, "prompt"},
		{Completions, `{"prompt":[]}`, "empty"},
		{Completions, `{"prompt":[[],[1]]}`, "empty"},
		{Completions, `{"prompt":[1,"a"]}`, "prompt"},
		{Completions, `{"prompt":["a",1]}`, "prompt"},
		{Completions, `{"prompt":[1,-2]}`, "token ids"},
		{Completions, `{"prompt":[1.5]}`, "token ids"},
		{Responses, `{"input":[]}`, "input"},
		{Responses, `{"instructions":"x"}`, "input"},
		{Messages, `{"messages":[{"role":"user","content":"x"}]}`, "max_tokens"},
	} {
		var p Parser
		_, err := p.Parse(c.endpoint, []byte(c.body))
		if err == nil || err.Status != 400 || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: %v, want it to name %q", c.body, err, c.want)
		}
	}
}

func TestParserForgetsTheRequestBefore(t *testing.T) {
	var p Parser
	for _, c := range goodBodies {
		want := text.Fingerprint(parse(t, c.endpoint, c.body).Prompts[0])
		_, _ = p.Parse(Chat, []byte(`{"messages":[{"role":"user","content":"x"},7]}`))
		r, err := p.Parse(c.endpoint, []byte(c.body))
		if err != nil || text.Fingerprint(r.Prompts[0]) != want || len(r.Prompts) != c.prompts {
			t.Errorf("%s after a bad body: %v", c.body, err)
		}
	}
}

func TestEndpointOfAPath(t *testing.T) {
	for path, want := range map[string]Endpoint{
		"/v1/chat/completions": Chat, "/team-a/v1/completions": Completions, "/v1/responses": Responses,
		"/v1/messages": Messages, "/v1/embeddings": Embeddings,
	} {
		if got, ok := EndpointOf(path); !ok || got != want {
			t.Errorf("%s: %v %v", path, got, ok)
		}
	}
	for _, path := range []string{"/", "/v1/", "/v1/chat", "/v1/messages/count_tokens", "/chat/completions"} {
		if _, ok := EndpointOf(path); ok {
			t.Errorf("%s was taken", path)
		}
	}
}

func BenchmarkParseChat(b *testing.B) {
	w, err := workload.New(workload.Demo())
	if err != nil {
		b.Fatal(err)
	}
	var bodies [][]byte
	total := 0
	for i := range 64 {
		bodies = append(bodies, w.Start(i).Body())
		total += len(bodies[i])
	}
	b.SetBytes(int64(total / len(bodies)))
	b.ReportAllocs()
	var p Parser
	for i := 0; b.Loop(); i++ {
		if _, err := p.Parse(Chat, bodies[i%len(bodies)]); err != nil {
			b.Fatal(err)
		}
	}
}
