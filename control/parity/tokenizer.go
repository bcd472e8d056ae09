// Package parity compares our tokens with an engine's own.
//
// A [Tokenizer] turns a request's body into tokens as the proxy's module does.
// [Verify] sends the [Samples] to an engine's /tokenize as well, and compares
// token by token. The control service asks every worker of a pool when it
// appears and after every restart; `warmpath tokenizer verify` asks one.
package parity

import (
	"fmt"
	"time"

	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// Tokenizer is how the prompts of one pool become tokens. It keeps memory
// between calls and is not concurrent.
type Tokenizer struct {
	vocab    *vocab.Vocab
	template chat.Template
	encoder  *bpe.Encoder
	renderer chat.Renderer
	doc      jsontext.Doc
	ids      []uint32
}

// New returns a tokenizer.
func New(v *vocab.Vocab, t chat.Template) *Tokenizer {
	return &Tokenizer{vocab: v, template: t, encoder: bpe.New(v, bpe.Config{MemoIDs: -1})}
}

// Prompt is a request's prompt as the module sees it.
type Prompt struct {
	Text []byte
	IDs  []uint32
	// Stopped is chat.Complete, or why the tokens are only a beginning.
	Stopped chat.Reason
}

// Prompt renders and encodes a body. What it returns is good until the next
// call.
func (t *Tokenizer) Prompt(endpoint chat.Endpoint, body []byte, now time.Time) (Prompt, error) {
	if fault := t.doc.Scan(body); fault != jsontext.None {
		return Prompt{}, fmt.Errorf("read the body: it is not one JSON object")
	}
	day := int(now.Unix() / 86400)
	r := t.renderer.Render(t.template, chat.Request{Doc: &t.doc, Endpoint: endpoint, Day: day}, 0)
	t.ids, _ = t.encoder.Encode(t.ids[:0], r.Text, bpe.Options{AddSpecial: r.AddSpecial})
	return Prompt{Text: r.Text, IDs: t.ids, Stopped: r.Stopped}, nil
}

// Text returns what a token stands for, as it was written.
func (t *Tokenizer) Text(id uint32) string { return string(t.vocab.AppendToken(nil, id, false)) }
