package hosttest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// Request is what a client sends, and what an upstream is handed.
type Request struct {
	Method  string             // GET; POST if there is a body
	Path    string             // "/"
	Host    string             // "example.com"
	Headers *hostsim.HeaderMap // further fields; in a handler: all of them
	Body    string
	Chunks  []string // the body in pieces, instead of Body
	// Trailers end the request, if there are any.
	Trailers *hostsim.HeaderMap
}

// Header makes a HeaderMap of name, value, name, value...
func Header(namesAndValues ...string) *hostsim.HeaderMap {
	return hostsim.NewHeaderMap(namesAndValues...)
}

// Response is what an upstream answers.
type Response struct {
	Status   int // 200
	Headers  *hostsim.HeaderMap
	Body     string
	Chunks   []string // the body in pieces, instead of Body
	Trailers *hostsim.HeaderMap
	// From is the property upstream.address, "10.0.0.1:8080" if not set.
	From string
	// Reset breaks the connection instead, before headers if there is no Status,
	// else after what is given: "connection termination", "remote reset",
	// "remote connection failure".
	Reset string
	// Hold leaves the request unanswered; Exchange.Answer gives the answer later.
	Hold bool
	// Before runs between the request and the response.
	Before func(info *hostsim.StreamInfo)
}

// Exchange is one request and what came of it.
type Exchange struct {
	// Stream and Out are the stream and what has left the filter, for what this
	// package has no word for.
	Stream *hostsim.Stream
	Out    *hostsim.Recorder

	f        *Filter
	vm       string
	from     int // its first line in the transcript
	answered bool
}

// Get sends a request without a body to the first worker; headers are name,
// value, name, value...
func (f *Filter) Get(path string, headers ...string) *Exchange {
	f.t.Helper()
	return f.Do(Request{Path: path, Headers: Header(headers...)})
}

// Post sends a request with a body, in one piece.
func (f *Filter) Post(path, body string, headers ...string) *Exchange {
	f.t.Helper()
	return f.Do(Request{Method: "POST", Path: path, Headers: Header(headers...), Body: body})
}

// Do sends a request to the first worker and lets the upstream answer it.
func (f *Filter) Do(r Request) *Exchange {
	f.t.Helper()
	return f.On(0).Do(r)
}

// Open begins a request to the first worker: headers only. Send, End and Trailers
// go on.
func (f *Filter) Open(r Request) *Exchange {
	f.t.Helper()
	return f.On(0).Open(r)
}

// Worker is one of the filter's VMs.
type Worker struct {
	f *Filter
	n int
}

// On is worker n, from 0.
func (f *Filter) On(n int) Worker {
	f.t.Helper()
	if f.Fleet == nil || n < 0 || n >= len(f.Fleet.Workers) {
		f.t.Fatalf("hosttest: there is no worker %d (hosttest.Workers says how many)", n)
	}
	return Worker{f, n}
}

// Do sends a request and lets the upstream answer it.
func (w Worker) Do(r Request) *Exchange {
	w.f.t.Helper()
	x := w.send(r)
	w.f.settle()
	return x
}

// send feeds a whole request.
func (w Worker) send(r Request) *Exchange {
	x := w.open(r, len(r.Chunks) == 0 && r.Body == "" && r.Trailers == nil)
	chunks := r.Chunks
	if r.Body != "" {
		chunks = append(chunks, r.Body)
	}
	for i, c := range chunks {
		x.send(c, i == len(chunks)-1 && r.Trailers == nil)
	}
	if r.Trailers != nil {
		x.trailers(r.Trailers)
	}
	return x
}

// Open begins a request: headers only.
func (w Worker) Open(r Request) *Exchange {
	w.f.t.Helper()
	x := w.open(r, false)
	w.f.settle()
	return x
}

func (w Worker) open(r Request, end bool) *Exchange {
	f := w.f
	x := &Exchange{f: f, from: len(f.lines), vm: f.Fleet.Workers[w.n].Name()}
	x.Out = &hostsim.Recorder{Line: func(line string) { f.say(x.vm, line) }}
	x.Stream = f.Fleet.Plugins[w.n][0].NewStream(x.Out)
	x.Stream.Info = hostsim.StreamInfo{
		Protocol: "HTTP/1.1", StartTime: f.Host.Now(), SourceAddress: "192.0.2.1:40000", DestinationAddress: "192.0.2.2:80",
		RouteName: "default", ClusterName: "upstream", ConnectionID: 1,
	}
	f.exchanges = append(slices.DeleteFunc(slices.Clone(f.exchanges), func(x *Exchange) bool { return x.Stream.Done() }), x)
	method := r.Method
	if method == "" {
		method = "GET"
		if r.Body != "" || len(r.Chunks) > 0 {
			method = "POST"
		}
	}
	h := Header(":method", method, ":scheme", "http", ":authority", or(r.Host, "example.com"), ":path", or(r.Path, "/"))
	for _, field := range r.Headers.Fields() {
		if strings.HasPrefix(field.Key, ":") {
			h.Set(field.Key, field.Value)
		} else {
			h.Add(field.Key, field.Value)
		}
	}
	f.say(x.vm, "client sends headers "+describe(h)+ending(end))
	x.Stream.RequestHeaders(h, end)
	return x
}

// Send adds a piece to the request's body.
func (x *Exchange) Send(body string) *Exchange {
	x.f.t.Helper()
	x.send(body, false)
	x.f.settle()
	return x
}

// End ends the request, with a last piece of body or with "".
func (x *Exchange) End(body string) *Exchange {
	x.f.t.Helper()
	x.send(body, true)
	x.f.settle()
	return x
}

func (x *Exchange) send(body string, end bool) {
	x.f.say(x.vm, "client sends body "+quote(body)+ending(end))
	x.Stream.RequestData([]byte(body), end)
}

// Trailers end the request.
func (x *Exchange) Trailers(trailers *hostsim.HeaderMap) *Exchange {
	x.trailers(trailers)
	x.f.settle()
	return x
}

func (x *Exchange) trailers(trailers *hostsim.HeaderMap) {
	x.f.say(x.vm, "client sends trailers "+describe(trailers))
	x.Stream.RequestTrailers(trailers)
}

// Abort is the client going away.
func (x *Exchange) Abort() *Exchange {
	x.f.say(x.vm, "client goes away")
	x.Stream.Close()
	x.f.settle()
	return x
}

// Answer gives the answer that Response.Hold left open, or one that does not wait
// for the request's end.
func (x *Exchange) Answer(r Response) *Exchange {
	x.answered = true
	x.answer(r)
	x.f.settle()
	return x
}

// advance lets the upstream answer if the whole request has reached it.
func (x *Exchange) advance() bool {
	if x.answered || x.Stream.Done() || !x.Out.RequestEnded {
		return false
	}
	x.answered = true
	h := x.Out.Request
	x.answer(x.f.set.upstream(Request{
		Method: h.Value(":method"), Path: h.Value(":path"), Host: h.Value(":authority"), Headers: h, Body: string(x.Out.RequestBody),
	}))
	return true
}

func (x *Exchange) answer(r Response) {
	if r.Hold {
		return
	}
	s := x.Stream
	s.Info.UpstreamAddress = or(r.From, "10.0.0.1:8080")
	s.Info.UpstreamRequestAttemptCount = 1
	s.Info.BackendLatency = time.Millisecond
	if r.Before != nil {
		r.Before(&s.Info)
	}
	if r.Reset != "" && r.Status == 0 {
		x.f.say(x.vm, "upstream breaks off: "+r.Reset)
		s.UpstreamReset(r.Reset)
		return
	}
	status := r.Status
	if status == 0 {
		status = 200
	}
	h := Header(":status", fmt.Sprint(status))
	for _, field := range r.Headers.Fields() {
		h.Add(field.Key, field.Value)
	}
	chunks := r.Chunks
	if r.Body != "" {
		chunks = append(chunks, r.Body)
	}
	last := r.Trailers == nil && r.Reset == ""
	x.f.say(x.vm, "upstream answers headers "+describe(h)+ending(last && len(chunks) == 0))
	s.ResponseHeaders(h, last && len(chunks) == 0)
	for i, c := range chunks {
		end := last && i == len(chunks)-1
		x.f.say(x.vm, "upstream answers body "+quote(c)+ending(end))
		s.ResponseData([]byte(c), end)
	}
	switch {
	case r.Reset != "":
		x.f.say(x.vm, "upstream breaks off: "+r.Reset)
		s.UpstreamReset(r.Reset)
	case r.Trailers != nil:
		x.f.say(x.vm, "upstream answers trailers "+describe(r.Trailers))
		s.ResponseTrailers(r.Trailers)
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func describe(h *hostsim.HeaderMap) string {
	var b strings.Builder
	for i, f := range h.Fields() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.Key + ": " + f.Value)
	}
	return "{" + b.String() + "}"
}

func quote(s string) string {
	if len(s) > 64 {
		return fmt.Sprintf("of %d bytes", len(s))
	}
	return fmt.Sprintf("%q", s)
}

func ending(end bool) string {
	if end {
		return ", end"
	}
	return ""
}
