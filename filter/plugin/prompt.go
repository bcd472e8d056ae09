package plugin

import (
	"time"

	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/filter/vocabs"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/prefix"
)

const (
	// renderCap bounds the text that enters the chain. A megabyte is about
	// 260,000 tokens, and its hash about 3 ms: the deepest prefix that fits
	// the time a decision may take.
	renderCap = 1 << 20
	// tokenBudget bounds the text of one request that is tokenised, in the
	// encoder's units: a byte of new text is about one, sixteen bytes that the
	// memo knows are one. It is work and not time, so that the same prompt has
	// the same keys in every VM: 5 ms in V8 of text that merges badly, 2.5 ms of prose.
	tokenBudget = 75_000
	// bytesPerToken turns bytes of text into an estimate of tokens.
	bytesPerToken = 4
)

// prompt is what is known about a request's prompt. The zero value with a
// reason is a request without a usable prefix.
type prompt struct {
	reason      body.Reason
	mode        metrics.Mode
	tokens      int // 0: not known
	checkpoints []fingerprint.Checkpoint
	ringKey     uint64
	encoded     bpe.Result  // exact mode only
	stopped     chat.Reason // exact mode only
	text        []byte      // exact mode only: as it was tokenised, nil for a prompt that came as token ids
	ends        []int       // of its turns
	special     bool        // special tokens were put around it
}

// exact tells that the checkpoints are of the tokens that the engine will see.
func (p *prompt) exact() bool { return p.reason == body.OK && p.mode == metrics.Exact }

// tokens is what a VM needs to turn prompts into tokens, beside the
// vocabularies. It grows to the size of the requests; a VM without exact pools
// has none of it.
type tokens struct {
	renderer chat.Renderer
	known    prefix.Memo
}

// fingerprint turns the prompt into the fingerprints of its prefixes: of the
// tokens that the engine will see where the pool has a vocabulary in force,
// else of the text.
func (vm *VM) fingerprint(req *body.Request, pool *fleet.Pool, now int64) prompt {
	template, vocabulary, mode := pool.Exact()
	var p prompt
	if mode == metrics.Exact && !vm.exact(req, pool, template, vocabulary, now, &p) {
		mode = metrics.Inexact
	}
	if mode != metrics.Exact {
		stopped := p.stopped
		p, _ = vm.approximate(req, pool, body.Render, renderCap)
		p.stopped = stopped
	}
	if p.reason != body.OK {
		return p
	}
	p.mode = mode
	pool.CountMode(mode)
	return p
}

// approximate fingerprints the prompt's text up to a cap.
func (vm *VM) approximate(req *body.Request, pool *fleet.Pool, render func(*body.Request, body.Sink, int) body.Rendering, textCap int) (prompt, body.Rendering) {
	chain := &vm.chain
	chain.Watch(uint32(pool.View.Pool.RingUnits))
	chain.Reset(salt(req, pool, fingerprint.Approximate))
	rendered := render(req, sink{chain}, textCap)
	p := prompt{reason: rendered.Reason, mode: metrics.Approximate, tokens: rendered.LoadBytes / bytesPerToken}
	if rendered.TokenForm {
		p.tokens = rendered.PromptTokens
	}
	if p.reason == body.OK {
		p.checkpoints = chain.Finish()
		p.ringKey, _ = chain.RingKey()
	}
	return p, rendered
}

// exact fingerprints the prompt's tokens. It answers false where not even the
// first unit of them can be known, or the text may have no key at all.
func (vm *VM) exact(req *body.Request, pool *fleet.Pool, template chat.Template, v *vocabs.Loaded, now int64, p *prompt) bool {
	// The ring's key comes from the text in every mode, so that gateways agree
	// whatever they have loaded; more of the text isn't looked at.
	ringBytes := pool.View.Pool.RingUnits * fingerprint.UnitBytes
	begin, rendered := vm.approximate(req, pool, body.Begin, ringBytes)
	if *p = begin; p.reason != body.OK {
		return false
	}
	chain, start := &vm.chain, salt(req, pool, fingerprint.Exact)
	if rendered.TokenForm {
		chain.Watch(0)
		chain.Reset(start)
		body.Render(req, &idSink{chain: chain}, renderCap)
		p.checkpoints = chain.Finish()
		return len(p.checkpoints) > 0
	}
	if vm.tokens == nil {
		vm.tokens = new(tokens)
	}
	t := vm.tokens
	out := t.renderer.Render(template, chat.Request{Doc: req.Doc(), Endpoint: chatEndpoints[req.Endpoint], Day: int(now / int64(24*time.Hour))}, renderCap)
	p.stopped = out.Stopped
	vm.metrics.Inc(metrics.ChatStopped, int(out.Stopped))
	encoded := t.known.Chain(chain, v.Encoder, prefix.Prompt{
		Salt: start, Text: out.Text, Ends: out.Ends, AddSpecial: out.AddSpecial,
		Open: out.Stopped == chat.TooLong, Budget: tokenBudget,
	})
	p.encoded = encoded.Result
	p.text, p.ends, p.special = out.Text, out.Ends, out.AddSpecial
	vm.metrics.Add(metrics.TokenizedBytes, metrics.TokenizedFresh, uint64(encoded.Fresh))
	vm.metrics.Add(metrics.TokenizedBytes, metrics.TokenizedMemo, uint64(encoded.Memoised))
	if encoded.Exhausted {
		vm.metrics.Inc(metrics.TokenizedCapped, 0)
	}
	p.checkpoints = chain.Finish()
	p.tokens = encoded.Tokens
	if out.Stopped != chat.Complete || encoded.Exhausted || rendered.Prompts > 1 {
		whole := body.Render(req, unheard{}, ringBytes)
		if whole.Reason != body.OK {
			return false
		}
		p.tokens += max(0, whole.LoadBytes-encoded.Covered) / bytesPerToken
	}
	return len(p.checkpoints) > 0 || out.Stopped == chat.Complete
}

func salt(req *body.Request, pool *fleet.Pool, mode fingerprint.Mode) uint64 {
	adapter, generation := pool.View.Pool.Canonical(text(req.Model))
	return fingerprint.Salt(pool.View.Pool.Name, adapter, generation, text(req.CacheSalt), mode)
}

// chatEndpoints are the renderer's names of the endpoints.
var chatEndpoints = [...]chat.Endpoint{
	body.ChatCompletions: chat.Chat,
	body.Completions:     chat.Completions,
	body.Responses:       chat.Responses,
	body.Messages:        chat.Messages,
	body.Embeddings:      chat.Embeddings,
	body.Models:          0,
}

// sink feeds the canonical rendering to the chain.
type sink struct{ *fingerprint.Chain }

func (s sink) Text(p []byte) { s.Write(p) }

// unheard is the sink of a rendering that is only measured.
type unheard struct{}

// Text does nothing.
func (unheard) Text([]byte) {}

// TurnEnd does nothing.
func (unheard) TurnEnd() {}

// idSink feeds a prompt that came as token ids to the chain of tokens. The
// rendering is a mark, four bytes an id, and a mark that is too little to begin
// another unit.
type idSink struct {
	chain *fingerprint.Chain
	begun bool
}

// Text leaves the first mark out.
func (s *idSink) Text(p []byte) {
	if !s.begun && len(p) > 0 {
		s.begun, p = true, p[1:]
	}
	s.chain.Write(p)
}

// TurnEnd ends the list.
func (s *idSink) TurnEnd() { s.chain.TurnEnd() }
