//go:build engine

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/warmpath/warmpath/control/parity"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// ourTokens reads the model's published tokenizer as the control service does.
func (r *rig) ourTokens() *parity.Tokenizer {
	r.t.Helper()
	published, err := os.ReadFile(installed.model.Tokenizer)
	if err != nil {
		r.t.Fatal(err)
	}
	spec, err := hf.Read(published)
	if err != nil {
		r.t.Fatal(err)
	}
	file, err := spec.Compile()
	if err != nil {
		r.t.Fatal(err)
	}
	tokens, err := vocab.Load(file)
	if err != nil {
		r.t.Fatal(err)
	}
	template, ok := chat.ByName(Template, "vllm")
	if !ok {
		r.t.Fatalf("no template %s", Template)
	}
	return parity.New(tokens, template)
}

// tokensAgree: a hundred random conversations have the same tokens here and in
// the engine's /tokenize, and as many as the module counts on their way through.
func tokensAgree(r *rig) {
	for _, tokenizer := range r.control.Status().Tokenizers {
		if tokenizer.Mode != "exact" || len(tokenizer.Workers) != len(r.workers) {
			r.t.Errorf("the tokenizer is %+v", tokenizer)
		}
		for _, w := range tokenizer.Workers {
			if w.Outcome != parity.Same.String() || w.Tokens == 0 {
				r.t.Errorf("worker %s: %+v", w.Worker, w)
			}
		}
	}
	ours := r.ourTokens()
	words := rand.New(rand.NewPCG(1, 1))
	const conversations = 100
	for i := range conversations {
		t := newTalk(uint64(i), 1+words.IntN(120))
		for range words.IntN(4) {
			t.heard(prose(words, 1+words.IntN(60)))
			t.question()
		}
		body, err := json.Marshal(t.body())
		if err != nil {
			r.t.Fatal(err)
		}
		prompt, err := ours.Prompt(chat.Chat, body, time.Now())
		if err != nil {
			r.t.Fatal(err)
		}
		reply, err := r.workers[i%len(r.workers)].Post(r.t.Context(), "/tokenize", map[string]any{"model": ModelName, "messages": t.messages, "add_generation_prompt": true})
		if err != nil {
			r.t.Fatal(err)
		}
		var theirs struct {
			Tokens []uint32 `json:"tokens"`
		}
		if err := json.Unmarshal(reply, &theirs); err != nil {
			r.t.Fatal(err)
		}
		if !slices.Equal(prompt.IDs, theirs.Tokens) {
			r.t.Fatalf("conversation %d: %d tokens, the engine has %d", i, len(prompt.IDs), len(theirs.Tokens))
		}
		if i%10 > 0 {
			continue
		}
		if a := r.mustAsk(t.request); a.tokens != len(theirs.Tokens) || a.prompt != len(theirs.Tokens) {
			r.t.Errorf("conversation %d: the module counts %d tokens, the engine's usage %d, /tokenize %d", i, a.tokens, a.prompt, len(theirs.Tokens))
		}
	}
}

// loadAgrees: while long answers are generated, the control service's last scrape
// says what the engine's page does.
func loadAgrees(r *rig) {
	w := r.workers[0]
	const streams = 3
	done := make(chan error, streams)
	for i := range streams {
		go func() {
			_, err := w.Post(r.t.Context(), "/v1/completions", map[string]any{
				"model": ModelName, "prompt": ids(rand.New(rand.NewPCG(uint64(i), 3)), 200), "max_tokens": 700, "ignore_eos": true,
			})
			done <- err
		}()
	}
	r.eventually(60*time.Second, "the scraped load is the engine's own", func() error {
		page, err := w.Get(r.t.Context(), "/metrics")
		if err != nil {
			return err
		}
		running, share := gauge(page, "vllm:num_requests_running"), gauge(page, "vllm:kv_cache_usage_perc")
		s := r.status(w)
		if running != streams || float64(s.Running) != running || s.Waiting != 0 || s.KVShare < share*0.8 || s.KVShare > share*1.2 || share == 0 {
			return fmt.Errorf("control has running %d, waiting %d, share %.3f; the engine %v and %.3f", s.Running, s.Waiting, s.KVShare, running, share)
		}
		return nil
	})
	for range streams {
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
	r.eventually(10*time.Second, "the load goes with the requests", func() error {
		if s := r.status(w); s.Running != 0 || s.KVShare != 0 {
			return fmt.Errorf("running %d, share %v", s.Running, s.KVShare)
		}
		return nil
	})
}

// gauge sums a metric over its labels, -1 where it is missing.
func gauge(page []byte, name string) float64 {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil || families[name] == nil {
		return -1
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		sum += m.GetGauge().GetValue()
	}
	return sum
}
