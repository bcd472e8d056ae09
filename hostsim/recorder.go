package hostsim

import (
	"fmt"
	"strings"
)

// Recorder is a Sink that writes down what leaves the filter, one line per
// piece, for tests and transcripts.
type Recorder struct {
	// Prefix starts every line (the stream's name).
	Prefix string
	// Line receives each line as it comes; may be nil.
	Line func(string)

	Lines           []string
	Request         *HeaderMap // request headers as they went on; nil before
	RequestBody     []byte
	RequestTrailer  *HeaderMap // nil without trailers
	RequestEnded    bool
	Response        *HeaderMap // response headers, also of a local reply
	ResponseBody    []byte
	ResponseTrailer *HeaderMap
	ResponseEnd     bool
	Replied         *LocalReply
	ResetDetails    string // non-empty after Reset
}

func (r *Recorder) say(format string, args ...any) {
	line := r.Prefix + fmt.Sprintf(format, args...)
	r.Lines = append(r.Lines, line)
	if r.Line != nil {
		r.Line(line)
	}
}

// RequestHeaders implements Sink.
func (r *Recorder) RequestHeaders(h *HeaderMap, end bool) {
	r.Request, r.RequestEnded = h.Clone(), end
	r.say("-> upstream headers %s%s", headerText(h), endText(end))
}

// RequestData implements Sink.
func (r *Recorder) RequestData(data []byte, end bool) {
	r.RequestBody = append(r.RequestBody, data...)
	r.RequestEnded = end
	r.say("-> upstream data %s%s", dataText(data), endText(end))
}

// RequestTrailers implements Sink.
func (r *Recorder) RequestTrailers(h *HeaderMap) {
	r.RequestTrailer, r.RequestEnded = h.Clone(), true
	r.say("-> upstream trailers %s", headerText(h))
}

// ResponseHeaders implements Sink.
func (r *Recorder) ResponseHeaders(h *HeaderMap, end bool) {
	r.Response, r.ResponseEnd = h.Clone(), end
	r.say("<- client headers %s%s", headerText(h), endText(end))
}

// ResponseData implements Sink.
func (r *Recorder) ResponseData(data []byte, end bool) {
	r.ResponseBody = append(r.ResponseBody, data...)
	r.ResponseEnd = end
	r.say("<- client data %s%s", dataText(data), endText(end))
}

// ResponseTrailers implements Sink.
func (r *Recorder) ResponseTrailers(h *HeaderMap) {
	r.ResponseTrailer, r.ResponseEnd = h.Clone(), true
	r.say("<- client trailers %s", headerText(h))
}

// LocalReply implements Sink.
func (r *Recorder) LocalReply(reply LocalReply) {
	r.Replied, r.Response, r.ResponseBody, r.ResponseEnd = &reply, reply.Headers, reply.Body, true
	r.say("<- client local reply %s %s (%s)", headerText(reply.Headers), dataText(reply.Body), reply.Details)
}

// Reset implements Sink.
func (r *Recorder) Reset(details string) {
	r.ResetDetails = details
	r.say("<> cut (%s)", details)
}

func headerText(h *HeaderMap) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range h.Fields() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.Key + ": " + f.Value)
	}
	b.WriteByte('}')
	return b.String()
}

func dataText(data []byte) string {
	if len(data) > 64 {
		return fmt.Sprintf("%d bytes", len(data))
	}
	return fmt.Sprintf("%q", data)
}

func endText(end bool) string {
	if end {
		return " end"
	}
	return ""
}
