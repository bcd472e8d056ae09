package chat

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/shared/jsontext"
)

const zephyr = `{"bos":"<s>","system":{"prefix":"<|system|>\n","suffix":"</s>\n"},"user":{"prefix":"<|user|>\n","suffix":"</s>\n"},
	"assistant":{"prefix":"<|assistant|>\n","suffix":"</s>\n"},"generation":"<|assistant|>\n","default_system":"Be kind.","trim":true}`

func declared(t testing.TB, text, engine string) Template {
	t.Helper()
	d, err := ParseDeclarative([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, ok := WithDeclarative(d, engine)
	if !ok {
		t.Fatal("no template")
	}
	return tmpl
}

func TestDeclaredTemplatesRender(t *testing.T) {
	tmpl := declared(t, zephyr, "vllm")
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":" hi \n"}]}`: "<s><|system|>\nBe kind.</s>\n<|user|>\nhi</s>\n<|assistant|>\n",
		`{"messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"},{"role":"assistant","content":"yo"},{"role":"user","content":"?"}],"add_generation_prompt":false}`: "<s><|system|>\nS</s>\n<|user|>\nhi</s>\n<|assistant|>\nyo</s>\n<|user|>\n?</s>\n",
		`{"messages":[{"role":"developer","content":"D"},{"role":"user","content":"hi"}]}`:                                                                                              "<s><|system|>\nD</s>\n<|user|>\nhi</s>\n<|assistant|>\n",
		`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"so "}],"continue_final_message":true,"add_generation_prompt":false}`:                                "<s><|system|>\nBe kind.</s>\n<|user|>\nhi</s>\n<|assistant|>\nso",
	} {
		if res := render(t, tmpl, []byte(body)); string(res.Text) != want || res.Stopped != Complete {
			t.Errorf("%s\ngot  %q (%s)\nwant %q", body, res.Text, res.Stopped, want)
		}
	}
	for _, more := range []string{`,{"role":"tool","content":"t"}]`, `,{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}]`} {
		res := render(t, tmpl, []byte(`{"messages":[{"role":"user","content":"hi"}`+more+`}`))
		if res.Stopped != Unknown || string(res.Text) != "<s><|system|>\nBe kind.</s>\n<|user|>\nhi</s>\n" {
			t.Errorf("%s: %s with %q", more, res.Stopped, res.Text)
		}
	}
	if res := render(t, tmpl, []byte(`{"messages":[{"role":"user","content":"hi"}]`+someTools+`}`)); res.Stopped != Unknown || len(res.Text) > 0 {
		t.Errorf("tools: %s with %q", res.Stopped, res.Text)
	}
}

func TestMistakesInDeclaredTemplatesAreNamedByPlace(t *testing.T) {
	good := func(more string) string {
		return `{"user":{"prefix":"u","suffix":""},"assistant":{"prefix":"a","suffix":""}` + more + `}`
	}
	if _, err := ParseDeclarative([]byte(good(""))); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`[`: "template: not an object", `{"user":}`: "template: not valid JSON", `{}`: "user: missing",
		`{"user":{"prefix":"u"}}`: "assistant: missing", `{"user":5}`: "user: not an object",
		good(`,"bos":1`): "bos: not a string", good(`,"trim":"yes"`): "trim: neither true nor false", good(`,"users":{}`): "users: not a field",
		good(`,"system":{"prefix":1}`): "system.prefix: not a string", good(`,"system":{"infix":""}`): "system.infix: not a field of a turn",
		good(`,"tool":{"prefix":"","prefix":""}`): "tool.prefix: given twice", good(`,"user":{}`): "user: given twice",
		good(`,"default_system":"x"`): "default_system: given without system", good(`,"bos":"\ud800"`): "bos: not Unicode text",
		strings.Repeat(" ", maxDeclarative+1): "template: longer than",
	} {
		_, err := ParseDeclarative([]byte(text))
		var place *PlaceError
		if !errors.As(err, &place) || !strings.HasPrefix(err.Error(), want) || place.Remedy == "" {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

func Example() {
	var doc jsontext.Doc
	doc.Scan([]byte(`{"messages":[{"role":"user","content":"Which pier?"}]}`))
	template, _ := ByName("qwen3", "vllm")
	var r Renderer
	res := r.Render(template, Request{Doc: &doc, Endpoint: Chat}, 1<<20)
	fmt.Printf("%s", res.Text)
	fmt.Println(res.Ends, res.Stopped)
	// Output:
	// <|im_start|>user
	// Which pier?<|im_end|>
	// <|im_start|>assistant
	// [39 61] complete
}
