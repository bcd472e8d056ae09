package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control/parity"
	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// smallVocabulary writes a vocabulary of all bytes and one word.
func smallVocabulary(t *testing.T, word string) (path string, v *vocab.Vocab) {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2, Added: []vocab.AddedSpec{{ID: 300, Content: "<|im_start|>"}, {ID: 301, Content: "<|im_end|>"}}}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	spec.Tokens = append(spec.Tokens, []byte(word))
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if v, err = vocab.Load(file); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "small.wpv")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, v
}

// textEngine answers /tokenize for text with the tokens of a vocabulary.
func textEngine(t *testing.T, v *vocab.Vocab) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tokenize" {
			http.NotFound(w, r)
			return
		}
		var asked struct{ Prompt string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.Header.Get("Authorization") != "Bearer key" {
			http.Error(w, `{"error":{"message":"no key"}}`, http.StatusUnauthorized)
			return
		}
		ids, _ := bpe.New(v, bpe.Config{MemoIDs: -1}).Encode(nil, []byte(asked.Prompt), bpe.Options{})
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// samples is how many are sent whatever the template, as verify says it.
func samples() string {
	n := 0
	for _, s := range parity.Samples() {
		if len(s.Templates) == 0 {
			n++
		}
	}
	return strconv.Itoa(n) + " samples"
}

func TestVerifySaysTheSameOrShowsTheFirstDifference(t *testing.T) {
	path, v := smallVocabulary(t, "el")
	_, other := smallVocabulary(t, "ll")
	t.Setenv("WARMPATH_ENGINE_TOKEN", "key")
	verify := func(url string, more ...string) (int, string, string) {
		return warmpath(append([]string{"tokenizer", "verify", "--endpoint", url, "--vocab", path, "--template", "chatml", "--engine", "sglang"}, more...)...)
	}
	code, out, errs := verify(textEngine(t, v))
	if code != 0 || !strings.Contains(out, "the same tokens: "+samples()) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = verify(textEngine(t, other))
	if code != 1 || !strings.Contains(out, `ours is "el" (256), the engine's "e" (101)`) || !strings.Contains(errs, "other tokens") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	marked := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, ">") && strings.Contains(line, `"el"`) && strings.Contains(line, `"e"`) {
			marked++
		}
	}
	if marked != 1 {
		t.Errorf("%d lines are marked:\n%s", marked, out)
	}
	code, out, _ = verify(textEngine(t, other), "--json")
	var report struct {
		Outcome    string
		Difference struct{ Position, At int }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || report.Outcome != "differs" || report.Difference.Position != 1 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

// TestVerifyAgreesWithASimulatedWorker, which renders conversations as vLLM does.
func TestVerifyAgreesWithASimulatedWorker(t *testing.T) {
	path, v := smallVocabulary(t, "el")
	template, _ := chat.ByName("chatml", "vllm")
	w, err := live.Start(live.Config{Models: []string{"m"}, Tokenizer: &live.Tokenizer{Vocabulary: v, Template: template}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	code, out, errs := warmpath("tokenizer", "verify", "--endpoint", w.URL(), "--vocab", path, "--template", "chatml")
	if code != 0 || !strings.Contains(out, "the same: "+samples()) || !strings.Contains(out, "of m") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	code, out, _ = warmpath("tokenizer", "verify", "--endpoint", w.URL(), "--vocab", path, "--template", "qwen2.5")
	if code != 1 || !strings.Contains(out, `sample "one user turn"`) {
		t.Errorf("exit %d with another template\n%s", code, out)
	}
}

func TestVerifySaysWhatToDoWhenTheEngineCannotBeAsked(t *testing.T) {
	path, v := smallVocabulary(t, "el")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()
	guarded := textEngine(t, v)
	for _, c := range []struct{ endpoint, vocab, template, engine, want string }{
		{closed.URL, path, "chatml", "vllm", "is the engine up"},
		{guarded, path, "chatml", "sglang", "--token-env"},
		{none.URL, path, "chatml", "vllm", "no /tokenize"},
		{"10.0.0.7:8000", path, "chatml", "vllm", "write it as http://"},
		{none.URL, path, "chatty", "vllm", "there are chatml"},
		{none.URL, path, "chatml", "trt", "want vllm or sglang"},
		{none.URL, "none.wpv", "chatml", "vllm", "none.wpv"},
	} {
		code, _, errs := warmpath("tokenizer", "verify", "--endpoint", c.endpoint, "--vocab", c.vocab, "--template", c.template, "--engine", c.engine)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%+v: exit %d, %q", c, code, errs)
		}
	}
}
