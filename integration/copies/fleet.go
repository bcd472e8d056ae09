package copies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/engines"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

const (
	// Token of the control service, as the shipped examples have it.
	Token = "change-me"
	// Pool that all workers serve.
	Pool = "default"
	// Workers of a fleet.
	Workers = 4
	// SliceTokens is copy_slice_tokens.
	SliceTokens = 512

	slicePath      = "/v1/completions"
	capacityTokens = 1 << 20
	maxRunning     = 32
)

// Fleet is workers with a control service.
type Fleet struct {
	Engines *engines.Fleet
	Control *control.Service

	t          *testing.T
	vocabulary string // file
	mu         sync.Mutex
	asked      []Asked
	refusal    int // status of slices; 0: they are computed
}

// Asked is one request as an engine saw and answered it.
type Asked struct {
	Worker string // address
	Path   string
	Header http.Header
	Body   struct {
		Model       string   `json:"model"`
		Prompt      []uint32 `json:"prompt"` // of a slice: nil for a chat
		MaxTokens   int      `json:"max_tokens"`
		Temperature *float64 `json:"temperature"`
		Stream      bool     `json:"stream"`
	}
	Status         int
	Prompt, Cached int // tokens, by its own count
}

// Start runs a fleet until the end of the test. Its gateways make copies in slices of SliceTokens.
// listen is where the control service listens.
func Start(t *testing.T, listen string) *Fleet {
	t.Helper()
	f := &Fleet{t: t}
	tokenizer := f.newVocabulary()
	params := engine.DefaultParams()
	params.CapacityBlocks = capacityTokens / engine.BlockTokens
	params.StepPerRequest, params.DecodePerKVToken = 0, 0 // nobody leaves the holder for the sake of others' tokens
	var err error
	var stop func()
	f.Engines, stop, err = engines.Start(Workers, func(address string) (engines.Engine, error) {
		w, err := live.Start(live.Config{Name: address, Engine: params, EventTokens: -1, Tokenizer: tokenizer})
		return &recorder{Worker: w, address: address, fleet: f}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	f.startControl(listen)
	return f
}

// newVocabulary writes one with a token for every byte and for some words.
func (f *Fleet) newVocabulary() *live.Tokenizer {
	f.t.Helper()
	spec := vocab.Spec{ByRank: true, Kind: pretoken.GPT2, Added: []vocab.AddedSpec{
		{ID: 300, Content: "<|im_start|>", Special: true}, {ID: 301, Content: "<|im_end|>", Special: true},
	}}
	for b := range 256 {
		spec.Tokens = append(spec.Tokens, []byte{byte(b)})
	}
	for _, pair := range []string{" t", "th", "he", "er", "in", "an", "re", "on"} {
		spec.Tokens = append(spec.Tokens, []byte(pair))
	}
	file, err := spec.Compile()
	if err != nil {
		f.t.Fatal(err)
	}
	f.vocabulary = filepath.Join(f.t.TempDir(), "vocabulary.wpv")
	if err := os.WriteFile(f.vocabulary, file, 0o600); err != nil {
		f.t.Fatal(err)
	}
	v, err := vocab.Load(file)
	if err != nil {
		f.t.Fatal(err)
	}
	template, ok := chat.ByName("chatml", "vllm")
	if !ok {
		f.t.Fatal("no template chatml")
	}
	return &live.Tokenizer{Vocabulary: v, Template: template}
}

func (f *Fleet) startControl(listen string) {
	f.t.Helper()
	var specs []discovery.Spec
	for _, w := range f.Engines.Workers {
		specs = append(specs, discovery.Spec{
			Address: w.Address, Pool: Pool, MaxRunning: maxRunning, QueueLimit: 64,
			CapacityTokens: capacityTokens, BlockTokens: engine.BlockTokens, PrefillTokensPerSecond: 11_000,
		})
	}
	var err error
	f.Control, err = control.New(control.Config{
		Listen: listen, Token: Token, Workers: specs, Policy: f.policy(SliceTokens), Learn: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.background("control service", f.Control.Run)
	select {
	case <-f.Control.Ready():
	case <-time.After(20 * time.Second):
		f.t.Fatal("the control service is not ready after 20 s")
	}
}

// background runs a service until the test ends.
func (f *Fleet) background(what string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			f.t.Errorf("%s: %v", what, err)
		}
	})
}

// policy with a size of slices.
func (f *Fleet) policy(slice int) []byte {
	f.t.Helper()
	doc, err := json.Marshal(map[string]any{"pools": []any{map[string]any{
		"name": Pool, "index": 0, "models": []string{"*"}, "mode": "route",
		"policy":    map[string]any{"name": "cost", "copy_slice_tokens": slice},
		"tokenizer": map[string]any{"file": f.vocabulary, "template": "chatml", "engine": "vllm"},
	}}})
	if err != nil {
		f.t.Fatal(err)
	}
	return doc
}

// Asked returns a copy of what the engines were asked since the last Forget.
func (f *Fleet) Asked() []Asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Asked(nil), f.asked...)
}

// Forget empties the notes.
func (f *Fleet) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = nil
}

// RefuseSlices has engines answer slices with a status.
func (f *Fleet) RefuseSlices(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = status
}

func (f *Fleet) refusalOf(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if path != slicePath {
		return 0
	}
	return f.refusal
}

// recorder notes what an engine is asked.
type recorder struct {
	*live.Worker
	address string
	fleet   *Fleet
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	if !strings.HasSuffix(req.URL.Path, "/completions") {
		r.Worker.ServeHTTP(rw, req)
		return
	}
	asked := Asked{Worker: r.address, Path: req.URL.Path, Header: req.Header.Clone(), Status: http.StatusOK}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	out := &answerCopy{ResponseWriter: rw, status: &asked.Status}
	if refusal := r.fleet.refusalOf(req.URL.Path); refusal > 0 {
		http.Error(out, `{"error":{"message":"refused on order"}}`, refusal)
	} else {
		r.Worker.ServeHTTP(out, req)
	}
	if err := json.Unmarshal(body, &asked.Body); err != nil {
		asked.Status = -1
	}
	asked.Prompt, asked.Cached = usageOf(out.body.Bytes())
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.fleet.asked = append(r.fleet.asked, asked)
}

// usageOf reads a whole answer.
func usageOf(answer []byte) (prompt, cached int) {
	var a struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return 0, 0
	}
	return a.Usage.Prompt, a.Usage.Details.Cached
}

// answerCopy keeps what is written.
type answerCopy struct {
	http.ResponseWriter
	body   bytes.Buffer
	status *int
}

// WriteHeader implements http.ResponseWriter.
func (a *answerCopy) WriteHeader(status int) {
	*a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answerCopy) Write(p []byte) (int, error) {
	a.body.Write(p)
	return a.ResponseWriter.Write(p)
}

// tokens are a chat's, by the engine's word.
func (f *Fleet) tokens(messages []message) []uint32 {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages, "add_generation_prompt": true})
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.Post("http://"+f.Engines.Workers[0].Address+"/tokenize", "application/json", bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatal(fmt.Errorf("/tokenize answered %s: %w", resp.Status, err))
	}
	return answer.Tokens
}
