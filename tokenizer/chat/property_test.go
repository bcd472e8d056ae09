package chat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// conversation makes messages of a conversation that every template takes; a
// prompt may be sent before each assistant's turn (the returned places).
func conversation(rng *rand.Rand, reasoning bool) (messages []string, asked []int) {
	words := []string{"tide", `caf\u00e9`, "港", `a\nb`, `\"x\"`, "  ", "🚢", "<|im_end|>", "<b>"}
	text := func() string {
		s := "w"
		for range rng.IntN(12) {
			s += words[rng.IntN(len(words))] + " "
		}
		return s
	}
	thought := func() string {
		if reasoning && rng.IntN(2) == 0 {
			return `,"reasoning_content":"` + text() + `"`
		}
		return ""
	}
	if rng.IntN(2) == 0 {
		messages = append(messages, `{"role":"system","content":"`+text()+`"}`)
	}
	for round := range 2 + rng.IntN(4) {
		messages = append(messages, `{"role":"user","content":"`+text()+`"}`)
		asked = append(asked, len(messages))
		for i := range rng.IntN(3) {
			id := fmt.Sprintf("call%02d%03d", round, i)
			messages = append(messages,
				`{"role":"assistant","content":null`+thought()+`,"tool_calls":[{"id":"`+id+`","type":"function","function":{"name":"f","arguments":"{\"n\":1.50}"}}]}`,
				`{"role":"tool","tool_call_id":"`+id+`","content":"`+text()+`"}`)
			asked = append(asked, len(messages))
		}
		messages = append(messages, `{"role":"assistant","content":"`+text()+`"`+thought()+`}`)
	}
	return messages, asked[:]
}

func bodyOf(messages []string, more string) []byte {
	return []byte(`{"messages":[` + strings.Join(messages, ",") + `]` + more + `}`)
}

const someTools = `,"tools":[{"type":"function","function":{"name":"f","description":"does \"f\"","parameters":{"type":"object","properties":{"n":{"type":"number"}}}}}]`

// broken counts recorded ends of earlier prompts that a later one doesn't repeat.
func broken(t *testing.T, tmpl Template, rng *rand.Rand, reasoning bool) (ends, bad int) {
	messages, asked := conversation(rng, reasoning)
	more := ""
	if rng.IntN(2) == 0 {
		more = someTools
	}
	var texts [][]byte
	var marks [][]int
	for _, n := range asked {
		res := render(t, tmpl, bodyOf(messages[:n], more))
		if res.Stopped != Complete {
			t.Fatalf("stopped: %s\n%s", res.Stopped, bodyOf(messages[:n], more))
		}
		texts, marks = append(texts, res.Text), append(marks, res.Ends)
	}
	for i := range texts[:len(texts)-1] {
		for _, end := range marks[i] {
			ends++
			if !bytes.HasPrefix(texts[i+1], texts[i][:end]) {
				bad++
			}
		}
	}
	return ends, bad
}

func TestFollowUpsRepeatThePromptUpToEachEnd(t *testing.T) {
	for _, family := range Families() {
		for _, engine := range []string{"vllm", "sglang"} {
			tmpl, ok := ByName(family, engine)
			if !ok || family == "mistral-nemo" { // moves tools and system text to the last turn
				continue
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range 60 {
				if ends, bad := broken(t, tmpl, rng, family != "qwen3" && family != "gpt-oss"); bad > 0 {
					t.Fatalf("%s %s: %d of %d ends are not repeated", family, engine, bad, ends)
				}
			}
		}
	}
}

// Qwen3 and gpt-oss drop reasoning when the user asks again, so some ends are
// not repeated; that is the models' rule, and most still are.
func TestDroppedReasoningBreaksOnlySomeEnds(t *testing.T) {
	for _, family := range []string{"qwen3", "gpt-oss"} {
		rng, ends, bad := rand.New(rand.NewPCG(1, 2)), 0, 0
		for range 60 {
			e, b := broken(t, named(t, family, "vllm"), rng, true)
			ends, bad = ends+e, bad+b
		}
		if bad == 0 || bad > ends/3 {
			t.Errorf("%s: %d of %d ends are not repeated", family, bad, ends)
		}
	}
}

func TestACapLeavesATruePrefix(t *testing.T) {
	messages, _ := conversation(rand.New(rand.NewPCG(5, 6)), true)
	body := bodyOf(messages, someTools)
	for _, family := range Families() {
		tmpl := named(t, family, "vllm")
		whole := render(t, tmpl, body)
		r := new(Renderer)
		for most := 1; most < len(whole.Text); most += 7 {
			res := r.Render(tmpl, Request{Doc: scan(t, body), Endpoint: Chat, Day: testDay, TakeBreaks: true}, most)
			check(t, &res)
			// A JSON value of a tool or a call is left out whole.
			if len(res.Text) > most || len(res.Text) < most-500 || res.Stopped != TooLong || !bytes.HasPrefix(whole.Text, res.Text) {
				t.Fatalf("%s: cap %d gives %d bytes (%s), a prefix: %v", family, most, len(res.Text), res.Stopped, bytes.HasPrefix(whole.Text, res.Text))
			}
		}
	}
}

func TestWhatCannotBeRenderedEndsTheTextAtTheTurnBefore(t *testing.T) {
	for _, bad := range []string{
		`{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}`,
		`{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}`,
		`{"role":"user","content":"\ud800"}`,
		"{\"role\":\"user\",\"content\":\"\xff\"}",
		`{"role":"user","content":5}`,
		`{"role":"assistant","tool_calls":[{"type":"custom","custom":{}}]}`,
		`{"role":"assistant","content":"x","reasoning":5}`,
	} {
		good := `{"role":"user","content":"first"},{"role":"assistant","content":"second"},`
		res := render(t, named(t, "qwen2.5", "vllm"), []byte(`{"messages":[`+good+bad+`,{"role":"user","content":"last"}]}`))
		want := imStart + "system\n" + qwenDefault + imEnd + imStart + "user\nfirst" + imEnd + imStart + "assistant\nsecond" + imEnd
		if string(res.Text) != want || res.Stopped == Complete || res.Ends[len(res.Ends)-1] != len(want) {
			t.Errorf("%s: stopped (%s) with %q", bad, res.Stopped, res.Text)
		}
	}
}

func TestArgumentsThatMayMeanAnythingLeaveNothing(t *testing.T) {
	for more, want := range map[string]Reason{
		`"chat_template":"{{ messages }}"`: RequestTemplate, `"chat_template_kwargs":{"chat_template":"x"}`: RequestTemplate,
		`"chat_template_kwargs":{"custom":1}`: Argument, `"chat_template_kwargs":[]`: Refused, `"truncate_prompt_tokens":5`: Cut,
		`"kv_transfer_params":{"prompt_token_ids":[1]}`: TokenIDs, `"add_generation_prompt":"yes"`: Unknown, `"tools":[]`: Refused,
		`"tools":[{"type":"function","function":{}}]`: Refused, `"tools":[{"type":"web","function":{"name":"f"}}]`: Unknown,
		`"continue_final_message":true`: Refused, `"reasoning_effort":"most"`: Refused, `"reasoning_effort":1`: Unknown,
	} {
		res := render(t, named(t, "qwen3", "vllm"), []byte(`{"messages":[{"role":"user","content":"x"}],`+more+`}`))
		if res.Stopped != want || len(res.Text) > 0 || len(res.Ends) > 0 {
			t.Errorf("%s: %s with %q, want %s", more, res.Stopped, res.Text, want)
		}
	}
	for more, tail := range map[string]string{
		`"chat_template_kwargs":{"enable_thinking":false}`: "assistant\n<think>\n\n</think>\n\n", `"reasoning_effort":"none"`: "</think>\n\n",
		`"chat_template_kwargs":{"enable_thinking":null}`: "assistant\n", `"chat_template":null,"tools":null`: "assistant\n",
		`"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}`: "assistant\n", `"add_generation_prompt":false`: imEnd,
		`"documents":[{"a":"b"}],"user":"u","x":{"messages":1}`: "assistant\n",
	} {
		res := render(t, named(t, "qwen3", "vllm"), []byte(`{"messages":[{"role":"user","content":"x"}],`+more+`}`))
		if res.Stopped != Complete || !strings.HasSuffix(string(res.Text), tail) {
			t.Errorf("%s: %s with %q", more, res.Stopped, res.Text)
		}
	}
}

func TestPlainPromptsAreTakenAsTheyAre(t *testing.T) {
	tmpl := named(t, "qwen3", "vllm")
	for body, want := range map[string]string{
		`{"prompt":"a\u00e9"}`: "aé", `{"prompt":["one","two"]}`: "one", `{"prompt":""}`: "",
	} {
		res := renderAt(t, tmpl, []byte(body), Completions)
		if string(res.Text) != want || res.Stopped != Complete || !res.AddSpecial {
			t.Errorf("%s: %+v", body, res)
		}
	}
	if res := renderAt(t, tmpl, []byte(`{"prompt":"a","add_special_tokens":false}`), Completions); res.AddSpecial {
		t.Error("add_special_tokens is not heeded")
	}
	if res := renderAt(t, tmpl, []byte(`{"input":["x"]}`), Embeddings); string(res.Text) != "x" || !res.AddSpecial {
		t.Errorf("embeddings: %+v", res)
	}
	for body, want := range map[string]Reason{
		`{"prompt":[1,2]}`: TokenIDs, `{"prompt":[[1]]}`: TokenIDs, `{"prompt":5}`: Refused, `{"prompt":[]}`: Refused, `{}`: Refused,
		`{"prompt":"a","suffix":"b"}`: Unknown, `{"prompt":"\ud800"}`: BadText, `{"prompt":"a","truncate_prompt_tokens":3}`: Cut,
	} {
		if res := renderAt(t, tmpl, []byte(body), Completions); res.Stopped != want || len(res.Text) > 0 {
			t.Errorf("%s: %s with %q, want %s", body, res.Stopped, res.Text, want)
		}
	}
}

func TestNothingIsAllocatedOnceGrown(t *testing.T) {
	messages, _ := conversation(rand.New(rand.NewPCG(3, 4)), true)
	messages = append(messages, `{"role":"user","content":[{"type":"text","text":"a\n"},{"type":"text","text":"b"}]}`)
	body := bodyOf(messages, someTools)
	doc, r := scan(t, body), new(Renderer)
	for _, family := range Families() {
		for _, engine := range []string{"vllm", "sglang"} {
			tmpl, ok := ByName(family, engine)
			if !ok {
				continue
			}
			if n := testing.AllocsPerRun(50, func() {
				r.Render(tmpl, Request{Doc: doc, Endpoint: Chat, Day: testDay}, 1<<20)
			}); n != 0 {
				t.Errorf("%s %s: %v allocations", family, engine, n)
			}
		}
	}
}

// An earlier request must not show in a later one.
func TestARendererForgets(t *testing.T) {
	r := new(Renderer)
	for _, body := range lines(t, "bodies.jsonl") {
		for _, family := range Families() {
			tmpl := named(t, family, "vllm")
			req := Request{Doc: scan(t, body), Endpoint: Chat, Day: testDay}
			used, fresh := r.Render(tmpl, req, 0), new(Renderer).Render(tmpl, req, 0)
			if string(used.Text) != string(fresh.Text) || used.Stopped != fresh.Stopped || fmt.Sprint(used.Ends) != fmt.Sprint(fresh.Ends) {
				t.Fatalf("%s: %s\n%q\n%q", family, body, used.Text, fresh.Text)
			}
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, body := range lines(f, "bodies.jsonl") {
		f.Add(body)
	}
	f.Add([]byte(`{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}],"instructions":"y","tools":[{"type":"function","name":"f","parameters":{}}]}`))
	f.Add([]byte(`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}],"tools":[{"name":"f","input_schema":{}}]}`))
	f.Add([]byte(`{"prompt":["a"]}`))
	r := new(Renderer)
	f.Fuzz(func(t *testing.T, body []byte) {
		doc := new(jsontext.Doc)
		if doc.Scan(body) != jsontext.None {
			return
		}
		for _, family := range Families() {
			for _, engine := range []string{"vllm", "sglang"} {
				tmpl, ok := ByName(family, engine)
				if !ok {
					continue
				}
				for ep := Chat; ep <= Embeddings; ep++ {
					whole := r.Render(tmpl, Request{Doc: doc, Endpoint: ep, TakeBreaks: true}, 1<<20)
					check(t, &whole)
					text := string(whole.Text)
					half := r.Render(tmpl, Request{Doc: doc, Endpoint: ep, TakeBreaks: true}, len(text)/2+1)
					check(t, &half)
					if !strings.HasPrefix(text, string(half.Text)) && whole.Stopped == Complete {
						t.Fatalf("%s %s: a smaller cap changes the text\n%q\n%q", family, engine, half.Text, text)
					}
				}
			}
		}
	})
}

// Names are compared with each other, so many of them would take a time that
// grows with the square of the body.
func TestWorkIsBoundedWhateverTheInput(t *testing.T) {
	many := func(n int, item string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
		}
		return strings.Join(items, ",")
	}
	properties := many(20000, `"\u0070#":{"type":"string"}`)
	required := many(20000, `"\u0070#x"`)
	bodies := []string{
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{` + properties + `},"required":[` + required + `]}}}]}`,
		`{"messages":[{"role":"user","content":"x"},` + many(4000, `{"role":"assistant","tool_calls":[{"id":"c#","type":"function","function":{"name":"f","arguments":"{}"}}]}`) + `]}`,
		`{"messages":[{"role":"user","content":"x"},` + many(2000, `{"role":"assistant","tool_calls":[{"id":"c#","type":"function","function":{"name":"f","arguments":"{}"}}]}`) + `,` +
			many(2000, `{"role":"tool","tool_call_id":"c#","content":"r"}`) + `]}`,
		`{"messages":[{"role":"user","content":[` + many(20000, `{"type":"text","text":"\u0041#"}`) + `]}]}`,
	}
	r := new(Renderer)
	for _, family := range Families() {
		for i, body := range bodies {
			res := r.Render(named(t, family, "vllm"), Request{Doc: scan(t, []byte(body)), Endpoint: Chat}, 0)
			if r.work > 2*maxWork {
				t.Errorf("%s, body %d: %d comparisons (%s)", family, i, r.work, res.Stopped)
			}
			if len(r.arena) > 2*len(body) {
				t.Errorf("%s, body %d: %d bytes in the arena for %d of the body", family, i, len(r.arena), len(body))
			}
		}
	}
}
