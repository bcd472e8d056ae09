package parity

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recording is what a real engine answered.
type recording struct {
	Models   json.RawMessage
	Tokenize []exchange
}

type exchange struct {
	Name    string
	Request struct {
		Messages, Tools json.RawMessage
		Prompt          string
		Generation      *bool `json:"add_generation_prompt"`
		Continue        *bool `json:"continue_final_message"`
	}
	Answer json.RawMessage
}

func recorded(t testing.TB) recording {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", answers))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (x *exchange) sample() Sample {
	more := map[string]bool{}
	if x.Request.Generation != nil {
		more["add_generation_prompt"] = *x.Request.Generation
	}
	if x.Request.Continue != nil {
		more["continue_final_message"] = *x.Request.Continue
	}
	text, _ := json.Marshal(more) // booleans can always be written
	return Sample{Name: x.Name, Messages: string(x.Request.Messages), Tools: string(x.Request.Tools), Prompt: x.Request.Prompt, More: string(text)}
}

// samples are the requests that were recorded.
func (r *recording) samples() []Sample {
	var out []Sample
	for i := range r.Tokenize {
		out = append(out, r.Tokenize[i].sample())
	}
	return out
}

// engine replays a recording; change may alter an answer before it is sent.
func engine(t *testing.T, r recording, change func(name string, answer map[string]any)) *Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(r.Models) })
	mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, req *http.Request) {
		var asked struct {
			Model           string
			Messages, Tools json.RawMessage
			Prompt          string
			Generation      *bool `json:"add_generation_prompt"`
			Continue        bool  `json:"continue_final_message"`
		}
		if err := json.NewDecoder(req.Body).Decode(&asked); err != nil || asked.Model != "tiny" {
			http.Error(w, `{"error":{"message":"The model does not exist."}}`, http.StatusNotFound)
			return
		}
		for _, x := range r.Tokenize {
			if asked.Prompt != x.Request.Prompt || !same(asked.Messages, x.Request.Messages) || !same(asked.Tools, x.Request.Tools) ||
				asked.Continue != (x.Request.Continue != nil && *x.Request.Continue) || (x.Request.Generation != nil && !*x.Request.Generation) != (asked.Generation != nil && !*asked.Generation) {
				continue
			}
			var answer map[string]any
			if err := json.Unmarshal(x.Answer, &answer); err != nil {
				t.Error(err)
			}
			if change != nil {
				change(x.Name, answer)
			}
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		http.Error(w, `{"error":{"message":"not recorded"}}`, http.StatusBadRequest)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &Client{URL: server.URL + "/", HTTP: server.Client()}
}

func same(a, b json.RawMessage) bool {
	var x, y any
	_, _ = json.Unmarshal(a, &x), json.Unmarshal(b, &y)
	return reflect.DeepEqual(x, y)
}

func qwen(t *testing.T) *Tokenizer {
	t.Helper()
	template, ok := chat.ByName("qwen2.5", "vllm")
	if !ok {
		t.Fatal("no template")
	}
	return New(partVocab(t), template)
}

func now() time.Time { return time.Date(2026, 11, 29, 16, 2, 15, 0, time.UTC) }

var vllm = Engine{Name: "vllm", Template: "qwen2.5", Models: []string{"tiny"}}

func TestARealEnginesTokensAreOurs(t *testing.T) {
	r := recorded(t)
	report, err := Verify(t.Context(), engine(t, r, nil), qwen(t), vllm, r.samples(), now)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for _, x := range r.Tokenize {
		var answer struct{ Count int }
		if err := json.Unmarshal(x.Answer, &answer); err != nil {
			t.Fatal(err)
		}
		tokens += answer.Count
	}
	if report.Outcome != Same || report.Compared != len(r.Tokenize) || report.Tokens != tokens || tokens < 1000 || len(report.Skipped) != 0 {
		t.Errorf("%+v %v", report, report.Difference)
	}
}

func TestTheFirstDifferenceIsShownWithWhatStandsAroundIt(t *testing.T) {
	r := recorded(t)
	c := engine(t, r, func(name string, answer map[string]any) {
		if ids := answer["tokens"].([]any); name == "multi" {
			ids[22], ids[30] = 8948.0, 8948.0
		}
	})
	report, err := Verify(t.Context(), c, qwen(t), vllm, r.samples(), now)
	if err != nil {
		t.Fatal(err)
	}
	d := report.Difference
	if report.Outcome != Differs || d == nil || d.Sample != "multi" || d.Position != 22 || d.At != 6 || d.OursCount != 47 || d.TheirsCount != 47 {
		t.Fatalf("%+v %+v", report, d)
	}
	if d.Ours[6] != (Token{872, "user"}) || d.Theirs[6] != (Token{8948, "system"}) || d.Theirs[5] != d.Ours[5] || len(d.Ours) != 12 {
		t.Errorf("ours %v\ntheirs %v", d.Ours, d.Theirs)
	}
	if want := `sample "multi", token 22: ours is "user" (872), the engine's "system" (8948)`; d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
}

func TestAPromptThatGoesOnOrEndsEarlyDiffers(t *testing.T) {
	r := recorded(t)
	for name, change := range map[string]func([]any) []any{
		"longer":  func(ids []any) []any { return append(ids, 198.0) },
		"shorter": func(ids []any) []any { return ids[:len(ids)-1] },
	} {
		c := engine(t, r, func(_ string, answer map[string]any) { answer["tokens"] = change(answer["tokens"].([]any)) })
		report, err := Verify(t.Context(), c, qwen(t), vllm, r.samples(), now)
		if err != nil || report.Outcome != Differs || !strings.Contains(report.Difference.String(), "nothing") {
			t.Errorf("%s: %+v %v %v", name, report, report.Difference, err)
		}
	}
}

func TestWhatTheEngineRefusesIsSkippedAndNothingComparedProvesNothing(t *testing.T) {
	r := recorded(t)
	unknown := Sample{Name: "unknown", Prompt: "x"}
	report, err := Verify(t.Context(), engine(t, r, nil), qwen(t), vllm, append(r.samples(), unknown), now)
	if err != nil || report.Outcome != Same || len(report.Skipped) != 1 || !strings.Contains(report.Skipped[0].Why, "not recorded") {
		t.Errorf("%+v %v", report, err)
	}
	report, err = Verify(t.Context(), engine(t, r, nil), qwen(t), vllm, []Sample{unknown}, now)
	if err != nil || report.Outcome != Unverified || report.Reason == "" {
		t.Errorf("%+v %v", report, err)
	}
}

func TestAnEngineThatCannotBeAskedIsUnverifiedAndOneThatFailsIsAskedAgain(t *testing.T) {
	for code, want := range map[int]bool{404: true, 405: true, 403: true, 501: true, 500: false, 503: false, 401: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				_, _ = w.Write([]byte(`{"data":[]}`))
				return
			}
			http.Error(w, `{"detail":"no"}`, code)
		}))
		c := &Client{URL: server.URL, HTTP: server.Client()}
		report, err := Verify(t.Context(), c, qwen(t), vllm, Samples(), now)
		if unverified := err == nil && report.Outcome == Unverified; unverified != want {
			t.Errorf("%d: %+v %v", code, report, err)
		}
		server.Close()
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	if _, err := Verify(t.Context(), &Client{URL: server.URL, HTTP: http.DefaultClient}, qwen(t), vllm, Samples(), now); err == nil {
		t.Error("nobody listens, and no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, engine(t, recorded(t), nil), qwen(t), vllm, Samples(), now); err == nil {
		t.Error("cancelled, and no error")
	}
	if _, err := Verify(t.Context(), engine(t, recorded(t), func(_ string, a map[string]any) { delete(a, "tokens") }), qwen(t), vllm, recordedSamples(t), now); err == nil {
		t.Error("an answer without tokens is no error")
	}
}

func recordedSamples(t *testing.T) []Sample { r := recorded(t); return r.samples() }

// TestAnEngineThatTakesTextAloneIsAskedWithOurRendering: SGLang's /tokenize.
func TestAnEngineThatTakesTextAloneIsAskedWithOurRendering(t *testing.T) {
	template, _ := chat.ByName("qwen2.5", "sglang")
	tok := New(partVocab(t), template)
	asked, want := 0, 0
	for _, s := range recordedSamples(t) {
		if s.Prompt == "" {
			want++
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tokenize" {
			http.NotFound(w, r)
			return
		}
		var body struct {
			Prompt  *string
			Special *bool `json:"add_special_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Prompt == nil {
			t.Errorf("asked without text: %v", err)
			return
		}
		if strings.HasPrefix(*body.Prompt, "<|im_start|>") {
			asked++
			if body.Special == nil || *body.Special {
				t.Error("special tokens asked for twice")
			}
		}
		other := New(tok.vocab, template)
		ids, _ := other.encoder.Encode(nil, []byte(*body.Prompt), bpe.Options{}) // control tokens count
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids, "count": len(ids), "max_model_len": 1})
	}))
	defer server.Close()
	report, err := Verify(t.Context(), &Client{URL: server.URL, HTTP: server.Client()}, tok, Engine{Name: "sglang", Template: "qwen2.5"}, recordedSamples(t), now)
	if err != nil || report.Outcome != SameTokens || report.Compared != len(recordedSamples(t)) || asked != want {
		t.Errorf("%+v %v, asked for %d renderings, want %d", report, err, asked, want)
	}
}

// TestEverySampleIsOneThatCanBeSent: their JSON is well formed, and most can be
// rendered.
func TestEverySampleIsOneThatCanBeSent(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Samples() {
		tok := qwen(t)
		if len(s.Templates) > 0 {
			tok.template, _ = chat.ByName(s.Templates[0], "vllm")
		}
		endpoint, body := s.request()
		p, err := tok.Prompt(endpoint, body, now())
		if err != nil || len(p.IDs) == 0 || p.Stopped != chat.Complete {
			t.Errorf("%s: %d tokens, %v, %v", s.Name, len(p.IDs), p.Stopped, err)
		}
		if names[s.Name] {
			t.Errorf("two samples named %q", s.Name)
		}
		names[s.Name] = true
	}
}
