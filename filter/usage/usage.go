// Package usage learns from a response what the request really cost: when its
// first token came and how many tokens the engine counted, with memory that
// does not grow with the response.
//
// A response's chunks pass through a Reader once, in whatever pieces the
// network made of them, and are only looked at. Until the first event with
// content the lines of a stream are read one by one; from then on a chunk
// costs one copy of at most 1 KB into a window over the stream's last 2 KB.
// When the response is over, Finish finds the last usage object in that window.
//
// Formats, all found by the name "usage" whatever surrounds it:
//
//	chat, completions, embeddings  prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens
//	responses                      input_tokens, output_tokens, input_tokens_details.cached_tokens (event response.completed)
//	messages (Anthropic)           message_start: input_tokens, cache_read_input_tokens, cache_creation_input_tokens
//	                               message_delta: output_tokens, and newer engines repeat the others
//
// A usage of null is none. Of several (continuous usage) the last counts.
package usage

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// Usage is what the engine reported, in tokens.
type Usage struct {
	PromptTokens     int64 // all of the prompt, cached or not
	CachedTokens     int64 // the part of it that came from the prefix cache
	CompletionTokens int64

	// CachedKnown tells whether the engine stated CachedTokens: vLLM does so
	// only with --enable-prompt-tokens-details.
	CachedKnown bool
	// CompletionKnown is false where only the start of a stream told its
	// usage: an Anthropic stream that broke off, or an embedding.
	CompletionKnown bool
}

// counts are the numbers of one usage object; -1 where absent.
type counts struct{ in, out, cached, cacheRead, cacheWrite int64 }

var noCounts = counts{-1, -1, -1, -1, -1}

// merge takes over what later states.
func (c *counts) merge(later counts) {
	for _, f := range [...]struct {
		to   *int64
		from int64
	}{
		{&c.in, later.in},
		{&c.out, later.out},
		{&c.cached, later.cached},
		{&c.cacheRead, later.cacheRead},
		{&c.cacheWrite, later.cacheWrite},
	} {
		if f.from >= 0 {
			*f.to = f.from
		}
	}
}

func (c *counts) usage() Usage {
	u := Usage{
		PromptTokens:     max(c.in, 0),
		CompletionTokens: max(c.out, 0),
		CompletionKnown:  c.out >= 0,
	}
	switch {
	case c.cached >= 0:
		u.CachedTokens, u.CachedKnown = c.cached, true
	case c.cacheRead >= 0:
		// Anthropic counts cached and newly cached tokens apart from the input.
		u.CachedTokens, u.CachedKnown = c.cacheRead, true
		u.PromptTokens += c.cacheRead + max(c.cacheWrite, 0)
	case c.cacheWrite >= 0:
		u.PromptTokens += c.cacheWrite
	}
	return u
}

// parse reads one usage object.
func parse(object []byte) (counts, bool) {
	o := gjson.ParseBytes(object)
	c := counts{
		in:         number(o, "prompt_tokens", "input_tokens"),
		out:        number(o, "completion_tokens", "output_tokens"),
		cached:     number(o, "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"),
		cacheRead:  number(o, "cache_read_input_tokens"),
		cacheWrite: number(o, "cache_creation_input_tokens"),
	}
	return c, c.in >= 0 || c.out >= 0
}

// maxTokens is beyond any real count, and far from overflow when summed.
const maxTokens = 1 << 40

// number returns the first of the paths that holds a sane count, or -1.
func number(o gjson.Result, paths ...string) int64 {
	for _, p := range paths {
		if v := o.Get(p); v.Type == gjson.Number {
			if n := v.Int(); n >= 0 && n <= maxTokens {
				return n
			}
		}
	}
	return -1
}

// maxObjectBytes bounds a usage object; real ones take 100 to 400 bytes.
const maxObjectBytes = 1024

var usageKey = []byte(`"usage"`)

// last finds the last usage object in b that states a count. In prompt text
// the name can't be mistaken: there its quotes are escaped.
func last(b []byte, kind Kind) (counts, bool) {
	var scratch [maxObjectBytes]byte
	for end := len(b); ; {
		key := bytes.LastIndex(b[:end], usageKey)
		if key < 0 {
			return noCounts, false
		}
		end = key
		i := skipGap(b, key+len(usageKey), kind)
		if i >= len(b) || b[i] != ':' {
			continue
		}
		i = skipGap(b, i+1, kind)
		if i >= len(b) || b[i] != '{' {
			continue // null
		}
		if object := balanced(b[i:], kind, &scratch); object != nil {
			if c, ok := parse(object); ok {
				return c, true
			}
		}
	}
}

// balanced copies the object at the start of b into scratch, up to the brace
// that closes it and without what a stream's line breaks put in between. It
// returns nil if the object is cut off or too large.
func balanced(b []byte, kind Kind, scratch *[maxObjectBytes]byte) []byte {
	n, depth, inString := 0, 0, false
	for i := 0; i < len(b); {
		c := b[i]
		if !inString && (c == '\n' || c == '\r') {
			i = skipGap(b, i, kind)
			continue
		}
		if n == len(scratch) {
			return nil
		}
		scratch[n] = c
		n++
		i++
		switch {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			if i == len(b) || n == len(scratch) {
				return nil
			}
			scratch[n] = b[i]
			n++
			i++
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return scratch[:n]
			}
		}
	}
	return nil
}

// skipGap returns the index of the next byte of JSON that is not space. In a
// stream one event's JSON may go on over several lines: their "data:" and
// comment lines between them are skipped too.
func skipGap(b []byte, i int, kind Kind) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t':
			i++
		case '\n', '\r':
			i++
			if kind != SSE || i == len(b) {
				continue
			}
			if rest := b[i:]; bytes.HasPrefix(rest, dataField) {
				i += len(dataField)
			} else if rest[0] == ':' {
				for i < len(b) && b[i] != '\n' && b[i] != '\r' {
					i++
				}
			}
		default:
			return i
		}
	}
	return i
}
