package dialect

import (
	"strconv"
)

// Usage is what a request cost, summed over its prompts and choices.
type Usage struct {
	PromptTokens int
	CachedTokens int
	OutputTokens int
}

// A Reply writes the answer to one request. As a stream: Start, then Text and
// Finish for each choice in any order, then End. Otherwise: Whole. All methods
// append to dst. Texts must need no escaping in JSON.
type Reply struct {
	Endpoint Endpoint
	Model    string
	// ID is made unique by the caller; it stands behind the dialect's prefix.
	ID string
	// Created is a Unix time in seconds.
	Created int64
	// Worker names who answers, in system_fingerprint.
	Worker string
	// IncludeUsage puts usage into the stream's last chunk. Anthropic and
	// responses streams always have it.
	IncludeUsage bool
	// Length is set if answers end by max_tokens.
	Length bool

	model []byte // Model, quoted
}

func (r *Reply) quotedModel() []byte {
	if r.model == nil {
		r.model = appendQuoted(nil, r.Model)
	}
	return r.model
}

// Start appends what comes with the first token.
func (r *Reply) Start(dst []byte, u Usage) []byte {
	switch r.Endpoint {
	case Chat:
		dst = r.chunk(dst)
		dst = append(dst, `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`...)
		return append(dst, "\n\n"...)
	case Messages:
		dst = append(dst, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{"...)
		dst = r.messageHead(dst)
		dst = append(dst, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
		dst = anthropicUsage(dst, Usage{PromptTokens: u.PromptTokens, CachedTokens: u.CachedTokens, OutputTokens: 1})
		dst = append(dst, "}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"...)
		return append(dst, "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"...)
	case Responses:
		dst = append(dst, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{"...)
		dst = r.responseHead(dst, "in_progress")
		return append(dst, "\"output\":[],\"usage\":null}}\n\n"...)
	}
	return dst
}

// Text appends a piece of a choice's answer.
func (r *Reply) Text(dst []byte, choice int, piece []byte) []byte {
	switch r.Endpoint {
	case Chat:
		dst = r.chunk(dst)
		dst = append(dst, `"choices":[{"index":`...)
		dst = strconv.AppendInt(dst, int64(choice), 10)
		dst = append(dst, `,"delta":{"content":"`...)
		dst = append(dst, piece...)
		return append(dst, "\"},\"finish_reason\":null}]}\n\n"...)
	case Completions:
		dst = r.chunk(dst)
		dst = append(dst, `"choices":[{"index":`...)
		dst = strconv.AppendInt(dst, int64(choice), 10)
		dst = append(dst, `,"text":"`...)
		dst = append(dst, piece...)
		return append(dst, "\",\"logprobs\":null,\"finish_reason\":null}]}\n\n"...)
	case Messages:
		dst = append(dst, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"...)
		dst = append(dst, `"delta":{"type":"text_delta","text":"`...)
		dst = append(dst, piece...)
		return append(dst, "\"}}\n\n"...)
	case Responses:
		dst = append(dst, "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_"...)
		dst = append(dst, r.ID...)
		dst = append(dst, `","output_index":0,"content_index":0,"delta":"`...)
		dst = append(dst, piece...)
		return append(dst, "\"}\n\n"...)
	}
	return dst
}

// Finish appends the end of one choice.
func (r *Reply) Finish(dst []byte, choice int) []byte {
	switch r.Endpoint {
	case Chat, Completions:
		dst = r.chunk(dst)
		dst = append(dst, `"choices":[{"index":`...)
		dst = strconv.AppendInt(dst, int64(choice), 10)
		if r.Endpoint == Chat {
			dst = append(dst, `,"delta":{},"finish_reason":"`...)
		} else {
			dst = append(dst, `,"text":"","logprobs":null,"finish_reason":"`...)
		}
		dst = append(dst, r.reason()...)
		return append(dst, "\"}]}\n\n"...)
	case Messages:
		return append(dst, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	}
	return dst
}

// End appends usage and the end of the stream. text is the whole answer of
// the first choice, which a responses stream repeats.
func (r *Reply) End(dst []byte, u Usage, text []byte) []byte {
	switch r.Endpoint {
	case Messages:
		dst = append(dst, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\""...)
		dst = append(dst, r.anthropicReason()...)
		dst = append(dst, `","stop_sequence":null},"usage":`...)
		dst = anthropicUsage(dst, u)
		return append(dst, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	case Responses:
		dst = append(dst, "event: response."...)
		dst = append(dst, r.status()...)
		dst = append(dst, "\ndata: {\"type\":\"response."...)
		dst = append(dst, r.status()...)
		dst = append(dst, "\",\"response\":{"...)
		dst = r.responseBody(dst, u, text)
		return append(dst, "}}\n\n"...)
	}
	if r.IncludeUsage {
		dst = r.chunk(dst)
		dst = append(dst, `"choices":[],"usage":`...)
		dst = openAIUsage(dst, u)
		dst = append(dst, "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// Whole appends the JSON body of a reply that is not streamed. For embeddings
// texts are ignored and vectors holds one vector for each prompt.
func (r *Reply) Whole(dst []byte, u Usage, texts [][]byte, vectors [][]float32) []byte {
	switch r.Endpoint {
	case Messages:
		dst = append(dst, '{')
		dst = r.messageHead(dst)
		dst = append(dst, `"content":[{"type":"text","text":"`...)
		dst = append(dst, texts[0]...)
		dst = append(dst, `"}],"stop_reason":"`...)
		dst = append(dst, r.anthropicReason()...)
		dst = append(dst, `","stop_sequence":null,"usage":`...)
		return append(anthropicUsage(dst, u), '}')
	case Responses:
		dst = append(dst, '{')
		dst = r.responseBody(dst, u, texts[0])
		return append(dst, '}')
	case Embeddings:
		return r.embeddings(dst, u, vectors)
	}
	dst = append(dst, '{')
	dst = r.openAIHead(dst, "")
	dst = append(dst, `"choices":[`...)
	for i, t := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		if r.Endpoint == Chat {
			dst = append(dst, `,"message":{"role":"assistant","content":"`...)
			dst = append(dst, t...)
			dst = append(dst, `","refusal":null,"tool_calls":[]},"logprobs":null,"finish_reason":"`...)
		} else {
			dst = append(dst, `,"text":"`...)
			dst = append(dst, t...)
			dst = append(dst, `","logprobs":null,"finish_reason":"`...)
		}
		dst = append(dst, r.reason()...)
		dst = append(dst, `","stop_reason":null}`...)
	}
	dst = append(dst, `],"usage":`...)
	return append(openAIUsage(dst, u), '}')
}

func (r *Reply) embeddings(dst []byte, u Usage, vectors [][]float32) []byte {
	dst = append(dst, `{"id":"embd-`...)
	dst = append(dst, r.ID...)
	dst = append(dst, `","object":"list","created":`...)
	dst = strconv.AppendInt(dst, r.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = append(dst, r.quotedModel()...)
	dst = append(dst, `,"data":[`...)
	for i, v := range vectors {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"object":"embedding","index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, `,"embedding":[`...)
		for j, x := range v {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendFloat(dst, float64(x), 'g', 6, 32)
		}
		dst = append(dst, "]}"...)
	}
	dst = append(dst, `],"system_fingerprint":`...)
	dst = appendQuoted(dst, r.Worker)
	dst = append(dst, `,"usage":`...)
	return append(openAIUsage(dst, u), '}')
}

func (r *Reply) chunk(dst []byte) []byte {
	dst = append(dst, "data: {"...)
	return r.openAIHead(dst, ".chunk")
}

func (r *Reply) openAIHead(dst []byte, suffix string) []byte {
	if r.Endpoint == Chat {
		dst = append(dst, `"id":"chatcmpl-`...)
		dst = append(dst, r.ID...)
		dst = append(dst, `","object":"chat.completion`...)
		dst = append(dst, suffix...)
	} else {
		dst = append(dst, `"id":"cmpl-`...)
		dst = append(dst, r.ID...)
		dst = append(dst, `","object":"text_completion`...)
	}
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, r.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = append(dst, r.quotedModel()...)
	dst = append(dst, `,"system_fingerprint":`...)
	dst = appendQuoted(dst, r.Worker)
	return append(dst, ',')
}

func (r *Reply) messageHead(dst []byte) []byte {
	dst = append(dst, `"id":"msg_`...)
	dst = append(dst, r.ID...)
	dst = append(dst, `","type":"message","role":"assistant","system_fingerprint":`...)
	dst = appendQuoted(dst, r.Worker)
	dst = append(dst, `,"model":`...)
	dst = append(dst, r.quotedModel()...)
	return append(dst, ',')
}

func (r *Reply) responseHead(dst []byte, status string) []byte {
	dst = append(dst, `"id":"resp_`...)
	dst = append(dst, r.ID...)
	dst = append(dst, `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, r.Created, 10)
	dst = append(dst, `,"status":"`...)
	dst = append(dst, status...)
	dst = append(dst, `","system_fingerprint":`...)
	dst = appendQuoted(dst, r.Worker)
	dst = append(dst, `,"model":`...)
	dst = append(dst, r.quotedModel()...)
	return append(dst, ',')
}

func (r *Reply) responseBody(dst []byte, u Usage, text []byte) []byte {
	dst = r.responseHead(dst, r.status())
	if r.Length {
		dst = append(dst, `"incomplete_details":{"reason":"max_output_tokens"},`...)
	}
	dst = append(dst, `"output":[{"id":"msg_`...)
	dst = append(dst, r.ID...)
	dst = append(dst, `","type":"message","role":"assistant","status":"`...)
	dst = append(dst, r.status()...)
	dst = append(dst, `","content":[{"type":"output_text","text":"`...)
	dst = append(dst, text...)
	dst = append(dst, `","annotations":[]}]}],"usage":{"input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"input_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	dst = append(dst, `},"output_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.OutputTokens), 10)
	dst = append(dst, `,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.OutputTokens), 10)
	return append(dst, '}')
}

func (r *Reply) status() string {
	if r.Length {
		return "incomplete"
	}
	return "completed"
}

func (r *Reply) reason() string {
	if r.Length {
		return "length"
	}
	return "stop"
}

func (r *Reply) anthropicReason() string {
	if r.Length {
		return "max_tokens"
	}
	return "end_turn"
}

func openAIUsage(dst []byte, u Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens+u.OutputTokens), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.OutputTokens), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	return append(dst, "}}"...)
}

// anthropicUsage: input_tokens there are only those not read from the cache.
func anthropicUsage(dst []byte, u Usage) []byte {
	dst = append(dst, `{"input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.PromptTokens-u.CachedTokens), 10)
	dst = append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.CachedTokens), 10)
	dst = append(dst, `,"output_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.OutputTokens), 10)
	return append(dst, '}')
}

// AppendError appends an error body in the endpoint's dialect.
func AppendError(dst []byte, endpoint Endpoint, e *Error) []byte {
	if endpoint == Messages {
		kind := "invalid_request_error"
		if e.Status >= 500 {
			kind = "overloaded_error"
		} else if e.Status == 429 {
			kind = "rate_limit_error"
		}
		dst = append(dst, `{"type":"error","error":{"type":"`...)
		dst = append(dst, kind...)
		dst = append(dst, `","message":`...)
		dst = appendQuoted(dst, e.Message)
		return append(dst, "}}"...)
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = appendQuoted(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendQuoted(dst, e.Type)
	dst = append(dst, `,"param":null,"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Status), 10)
	return append(dst, "}}"...)
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
