package body

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// record keeps a rendering and where its turns end.
type record struct {
	text  []byte
	turns []int
}

func (s *record) Text(p []byte) { s.text = append(s.text, p...) }
func (s *record) TurnEnd()      { s.turns = append(s.turns, len(s.text)) }

// rendered is everything that one body led to.
type rendered struct {
	record
	Rendering
	req *Request
}

func input(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "inputs", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// render scans and renders, and expects both to go well.
func render(t testing.TB, ep Endpoint, b []byte) rendered {
	t.Helper()
	r := rendered{req: new(Request)}
	if reason := Scan(b, ep, r.req); reason != OK {
		t.Fatalf("Scan: %v for %.200q", reason, b)
	}
	r.Rendering = Render(r.req, &r.record, 0)
	if r.Reason != OK {
		t.Fatalf("Render: %v for %.200q", r.Reason, b)
	}
	if r.Bytes != len(r.text) {
		t.Fatalf("Bytes says %d, sink got %d", r.Bytes, len(r.text))
	}
	return r
}

func renderInput(t testing.TB, ep Endpoint, name string) rendered {
	t.Helper()
	return render(t, ep, input(t, name))
}

func sharedPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func TestResponsesStringIsOneUserTurn(t *testing.T) {
	a := renderInput(t, Responses, "F02a-responses-input-string.json")
	b := renderInput(t, Responses, "F02b-responses-input-array.json")
	if !bytes.Equal(a.text, b.text) {
		t.Errorf("string and item form differ:\n%q\n%q", a.text, b.text)
	}
	if a.req.MaxTokens != 16 || string(a.req.Model) != "model-a" {
		t.Errorf("MaxTokens %d, Model %q", a.req.MaxTokens, a.req.Model)
	}
}

func TestOtherImageIsOtherPromptFromTheImageOn(t *testing.T) {
	a := renderInput(t, ChatCompletions, "F03-chat-content-parts.json")
	b := renderInput(t, ChatCompletions, "F62-same-text-other-image.json")
	if bytes.Equal(a.text, b.text) {
		t.Fatal("two different pictures rendered alike")
	}
	if a.Media != 1 || a.MediaAt <= 0 || a.MediaAt != b.MediaAt {
		t.Fatalf("media %d at %d and %d", a.Media, a.MediaAt, b.MediaAt)
	}
	if n := sharedPrefix(a.text, b.text); n < a.MediaAt {
		t.Errorf("shared up to %d, the image stands only at %d", n, a.MediaAt)
	}
	if !bytes.Contains(a.text[:a.MediaAt], []byte("Name the colour of this single dot.")) {
		t.Errorf("the text does not stand before the image: %q", a.text)
	}
}

func TestTokenIDsAreUsedAsTokens(t *testing.T) {
	r := renderInput(t, Completions, "F04-completions-token-ids.json")
	if !r.TokenForm || r.PromptTokens != 12 || r.Prompts != 2 {
		t.Errorf("TokenForm %v, PromptTokens %d, Prompts %d; want true, 12, 2", r.TokenForm, r.PromptTokens, r.Prompts)
	}
	want := []byte{markTokens}
	for _, id := range []byte{11, 22, 33, 44, 55, 66, 77, 88} {
		want = append(want, id, 0, 0, 0)
	}
	if want = append(want, markEnd); !bytes.Equal(r.text, want) {
		t.Errorf("got % x\nwant % x", r.text, want)
	}
}

func TestFirstStringIsTheKeyAndAllAreTheLoad(t *testing.T) {
	r := renderInput(t, Completions, "F05-completions-string-list.json")
	if string(r.text) != "Pier one is open.\xff" {
		t.Errorf("key from %q", r.text)
	}
	if want := len("Pier one is open.\xffPier two is shut.\xff\xff"); r.LoadBytes != want || r.Prompts != 3 {
		t.Errorf("LoadBytes %d, Prompts %d; want %d, 3", r.LoadBytes, r.Prompts, want)
	}
}

func TestAnthropicSystemIsTheHead(t *testing.T) {
	r := renderInput(t, Messages, "F06-anthropic-messages.json")
	want := "\xf8system\xf9You are the desk clerk of a made-up harbour. Answer in one line and name the pier.\xff" +
		"\xf8user\xf9Which pier holds the green barge today?\xff"
	if string(r.text) != want {
		t.Errorf("got  %q\nwant %q", r.text, want)
	}
}

func TestNullContentAndToolCallsEnter(t *testing.T) {
	r := renderInput(t, ChatCompletions, "F08-null-content-toolcalls.json")
	want := "\xf8user\xf9Look up pier 4.\xff" +
		"\xf8assistant\xf9\xfcpier_status\xf9{\"pier\":4,\"note\":\"a \\\"quoted\\\" word\"}\xff" +
		"\xf8tool\xf9free\xff" +
		"\xf8assistant\xf9\xff" +
		"\xf8user\xf9Thanks, and pier 5?\xff"
	if string(r.text) != want {
		t.Errorf("got  %q\nwant %q", r.text, want)
	}
	if r.Turns != 5 || len(r.turns) != 5 {
		t.Errorf("%d turns, %d turn ends", r.Turns, len(r.turns))
	}
}

func TestToolsComeFirst(t *testing.T) {
	r := renderInput(t, ChatCompletions, "F09-tool-without-parameters.json")
	if !bytes.HasPrefix(r.text, []byte("\xf8\xfc\xf9[{\xfdtype\xfd\xfdfunction\xfd,")) {
		t.Errorf("got %q", r.text)
	}
	if !bytes.Contains(r.text, []byte("ring_bell")) || bytes.Contains(r.text, []byte("keep")) {
		t.Errorf("tools missing, or another field taken: %q", r.text)
	}
}

func TestEmptyMessagesHaveNoKey(t *testing.T) {
	for name, b := range map[string]string{
		"no messages":     string(input(t, "F10-empty-messages.json")),
		"empty strings":   `{"messages":[{"role":"user","content":""},{"role":"user","content":[]},{"role":"user"}]}`,
		"only an image":   `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a/b.png"}}]}]}`,
		"empty text part": `{"messages":[{"role":"user","content":[{"type":"text","text":""}]}]}`,
	} {
		req := new(Request)
		if reason := Scan([]byte(b), ChatCompletions, req); reason != OK {
			t.Errorf("%s: Scan says %v", name, reason)
		}
		if out := Render(req, new(record), 0); out.Reason != Empty {
			t.Errorf("%s: %v, want %v", name, out.Reason, Empty)
		}
	}
}

func TestLastDuplicateCounts(t *testing.T) {
	r := renderInput(t, ChatCompletions, "F11-duplicate-model.json")
	if string(r.req.Model) != "model-b" {
		t.Errorf("Model %q, want model-b", r.req.Model)
	}
	r = render(t, ChatCompletions, []byte(`{"mod\u0065l":"x","model":"y","mod\u0065\u006c":"z","messages":[],
		"me\u0073sages":[{"role":"user","role":"tool","content":"a","content":"b"}]}`))
	if string(r.req.Model) != "z" {
		t.Errorf("Model %q, want z", r.req.Model)
	}
	if want := "\xf8tool\xf9b\xff"; string(r.text) != want {
		t.Errorf("got %q, want %q", r.text, want)
	}
}

func TestNestedFieldsAreNotTopLevel(t *testing.T) {
	plain := input(t, "F13-late-and-nested-model.json")
	for _, padding := range []int{0, 64 << 10, 128 << 10, 1 << 20} {
		b := bytes.Replace(plain, []byte(`"padding":"`), []byte(`"padding":"`+strings.Repeat("pad ", padding/4)), 1)
		r := render(t, ChatCompletions, b)
		if string(r.req.Model) != "model-a" {
			t.Errorf("padding %d: Model %q", padding, r.req.Model)
		}
		if want := "\xf8user\xf9the text \"model\":\"nor-this\" is only text\xff"; string(r.text) != want {
			t.Errorf("padding %d: got %q", padding, r.text)
		}
	}
}

func TestCompressedBytesAreNotJSON(t *testing.T) {
	req := new(Request)
	if reason := Scan(input(t, "F14-chat-gzip.json.gz"), ChatCompletions, req); reason != NotObject {
		t.Errorf("%v, want %v", reason, NotObject)
	}
}

func TestSamplingOrderAndSpacingDoNotMatter(t *testing.T) {
	a := renderInput(t, ChatCompletions, "F57a-two-messages.json")
	b := renderInput(t, ChatCompletions, "F20_F59-same-prompt-odd-bytes.json")
	if !bytes.Equal(a.text, b.text) {
		t.Errorf("got  %q\nwant %q", b.text, a.text)
	}
	if !b.req.Stream || !b.req.IncludeUsage || string(b.req.User) != "u-17" || b.req.MaxTokens != 16 {
		t.Errorf("Stream %v, IncludeUsage %v, User %q, MaxTokens %d", b.req.Stream, b.req.IncludeUsage, b.req.User, b.req.MaxTokens)
	}
}

func TestBadEscapeGivesNothing(t *testing.T) {
	req := new(Request)
	render(t, ChatCompletions, input(t, "F57a-two-messages.json"))
	if reason := Scan(input(t, "F46-bad-escape.json"), ChatCompletions, req); reason != BadJSON {
		t.Errorf("%v, want %v", reason, BadJSON)
	}
	if req.Model != nil {
		t.Errorf("a field was read from a broken body: %q", req.Model)
	}
	if out := Render(req, new(record), 0); out.Reason == OK {
		t.Error("a broken body was rendered")
	}
}

func TestEscapedAndLiteralTextAreEqual(t *testing.T) {
	a := renderInput(t, ChatCompletions, "F49a-emoji-escaped.json")
	b := renderInput(t, ChatCompletions, "F49b-emoji-literal.json")
	if !bytes.Equal(a.text, b.text) {
		t.Errorf("got %q and %q", a.text, b.text)
	}
}

func TestOtherSplitIsOtherPrompt(t *testing.T) {
	a := renderInput(t, ChatCompletions, "F57a-two-messages.json")
	b := renderInput(t, ChatCompletions, "F57b-other-split.json")
	if bytes.Equal(a.text, b.text) {
		t.Error("boundaries got lost")
	}
}
