package body

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for path, want := range map[string]Endpoint{
		"/v1/chat/completions":               ChatCompletions,
		"/v1/chat/completions?api-version=1": ChatCompletions,
		"/v1/chat/completions/":              ChatCompletions,
		"/v1/chat/completions/?x=/v1/models": ChatCompletions,
		"/team-a/v1/chat/completions":        ChatCompletions,
		"/a/b/c/v1/completions#x":            Completions,
		"//v1//completions//":                Completions,
		"/v1/./responses":                    Responses,
		"/v1/x/../messages":                  Messages,
		"/v1/messages/count_tokens/..":       Messages,
		"/../v1/embeddings":                  Embeddings,
		"/v1/models":                         Models,
		"v1/models":                          Models,
		"/v1/chat/completions/render":        None,
		"/v1/messages/count_tokens":          None,
		"/v1/responses/resp_1/cancel":        None,
		"/v1/responses/resp_1":               None,
		"/v1/models/model-a":                 None,
		"/v1/chat%2Fcompletions":             ChatCompletions,
		"/v1/%63ompletions":                  Completions,
		"/v1/%2e%2e/v1/chat/completions/%2E": ChatCompletions,
		"/v1/%6d%6F%64%65ls?%2F":             Models,
		"/v1/%2563ompletions":                None, // decoded once
		"/v1/models%3Fx":                     None,
		"/v1/models%":                        None,
		"/v1/models%4":                       None,
		"/v1/%4Gmodels":                      None,
		"/v1/%60models":                      None,
		"/chat/completions":                  None,
		"/v2/chat/completions":               None,
		"/v1/chat/../../completions":         None,
		"/v1/CHAT/completions":               None,
		"/xv1/completions":                   None,
		"/v1/completionsx":                   None,
		"/tokenize":                          None,
		"/":                                  None,
		"":                                   None,
		"*":                                  None,
		"?/v1/completions":                   None,
		"/v1/chat/completions/..":            None,

		"/v1" + strings.Repeat("/.", 9000):            None,
		strings.Repeat("/..", 9000) + "/v1/responses": Responses,
	} {
		got, ok := Match(path)
		if got != want || ok != (want != None) {
			t.Errorf("Match(%.60q) = %v, %v; want %v", path, got, ok, want)
		}
	}
}

func TestNamesAreStable(t *testing.T) {
	seen := map[string]bool{}
	for r := Reason(0); r < NumReasons; r++ {
		if s := r.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("reason %d is called %q", r, s)
		} else {
			seen[s] = true
		}
	}
	if s := NumReasons.String(); s != "unknown" {
		t.Errorf("no reason is called %q", s)
	}
	if Messages.String() != "messages" || !Messages.Anthropic() || Models.HasBody() || !Embeddings.HasBody() || Endpoint(99).String() != "unknown" {
		t.Error("endpoints")
	}
}

func TestScanJudgesAsEncodingJSON(t *testing.T) {
	req := new(Request)
	for _, s := range []string{
		`{}`, ` { } `, "\r\n\t{\r\n}\n", `{"a":[]}`, `{"a":{}}`, `{"a":[{},[],[[]]]}`, `{"a":true,"b":false,"c":null}`,
		`{"a":0}`, `{"a":-0}`, `{"a":1.5e+10}`, `{"a":1E9}`, `{"a":123456789012345678901234567890}`,
		`{"a":"\u00e9\\\/\"\b\f\n\r\t"}`, `{"":""}`, `{"a":"é港🚢"}`, "{\"a\":\"\xff\xfe\"}", "{\"a\":\"\x7f\"}",
		``, ` `, `{`, `}`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{"a"::1}`, `{a:1}`, `{'a':1}`,
		`{"a":01}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":1e}`, `{"a":1e+}`, `{"a":-}`, `{"a":- 1}`, `{"a":0x1}`, `{"a":1 2}`,
		`{"a":NaN}`, `{"a":Infinity}`, `{"a":nul}`, `{"a":nulll}`, `{"a":True}`, `{"a":tru`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`,
		`{"a":[}`, `{"a":{]}`, `{"a":]}`, `{"a":[1}`, `{"a":"x}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\u12G4"}`, `{"a":"\u12:4"}`, `{"a":"\u12/4"}`, `{"a":"\u12@4"}`, `{"a":"\u12` + "`" + `4"}`, `{"a":"\uAFaf"}`, `{"a":"\`, `{"a":"\u`,
		"{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", "{\"a\":\"0123456789abcdef\x1f\"}", `{}{}`, `{} x`, `{}]`, "{}\x00", "\xef\xbb\xbf{}", `{"a":1}}`,
		`{"a":"` + strings.Repeat("x", 100) + `\"}`, `{1:2}`, `{"a":1 "b":2}`, `{"a":/**/1}`, "{\"a\":1}\x0b", "{\u00a0}",
	} {
		agree(t, req, ChatCompletions, []byte(s))
	}
	for s, want := range map[string]Reason{
		`[]`: NotObject, `"x"`: NotObject, `null`: NotObject, `7`: NotObject, "\x1f\x8b": NotObject,
		`{}`: NoPromptField, `{"messages":null}`: NoPromptField, `{"prompt":"x"}`: NoPromptField,
	} {
		if got := Scan([]byte(s), ChatCompletions, req); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestEveryTruncationOfABodyIsInvalid(t *testing.T) {
	req := new(Request)
	for _, name := range []string{"F03-chat-content-parts.json", "F08-null-content-toolcalls.json", "F20_F59-same-prompt-odd-bytes.json", "F49a-emoji-escaped.json"} {
		b := bytes.TrimSpace(input(t, name))
		for n := range b {
			if reason := Scan(b[:n:n], ChatCompletions, req); reason != BadJSON {
				t.Fatalf("%s cut at %d: %v", name, n, reason)
			}
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	req := new(Request)
	deep := func(open, end string, n int) []byte {
		return []byte(`{"messages":[{"role":"user","content":"Hi"}],"x":` + strings.Repeat(open, n) + "1" + strings.Repeat(end, n) + `}`)
	}
	for _, form := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`[{"messages":`, "}]"}} {
		levels := strings.Count(form[0], "[") + strings.Count(form[0], "{")
		if reason := Scan(deep(form[0], form[1], (MaxDepth-2)/levels), ChatCompletions, req); reason != OK {
			t.Errorf("%s nested as deep as allowed: %v", form[0], reason)
		}
		if reason := Scan(deep(form[0], form[1], MaxDepth/levels), ChatCompletions, req); reason != TooDeep {
			t.Errorf("%s nested too deep: %v", form[0], reason)
		}
		if reason := Scan(deep(form[0], form[1], 1_000_000), ChatCompletions, req); reason != TooDeep {
			t.Errorf("%s nested a million times: %v", form[0], reason)
		}
	}
	// Depth where Render walks: tools, content, arguments, parts.
	results := strings.Repeat(`[{"type":"tool_result","content":`, 1500) + `"x"` + strings.Repeat("}]", 1500)
	nest := strings.Repeat(`[{"content":`, 1500) + `"x"` + strings.Repeat("}]", 1500)
	for _, s := range []string{
		`{"messages":[{"role":"user","content":` + nest + `}]}`,
		`{"messages":[{"role":"user","content":` + results + `}]}`,
		`{"messages":[{"role":"user","content":[{"type":"tool_result","content":` + nest + `}]}]}`,
		`{"messages":[{"role":"user","content":"x","tool_calls":` + nest + `}],"tools":` + nest + `}`,
	} {
		b := []byte(s)
		compare(t, req, ChatCompletions, b)
	}
}

func TestHugeUnclosedNestingCostsNothing(t *testing.T) {
	b := append([]byte(`{"x":`), bytes.Repeat([]byte("["), 1_000_000)...)
	req := new(Request)
	if n := testing.AllocsPerRun(10, func() {
		if reason := Scan(b, ChatCompletions, req); reason != TooDeep {
			t.Fatal(reason)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNothingIsAllocatedPerRequest(t *testing.T) {
	req, sink := new(Request), new(nullSink)
	var bodies [][]byte
	bodies = append(bodies, chatBody(100<<10))
	for _, name := range []string{"F03-chat-content-parts.json", "F08-null-content-toolcalls.json", "F09-tool-without-parameters.json", "F49a-emoji-escaped.json", "F11-duplicate-model.json"} {
		bodies = append(bodies, input(t, name))
	}
	bodies = append(bodies, []byte(`{"mod\u0065l":"\u0061","cache_salt":"\n","max_tokens":1.5e1,"messages":[{"role":"user","content":"Hi"}]}`))
	for i, b := range bodies {
		if n := testing.AllocsPerRun(20, func() {
			Scan(b, ChatCompletions, req)
			Render(req, sink, 1000)
			Render(req, sink, 0)
		}); n != 0 {
			t.Errorf("body %d: %v allocations", i, n)
		}
	}
}

func TestMoreLongStringsThanRemembered(t *testing.T) {
	long := strings.Repeat("the tide is low, ", 5)
	b := []byte(`{"messages":[{"content":"first"}`)
	const count = 5000 // jsontext remembers 4,096
	for range count {
		b = append(b, `,{"role":"user","content":"\t`+long+`","x":"`+long+`"}`...)
	}
	b = append(b, `],"model":"m"}`...)
	req := new(Request)
	Scan(b, ChatCompletions, req)
	var got record
	Render(req, &got, 0)
	want := "\xf8\xf9first\xff" + strings.Repeat("\xf8user\xf9\t"+long+"\xff", count)
	if string(got.text) != want {
		t.Error("rendering differs")
	}
}

func TestSurrogatesAndStrayBytes(t *testing.T) {
	for raw, want := range map[string]string{
		`\ud83d\udea2`:             "🚢",
		`\uD83D\uDEA2`:             "🚢",
		`\ud83d`:                   "\ufffd",
		`\udea2`:                   "\ufffd",
		`\ud83d\ud83d\udea2`:       "\ufffd🚢",
		`\udea2\ud83d`:             "\ufffd\ufffd",
		`\ud83d\u0041`:             "\ufffdA",
		`\ud83dx`:                  "\ufffdx",
		`\ud83d\n`:                 "\ufffd\n",
		`\u0000\uffff`:             "\x00\uffff",
		"\xf8\xff":                 "\ufffd\ufffd",
		"12345678\xfe12345678":     "12345678\ufffd12345678",
		"a\xf8\\n\xffb":            "a\ufffd\n\ufffdb",
		"\xf7\x80":                 "\xf7\x80", // not UTF-8 either, but no marker
		"\xc3\xa9\xf0\x9f\x9a\xa2": "é🚢",
	} {
		b := []byte(`{"messages":[{"content":"` + raw + `"}],"model":"` + raw + `"}`)
		r := render(t, ChatCompletions, b)
		if got := string(r.text); got != "\xf8\xf9"+want+"\xff" {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
		if raw[0] == '\\' {
			var tree struct{ Model string }
			if err := json.Unmarshal(b, &tree); err != nil || tree.Model != want || string(r.req.Model) != want {
				t.Errorf("%q: Model %q, encoding/json has %q, %v", raw, r.req.Model, tree.Model, err)
			}
		}
	}
}

func TestSmallFields(t *testing.T) {
	for s, check := range map[string]func(r *Request) bool{
		`"max_tokens":5`: func(r *Request) bool { return r.MaxTokens == 5 },
		`"max_tokens":5,"max_completion_tokens":7`:         func(r *Request) bool { return r.MaxTokens == 7 },
		`"max_completion_tokens":7,"max_tokens":5`:         func(r *Request) bool { return r.MaxTokens == 7 },
		`"max_completion_tokens":null,"max_tokens":5`:      func(r *Request) bool { return r.MaxTokens == 5 },
		`"max_tokens":5e1`:                                 func(r *Request) bool { return r.MaxTokens == 50 },
		`"max_tokens":99999999999999999999`:                func(r *Request) bool { return r.MaxTokens == 1<<63-1 },
		`"max_tokens":1e999`:                               func(r *Request) bool { return r.MaxTokens == 1<<63-1 },
		`"max_tokens":-5`:                                  func(r *Request) bool { return r.MaxTokens == -1 },
		`"max_tokens":"5"`:                                 func(r *Request) bool { return r.MaxTokens == -1 },
		`"n":3`:                                            func(r *Request) bool { return r.N == 3 },
		`"n":0`:                                            func(r *Request) bool { return r.N == 1 },
		`"stream":true`:                                    func(r *Request) bool { return r.Stream && !r.IncludeUsage },
		`"stream":true,"stream":false`:                     func(r *Request) bool { return !r.Stream },
		`"stream":"true"`:                                  func(r *Request) bool { return !r.Stream },
		`"stream_options":{"x":[{}],"include_usage":true}`: func(r *Request) bool { return r.IncludeUsage },
		`"stream_options":{"include_usage":true,"include_usage":false}`: func(r *Request) bool { return !r.IncludeUsage },
		`"stream_options":null`: func(r *Request) bool { return !r.IncludeUsage },
		`"model":17`:            func(r *Request) bool { return r.Model == nil },
		`"model":""`:            func(r *Request) bool { return r.Model != nil && len(r.Model) == 0 },
		`"cache_salt":"a\"b","prompt_cache_key":"k"`: func(r *Request) bool { return string(r.CacheSalt) == `a"b` && string(r.PromptCacheKey) == "k" },
	} {
		r := render(t, ChatCompletions, []byte(`{`+s+`,"messages":[{"role":"user","content":"Hi"}]}`))
		if !check(r.req) {
			t.Errorf("%s: %q %q %q stream %v %v max %d n %d", s, r.req.Model, r.req.CacheSalt, r.req.PromptCacheKey, r.req.Stream, r.req.IncludeUsage, r.req.MaxTokens, r.req.N)
		}
	}
}

func TestEarlierRequestLeavesNothingBehind(t *testing.T) {
	req := new(Request)
	Scan([]byte(`{"model":"m","cache_salt":"s","user":"u","stream":true,"max_tokens":3,"n":2,"messages":[{"content":"\n`+strings.Repeat("x", 200)+"\xff"+`"}],"tools":[{"a":1}]}`), ChatCompletions, req)
	Render(req, new(record), 10)
	b := []byte(`{"messages":[{"content":"Hi"}]}`)
	if reason := Scan(b, ChatCompletions, req); reason != OK {
		t.Fatal(reason)
	}
	var got record
	out := Render(req, &got, 0)
	if string(got.text) != "\xf8\xf9Hi\xff" || out.Truncated || req.Model != nil || req.CacheSalt != nil || req.User != nil || req.Stream || req.MaxTokens != -1 || req.N != 1 {
		t.Errorf("%q %+v", got.text, out)
	}
}
