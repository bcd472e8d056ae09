package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

var chunkPool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// headerMap turns net/http's request into the module's view. What only we may
// set is dropped first, so that no client can speak for the module.
func headerMap(r *http.Request) *hostsim.HeaderMap {
	h := hostsim.NewHeaderMap(":method", r.Method, ":path", r.URL.RequestURI(), ":authority", r.Host, ":scheme", scheme(r))
	for key, values := range r.Header {
		key = strings.ToLower(key)
		if key == endpointHeader || key == maxRetriesHeader || strings.HasPrefix(key, ourPrefix) && key != excludeHeader {
			continue
		}
		addField(h, key, values)
	}
	if r.ContentLength > 0 {
		h.Set("content-length", itoa(r.ContentLength))
	}
	return h
}

func addField(h *hostsim.HeaderMap, key string, values []string) {
	for _, v := range values {
		h.Add(key, v)
	}
}

// addFields adds all of net/http's fields.
func addFields(h *hostsim.HeaderMap, fields http.Header) *hostsim.HeaderMap {
	for key, values := range fields {
		addField(h, key, values)
	}
	return h
}

func scheme(r *http.Request) string { return pick(r.TLS != nil, "https", "http") }

// admit feeds the request to the module until it lets the headers go, answers by
// itself, or the client leaves. It reports whether the request goes upstream.
func (x *exchange) admit() bool {
	noBody := x.r.ContentLength == 0
	x.vm.Do(func() { x.stream.RequestHeaders(headerMap(x.r), noBody) })
	if !noBody && !x.readHeldBody() {
		return false
	}
	timer := time.NewTimer(x.g.cfg.HeldTimeout)
	defer timer.Stop()
	for {
		x.mu.Lock()
		headers, end, reply, reset := x.reqHeaders, x.reqEnd, x.reply, x.reset
		x.mu.Unlock()
		switch {
		case reply != nil || reset != "":
			x.finish()
			return false
		case headers != nil:
			x.released(headers, end)
			return true
		}
		select {
		case <-x.wake:
		case <-x.r.Context().Done():
			if !x.timedOut() {
				x.log.details = "client_left_while_held"
				panic(http.ErrAbortHandler)
			}
			x.refuse(http.StatusGatewayTimeout, "the request took too long\n", "request_timeout")
			x.finish()
			return false
		case <-timer.C:
			x.refuse(http.StatusGatewayTimeout, "held too long\n", "held_timeout")
			timer.Reset(time.Second)
		}
	}
}

// readHeldBody feeds body pieces for as long as the module holds the headers.
// It reports false when the body cannot be read to its end: the client broke
// off, fell silent or framed it wrongly. Who is still there is told so.
func (x *exchange) readHeldBody() bool {
	buf := chunkPool.Get().(*[]byte)
	defer chunkPool.Put(buf)
	conn := http.NewResponseController(x.w)
	// What comes after the body (the next request, a client that leaves) is
	// waited for without a limit.
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	for {
		x.mu.Lock()
		going := x.reqHeaders != nil || x.reply != nil || x.reset != ""
		x.mu.Unlock()
		if going {
			return true
		}
		_ = conn.SetReadDeadline(x.silenceEnds())
		n, err := x.r.Body.Read(*buf)
		if n > 0 || err == io.EOF {
			x.vm.Do(func() { x.stream.RequestData((*buf)[:n], err == io.EOF) })
		}
		if err == io.EOF {
			return true
		}
		if err != nil {
			x.badBody(err)
			return false
		}
	}
}

// silenceEnds is when a client that sends no more of a held body is given up.
func (x *exchange) silenceEnds() time.Time {
	end := time.Now().Add(x.g.cfg.HeldTimeout)
	if d, ok := x.r.Context().Deadline(); ok && d.Before(end) {
		return d
	}
	return end
}

// badBody answers a request whose body cannot be read. The module doesn't hear
// of the answer: to it the client left, which says nothing about a worker.
func (x *exchange) badBody(err error) {
	status, text := http.StatusBadRequest, "the request body could not be read\n"
	if errors.Is(err, os.ErrDeadlineExceeded) {
		status, text = http.StatusRequestTimeout, "the request body did not arrive in time\n"
	}
	x.writeReply(&hostsim.LocalReply{
		Headers: hostsim.NewHeaderMap(":status", strconv.Itoa(status), "content-type", "text/plain", "connection", "close"),
		Body:    []byte(text), Details: "client_body_error",
	})
}

// timedOut says whether the exchange's own time is up, not the client gone.
func (x *exchange) timedOut() bool {
	return errors.Is(x.r.Context().Err(), context.DeadlineExceeded)
}

// refuse answers by way of the module, as a proxy's own reply.
func (x *exchange) refuse(status int, text, details string) {
	x.vm.Do(func() { x.stream.SendLocalReply(status, nil, []byte(text), details) })
}

// released notes where the module wants the request to go.
func (x *exchange) released(headers *hostsim.HeaderMap, end bool) {
	x.wanted = parseEndpointHeader(headers.Value(endpointHeader))
	x.pool = headers.Value(poolHeader)
	x.noRetry = headers.Value(maxRetriesHeader) == "0"
	x.log.decision, x.log.pool = headers.Value(decisionHeader), x.pool
	if end {
		x.body = &x.reqOut
	}
}

// rewrite makes the upstream request out of what the module let go.
func rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In.Context())
	out := pr.Out
	for key := range out.Header {
		if key != "Connection" && key != "Upgrade" {
			delete(out.Header, key)
		}
	}
	out.URL = &url.URL{Scheme: "http"}
	for _, f := range x.reqHeaders.Fields() {
		switch {
		case f.Key == ":path":
			setPath(out.URL, f.Value)
		case f.Key == ":authority":
			out.Host = f.Value
		case f.Key == ":method":
			out.Method = f.Value
		case hopByHop(f.Key):
		default:
			out.Header.Add(f.Key, f.Value)
		}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // don't let net/http add its own
	}
	pr.SetXForwarded()
	if x.body == nil && x.r.ContentLength != 0 {
		out.Body = &requestBody{x: x}
	}
}

// setPath keeps the path's bytes as they came: RawPath where the decoded form
// would lose something.
func setPath(u *url.URL, target string) {
	if parsed, err := url.ParseRequestURI(target); err == nil {
		u.Path, u.RawPath, u.RawQuery, u.ForceQuery = parsed.Path, parsed.RawPath, parsed.RawQuery, parsed.ForceQuery
		return
	}
	u.Opaque = target
}

// hopByHop names what must not travel on: hop-by-hop fields, framing (net/http
// sets it), Expect (already answered) and the module's notes to the proxy.
func hopByHop(key string) bool {
	switch key {
	case ":scheme", "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
		"te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect", endpointHeader, maxRetriesHeader:
		return true
	}
	return strings.HasPrefix(key, ourPrefix)
}

// requestBody streams a body that the module doesn't hold: each piece passes the
// module's callback on its way.
type requestBody struct{ x *exchange }

func (b *requestBody) Read(p []byte) (int, error) {
	x := b.x
	x.consumed = true
	for {
		x.mu.Lock()
		n, _ := x.reqOut.Read(p)
		end, cut := x.reqEnd, x.reset != "" || x.reply != nil
		x.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case cut:
			return 0, errAborted
		case end:
			return 0, io.EOF
		}
		n, err := x.r.Body.Read(p)
		if n > 0 || err == io.EOF {
			x.vm.Do(func() { x.stream.RequestData(p[:n], err == io.EOF) })
		}
		if err == io.EOF {
			if err := x.wait(func() bool { return x.reqEnd }); err != nil {
				return 0, err
			}
		} else if err != nil {
			x.mu.Lock()
			x.bodyErr = err // the client's doing, whatever the transport makes of it
			x.mu.Unlock()
			return 0, err
		}
	}
}

func (b *requestBody) Close() error { return nil }

// wait blocks until done (called under mu) holds, or the exchange is over.
func (x *exchange) wait(done func() bool) error {
	timer := time.NewTimer(x.g.cfg.HeldTimeout)
	defer timer.Stop()
	for {
		x.mu.Lock()
		ok, cut := done(), x.reset != "" || x.reply != nil
		x.mu.Unlock()
		switch {
		case ok:
			return nil
		case cut:
			return errAborted
		}
		select {
		case <-x.wake:
		case <-timer.C:
			return errAborted
		case <-x.r.Context().Done():
			return x.r.Context().Err()
		}
	}
}
