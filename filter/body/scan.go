package body

import "github.com/warmpath/warmpath/shared/jsontext"

// Scan reads the request in b as one of endpoint ep into req, whose earlier
// content is lost. b must stay as it is until Render has been called.
//
// The whole of b is checked (RFC 8259, at most MaxDepth levels; like
// encoding/json, bytes in strings need not be UTF-8). If that fails no field
// of req is set: half a body gives no half answer. With NoPromptField the small
// fields are set and there is nothing to render.
func Scan(b []byte, ep Endpoint, req *Request) Reason {
	req.reset(b, ep)
	if reason := req.scan(); reason != OK {
		req.reset(nil, ep)
		return reason
	}
	req.readSmall()
	if !req.hasPrompt() {
		return NoPromptField
	}
	return OK
}

// hasPrompt tells whether the endpoint's prompt field is there.
func (req *Request) hasPrompt() bool {
	switch req.Endpoint {
	case ChatCompletions, Messages:
		return req.present(fieldMessages)
	case Completions:
		return req.present(fieldPrompt)
	case Responses:
		return req.present(fieldInput)
	case Embeddings:
		return req.present(fieldInput) || req.present(fieldMessages)
	}
	return false
}

func (req *Request) scan() Reason {
	switch req.doc.Scan(req.body) {
	case jsontext.None:
	case jsontext.TooDeep:
		return TooDeep
	case jsontext.NotObject:
		return NotObject
	case jsontext.TooLong:
		return OverCap
	default:
		return BadJSON
	}
	for t := req.doc.Tops(); t.Next(); {
		req.spans[fieldOf(t.Name)] = span{t.Value, t.End}
	}
	return OK
}

// Doc returns the scanned body, for readers of fields that Request doesn't show.
func (req *Request) Doc() *jsontext.Doc { return &req.doc }
