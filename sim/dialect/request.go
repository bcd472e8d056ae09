// Package dialect reads requests and writes replies in the HTTP dialects that
// engines speak: OpenAI chat, completions, responses and embeddings, and
// Anthropic messages.
//
// A Parser turns a body into a Request: its prompts as tokens of package text
// and the few settings that matter to an engine. A Reply then writes the
// answer to that request, piece by piece as server-sent events or whole as
// JSON. Reading is the engine's own view: last of two equal keys wins as in
// Python's json, invalid JSON and invalid UTF-8 are errors.
package dialect

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/warmpath/warmpath/sim/text"
)

// An Endpoint is what a path asks for.
type Endpoint uint8

// Endpoints.
const (
	Chat Endpoint = iota
	Completions
	Responses
	Messages
	Embeddings
)

// EndpointOf finds the endpoint of a URL path, whatever stands before "/v1".
func EndpointOf(path string) (Endpoint, bool) {
	at := strings.LastIndex(path, "/v1/")
	if at < 0 {
		return 0, false
	}
	switch path[at:] {
	case "/v1/chat/completions":
		return Chat, true
	case "/v1/completions":
		return Completions, true
	case "/v1/responses":
		return Responses, true
	case "/v1/messages":
		return Messages, true
	case "/v1/embeddings":
		return Embeddings, true
	}
	return 0, false
}

// An Error is a refusal of a request, to be written with AppendError.
type Error struct {
	Status  int
	Type    string
	Message string
}

func (e *Error) Error() string { return e.Message }

func badRequest(format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, "BadRequestError", fmt.Sprintf(format, args...)}
}

// A Request is what the engine needs to know of a body.
type Request struct {
	Endpoint     Endpoint
	Model        string
	Stream       bool
	IncludeUsage bool   // stream_options.include_usage
	MaxTokens    int    // 0: not given
	IgnoreEOS    bool   // decode exactly MaxTokens
	N            int    // choices for each prompt
	CacheSalt    string // separates caches
	// Prompts in the order of the body; valid until the parser's next Parse.
	Prompts [][]text.Token
}

// maxChoices bounds prompts x n of one request.
const maxChoices = 128

// A Parser reads one body at a time and reuses its memory.
type Parser struct {
	rendering text.Rendering
	scratch   []byte // an unescaped string
	ends      []int  // where each prompt ends in the rendering
	request   Request
}

// Parse reads the body of a request to the endpoint. The Request is valid
// until the next call.
func (p *Parser) Parse(endpoint Endpoint, body []byte) (*Request, *Error) {
	root, ok := valid(body)
	if !ok || !utf8.Valid(body) {
		return nil, badRequest("the body is not valid JSON in UTF-8")
	}
	if root.kind() != object {
		return nil, badRequest("the body is not a JSON object")
	}
	p.rendering.Reset()
	p.ends = p.ends[:0]
	p.request = Request{Endpoint: endpoint, N: 1, Prompts: p.request.Prompts[:0]}
	var f fields
	if err := f.read(root, &p.request); err != nil {
		return nil, err
	}
	var err *Error
	switch endpoint {
	case Chat:
		err = p.chat(&f)
	case Completions:
		err = p.plain("prompt", f.prompt)
	case Embeddings:
		err = p.plain("input", f.input)
	case Responses:
		err = p.responses(&f)
	case Messages:
		err = p.messages(&f)
	}
	if err != nil {
		return nil, err
	}
	start := 0
	for _, end := range p.ends {
		if end == start {
			return nil, badRequest("a prompt is empty")
		}
		p.request.Prompts = append(p.request.Prompts, p.rendering.Tokens[start:end])
		start = end
	}
	if choices := len(p.request.Prompts) * p.request.N; choices > maxChoices {
		return nil, badRequest("%d choices asked for, at most %d", choices, maxChoices)
	}
	return &p.request, nil
}

func (p *Parser) endPrompt() { p.ends = append(p.ends, len(p.rendering.Tokens)) }

// fields are the parts of a body that become prompt text.
type fields struct {
	messages, tools, prompt, input, system, instructions node
}

func (f *fields) read(root node, r *Request) *Error {
	var err *Error
	root.fields(func(key string, v node) bool {
		switch key {
		case "model":
			if v.kind() != str {
				err = badRequest("model: want a string")
			}
			r.Model = v.text()
		case "stream":
			r.Stream = v.isTrue()
		case "stream_options":
			r.IncludeUsage = v.get("include_usage").isTrue()
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			r.MaxTokens, err = v.whole(key, 1<<24, 0)
		case "ignore_eos":
			r.IgnoreEOS = v.isTrue()
		case "n":
			r.N, err = v.whole(key, maxChoices, 1)
		case "cache_salt":
			r.CacheSalt = v.text()
			if v.given() && r.CacheSalt == "" {
				err = badRequest("cache_salt: want a string that is not empty")
			}
		case "messages":
			f.messages = v
		case "tools":
			f.tools = v
		case "prompt":
			f.prompt = v
		case "input":
			f.input = v
		case "system":
			f.system = v
		case "instructions":
			f.instructions = v
		}
		return err == nil
	})
	return err
}

// whole reads a number from 1 to limit; null means fallback.
func (n node) whole(name string, limit, fallback int) (int, *Error) {
	if n.kind() == null {
		return fallback, nil
	}
	v := n.float()
	if n.kind() != number || v < 1 || v > float64(limit) || v != float64(int(v)) {
		return 0, badRequest("%s: want a whole number from 1 to %d", name, limit)
	}
	return int(v), nil
}
