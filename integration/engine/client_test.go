//go:build engine

package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// message is one turn of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// request is a chat request.
type request struct {
	messages []message
	model    string // ModelName when empty
	salt     string
	answer   int // tokens; 4 when 0
	stream   bool
}

func (q request) body() map[string]any {
	body := map[string]any{"model": ModelName, "messages": q.messages, "max_tokens": 4, "ignore_eos": true, "temperature": 0}
	if q.model != "" {
		body["model"] = q.model
	}
	if q.salt != "" {
		body["cache_salt"] = q.salt
	}
	if q.answer > 0 {
		body["max_tokens"] = q.answer
	}
	if q.stream {
		body["stream"] = true
		body["stream_options"] = map[string]any{"include_usage": true}
	}
	return body
}

// answer is what a client got, and what the front said of it.
type answer struct {
	text           string
	prompt, cached int // tokens, as the engine says
	explained      string
	exact          bool
	tokens         int    // of the prompt, as the module sees it
	predicted      int    // tokens that the chosen worker was believed to hold
	chosen         string // its address
}

var explanation = regexp.MustCompile(`^mode=exact tokens=(\d+) .*hit=(\d+)/\d+ w=(\S+)`)

// post sends a request to the front.
func (r *rig) post(path string, body any) (*http.Response, error) {
	return r.postWith(r.t.Context(), path, body)
}

// postWith is post with a context and headers, key, value pairs.
func (r *rig) postWith(ctx context.Context, path string, body any, headers ...string) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.client.Do(req)
}

// ask sends a chat and reads the whole answer.
func (r *rig) ask(q request) (answer, error) {
	resp, err := r.post("/v1/chat/completions", q.body())
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
	}
	a := answer{explained: resp.Header.Get("x-warmpath-explain")}
	if m := explanation.FindStringSubmatch(a.explained); m != nil {
		a.exact, a.chosen = true, m[3]
		a.tokens, _ = strconv.Atoi(m[1])
		a.predicted, _ = strconv.Atoi(m[2])
	}
	return a, a.read(body)
}

// read takes text and usage out of an answer, streamed or whole.
func (a *answer) read(body []byte) error {
	if !bytes.HasPrefix(body, []byte("data:")) {
		return a.take(body)
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		if err := a.take(data); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (a *answer) take(data []byte) error {
	var reply struct {
		Choices []struct {
			Message, Delta message
		} `json:"choices"`
		Usage *struct {
			Prompt  int `json:"prompt_tokens"`
			Details *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return fmt.Errorf("read an answer: %w: %.200s", err, data)
	}
	for _, c := range reply.Choices {
		a.text += c.Message.Content + c.Delta.Content
	}
	if reply.Usage != nil {
		a.prompt = reply.Usage.Prompt
		if reply.Usage.Details != nil {
			a.cached = reply.Usage.Details.Cached
		}
	}
	return nil
}

// mustAsk is ask where nothing may fail.
func (r *rig) mustAsk(q request) answer {
	r.t.Helper()
	a, err := r.ask(q)
	if err != nil {
		r.t.Fatal(err)
	}
	if !a.exact {
		r.t.Fatalf("the prompt wasn't read exactly: %q", a.explained)
	}
	return a
}

// talk is a conversation that grows.
type talk struct {
	request
	words *rand.Rand
	home  string // address of the worker of its first turn
}

// newTalk starts a conversation with a system prompt of n words, and asks the
// first question.
func newTalk(seed uint64, n int) *talk {
	t := &talk{words: rand.New(rand.NewPCG(seed, 9))}
	t.messages = []message{{"system", prose(t.words, n)}}
	t.question()
	return t
}

func (t *talk) question() { t.messages = append(t.messages, message{"user", prose(t.words, 30)}) }

func (t *talk) heard(text string) { t.messages = append(t.messages, message{"assistant", text}) }

var vocabulary = strings.Fields(`route every request to the worker that already holds its prefix quiet river stone lamp
	harbour winter copper meadow signal garden window paper market bridge letter Zażółć gęślą jaźń 你好 世界 naïve
	café 12 345 6789 don't x=y; {"k": [1, 2]} func() return 🙂 Привет мир`)

// prose is n words.
func prose(words *rand.Rand, n int) string {
	var s strings.Builder
	for i := range n {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(vocabulary[words.IntN(len(vocabulary))])
	}
	return s.String()
}

// ids is a prompt of n random tokens.
func ids(words *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = 1000 + words.Uint32N(100_000)
	}
	return out
}

// complete sends a prompt of tokens to an engine, past the front.
func (r *rig) complete(w *worker, prompt []uint32) error {
	_, err := w.Post(r.t.Context(), "/v1/completions", map[string]any{"model": ModelName, "prompt": prompt, "max_tokens": 1, "temperature": 0})
	return err
}
