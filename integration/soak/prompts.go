package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// prompt is a request body that differs from its siblings in one number: its
// long beginning is in the table, its end never is.
type prompt struct {
	path   string
	raw    []byte
	unique int // offset of uniqueDigits digits
	stream bool
}

const uniqueDigits = 16

// prompts are what the traffic is made of.
type prompts struct {
	small  []prompt // 0.5 to 100 KB, 4 KB on average
	big    []prompt // 1 MB
	broken [][]byte // what no parser takes
}

const (
	minBody, maxBody = 512, 100 << 10
	medianBody       = 2048
	// bodySigma makes the mean of the log-normal sizes twice their median.
	bodySigma = 1.18
	bigBody   = 1 << 20
)

// newPrompts makes n different bodies below 100 KB, and a few of the others.
func newPrompts(n int, rng *rand.Rand) (*prompts, error) {
	p := &prompts{}
	systems := make([]string, 16)
	for i := range systems {
		systems[i] = words(rng, 200+rng.IntN(1200))
	}
	add := func(to *[]prompt, size int) error {
		x, err := newPrompt(systems[rng.IntN(len(systems))], size, rng)
		*to = append(*to, x)
		return err
	}
	for range n {
		size := int(medianBody * math.Exp(bodySigma*rng.NormFloat64()))
		if err := add(&p.small, min(max(size, minBody), maxBody)); err != nil {
			return nil, err
		}
	}
	for range 4 {
		if err := add(&p.big, bigBody); err != nil {
			return nil, err
		}
	}
	p.broken = [][]byte{
		[]byte(`{"model":"m","messages":[{"role":"user","content":"cut o`),
		[]byte(`["no object"]`), []byte(`{"model":"m"}`), []byte(`{"messages":7}`),
		{0x1f, 0x8b, 0, 1, 2, 3},
		[]byte(strings.Repeat(`{"messages":[`, 2000)),
	}
	return p, nil
}

// newPrompt makes a conversation of about size bytes in one of the dialects.
func newPrompt(system string, size int, rng *rand.Rand) (prompt, error) {
	number := strings.Repeat("7", uniqueDigits)
	p := prompt{path: "/v1/chat/completions", stream: rng.IntN(4) > 0}
	doc := map[string]any{"model": "m", "stream": p.stream, "max_tokens": 64, "temperature": 0.7}
	kind := rng.IntN(20)
	if kind == 0 {
		p.path = "/v1/completions"
		doc["prompt"] = system + words(rng, max(size-len(system), 1)) + number
		return p, p.encode(doc, number)
	}
	messages := []any{map[string]any{"role": "system", "content": system}}
	if kind == 1 {
		p.path = "/v1/messages"
		doc["system"] = system
		messages = messages[:0]
	}
	if kind == 2 {
		doc["tools"] = []any{map[string]any{"type": "function", "function": map[string]any{
			"name": "search", "description": words(rng, 200), "parameters": map[string]any{"type": "object"},
		}}}
	}
	role := [2]string{"user", "assistant"}
	for turn, length := 0, len(system); length < size-200; turn++ {
		text := words(rng, min(60+rng.IntN(size/2+1), size-length))
		length += len(text) + 40
		var content any = text
		if kind == 3 {
			content = []any{map[string]any{"type": "text", "text": text}}
		}
		messages = append(messages, map[string]any{"role": role[turn%2], "content": content})
	}
	doc["messages"] = append(messages, map[string]any{"role": "user", "content": "Question " + number + " about all of it?"})
	return p, p.encode(doc, number)
}

func (p *prompt) encode(doc map[string]any, number string) error {
	raw, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode a prompt: %w", err)
	}
	p.raw, p.unique = raw, bytes.LastIndex(raw, []byte(number))
	return nil
}

// write appends the body with a number of its own.
func (p *prompt) write(b []byte, number uint64) []byte {
	start := len(b)
	b = append(b, p.raw...)
	digits := b[start+p.unique:][:uniqueDigits]
	for i := range digits {
		digits[uniqueDigits-1-i] = byte('0' + number%10)
		number /= 10
	}
	return b
}

var vocabulary = strings.Fields(`the a route request worker holds prefix cache token block queue lease
	naïve coûteux 日本語 キャッシュ 😀 "quoted" back\slash tab	new line measure latency budget tenant gateway table page entry
	fingerprint decode prefill stream answer question because however therefore 3.14 42 {"json":true} <tag>`)

// words is text of about n bytes with what JSON has to escape.
func words(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(vocabulary[rng.IntN(len(vocabulary))])
		b.WriteByte(" \n"[rng.IntN(40)/39])
	}
	return b.String()
}

// entries are the checkpoints of all prompts as the module will compute them,
// each with its holders. The unique end of a prompt will not be found again.
func (p *prompts) entries(workers int, rng *rand.Rand) []table.Entry {
	var (
		out   []table.Entry
		seen  = map[uint64]bool{}
		req   body.Request
		chain fingerprint.Chain
	)
	for i := range p.small {
		endpoint, _ := body.Match(p.small[i].path)
		if body.Scan(bytes.Clone(p.small[i].raw), endpoint, &req) != body.OK {
			continue
		}
		chain.Reset(fingerprint.Salt("default", string(req.Model), 0, "", fingerprint.Approximate))
		body.Render(&req, sink{&chain}, bigBody)
		ref := uint16(1 + rng.IntN(workers))
		for _, cp := range chain.Finish() {
			if !seen[cp.Fingerprint] {
				seen[cp.Fingerprint] = true
				out = append(out, table.Entry{Fingerprint: cp.Fingerprint, Refs: [table.InlineRefs]uint16{ref}})
			}
		}
	}
	return out
}

type sink struct{ *fingerprint.Chain }

func (s sink) Text(p []byte) { s.Write(p) }
