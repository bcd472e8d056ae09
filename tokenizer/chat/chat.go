// Package chat turns the body of a request into the text that the engine's
// model will read.
//
// A request travels through it in two steps, as it does in the engines. First
// the engine's own reading of the body (messages.go and one file per engine)
// makes a list of turns of it: parts joined, null content made empty, tool
// calls' arguments parsed, roles renamed. Then the chat template of the model's
// family (one file per family) writes these turns into one buffer and notes
// where each ends. JSON inside the prompt is written as Python's json.dumps
// writes what json.loads has read (python.go).
//
// The text is exact or it stops: where something can't be rendered as the
// engine does (a picture, a template that came with the request, an argument of
// the template that isn't known here), the text ends with the last turn before
// it and Result.Stopped says why. What the engine would refuse with an error
// stops as well.
//
// # Stability
//
// A follow-up request repeats the text up to each recorded end of a turn, with
// these exceptions, which are the templates' own: Qwen3 and DeepSeek-R1 drop the
// reasoning of earlier turns once the user asks again; Mistral-Nemo moves tools
// and system text to the last user turn.
package chat

import "github.com/warmpath/warmpath/shared/jsontext"

// Engine is whose reading of the request is followed.
type Engine uint8

// Engines: the names are those of ByName.
const (
	VLLM   Engine = iota + 1 // "vllm", as of 0.32
	SGLang                   // "sglang", as of 0.5.23
)

// family is a chat template.
type family uint8

const (
	familyNone family = iota
	familyQwen25
	familyQwen3
	familyLlama3
	familyLlama31
	familyLlama32
	familyMistralNemo
	familyDeepSeekV3
	familyGPTOSS
	familyDeclarative
)

// Template is how one model's prompt is put together by one engine. The zero
// Template renders nothing.
type Template struct {
	engine Engine
	family family
	decl   *Declarative
}

// ByName returns the template of a model family as an engine renders it. It
// tells by false that it has none. Families lists the names.
func ByName(name, engine string) (Template, bool) {
	t := Template{}
	switch engine {
	case "vllm":
		t.engine = VLLM
	case "sglang":
		t.engine = SGLang
	default:
		return Template{}, false
	}
	switch name {
	case "qwen2.5":
		t.family = familyQwen25
	case "qwen3":
		t.family = familyQwen3
	case "llama3":
		t.family = familyLlama3
	case "llama3.1", "llama3.3":
		t.family = familyLlama31
	case "llama3.2":
		t.family = familyLlama32
	case "mistral-nemo":
		t.family = familyMistralNemo
	case "deepseek-v3":
		t.family = familyDeepSeekV3
	case "gpt-oss":
		if t.engine != VLLM {
			return Template{}, false // SGLang uses the model's Jinja template, not Harmony's own rules
		}
		t.family = familyGPTOSS
	case "chatml":
		t.family, t.decl = familyDeclarative, &chatML
	default:
		return Template{}, false
	}
	return t, true
}

// Families lists the names that ByName knows.
func Families() []string {
	return []string{
		"chatml", "deepseek-v3", "gpt-oss", "llama3", "llama3.1", "llama3.2", "llama3.3",
		"mistral-nemo", "qwen2.5", "qwen3",
	}
}

// WithDeclarative returns the template that d declares, as engine renders it.
func WithDeclarative(d *Declarative, engine string) (Template, bool) {
	t, ok := ByName("chatml", engine)
	t.decl = d
	return t, ok && d != nil
}

// NeedsDate tells whether the text depends on Request.Day.
func (t Template) NeedsDate() bool {
	return t.family == familyLlama32 || t.family == familyGPTOSS
}

// Endpoint is how the body is to be read.
type Endpoint uint8

// Endpoints.
const (
	Chat        Endpoint = iota + 1 // /v1/chat/completions
	Completions                     // /v1/completions
	Responses                       // /v1/responses
	Messages                        // /v1/messages
	Embeddings                      // /v1/embeddings; those of conversations aren't rendered
)

// Request is one body and what else its prompt depends on.
type Request struct {
	Doc      *jsontext.Doc // must have been scanned without fault
	Endpoint Endpoint

	// Day is the date, in days since 1970-01-01, for templates that print one.
	// Engines print their local date (datetime.now()), so for some hours of a
	// day engines in other time zones than the caller's disagree with it.
	Day int

	// TakeBreaks tells that the caller tokenises the pieces between
	// Result.Breaks apart. Otherwise the text stops before the first break.
	TakeBreaks bool
}

// Reason says why a text ends before the prompt does.
type Reason uint8

// Reasons.
const (
	Complete        Reason = iota // the text is the whole prompt
	Refused                       // the engine answers this request with an error
	Media                         // pictures, sound, files: the engine makes tokens of them that no text shows
	RequestTemplate               // a chat template came with the request
	Argument                      // an argument of the template that this package doesn't know
	Unknown                       // a form that this package doesn't know: of a message, part, tool or field
	BadText                       // bytes that aren't UTF-8, or half a surrogate pair
	TooLong                       // maxBytes is reached: the text is a true prefix, its last token may differ
	TooMany                       // more messages, tool calls or nesting than this package takes
	TokenIDs                      // the prompt came as token ids
	Cut                           // the engine itself cuts the prompt (truncate_prompt_tokens)
	Apart                         // the engine tokenises the rest apart (see Request.TakeBreaks)
	State                         // the prompt begins with an answer that the engine has stored
	NoTemplate                    // the zero Template

	NumReasons
)

var reasonNames = [NumReasons]string{
	"complete", "refused", "media", "request_template", "argument", "unknown", "bad_text",
	"too_long", "too_many", "token_ids", "cut", "apart", "state", "no_template",
}

// String returns the label value of metrics.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Result is a rendered prompt. Its slices belong to the Renderer and hold until
// its next Render.
type Result struct {
	Text []byte
	Ends []int // ascending byte offsets into Text: after each turn, and after the generation prompt where the next turn begins with it
	// Breaks are ascending offsets where the engine tokenises what stands before
	// and after apart, so that no token crosses them.
	Breaks  []int
	Stopped Reason // Complete, or why Text is only the beginning
	// AddSpecial tells that the engine lets the tokenizer add its special
	// tokens (a BOS) before the text. Chat templates write theirs themselves.
	AddSpecial bool
}
