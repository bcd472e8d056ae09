package body

import "strings"

// Endpoint is one of the request forms that the engines serve and whose
// prompt this package can read.
type Endpoint uint8

// The endpoints, by the path segments that name them.
const (
	None            Endpoint = iota // not ours: pass untouched and unbuffered
	ChatCompletions                 // v1/chat/completions
	Completions                     // v1/completions
	Responses                       // v1/responses
	Messages                        // v1/messages (Anthropic)
	Embeddings                      // v1/embeddings
	Models                          // v1/models: no body, any healthy worker will do
)

var endpointNames = [...]string{"none", "chat_completions", "completions", "responses", "messages", "embeddings", "models"}

// String returns a stable name, fit for a metric label.
func (e Endpoint) String() string {
	if int(e) < len(endpointNames) {
		return endpointNames[e]
	}
	return "unknown"
}

// HasBody reports whether requests to e carry a prompt in their body.
func (e Endpoint) HasBody() bool { return e >= ChatCompletions && e <= Embeddings }

// Anthropic reports whether clients of e expect errors in Anthropic's shape
// rather than OpenAI's.
func (e Endpoint) Anthropic() bool { return e == Messages }

// Match finds the endpoint in a request's :path. The last segments decide, so
// any gateway prefix (/team-a/v1/...) matches and a sub-path
// (/v1/messages/count_tokens) does not. A query, a fragment, empty segments
// and a trailing slash are ignored, dot segments are resolved (RFC 3986,
// 5.2.4), and the path is percent-decoded once, encoded slashes too: so the
// engines' HTTP server (uvicorn) reads it, and no spelling of a path may pass
// admission by.
func Match(path string) (Endpoint, bool) {
	for i := 0; i < len(path); i++ {
		if path[i] == '?' || path[i] == '#' {
			path = path[:i]
			break
		}
	}
	path = unescape(path)
	var last [3]string // the last segment first
	found, dropped := 0, 0
	for end := len(path); end > 0 && found < len(last); {
		start := end
		for start > 0 && path[start-1] != '/' {
			start--
		}
		segment := path[start:end]
		end = start - 1
		switch {
		case segment == "" || segment == ".":
		case segment == "..":
			dropped++
		case dropped > 0:
			dropped--
		default:
			last[found] = segment
			found++
		}
	}
	if last[2] == "v1" && last[1] == "chat" && last[0] == "completions" {
		return ChatCompletions, true
	}
	if last[1] != "v1" {
		return None, false
	}
	switch last[0] {
	case "completions":
		return Completions, true
	case "responses":
		return Responses, true
	case "messages":
		return Messages, true
	case "embeddings":
		return Embeddings, true
	case "models":
		return Models, true
	}
	return None, false
}

// unescape decodes %41 to A; what is no escape stays as it is.
func unescape(path string) string {
	first := strings.IndexByte(path, '%')
	if first < 0 {
		return path
	}
	b := append(make([]byte, 0, len(path)), path[:first]...)
	for i := first; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			high, low := nibble(path[i+1]), nibble(path[i+2])
			if high < 16 && low < 16 {
				c = high<<4 | low
				i += 2
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// nibble is the value of a hex digit, 16 for what is none.
func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}
