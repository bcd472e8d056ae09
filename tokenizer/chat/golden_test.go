package chat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// testDay is 2026-07-04, the day of testdata/prompts.jsonl.
const testDay = 20638

func lines(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(text), []byte("\n"))
}

func scan(t testing.TB, body []byte) *jsontext.Doc {
	t.Helper()
	doc := new(jsontext.Doc)
	if fault := doc.Scan(body); fault != jsontext.None {
		t.Fatalf("fault %d in %s", fault, body)
	}
	return doc
}

func named(t testing.TB, family, engine string) Template {
	t.Helper()
	tmpl, ok := ByName(family, engine)
	if !ok {
		t.Fatalf("no template %s for %s", family, engine)
	}
	return tmpl
}

// render renders a chat request and checks what always holds.
func render(t testing.TB, tmpl Template, body []byte) Result {
	t.Helper()
	return renderAt(t, tmpl, body, Chat)
}

func renderAt(t testing.TB, tmpl Template, body []byte, ep Endpoint) Result {
	t.Helper()
	res := new(Renderer).Render(tmpl, Request{Doc: scan(t, body), Endpoint: ep, Day: testDay, TakeBreaks: true}, 0)
	check(t, &res)
	return res
}

func check(t testing.TB, res *Result) {
	t.Helper()
	for _, list := range [][]int{res.Ends, res.Breaks} {
		before := -1
		for _, at := range list {
			if at <= before || at > len(res.Text) {
				t.Fatalf("offsets %v of %d bytes", list, len(res.Text))
			}
			before = at
		}
	}
}

// The prompts come from the reference: the published templates in Jinja, and
// OpenAI's library for gpt-oss (integration/tokenizers/templates/reference.py
// with --bodies testdata/bodies.jsonl).
func TestPromptsAreTheReferences(t *testing.T) {
	bodies := lines(t, "bodies.jsonl")
	in := bufio.NewScanner(bytes.NewReader(bytes.Join(lines(t, "prompts.jsonl"), []byte("\n"))))
	in.Buffer(nil, 1<<20)
	whole := map[string]int{}
	for in.Scan() {
		var want struct {
			Family, Engine, Text, Prefill string
			Refused                       bool
			Body                          int
		}
		if err := json.Unmarshal(in.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		body := bodies[want.Body]
		res := render(t, named(t, want.Family, want.Engine), body)
		switch {
		case want.Refused && res.Stopped == Complete:
			t.Errorf("%s %s: what the engine refuses is rendered\n%s", want.Family, want.Engine, body)
		case want.Refused:
		case res.Stopped == Complete:
			whole[want.Family+" "+want.Engine]++
			if string(res.Text) != want.Text+want.Prefill {
				t.Errorf("%s %s: %s\ngot  %q\nwant %q", want.Family, want.Engine, body, res.Text, want.Text+want.Prefill)
			}
		case !strings.HasPrefix(want.Text, string(res.Text)):
			t.Errorf("%s %s: %s\nstopped (%s) with %q\nwhich doesn't begin %q", want.Family, want.Engine, body, res.Stopped, res.Text, want.Text)
		}
	}
	for _, family := range Families() {
		for _, engine := range []string{"vllm", "sglang"} {
			if _, ok := ByName(family, engine); ok && family != "llama3.3" && whole[family+" "+engine] < 9 {
				t.Errorf("%s %s: only %d prompts are rendered whole", family, engine, whole[family+" "+engine])
			}
		}
	}
}

func TestUnknownNamesAreNoTemplates(t *testing.T) {
	for _, names := range [][2]string{{"qwen", "vllm"}, {"qwen3", "tgi"}, {"", ""}, {"gpt-oss", "sglang"}} {
		if tmpl, ok := ByName(names[0], names[1]); ok || tmpl != (Template{}) {
			t.Errorf("%v is a template", names)
		}
	}
	res := new(Renderer).Render(Template{}, Request{Doc: scan(t, []byte(`{"messages":[]}`)), Endpoint: Chat}, 0)
	if res.Stopped != NoTemplate || len(res.Text) > 0 {
		t.Errorf("the zero template: %+v", res)
	}
}

func TestNamesOfReasonsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for r := Complete; r < NumReasons; r++ {
		if name := r.String(); name == "" || seen[name] {
			t.Errorf("reason %d is %q", r, name)
		} else {
			seen[name] = true
		}
	}
}

// converted.jsonl holds what vLLM itself made of Anthropic and Responses
// requests (integration/tokenizers/templates/vllm_converted.py).
func TestOtherDialectsAreConvertedAsVLLMDoes(t *testing.T) {
	whole := map[string]int{}
	for _, line := range lines(t, "converted.jsonl") {
		var want struct {
			Family, Endpoint, Body, Text string
			Refused                      bool
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		ep := Messages
		if want.Endpoint == "responses" {
			ep = Responses
		}
		res := renderAt(t, named(t, want.Family, "vllm"), []byte(want.Body), ep)
		switch {
		case want.Refused:
			if res.Stopped == Complete {
				t.Errorf("%s: what the engine refuses is rendered\n%s", want.Family, want.Body)
			}
		case res.Stopped == Complete:
			whole[want.Endpoint+" "+want.Family]++
			if string(res.Text) != want.Text {
				t.Errorf("%s: %s\ngot  %q\nwant %q", want.Family, want.Body, res.Text, want.Text)
			}
		case !strings.HasPrefix(want.Text, string(res.Text)):
			t.Errorf("%s: %s\nstopped (%s) with %q", want.Family, want.Body, res.Stopped, res.Text)
		}
	}
	if len(whole) < 11 {
		t.Errorf("only %v", whole)
	}
	for name, n := range whole {
		if n < 8 {
			t.Errorf("%s: only %d prompts are rendered whole", name, n)
		}
	}
}
