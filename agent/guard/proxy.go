package guard

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/filter/body"
)

// RefusedHeader says that a request was turned away, and why, before the engine saw
// anything of it.
const RefusedHeader = "x-warmpath-refused"

// skipTimeout is for the rest of a body that nobody needs: a client that has sent it
// keeps its connection, one that hasn't is not waited for.
const skipTimeout = 50 * time.Millisecond

// maxSkip is how much of a body net/http skips to keep a connection.
const maxSkip = 256 << 10

var (
	errSilent   = errors.New("the engine fell silent in mid-answer")
	errBrokeOff = errors.New("the engine broke off in mid-answer")
)

// visit is one request on its way through.
type visit struct {
	ticket   ticket
	work     bool // for the engine: it was at the gate
	endpoint body.Endpoint
	client   context.Context // ends when the client leaves
	attempt  context.Context // ends the request to the engine too
	cancel   context.CancelCauseFunc
	body     io.Reader // as it comes from the client
	skipped  bool      // up to its end
	ahead    *ahead    // of a request that waited
	outcome  outcome
}

type visitKey struct{}

func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

// ServeHTTP passes r to the engine when the gate lets it in.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{client: r.Context(), body: r.Body}
	v.attempt, v.cancel = context.WithCancelCause(r.Context())
	defer v.cancel(nil)
	r = r.WithContext(context.WithValue(v.attempt, visitKey{}, v))
	// Otherwise an HTTP/1.1 answer that begins before the engine has all of the body
	// ends the reading of the rest, and with that the request.
	_ = http.NewResponseController(w).EnableFullDuplex()
	v.endpoint, _ = body.Match(r.URL.EscapedPath())
	v.work = r.Method == http.MethodPost && v.endpoint.HasBody()
	if !v.work {
		g.proxy.ServeHTTP(w, r)
		return
	}
	defer g.leave(v)
	why, stays := g.enter(w, r, v)
	if v.ahead != nil {
		r.Body = v.ahead
		defer func() { v.end(w, r, stays, recover()) }()
	}
	switch {
	case !stays:
	case why != none:
		g.refuse(w, r, v, why)
	default:
		g.proxy.ServeHTTP(w, r)
	}
}

// enter brings a request to the gate, and says why it was refused, or that its
// client hasn't stayed to hear.
func (g *Guard) enter(w http.ResponseWriter, r *http.Request, v *visit) (why Reason, stays bool) {
	t := &v.ticket
	t.class, t.tenant = g.identify(r.Header)
	t.tokens, t.bytes = weigh(r)
	now := time.Now()
	g.mu.Lock()
	why = g.gate.enter(t, now)
	waits := t.phase == waiting
	if waits {
		g.pump(now)
	}
	g.mu.Unlock()
	if waits {
		return g.wait(w, r, v)
	}
	return why, true
}

// wait holds a request until it is let in or refused, or its client leaves.
func (g *Guard) wait(w http.ResponseWriter, r *http.Request, v *visit) (why Reason, stays bool) {
	t := &v.ticket
	select {
	case why = <-t.told:
		return why, true
	default:
	}
	defer func() { g.metrics.waited(t.class, time.Since(t.arrived)) }()
	v.ahead = readAhead(w, r, t.bytes)
	timer := time.NewTimer(g.cfg.Limits.QueueWait[t.class])
	defer timer.Stop()
	select {
	case why = <-t.told:
		return why, true
	case <-timer.C:
		if g.giveUp(t) {
			return queueTimeout, true
		}
		return <-t.told, true // in the last moment
	case <-v.client.Done():
	case <-v.ahead.broken:
	}
	return none, false
}

func (g *Guard) giveUp(t *ticket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ok := g.gate.giveUp(t)
	g.pump(time.Now())
	return ok
}

// end stops the reading of a body. An HTTP/1.1 connection on which the rest of one is still to
// come ends with it: net/http would look for the next request there.
func (v *visit) end(w http.ResponseWriter, r *http.Request, stays bool, panicked any) {
	v.ahead.stop()
	switch {
	case panicked != nil:
		panic(panicked)
	case r.ProtoMajor == 1 && !v.skipped && v.ahead.cut():
		if stays {
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// skip reads the rest of a refused request's body. net/http does so after the handler, but if it
// finds the end there, its watch over the connection begins too late for it to be stopped, and
// meets the next request in a panic.
func (v *visit) skip(w http.ResponseWriter) {
	conn := http.NewResponseController(w)
	_ = conn.Flush()
	_ = conn.SetReadDeadline(time.Now().Add(skipTimeout))
	if _, err := io.Copy(io.Discard, v.body); err != nil {
		panic(http.ErrAbortHandler)
	}
	v.skipped = true
}

// leave is the one end of every request that was at the gate.
func (g *Guard) leave(v *visit) {
	g.mu.Lock()
	g.gate.leave(&v.ticket)
	g.pump(time.Now())
	g.mu.Unlock()
	g.metrics.ended(v.ticket.class, v.outcome)
}

// refuse answers in the dialect of the endpoint.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, v *visit, why Reason) {
	v.outcome = refused
	if v.work {
		g.metrics.refuse(v.ticket.class, why)
	}
	if v.ahead != nil {
		v.ahead.stop()
	}
	status, kind, code := why.status(), "server_error", "overloaded"
	if status == http.StatusTooManyRequests {
		kind, code = "rate_limit_error", "rate_limit_exceeded"
	}
	text := `{"error":{"message":"` + reasonMessages[why] + `","type":"` + kind + `","param":null,"code":"` + code + `"}}`
	if v.endpoint.Anthropic() {
		if status != http.StatusTooManyRequests {
			kind = "overloaded_error"
		}
		text = `{"type":"error","error":{"type":"` + kind + `","message":"` + reasonMessages[why] + `"}}`
	}
	rest := r.ProtoMajor == 1 && r.ContentLength != 0 && (v.ahead == nil || !v.ahead.ended())
	skips := rest && 0 < r.ContentLength && r.ContentLength <= maxSkip
	h := w.Header()
	h.Set("Content-Type", "application/json")
	// Not all at once again.
	h.Set("Retry-After", strconv.Itoa(1+int(v.ticket.retryAfter/time.Second)+rand.IntN(3)))
	h.Set(RefusedHeader, why.String())
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if why == draining || rest && !skips {
		h.Set("Connection", "close")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
	switch {
	case skips:
		v.skip(w)
	case rest:
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(skipTimeout))
	}
}

// rewrite sends the request on as it came: ReverseProxy takes out what is for one
// hop alone, and what it takes out beyond that is put back.
func (g *Guard) rewrite(pr *httputil.ProxyRequest) {
	out, in := pr.Out, pr.In
	out.URL.Scheme, out.URL.Host, out.URL.RawQuery = g.engine.Scheme, g.engine.Host, in.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := in.Header[name]; ok {
			out.Header[name] = values
		}
	}
	if _, ok := in.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // or net/http names itself
	}
	if in.URL.Path == g.cfg.MetricsPath {
		// As text, which can be appended to.
		out.Header.Del("Accept")
		out.Header.Del("Accept-Encoding")
	}
}

// modifyResponse is called with the engine's response headers.
func (g *Guard) modifyResponse(resp *http.Response) error {
	v := visitOf(resp.Request)
	if !v.work {
		if resp.Request.URL.Path == g.cfg.MetricsPath && resp.StatusCode == http.StatusOK {
			g.appendMetrics(resp)
		}
		return nil
	}
	if g.Draining() {
		resp.Header.Set("Connection", "close")
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	resp.Body = &answer{g: g, v: v, src: resp.Body, ok: resp.StatusCode == http.StatusOK, stream: kind == "text/event-stream"}
	return nil
}

// failed is called when the engine gave no answer.
func (g *Guard) failed(w http.ResponseWriter, r *http.Request, err error) {
	v := visitOf(r)
	var op *net.OpError
	if v.client.Err() == nil && errors.As(err, &op) && op.Op == "dial" {
		g.refuse(w, r, v, engineDown)
		return
	}
	if v.client.Err() == nil {
		v.outcome = broken
		g.cfg.Logger.Warn("the engine broke off before its answer", "err", err)
	}
	// A reset for a reset: the gateway sends the request to its second choice, and
	// remembers a prompt at which engines break.
	panic(http.ErrAbortHandler)
}

// answer is the engine's body on its way to the client.
type answer struct {
	g      *Guard
	v      *visit
	src    io.ReadCloser
	ok     bool // no error
	stream bool
	begun  bool
	timer  *time.Timer // for the next piece
	words  []byte      // of ours, behind what came of a stream that broke
	err    error
}

func (a *answer) Read(p []byte) (int, error) {
	if a.err != nil {
		n := copy(p, a.words)
		if a.words = a.words[n:]; n > 0 {
			return n, nil
		}
		return 0, a.err
	}
	if a.timer != nil {
		a.timer.Reset(a.g.cfg.TokenTimeout)
	}
	n, err := a.src.Read(p)
	if a.timer != nil {
		a.timer.Stop()
	}
	if n > 0 && !a.begun {
		a.begin()
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		a.v.outcome, a.v.ticket.served = served, a.ok
	default:
		a.brokeOff(err)
		return n, nil // the words, and then the error
	}
	return n, err
}

func (a *answer) begin() {
	a.begun = true
	a.g.mu.Lock()
	a.g.gate.answers(&a.v.ticket, a.stream, time.Now())
	a.g.pump(time.Now())
	a.g.mu.Unlock()
	a.timer = time.AfterFunc(a.g.cfg.TokenTimeout, func() { a.v.cancel(errSilent) })
	a.timer.Stop()
}

// brokeOff ends an answer that has begun: a stream with an error event, and every
// answer without the end that a whole one has.
func (a *answer) brokeOff(err error) {
	a.err = err
	why := context.Cause(a.v.client)
	switch {
	case why == nil && a.v.attempt.Err() != nil:
		why = errSilent
	case why == nil:
		why = errBrokeOff
	case !errors.Is(why, errEnding):
		return // nobody listens
	}
	a.v.outcome = broken
	a.g.cfg.Logger.Warn("an answer was cut", "why", why, "err", err)
	if a.stream {
		a.words = lastWords(why, a.v.endpoint.Anthropic())
	}
}

func lastWords(why error, anthropic bool) []byte {
	text := "The answer is incomplete: " + why.Error() + "."
	if anthropic {
		return []byte("\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"" + text + "\"}}\n\n")
	}
	return []byte("\n\ndata: {\"error\":{\"message\":\"" + text + "\",\"type\":\"server_error\",\"param\":null,\"code\":\"incomplete\"}}\n\n")
}

// Close ends the attempt.
func (a *answer) Close() error {
	if a.timer != nil {
		a.timer.Stop()
	}
	return a.src.Close()
}
