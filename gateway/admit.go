package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

var chunkPool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// admit feeds the request to the module until it lets the headers go, answers by
// itself, or the client leaves. It reports whether the request goes upstream.
func (x *exchange) admit() bool {
	noBody := x.r.ContentLength == 0
	x.lane.do(func() { x.stream.RequestHeaders(headerMap(x.r), noBody) })
	if !noBody && !x.readHeldBody() {
		return false
	}
	timer := time.NewTimer(x.g.cfg.HeldTimeout)
	defer timer.Stop()
	for {
		x.mu.Lock()
		headers, reply, reset := x.reqHeaders, x.reply, x.reset
		x.mu.Unlock()
		switch {
		case reply != nil || reset != "":
			x.finish()
			return false
		case headers != nil:
			x.released(headers)
			return true
		}
		select {
		case <-x.reqWake:
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
		_ = conn.SetReadDeadline(x.patienceEnds())
		n, err := x.r.Body.Read(*buf)
		if !x.hold(n) {
			return true // refused
		}
		if n > 0 || err == io.EOF {
			x.feedRequest((*buf)[:n], err == io.EOF)
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

// feedRequest gives the module a piece of the request body, with the trailers
// behind the last.
func (x *exchange) feedRequest(piece []byte, end bool) {
	trailers := end && len(x.in.Trailer) > 0
	if end {
		x.mu.Lock()
		x.bodyEnded = true
		x.mu.Unlock()
	}
	x.lane.do(func() {
		if len(piece) > 0 || !trailers {
			x.stream.RequestData(piece, end && !trailers)
		}
		if trailers {
			x.stream.RequestTrailers(addFields(hostsim.NewHeaderMap(), x.in.Trailer))
		}
	})
}

// hold books n more held bytes; where that is more than the gateway can keep for
// all its clients together, the request is refused.
func (x *exchange) hold(n int) bool {
	x.heldBytes += n
	if x.g.held.Add(int64(n)) <= int64(x.g.cfg.HeldLimitBytes) {
		return true
	}
	x.lane.do(func() {
		x.stream.SendLocalReply(http.StatusServiceUnavailable, hostsim.NewHeaderMap("retry-after", "1"),
			[]byte("too many requests are waiting here\n"), "held_bytes_limit")
	})
	return false
}

// drop gives a held body back once no attempt will need it again: a stream of
// tokens may go on for long behind a large prompt.
func (x *exchange) drop() {
	x.g.held.Add(-int64(x.heldBytes))
	x.heldBytes = 0
	if !x.whole {
		return // what is left of it is on its way
	}
	x.mu.Lock()
	x.reqOut = bytes.Buffer{}
	x.mu.Unlock()
}

// patienceEnds is when a client that sends no more of a held body, or sends it
// drop by drop, is given up.
func (x *exchange) patienceEnds() time.Time {
	end := time.Now().Add(x.g.cfg.ClientTimeout)
	if all := x.start.Add(x.g.cfg.BodyTimeout); all.Before(end) {
		end = all
	}
	if d, ok := x.r.Context().Deadline(); ok && d.Before(end) {
		end = d
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
	x.lane.do(func() { x.stream.SendLocalReply(status, nil, []byte(text), details) })
}

// released notes where the module wants the request to go.
func (x *exchange) released(headers *hostsim.HeaderMap) {
	// A tick may have let the headers go a moment ago, with the body close behind.
	x.lane.do(func() {})
	x.wanted = parseEndpointHeader(headers.Value(endpointHeader))
	x.pool = headers.Value(poolHeader)
	x.noRetry = headers.Value(maxRetriesHeader) == "0"
	x.log.decision, x.log.pool = headers.Value(decisionHeader), x.pool
	x.mu.Lock()
	x.whole = x.reqEnd
	x.mu.Unlock()
}
