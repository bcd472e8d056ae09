package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// recordedAnswers are what POST /tokenize of a running vLLM 0.32 with
// Qwen2.5's tokenizer answered: the last judge of all, as it loads the
// vocabulary and the template its own way.
//
//go:embed testdata/recorded_tokenize.jsonl
var recordedAnswers []byte

// recorded returns what our rendering and tokens differ in from the engine's.
func recorded(voc *vocab.Vocab) (checked int, broken []string, err error) {
	tmpl, ok := chat.ByName("qwen2.5", "vllm")
	if !ok {
		return 0, nil, fmt.Errorf("no template qwen2.5 for vllm")
	}
	enc := bpe.New(voc, bpe.Config{})
	var renderer chat.Renderer
	var doc jsontext.Doc
	for line := range bytes.Lines(recordedAnswers) {
		var answer struct {
			Name   string
			Body   json.RawMessage
			Tokens []uint32
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return 0, nil, err
		}
		if fault := doc.Scan(answer.Body); fault != jsontext.None {
			return 0, nil, fmt.Errorf("recorded body %s: fault %d", answer.Name, fault)
		}
		endpoint := chat.Chat
		if bytes.Contains(answer.Body, []byte(`"prompt":`)) {
			endpoint = chat.Completions
		}
		res := renderer.Render(tmpl, chat.Request{Doc: &doc, Endpoint: endpoint}, 0)
		ids, _ := enc.Encode(nil, res.Text, bpe.Options{AddSpecial: res.AddSpecial})
		if checked++; res.Stopped != chat.Complete || !slices.Equal(ids, answer.Tokens) {
			d := explain(enc, answer.Name, res.Text, ids, answer.Tokens)
			broken = append(broken, fmt.Sprintf("recorded answer %s (%s), token %d: before %s, ours %v, engine %v", answer.Name, res.Stopped, d.AtToken, d.Before, d.Ours, d.Theirs))
		}
	}
	return checked, broken, nil
}
