//go:build envoy

package envoy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/integration/engines"
)

const chatPath = "/v1/chat/completions"

// message is one turn of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// conversation is a chat that grows; it serves one client at a time.
type conversation struct {
	model    string
	messages []message
	words    *rand.Rand
}

// talk starts a conversation whose system prompt is fixed by its seed and
// systemBytes long.
func talk(seed uint64, systemBytes int) *conversation {
	words := rand.New(rand.NewPCG(seed, 7))
	return &conversation{
		model:    "default",
		messages: []message{{"system", prose(words, systemBytes)}},
		words:    rand.New(rand.NewPCG(rand.Uint64(), seed)),
	}
}

// ask adds a question.
func (c *conversation) ask() *conversation {
	c.messages = append(c.messages, message{"user", prose(c.words, 120)})
	return c
}

// hear adds the answer.
func (c *conversation) hear(text string) {
	c.messages = append(c.messages, message{"assistant", text})
}

// body is the request as JSON.
func (c *conversation) body(stream bool, outputTokens int) []byte {
	request := map[string]any{
		"model": c.model, "messages": c.messages,
		"max_tokens": outputTokens, "ignore_eos": true,
	}
	if stream {
		request["stream"] = true
		request["stream_options"] = map[string]any{"include_usage": true}
	}
	data, err := json.Marshal(request)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return data
}

var vocabulary = strings.Fields(`route every request to the worker that already holds its prefix in the cache and
	admit only what whole fleet can carry engines answer tokens blocks turns queues ticks pages rows leases weigh
	quiet river stone lamp harbour winter copper meadow signal garden window paper market bridge letter engine`)

// prose is about n bytes of words.
func prose(words *rand.Rand, n int) string {
	var s strings.Builder
	for s.Len() < n {
		s.WriteString(vocabulary[words.IntN(len(vocabulary))])
		s.WriteByte(' ')
	}
	return s.String()
}

// answer is what a client got.
type answer struct {
	status       int
	worker       string // address of the worker that served, from its own header
	header       http.Header
	body         []byte
	cachedTokens int
	promptTokens int
	text         string
	chunks       int
	ttfb         time.Duration
	before       error // failed before response headers
	after        error // failed after them
}

func (a *answer) err() error {
	switch {
	case a.before != nil:
		return fmt.Errorf("before response headers: %w", a.before)
	case a.after != nil:
		return fmt.Errorf("after response headers: %w", a.after)
	case a.status != http.StatusOK:
		return fmt.Errorf("status %d: %.200s", a.status, a.body)
	}
	return nil
}

func (a *answer) sha256() string {
	sum := sha256.Sum256(a.body)
	return hex.EncodeToString(sum[:])
}

// send posts a body and reads the whole answer. Headers are key, value pairs.
func (r *rig) send(ctx context.Context, path string, body io.Reader, headers ...string) *answer {
	return r.sendWith(ctx, path, body, func(req *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
	})
}

// sendWith is send with the last word on the request.
func (r *rig) sendWith(ctx context.Context, path string, body io.Reader, edit func(*http.Request)) *answer {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	a := &answer{}
	req, err := http.NewRequestWithContext(ctx, method, r.proxy.ClientURL+path, body)
	if err != nil {
		a.before = err
		return a
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	edit(req)
	began := time.Now()
	resp, err := r.client.Do(req)
	if err != nil {
		a.before = err
		return a
	}
	defer resp.Body.Close()
	a.ttfb = time.Since(began)
	a.status, a.header, a.worker = resp.StatusCode, resp.Header, resp.Header.Get(engines.ServedBy)
	a.body, a.after = io.ReadAll(resp.Body)
	if a.after == nil && a.status == http.StatusOK {
		a.read()
	}
	return a
}

// chat sends a conversation as it is.
func (r *rig) chat(ctx context.Context, c *conversation, stream bool, headers ...string) *answer {
	return r.send(ctx, chatPath, bytes.NewReader(c.body(stream, 8)), headers...)
}

// read takes usage and text out of a chat answer, streamed or whole.
func (a *answer) read() {
	type reply struct {
		Choices []struct {
			Message, Delta message
		} `json:"choices"`
		Usage *struct {
			PromptTokens  int `json:"prompt_tokens"`
			PromptDetails struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	take := func(data []byte) {
		var r reply
		if json.Unmarshal(data, &r) != nil {
			return
		}
		for _, c := range r.Choices {
			a.text += c.Message.Content + c.Delta.Content
		}
		if r.Usage != nil {
			a.promptTokens, a.cachedTokens = r.Usage.PromptTokens, r.Usage.PromptDetails.CachedTokens
		}
	}
	if !bytes.HasPrefix(a.body, []byte("data:")) {
		take(a.body)
		return
	}
	lines := bufio.NewScanner(bytes.NewReader(a.body))
	lines.Buffer(nil, len(a.body)+1)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			a.chunks++
			take(bytes.TrimSpace(data))
		}
	}
}

// load counts what a crowd of clients saw.
type load struct {
	sent, before, after, refused, hits atomic.Int64
	mu                                 sync.Mutex
	examples                           []string
}

func (l *load) note(a *answer) {
	switch {
	case a.before != nil:
		l.before.Add(1)
	case a.after != nil:
		l.after.Add(1)
	case a.status != http.StatusOK:
		l.refused.Add(1)
	default:
		if a.cachedTokens > 0 {
			l.hits.Add(1)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.before != nil || a.after != nil { // there are few of these
		l.examples = append([]string{a.err().Error()}, l.examples...)
	} else if len(l.examples) < 5 {
		l.examples = append(l.examples, a.err().Error())
	}
	l.examples = l.examples[:min(len(l.examples), 5)]
}

// failedBefore counts errors that a client saw before response headers: broken
// connections and every status but 200.
func (l *load) failedBefore() int64 { return l.before.Load() + l.refused.Load() }

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d sent, %d with cached tokens, failed before headers %d, by status %d, after headers %d %q",
		l.sent.Load(), l.hits.Load(), l.before.Load(), l.refused.Load(), l.after.Load(), l.examples)
}

// crowd lets clients hold conversations, half of them streamed, until enough
// says so. Eight system prompts are shared by all. extra gives headers for the
// n-th request; it may be nil.
func (r *rig) crowd(ctx context.Context, clients int, extra func(n int64) []string, enough func(l *load) bool) *load {
	l := &load{}
	var wg sync.WaitGroup
	for i := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := i; ctx.Err() == nil && !enough(l); n += clients {
				c := talk(uint64(n%8), 6000)
				for range 3 {
					if ctx.Err() != nil {
						return
					}
					var headers []string
					count := l.sent.Add(1)
					if extra != nil {
						headers = extra(count)
					}
					a := r.chat(ctx, c.ask(), n%2 == 0, headers...)
					if ctx.Err() != nil {
						l.sent.Add(-1)
						return
					}
					l.note(a)
					if a.err() != nil {
						break
					}
					c.hear(a.text)
				}
			}
		}()
	}
	wg.Wait()
	return l
}
