package workload

import (
	"strconv"
	"time"
)

// A Conversation plays one session turn by turn. Body is the request to send
// now; Answered appends the answer and moves on. It is not safe for concurrent
// use.
type Conversation struct {
	w       *Workload
	index   int
	turn    int
	body    []byte
	content int // length of body without the part that closes it
}

// Start begins session i of the workload.
func (w *Workload) Start(i int) *Conversation {
	c := &Conversation{w: w, index: i}
	system := w.tenants[w.Sessions[i].Tenant].systemPrompt
	total := len(system) + 256
	for _, t := range w.Sessions[i].Turns {
		total += 96 + 5*t.UserTokens + 5*t.AnswerTokens
	}
	b := make([]byte, 0, total)
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, w.Spec.Model)
	b = append(b, `,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,`...)
	b = append(b, `"messages":[{"role":"system","content":"`...)
	b = append(b, system...)
	c.body = append(b, `"}`...)
	c.ask()
	return c
}

// ask appends the question of the present turn and closes the body.
func (c *Conversation) ask() {
	turn := c.Turn()
	rng := stream(c.w.Spec.Seed, streamMessage, uint64(c.index)<<8|uint64(c.turn))
	b := append(c.body, `,{"role":"user","content":"`...)
	b = append(b, c.w.prose.cut(rng, turn.UserTokens)...)
	b = append(b, `"}`...)
	c.content = len(b)
	b = append(b, `],"max_tokens":`...)
	b = strconv.AppendInt(b, int64(turn.AnswerTokens), 10)
	c.body = append(b, '}')
}

// Body is the JSON body of the present turn's POST /v1/chat/completions. It is
// valid until the next call of Answered.
func (c *Conversation) Body() []byte { return c.body }

// Answered takes the answer to the present turn, as it stood between quotes in
// the worker's JSON, and moves to the next turn. False if there is none. The
// worker must have read the whole body before.
func (c *Conversation) Answered(quoted []byte) bool {
	if c.turn+1 >= len(c.Session().Turns) {
		return false
	}
	c.turn++
	b := append(c.body[:c.content], `,{"role":"assistant","content":"`...)
	b = append(b, quoted...)
	c.body = append(b, `"}`...)
	c.ask()
	return true
}

// Session that is played.
func (c *Conversation) Session() *Session { return &c.w.Sessions[c.index] }

// Index of the session in the workload.
func (c *Conversation) Index() int { return c.index }

// TurnIndex counts from 0; 0 is the first turn.
func (c *Conversation) TurnIndex() int { return c.turn }

// Turn is the present one.
func (c *Conversation) Turn() Turn { return c.Session().Turns[c.turn] }

// Think is the pause before the present turn.
func (c *Conversation) Think() time.Duration { return c.Turn().Think }
