package parity

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/ucd"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// full is the tokenizer.json that the engine of the recording has, to make the
// part of it anew that is kept in testdata.
var full = flag.String("qwen2.5", "", "tokenizer.json of Qwen2.5, to rewrite testdata/qwen2.5-part.json from")

// engineURL is a running engine with that tokenizer, to record its answers to
// all samples anew.
var engineURL = flag.String("record", "", "URL of a vLLM with Qwen2.5's tokenizer, to rewrite testdata/vllm-qwen2.5.json from; use with -qwen2.5")

const (
	part    = "qwen2.5-part.json"
	answers = "vllm-qwen2.5.json"
)

// TestTheRecordingHasAllSamples, and with -record writes it.
func TestTheRecordingHasAllSamples(t *testing.T) {
	if *engineURL != "" {
		record(t)
	}
	r := recorded(t)
	for _, s := range Samples() {
		if len(s.Templates) > 0 {
			continue
		}
		if !slices.ContainsFunc(r.Tokenize, func(x exchange) bool { return x.Name == s.Name }) {
			t.Errorf("%s is missing: record again", s.Name)
		}
	}
}

// record asks the engine for every sample and keeps what was recorded of others.
func record(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", answers))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Engine   string            `json:"engine"`
		Models   json.RawMessage   `json:"models"`
		Tokenize []json.RawMessage `json:"tokenize"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	c := &Client{URL: *engineURL, HTTP: http.DefaultClient}
	models, err := c.models(t.Context())
	if err != nil || len(models) == 0 {
		t.Fatalf("%v %v", models, err)
	}
	file.Models = encode(t, map[string]any{"data": []map[string]string{{"id": models[0]}}})
	kept := slices.DeleteFunc(file.Tokenize, func(x json.RawMessage) bool {
		var named struct{ Name string }
		return json.Unmarshal(x, &named) != nil || slices.ContainsFunc(Samples(), func(s Sample) bool { return s.Name == named.Name })
	})
	for _, s := range Samples() {
		if len(s.Templates) > 0 {
			continue
		}
		ask := map[string]any{"model": models[0]}
		if s.Prompt != "" {
			ask["prompt"] = s.Prompt
		} else {
			ask["messages"] = json.RawMessage(s.Messages)
		}
		if s.Tools != "" {
			ask["tools"] = json.RawMessage(s.Tools)
		}
		s.more(ask)
		request := encode(t, ask)
		var answer json.RawMessage
		if err := c.do(t.Context(), "POST", "/tokenize", request, &answer); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		kept = append(kept, encode(t, map[string]any{"name": s.Name, "request": request, "status": 200, "answer": answer}))
	}
	file.Tokenize = kept
	var out bytes.Buffer
	text := encode(t, file)
	if err := json.Indent(&out, text, "", " "); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", answers), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestThePartOfTheVocabularyCanBeRead, and with -qwen2.5 writes it: all tokens
// and merges that can occur in the recorded prompts, with their own ids.
func TestThePartOfTheVocabularyCanBeRead(t *testing.T) {
	if *full != "" {
		writePart(t)
	}
	if v := partVocab(t); v.IDs < 151_000 {
		t.Errorf("highest id %d", v.IDs)
	}
}

func partVocab(t testing.TB) *vocab.Vocab {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", part))
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, data)
}

func compile(t testing.TB, tokenizer []byte) *vocab.Vocab {
	t.Helper()
	spec, err := hf.Read(tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	return vocabtest.Compile(t, spec)
}

func writePart(t *testing.T) {
	data, err := os.ReadFile(*full)
	if err != nil {
		t.Fatal(err)
	}
	var file, model map[string]json.RawMessage
	var ids map[string]int
	var merges []string
	var added []struct {
		ID      int
		Content string
	}
	for _, err := range []error{
		json.Unmarshal(data, &file), json.Unmarshal(file["model"], &model),
		json.Unmarshal(model["vocab"], &ids), json.Unmarshal(model["merges"], &merges),
		json.Unmarshal(file["added_tokens"], &added),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	template, _ := chat.ByName("qwen2.5", "vllm")
	whole := New(compile(t, data), template)
	var prompts strings.Builder
	for _, r := range recorded(t).Tokenize {
		s := r.sample()
		endpoint, body := s.request()
		p, err := whole.Prompt(endpoint, body, time.Time{})
		if err != nil || p.Stopped != chat.Complete {
			t.Fatalf("%s: %v %v", r.Name, p.Stopped, err)
		}
		prompts.WriteString(byteLevel(p.Text) + "\x00" + byteLevel(ucd.NFC(nil, p.Text)) + "\x00")
	}
	text := prompts.String()
	keptIDs := map[string]int{}
	for token, id := range ids {
		if utf8.RuneCountInString(token) == 1 {
			keptIDs[token] = id
		}
	}
	for _, a := range added {
		keptIDs[a.Content] = a.ID // otherwise they would be numbered on from the vocabulary's end
	}
	kept := []string{}
	for _, m := range merges {
		if token := strings.Replace(m, " ", "", 1); strings.Contains(text, token) {
			kept, keptIDs[token] = append(kept, m), ids[token]
		}
	}
	model["vocab"], model["merges"] = encode(t, keptIDs), encode(t, kept)
	file["model"] = encode(t, model)
	if err := os.WriteFile(filepath.Join("testdata", part), encode(t, file), 0o644); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// byteLevel writes bytes as GPT-2's vocabularies do: printable ones as
// themselves, the others from U+0100 on.
func byteLevel(text []byte) string {
	var table [256]rune
	next := rune(0x100)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			table[b] = rune(b)
			continue
		}
		table[b] = next
		next++
	}
	var out strings.Builder
	for _, b := range text {
		out.WriteRune(table[b])
	}
	return out.String()
}
