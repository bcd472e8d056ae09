package body

import (
	"math"
	"strconv"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// field is a top-level field that matters, whichever endpoint it belongs to.
type field uint8

const (
	fieldOther field = iota
	fieldModel
	fieldCacheSalt
	fieldPromptCacheKey
	fieldUser
	fieldStream
	fieldStreamOptions
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldMaxOutputTokens
	fieldN
	// From here on: what becomes prompt.
	fieldMessages
	fieldPrompt
	fieldInput
	fieldSystem
	fieldInstructions
	fieldTools
	fieldFunctions
	fieldDocuments
	fieldPreviousResponse
	numFields
)

func fieldOf(name []byte) field {
	switch string(name) {
	case "model":
		return fieldModel
	case "cache_salt":
		return fieldCacheSalt
	case "prompt_cache_key":
		return fieldPromptCacheKey
	case "user":
		return fieldUser
	case "stream":
		return fieldStream
	case "stream_options":
		return fieldStreamOptions
	case "max_tokens":
		return fieldMaxTokens
	case "max_completion_tokens":
		return fieldMaxCompletionTokens
	case "max_output_tokens":
		return fieldMaxOutputTokens
	case "n":
		return fieldN
	case "messages":
		return fieldMessages
	case "prompt":
		return fieldPrompt
	case "input":
		return fieldInput
	case "system":
		return fieldSystem
	case "instructions":
		return fieldInstructions
	case "tools":
		return fieldTools
	case "functions":
		return fieldFunctions
	case "documents":
		return fieldDocuments
	case "previous_response_id":
		return fieldPreviousResponse
	}
	return fieldOther
}

// span is body[start:end]; no value starts at 0, so a zero start means absent.
type span struct{ start, end int }

// Request is what Scan found in one body. It is large (about 40 KB) and meant
// to be used again for the next body; it must not be copied. Byte slices point
// into the body or into the Request, and hold until either changes.
type Request struct {
	Endpoint Endpoint

	// Model and the others are decoded strings; nil where the field is absent
	// or not a string. Of duplicates the last counts, as in the engines.
	Model          []byte
	CacheSalt      []byte // never share cached blocks across different salts
	PromptCacheKey []byte // OpenAI's hint which requests share a prefix
	User           []byte

	Stream       bool
	IncludeUsage bool  // stream_options.include_usage: the stream will end with its usage
	MaxTokens    int64 // most tokens to generate, under any of its names; -1 when absent
	N            int64 // completions asked for; 1 when absent

	body    []byte
	doc     jsontext.Doc
	spans   [numFields]span
	scratch []byte
	render  renderer
}

// RawModel is the model's name as it stands in the body, JSON with its quotes; empty where Model is nil.
func (req *Request) RawModel() []byte { return req.raw(fieldModel) }

// RawCacheSalt is the same of the salt.
func (req *Request) RawCacheSalt() []byte { return req.raw(fieldCacheSalt) }

func (req *Request) raw(f field) []byte {
	s := req.spans[f]
	if s.start == 0 || req.body[s.start] != '"' {
		return nil
	}
	return req.body[s.start:s.end]
}

func (req *Request) reset(b []byte, ep Endpoint) {
	req.Endpoint = ep
	req.Model, req.CacheSalt, req.PromptCacheKey, req.User = nil, nil, nil, nil
	req.Stream, req.IncludeUsage = false, false
	req.MaxTokens, req.N = -1, 1
	req.body = b
	req.doc.Reset()
	req.spans = [numFields]span{}
	if cap(req.scratch) > 64<<10 {
		req.scratch = nil // one odd request should not hold its memory for ever
	}
	req.scratch = req.scratch[:0]
}

// readSmall fills the public fields from the spans.
func (req *Request) readSmall() {
	req.Model = req.text(fieldModel)
	req.CacheSalt = req.text(fieldCacheSalt)
	req.PromptCacheKey = req.text(fieldPromptCacheKey)
	req.User = req.text(fieldUser)
	req.Stream = req.isTrue(req.spans[fieldStream].start)
	if n, ok := req.number(fieldN); ok && n > 0 {
		req.N = n
	}
	for _, f := range [...]field{fieldMaxTokens, fieldMaxOutputTokens, fieldMaxCompletionTokens} {
		if n, ok := req.number(f); ok {
			req.MaxTokens = n
		}
	}
	if at := req.spans[fieldStreamOptions].start; at > 0 && req.body[at] == '{' {
		var w jsontext.Walker
		w.Reset(&req.doc)
		for i := at + 1; ; {
			m, ok := w.Member(i)
			if !ok {
				break
			}
			if string(m.Name) == "include_usage" {
				req.IncludeUsage = req.isTrue(m.Value)
			}
			i = w.Skip(m.Value)
		}
	}
}

func (req *Request) isTrue(at int) bool { return at > 0 && req.body[at] == 't' }

// text decodes a string field. Only escaped ones are copied.
func (req *Request) text(f field) []byte {
	s := req.spans[f]
	if s.start == 0 || req.body[s.start] != '"' {
		return nil
	}
	raw := req.body[s.start+1 : s.end-1 : s.end-1]
	for _, c := range raw {
		if c == '\\' {
			from := len(req.scratch)
			req.scratch = jsontext.AppendDecoded(req.scratch, raw)
			return req.scratch[from:len(req.scratch):len(req.scratch)]
		}
	}
	return raw
}

// number reads a numeric field: whole, not negative, cut to int64.
func (req *Request) number(f field) (int64, bool) {
	s := req.spans[f]
	if s.start == 0 || req.body[s.start] < '0' || req.body[s.start] > '9' {
		return 0, false
	}
	raw := req.body[s.start:s.end]
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' {
			v, err := strconv.ParseFloat(string(raw), 64)
			if err != nil || v >= math.MaxInt64 {
				return math.MaxInt64, true
			}
			return int64(v), true
		}
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64, true
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// present tells whether the field is there with a value other than null.
func (req *Request) present(f field) bool {
	s := req.spans[f]
	return s.start > 0 && req.body[s.start] != 'n'
}
