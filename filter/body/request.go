package body

import (
	"math"
	"strconv"
	"unicode/utf8"
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

// longStringBytes is from where on a string's end is remembered: shorter ones
// are found again faster than looked up.
const longStringBytes = 64

// maxLongStrings bounds that memory (32 KiB). Strings beyond it are searched
// for their end again, nothing else changes.
const maxLongStrings = 4096

// longString is a string of the prompt whose first byte is body[start].
type longString struct {
	start uint32
	end   uint32 // the closing quote's index; the top bit tells that there are escapes
}

const longStringEsc = 1 << 31

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
	spans   [numFields]span
	stray   bool // bytes 0xF8..0xFF occur in some string
	scratch []byte
	longs   [maxLongStrings]longString
	numLong int
	render  renderer
}

func (req *Request) reset(b []byte, ep Endpoint) {
	req.Endpoint = ep
	req.Model, req.CacheSalt, req.PromptCacheKey, req.User = nil, nil, nil, nil
	req.Stream, req.IncludeUsage = false, false
	req.MaxTokens, req.N = -1, 1
	req.body = b
	req.spans = [numFields]span{}
	req.stray = false
	req.numLong = 0
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
		w := walker{req: req}
		for i := at + 1; ; {
			m, ok := w.member(i)
			if !ok {
				break
			}
			if string(m.name) == "include_usage" {
				req.IncludeUsage = req.isTrue(m.value)
			}
			i = w.skip(m.value)
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
			req.scratch = appendUnescaped(req.scratch, raw)
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

// walker moves over JSON that Scan has found valid, so it checks nothing.
type walker struct {
	req  *Request
	hint int // the long string that will probably be asked for next
	key  [maxKeyBytes + utf8.UTFMax]byte
}

// member is one name and value of an object.
type member struct {
	name  []byte // decoded; holds until the next call
	value int    // index of the value's first byte
}

// member returns what stands at or after i inside an object: i is just after
// the opening brace or after the value before.
func (w *walker) member(i int) (member, bool) {
	b := w.req.body
	for b[i] != '"' {
		if b[i] == '}' {
			return member{}, false
		}
		i++ // space or comma
	}
	end, esc := w.stringEnd(i + 1)
	name := b[i+1 : end]
	if esc {
		name = unescapeKey(&w.key, name)
	}
	for i = end + 1; b[i] != ':'; i++ {
	}
	return member{name, skipSpace(b, i+1)}, true
}

// element returns the index of the next element of an array: i is just after
// the opening bracket or after the element before.
func (w *walker) element(i int) (int, bool) {
	b := w.req.body
	i = skipSpace(b, i)
	if b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return i, b[i] != ']'
}

// skip returns the index after the value that begins at i.
func (w *walker) skip(i int) int {
	b := w.req.body
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			i, _ = w.stringEnd(i + 1)
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // after a number or literal without space
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// stringEnd returns the closing quote's index of the string whose first byte
// is body[start], and whether it holds escapes.
func (w *walker) stringEnd(start int) (end int, esc bool) {
	b := w.req.body
	i := start
	for {
		if i-start >= longStringBytes {
			if at, ok := w.long(uint32(start)); ok {
				l := w.req.longs[at].end
				w.hint = at + 1
				return int(l &^ longStringEsc), l&longStringEsc != 0
			}
			start = math.MaxInt // not remembered: don't ask again
		}
		i = nextQuoteOrEsc(b, i, longStringBytes)
		if i >= len(b) {
			return len(b), esc
		}
		switch b[i] {
		case '"':
			return i, esc
		case '\\':
			esc = true
			i += 2
		}
	}
}

// long finds the remembered string that begins at start.
func (w *walker) long(start uint32) (int, bool) {
	n := w.req.numLong
	if w.hint < n && w.req.longs[w.hint].start == start {
		return w.hint, true
	}
	lo, hi := 0, n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if w.req.longs[mid].start < start {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < n && w.req.longs[lo].start == start
}
