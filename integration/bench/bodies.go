// Package bench has what measurements of a proxy share: chat requests of a size,
// cheap workers to send them to, a client that keeps the proxy busy, and the
// arithmetic of alternated rounds.
package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Bodies makes chat requests of one size. Half of them repeat one of the last
// sixteen prompts with another last question, half begin with words that no
// earlier one had.
type Bodies struct {
	size  int
	words *rand.Rand
	base  []byte   // JSON with a system prompt that starts with a mark
	marks []string // of recent prompts
	n     int
}

// mark is where a prompt becomes its own: 16 digits at its very start.
const mark = "0000000000000000"

// question is where a repeated prompt differs: 16 digits at its end.
const question = "9999999999999999"

// NewBodies makes bodies of about size bytes.
func NewBodies(size int) *Bodies {
	b := &Bodies{size: size, words: rand.New(rand.NewPCG(1, uint64(size)))}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	build := func(text string) []byte {
		messages := []message{{"system", mark + text[:len(text)/3]}}
		for rest := text[len(text)/3:]; len(rest) > 0; {
			n := min(len(rest), max(300, len(text)/12))
			role := []string{"user", "assistant"}[len(messages)%2^1]
			messages = append(messages, message{role, rest[:n]})
			rest = rest[n:]
		}
		messages = append(messages, message{"user", "the question is " + question})
		data, err := json.Marshal(map[string]any{"model": "default", "messages": messages, "max_tokens": 16, "temperature": 0.7})
		if err != nil {
			panic(err) // strings and numbers always encode
		}
		return data
	}
	overhead := len(build(prose(b.words, 60))) - 60
	b.base = build(prose(b.words, max(60, size-overhead-size/100)))
	return b
}

// Next returns a fresh copy.
func (b *Bodies) Next() []byte {
	body := bytes.Clone(b.base)
	b.n++
	m := fmt.Sprintf("%016x", b.words.Uint64())
	if b.n%2 == 0 && len(b.marks) > 0 {
		m = b.marks[b.words.IntN(len(b.marks))]
	} else {
		b.marks = append(b.marks, m)
		if len(b.marks) > 16 {
			b.marks = b.marks[1:]
		}
	}
	copy(body[bytes.Index(body, []byte(mark)):], m)
	copy(body[bytes.LastIndex(body, []byte(question)):], fmt.Sprintf("%016x", b.words.Uint64()))
	return body
}

var vocabulary = strings.Fields("route every request to the worker that already holds its prefix and admit only what the whole fleet can carry " +
	"quiet river stone lamp harbour winter copper meadow signal garden window paper market bridge letter engine")

func prose(words *rand.Rand, n int) string {
	var s strings.Builder
	for s.Len() < n {
		s.WriteString(vocabulary[words.IntN(len(vocabulary))])
		if words.IntN(12) == 0 {
			s.WriteString(".\n")
		} else {
			s.WriteByte(' ')
		}
	}
	return s.String()[:n]
}
