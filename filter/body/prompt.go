package body

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// prompt renders what the endpoint's engine reads, first things first: tools,
// then text that stands before the turns, then the turns.
func (r *renderer) prompt() {
	req := r.req
	if !req.hasPrompt() {
		r.out.Reason = NoPromptField
		return
	}
	switch req.Endpoint {
	case ChatCompletions:
		r.head()
		r.messages(req.spans[fieldMessages].start)
	case Messages:
		r.head()
		r.system(fieldSystem)
		r.messages(req.spans[fieldMessages].start)
	case Responses:
		r.head()
		r.named(fieldPrompt, "prompt")
		r.named(fieldPreviousResponse, "previous_response_id")
		r.system(fieldInstructions)
		r.input(req.spans[fieldInput].start)
	case Completions:
		r.raw(req.spans[fieldPrompt].start)
	case Embeddings:
		if req.present(fieldInput) {
			r.raw(req.spans[fieldInput].start)
		} else {
			r.messages(req.spans[fieldMessages].start)
		}
	}
}

// head renders tools and documents.
func (r *renderer) head() {
	for _, f := range [...]field{fieldTools, fieldFunctions} {
		at := r.req.spans[f].start
		if at == 0 || r.req.body[at] != '[' || r.req.body[jsontext.SkipSpace(r.req.body, at+1)] == ']' {
			continue
		}
		r.put(markTurn)
		r.put(markCall)
		r.put(markBody)
		r.compact(at, 2)
		r.end()
	}
	r.named(fieldDocuments, "documents")
}

// named renders another field that engines put before the turns.
func (r *renderer) named(f field, name string) {
	if !r.req.present(f) {
		return
	}
	r.put(markTurn)
	r.put(markPart)
	r.ours(name)
	r.put(markBody)
	r.compact(r.req.spans[f].start, 0)
	r.end()
}

// ours writes a label of ours.
func (r *renderer) ours(s string) {
	r.write(r.batch[:copy(r.batch[:], s)])
}

// system renders a top-level system text as the system message it becomes.
func (r *renderer) system(f field) {
	if !r.req.present(f) {
		return
	}
	r.turn()
	r.ours("system")
	r.put(markBody)
	r.content(r.req.spans[f].start, false)
	r.end()
}

// messages renders a list of chat turns.
func (r *renderer) messages(at int) {
	if r.req.body[at] != '[' {
		r.out.Reason = BadPromptType
		return
	}
	for i := at + 1; ; {
		m, ok := r.Element(i)
		if !ok || r.begin && r.muted {
			return
		}
		if r.req.body[m] != '{' {
			r.out.Reason = BadPromptType
			return
		}
		i = r.message(m)
	}
}

// input renders the input of /v1/responses: a string is one user message.
func (r *renderer) input(at int) {
	switch r.req.body[at] {
	case '"':
		r.turn()
		r.ours("user")
		r.put(markBody)
		r.str(at)
		r.end()
	case '[':
		r.messages(at)
	default:
		r.out.Reason = BadPromptType
	}
}

// raw renders the four forms of a prompt without turns: a string, a list of
// strings, token ids, a list of lists of token ids. Of a list the first makes
// the key, all of them make the load.
func (r *renderer) raw(at int) {
	b := r.req.body
	if b[at] == '"' {
		r.str(at)
		r.end()
		return
	}
	if b[at] != '[' {
		r.out.Reason = BadPromptType
		return
	}
	first, ok := r.Element(at + 1)
	if !ok {
		return // nothing in it
	}
	kind := b[first]
	if kind != '"' && kind != '[' {
		r.tokens(at)
		return
	}
	r.out.Prompts = 0
	for i := at + 1; r.out.Reason == OK; {
		e, ok := r.Element(i)
		if !ok {
			break
		}
		if b[e] != kind {
			r.out.Reason = BadPromptType
			break
		}
		r.out.Prompts++
		if kind == '"' {
			i = r.str(e)
			r.end()
		} else {
			i = r.tokens(e)
		}
		r.muted = true
	}
}

// tokens renders a list of token ids and returns the index after it.
func (r *renderer) tokens(at int) int {
	b := r.req.body
	batch, n, count := &r.batch, 0, 0
	key := !r.muted
	r.out.TokenForm = true
	r.put(markTokens)
	i := at + 1
	for {
		for b[i] <= ' ' || b[i] == ',' {
			i++
		}
		if b[i] == ']' {
			i++
			break
		}
		var id uint64
		from := i
		for b[i]-'0' <= 9 && id < 1<<32 {
			id = id*10 + uint64(b[i]-'0')
			i++
		}
		if i == from || id >= 1<<32 || b[i] != ',' && b[i] != ']' && b[i] > ' ' {
			r.out.Reason = BadPromptType // not a whole number of 32 bits
			return i
		}
		count++
		binary.LittleEndian.PutUint32(batch[n:], uint32(id))
		if n += 4; n == len(batch) {
			r.write(batch[:])
			n = 0
		}
	}
	r.out.PromptTokens += count
	r.hasText = r.hasText || count > 0 && key
	r.write(batch[:n])
	r.end()
	return i
}
