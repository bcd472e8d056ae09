package live

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/sim/dialect"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/text"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// A Tokenizer makes a worker count and cache real tokens instead of those of
// package text, and answer /tokenize as vLLM does.
//
// Its code is the router's. What a real engine answers is recorded in
// control/parity/testdata, so that a mistake on both sides would still be seen.
type Tokenizer struct {
	Vocabulary *vocab.Vocab
	Template   chat.Template
}

// PrefixBlocks is the function of that name for workers with the tokenizer.
func (t *Tokenizer) PrefixBlocks(systemPrompt string) []engine.BlockHash {
	content, err := json.Marshal(systemPrompt)
	if err != nil {
		return nil // never: a string always encodes
	}
	var doc jsontext.Doc
	if doc.Scan([]byte(`{"messages":[{"role":"system","content":`+string(content)+`},{"role":"user","content":"?"}]}`)) != jsontext.None {
		return nil
	}
	var renderer chat.Renderer
	r := renderer.Render(t.Template, chat.Request{Doc: &doc, Endpoint: chat.Chat}, 0)
	if len(r.Ends) == 0 {
		return nil
	}
	var end [1]int
	ids, _ := bpe.New(t.Vocabulary, bpe.Config{MemoIDs: -1}).Encode(nil, r.Text, bpe.Options{AddSpecial: r.AddSpecial, Marks: r.Ends[:1], MarkIDs: end[:]})
	return engine.AppendBlockHashes(nil, engine.RootHash(""), ids[:end[0]])
}

// exact is a worker's use of its Tokenizer.
type exact struct {
	template chat.Template

	mu       sync.Mutex
	encoder  *bpe.Encoder
	renderer chat.Renderer
	doc      jsontext.Doc
	ids      []uint32
}

func newExact(t *Tokenizer) *exact {
	return &exact{template: t.Template, encoder: bpe.New(t.Vocabulary, bpe.Config{})}
}

var chatEndpoints = [...]chat.Endpoint{
	dialect.Chat: chat.Chat, dialect.Completions: chat.Completions, dialect.Responses: chat.Responses,
	dialect.Messages: chat.Messages, dialect.Embeddings: chat.Embeddings,
}

// prompt returns the tokens of a body's prompt. ok is false for one that can't
// be rendered whole, as with pictures or several prompts: it keeps the tokens
// of package text.
func (x *exact) prompt(endpoint dialect.Endpoint, body []byte, dst []text.Token) (tokens []text.Token, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.doc.Scan(body) != jsontext.None {
		return dst, false
	}
	day := int(time.Now().Unix() / 86400)
	r := x.renderer.Render(x.template, chat.Request{Doc: &x.doc, Endpoint: chatEndpoints[endpoint], Day: day}, 0)
	if r.Stopped != chat.Complete {
		return dst, false
	}
	x.ids, _ = x.encoder.Encode(x.ids[:0], r.Text, bpe.Options{AddSpecial: r.AddSpecial})
	return appendIDs(dst, x.ids), len(x.ids) > 0
}

// appendText appends n tokens of decoded text. The answers of package text are
// about a token a word here as well: where they are more, the last of them are
// left out, and where they are fewer, the end of the text comes earlier.
func (x *exact) appendText(dst []text.Token, s []byte, n int) []text.Token {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ids, _ = x.encoder.Encode(x.ids[:0], s, bpe.Options{})
	dst = appendIDs(dst, x.ids[:min(n, len(x.ids))])
	for range n - len(x.ids) {
		dst = append(dst, 0)
	}
	return dst
}

func appendIDs(dst []text.Token, ids []uint32) []text.Token {
	for _, id := range ids {
		dst = append(dst, text.Token(id))
	}
	return dst
}

// serveTokenize answers POST /tokenize: a prompt, or messages with tools.
func (w *Worker) serveTokenize(rw http.ResponseWriter, r *http.Request) {
	if w.exact == nil {
		http.NotFound(rw, r)
		return
	}
	c := callPool.Get().(*call)
	defer c.recycle()
	if err := c.readBody(r); err != nil {
		writeError(rw, dialect.Chat, err)
		return
	}
	var asked struct {
		Model    string           `json:"model"`
		Prompt   *string          `json:"prompt"`
		Messages *json.RawMessage `json:"messages"`
		Special  *bool            `json:"add_special_tokens"`
		Strings  bool             `json:"return_token_strs"`
	}
	bad := &dialect.Error{Status: http.StatusBadRequest, Type: "BadRequestError"}
	if err := json.Unmarshal(c.body, &asked); err != nil {
		bad.Message = err.Error()
		writeError(rw, dialect.Chat, bad)
		return
	}
	if !w.serves(asked.Model) && asked.Model != "" {
		writeError(rw, dialect.Chat, &dialect.Error{Status: http.StatusNotFound, Type: "NotFoundError", Message: "The model `" + asked.Model + "` does not exist."})
		return
	}
	answer := struct {
		Count   int      `json:"count"`
		Max     int      `json:"max_model_len"`
		Tokens  []uint32 `json:"tokens"`
		Strings []string `json:"token_strs"`
	}{Max: w.config.MaxModelTokens}
	switch {
	case asked.Prompt != nil:
		answer.Tokens = w.exact.text(*asked.Prompt, asked.Special == nil || *asked.Special)
	case asked.Messages != nil:
		tokens, ok := w.exact.prompt(dialect.Chat, c.body, nil)
		if !ok {
			bad.Message = "messages: this simulated worker can't render them"
			writeError(rw, dialect.Chat, bad)
			return
		}
		for _, t := range tokens {
			answer.Tokens = append(answer.Tokens, uint32(t))
		}
	default:
		bad.Message = "want a prompt or messages"
		writeError(rw, dialect.Chat, bad)
		return
	}
	answer.Count = len(answer.Tokens)
	if asked.Strings {
		answer.Strings = w.exact.strings(answer.Tokens)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		bad.Message = err.Error()
		writeError(rw, dialect.Chat, bad)
		return
	}
	writeJSON(rw, http.StatusOK, body)
}

// text returns the tokens of a text.
func (x *exact) text(s string, special bool) []uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	ids, _ := x.encoder.Encode([]uint32{}, []byte(s), bpe.Options{AddSpecial: special})
	return ids
}

func (x *exact) strings(ids []uint32) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]string, len(ids))
	for i := range ids {
		out[i] = string(x.encoder.Decode(nil, ids[i:i+1], false))
	}
	return out
}
