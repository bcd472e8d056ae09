package live

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// bytesVocabulary has a token for each byte and for the words that are given.
func bytesVocabulary(t *testing.T, words ...string) *Tokenizer {
	t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2, Added: []vocab.AddedSpec{
		{ID: 300, Content: "<|im_start|>", Special: true}, {ID: 301, Content: "<|im_end|>", Special: true},
	}}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	for _, w := range words {
		spec.Tokens = append(spec.Tokens, []byte(w))
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	template, ok := chat.ByName("chatml", "vllm")
	if !ok {
		t.Fatal("no template")
	}
	return &Tokenizer{Vocabulary: v, Template: template}
}

func TestTokenizeAnswersWithTheModelsTokens(t *testing.T) {
	w := start(t, func(c *Config) { c.Tokenizer = bytesVocabulary(t, "el") })
	status, _, reply := post(t, w, "/tokenize", `{"model":"m","prompt":"Hello<|im_end|>","return_token_strs":true}`)
	if status != 200 || gjson.Get(reply, "tokens").Raw != "[72,256,108,111,301]" || gjson.Get(reply, "token_strs.1").Str != "el" || gjson.Get(reply, "count").Int() != 5 {
		t.Errorf("%d %s", status, reply)
	}
	status, _, reply = post(t, w, "/tokenize", `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true}`)
	if want := int64(len("user\nhi") + 2 + 1 + 1 + len("assistant\n")); status != 200 || gjson.Get(reply, "count").Int() != want || gjson.Get(reply, "tokens.0").Int() != 300 {
		t.Errorf("%d %s, want %d tokens", status, reply, want)
	}
	for body, want := range map[string]int{
		`{"prompt":"x","model":"other"}`: 404, `{`: 400, `{}`: 400,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`: 400,
	} {
		if status, _, reply := post(t, w, "/tokenize", body); status != want {
			t.Errorf("%s: %d %s", body, status, reply)
		}
	}
	if status, _, _ := post(t, start(t, nil), "/tokenize", `{"prompt":"x"}`); status != 404 {
		t.Errorf("%d without a vocabulary", status)
	}
}

// TestAWorkerWithAVocabularyCountsAndCachesItsTokens: the follow-up finds all
// full blocks of the turn before, the answer's among them.
func TestAWorkerWithAVocabularyCountsAndCachesItsTokens(t *testing.T) {
	w := start(t, func(c *Config) { c.Tokenizer = bytesVocabulary(t, "the", " the", "and") })
	question := strings.Repeat("the quick and the dead ", 20)
	first := `{"model":"m","messages":[{"role":"user","content":"` + question + `"}],"max_tokens":40}`
	_, _, counted := post(t, w, "/tokenize", first)
	status, _, reply := post(t, w, "/v1/chat/completions", first)
	prompt := gjson.Get(reply, "usage.prompt_tokens").Int()
	if status != 200 || prompt != gjson.Get(counted, "count").Int() || gjson.Get(reply, "usage.completion_tokens").Int() != 40 {
		t.Fatalf("%d %s\n%s", status, reply, counted)
	}
	answer := gjson.Get(reply, "choices.0.message.content").Str
	next := `{"model":"m","messages":[{"role":"user","content":"` + question + `"},{"role":"assistant","content":"` + answer + `"},{"role":"user","content":"and?"}],"max_tokens":1}`
	_, _, reply = post(t, w, "/v1/chat/completions", next)
	cached := gjson.Get(reply, "usage.prompt_tokens_details.cached_tokens").Int()
	if want := (prompt + 40) / 16 * 16; cached != want {
		t.Errorf("%d tokens of the turn before are cached, want %d: %s", cached, want, reply)
	}
}

// TestATextsTokensSentInSlicesAreWhatChatsThenFind: as a gateway makes a copy, by requests that ask for
// one token after the first 64, 128 and so on of a prefix. Each computes what the one before didn't.
func TestATextsTokensSentInSlicesAreWhatChatsThenFind(t *testing.T) {
	for _, salt := range []string{"", `,"cache_salt":"s"`} {
		w := start(t, func(c *Config) { c.Tokenizer = bytesVocabulary(t, "the", " the", "and") })
		const slice, slices = 64, 5
		chat := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("the quick and the dead ", 40) + `"}],"max_tokens":1` + salt + `}`
		_, _, counted := post(t, w, "/tokenize", chat)
		var ids []string
		for _, id := range gjson.Get(counted, "tokens").Array() {
			ids = append(ids, id.Raw)
		}
		for k := 1; k <= slices; k++ {
			before := w.Stats().ComputedTokens
			status, _, reply := post(t, w, "/v1/completions", `{"model":"m","prompt":[`+strings.Join(ids[:k*slice], ",")+`],"max_tokens":1,"temperature":0`+salt+`}`)
			usage := gjson.Get(reply, "usage")
			if status != 200 || usage.Get("prompt_tokens").Int() != int64(k*slice) || usage.Get("completion_tokens").Int() != 1 ||
				usage.Get("prompt_tokens_details.cached_tokens").Int() != int64((k-1)*slice) {
				t.Errorf("slice %d%s: %d %s", k, salt, status, reply)
			}
			if computed := w.Stats().ComputedTokens - before; computed != slice {
				t.Errorf("slice %d%s: the engine computed %d tokens, want %d", k, salt, computed, slice)
			}
		}
		_, _, reply := post(t, w, "/v1/chat/completions", chat)
		usage := gjson.Get(reply, "usage")
		if usage.Get("prompt_tokens").Int() != int64(len(ids)) || usage.Get("prompt_tokens_details.cached_tokens").Int() != slice*slices {
			t.Errorf("the chat%s: %s, want %d of %d cached", salt, reply, slice*slices, len(ids))
		}
	}
}
