package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/tokenizer/chat"
)

// Outcome of a comparison.
type Outcome uint8

// Outcomes, the worst one for a pool last.
const (
	// Same: all samples have the same tokens.
	Same Outcome = iota
	// SameTokens: the same tokens for the same text. The engine's /tokenize
	// doesn't render conversations as it does for requests, so the template was
	// not compared.
	SameTokens
	// Unverified: the engine can't be asked.
	Unverified
	// Pending: it hasn't answered yet.
	Pending
	// Differs: some sample has other tokens.
	Differs
)

// String is the outcome in status, metrics and JSON.
func (o Outcome) String() string {
	switch o {
	case Same:
		return "verified"
	case SameTokens:
		return "tokens_verified"
	case Unverified:
		return "unverified"
	case Pending:
		return "pending"
	default:
		return "differs"
	}
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Report is what came of a comparison.
type Report struct {
	Outcome Outcome `json:"outcome"`
	// Reason says why it is neither verified nor differs.
	Reason string `json:"reason,omitempty"`
	Model  string `json:"model,omitempty"`
	// Compared are the samples that were, Tokens how many tokens they have.
	Compared int `json:"compared"`
	Tokens   int `json:"tokens"`
	// Skipped are samples that the engine refuses or that can't be rendered.
	Skipped    []Skipped   `json:"skipped,omitempty"`
	Difference *Difference `json:"difference,omitempty"`
}

// Skipped is a sample that was not compared.
type Skipped struct {
	Sample string `json:"sample"`
	Why    string `json:"why"`
}

// Difference is the first token that is another.
type Difference struct {
	Sample string `json:"sample"`
	// Position is the number of tokens before it that are the same.
	Position int `json:"position"`
	// Ours and Theirs are tokens around it; the one at At is the first that
	// differs, and may be missing where one side has ended.
	Ours   []Token `json:"ours"`
	Theirs []Token `json:"theirs"`
	At     int     `json:"at"`
	// OursCount and TheirsCount are the lengths of the whole prompts.
	OursCount   int `json:"ours_count"`
	TheirsCount int `json:"theirs_count"`
}

// Token is an id with what it stands for.
type Token struct {
	ID   uint32 `json:"id"`
	Text string `json:"text"`
}

// String is one line: where, and both sides.
func (d *Difference) String() string {
	side := func(tokens []Token) string {
		if d.At >= len(tokens) {
			return "nothing"
		}
		t := tokens[d.At]
		return strconv.Quote(t.Text) + " (" + strconv.Itoa(int(t.ID)) + ")"
	}
	return fmt.Sprintf("sample %q, token %d: ours is %s, the engine's %s", d.Sample, d.Position, side(d.Ours), side(d.Theirs))
}

// context is how many tokens are shown on each side of a difference.
const contextTokens = 6

// Engine is what is known of the engine's side.
type Engine struct {
	// Name is vllm or sglang, Template the name of the chat template.
	Name, Template string
	// Models are those of the pool; the engine serves one of them, or all.
	Models []string
}

// rendersChats tells whether the engine's /tokenize takes conversations and
// renders them as it does for requests: SGLang's takes text alone, and vLLM's
// has gpt-oss go through the tokenizer's template, while requests go through
// the harmony library.
func (e *Engine) rendersChats() bool { return e.Name == "vllm" && e.Template != "gpt-oss" }

// Verify compares the samples' tokens with the engine's. The error is about the
// way to the engine: it may be asked again.
func Verify(ctx context.Context, c *Client, t *Tokenizer, e Engine, samples []Sample, now func() time.Time) (Report, error) {
	r := Report{Outcome: Same}
	if models, err := c.models(ctx); err == nil {
		r.Model = pick(models, e.Models)
	} else if !absent(err) {
		return r, err
	}
	if !e.rendersChats() {
		r.Outcome = SameTokens
	}
	for _, s := range samples {
		if len(s.Templates) > 0 && !slices.Contains(s.Templates, e.Template) {
			continue
		}
		done, err := r.compare(ctx, c, t, e, s, now)
		switch {
		case err != nil && absent(err):
			return Report{Outcome: Unverified, Reason: "no /tokenize: " + err.Error(), Model: r.Model}, nil
		case err != nil:
			return r, fmt.Errorf("sample %q: %w", s.Name, err)
		case done:
			r.Outcome = Differs
			return r, nil
		}
	}
	if r.Compared == 0 {
		r.Outcome, r.Reason = Unverified, "no sample could be compared: "+r.Skipped[0].Why
	}
	return r, nil
}

// pick chooses the model to name: the engine's that the pool serves, or its
// first.
func pick(served, wanted []string) string {
	for _, m := range served {
		if slices.Contains(wanted, m) {
			return m
		}
	}
	if len(served) > 0 {
		return served[0]
	}
	return ""
}

// compare asks for one sample; true ends the comparison with a difference.
func (r *Report) compare(ctx context.Context, c *Client, t *Tokenizer, e Engine, s Sample, now func() time.Time) (bool, error) {
	endpoint, body := s.request()
	today := now()
	ours, err := t.Prompt(endpoint, body, today)
	if err != nil {
		return false, err
	}
	if len(ours.IDs) == 0 {
		r.Skipped = append(r.Skipped, Skipped{s.Name, "not rendered here: " + ours.Stopped.String()})
		return false, nil
	}
	ask := map[string]any{"return_token_strs": true}
	if r.Model != "" {
		ask["model"] = r.Model
	}
	switch {
	case s.Prompt != "":
		ask["prompt"] = s.Prompt
	case e.rendersChats():
		ask["messages"], ask["add_generation_prompt"] = json.RawMessage(s.Messages), true
		if s.Tools != "" {
			ask["tools"] = json.RawMessage(s.Tools)
		}
		s.more(ask)
	default:
		// Our own rendering as text: the control tokens in it are recognised.
		ask["prompt"], ask["add_special_tokens"] = string(ours.Text), false
	}
	theirs, err := c.tokenize(ctx, ask)
	switch {
	case err != nil && refused(err):
		r.Skipped = append(r.Skipped, Skipped{s.Name, err.Error()})
		return false, nil
	case err != nil:
		return false, err
	}
	d := t.difference(s.Name, ours, theirs)
	for _, other := range [...]time.Duration{-24 * time.Hour, 24 * time.Hour} {
		if d == nil || !t.template.NeedsDate() {
			break
		}
		// The engine prints its local date.
		if ours, err = t.Prompt(endpoint, body, today.Add(other)); err != nil {
			return false, err
		}
		if t.difference(s.Name, ours, theirs) == nil {
			d = nil
		}
	}
	if d != nil {
		r.Difference = d
		return true, nil
	}
	r.Compared++
	r.Tokens += len(theirs.IDs)
	return false, nil
}

// more adds the sample's further fields to a body.
func (s *Sample) more(body map[string]any) {
	if s.More == "" {
		return
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s.More), &fields); err != nil {
		panic(fmt.Sprintf("parity: sample %q is no JSON: %v", s.Name, err)) // they are constants
	}
	for name, value := range fields {
		body[name] = value
	}
}

// request is the sample as a request that a client would send.
func (s *Sample) request() (chat.Endpoint, []byte) {
	body, endpoint := map[string]any{}, chat.Chat
	if s.Prompt != "" {
		body["prompt"], endpoint = s.Prompt, chat.Completions
	} else {
		body["messages"] = json.RawMessage(s.Messages)
	}
	if s.Tools != "" {
		body["tools"] = json.RawMessage(s.Tools)
	}
	s.more(body)
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("parity: sample %q is no JSON: %v", s.Name, err)) // they are constants
	}
	return endpoint, text
}

// difference finds the first token that is another. A prompt that could be
// rendered in part is compared as far as it goes.
func (t *Tokenizer) difference(sample string, ours Prompt, theirs tokens) *Difference {
	n := 0
	for n < len(ours.IDs) && n < len(theirs.IDs) && ours.IDs[n] == theirs.IDs[n] {
		n++
	}
	if n == len(ours.IDs) && (n == len(theirs.IDs) || ours.Stopped != chat.Complete) {
		return nil
	}
	from := max(0, n-contextTokens)
	d := &Difference{Sample: sample, Position: n, At: n - from, OursCount: len(ours.IDs), TheirsCount: len(theirs.IDs)}
	for i := from; i < min(n+contextTokens, len(ours.IDs)); i++ {
		d.Ours = append(d.Ours, Token{ours.IDs[i], t.Text(ours.IDs[i])})
	}
	for i := from; i < min(n+contextTokens, len(theirs.IDs)); i++ {
		token := Token{theirs.IDs[i], t.Text(theirs.IDs[i])}
		if token.Text == "" && i < len(theirs.Strs) {
			token.Text = theirs.Strs[i]
		}
		d.Theirs = append(d.Theirs, token)
	}
	return d
}
