package gateway

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// exchange is one request and its answer: the embedder's side of a stream.
//
// Two parties touch it: the handler's goroutine and, as hostsim.Sink, the VM's
// thread (inside the handler's own calls, or from a tick that releases a held
// request). While a request body streams, a third: the transport's goroutine that
// sends it. mu guards what they share; a wake channel for each direction tells
// who waits there of news.
type exchange struct {
	g      *Gateway
	w      http.ResponseWriter
	r      *http.Request // with the exchange in its context
	in     *http.Request // as net/http made it: trailers that weren't announced appear here alone
	lane   *lane
	stream *hostsim.Stream
	start  time.Time

	reqWake, respWake chan struct{}

	reading sync.Mutex // held while an upload reads from the client; taken before mu

	mu         sync.Mutex
	reqHeaders *hostsim.HeaderMap // let go by the module
	reqOut     bytes.Buffer       // request body let go
	reqTrail   *hostsim.HeaderMap
	reqEnd     bool
	upload     *upload // the attempt that may read the client's body
	uploading  bool    // ... and has begun to: no replay
	respHead   *hostsim.HeaderMap
	respNow    []byte       // the piece that is being fed: passes without a copy
	respPassed int          // how much of respNow came through
	respOut    bytes.Buffer // pieces that came otherwise
	respEnd    bool
	respTrail  *hostsim.HeaderMap
	reply      *hostsim.LocalReply
	reset      string
	bodyEnded  bool  // the client has sent all of its body
	bodyErr    error // why the rest of a streamed request body cannot be read

	// Below: the handler's goroutine only.
	whole     bool // the request body is known to its end: reqOut has it all
	heldBytes int  // of the gateway's allowance
	wanted    []string
	pool      string
	noRetry   bool
	tried     []string
	replied   bool
	log       accessEntry
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange)
}

// upstream is the worker that was asked last, "" if none was.
func (x *exchange) upstream() string {
	if len(x.tried) == 0 {
		return ""
	}
	return x.tried[len(x.tried)-1]
}

// tellAnswerer puts who was asked, and how often, where the module reads it. It
// runs on the VM's thread.
func (x *exchange) tellAnswerer() {
	info := &x.stream.Info
	info.UpstreamAddress, info.UpstreamRequestAttemptCount = x.upstream(), uint64(len(x.tried))
}

// bodyFailed is why a streamed request body broke off, nil if it didn't.
func (x *exchange) bodyFailed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bodyErr
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// The Sink: what the module lets through.

// RequestHeaders implements hostsim.Sink.
func (x *exchange) RequestHeaders(h *hostsim.HeaderMap, end bool) {
	x.mu.Lock()
	x.reqHeaders, x.reqEnd = h, x.reqEnd || end
	x.mu.Unlock()
	signal(x.reqWake)
}

// RequestData implements hostsim.Sink.
func (x *exchange) RequestData(data []byte, end bool) {
	x.mu.Lock()
	x.reqOut.Write(data)
	x.reqEnd = x.reqEnd || end
	x.mu.Unlock()
	signal(x.reqWake)
}

// RequestTrailers implements hostsim.Sink.
func (x *exchange) RequestTrailers(t *hostsim.HeaderMap) {
	x.mu.Lock()
	x.reqTrail, x.reqEnd = t, true
	x.mu.Unlock()
	signal(x.reqWake)
}

// ResponseHeaders implements hostsim.Sink.
func (x *exchange) ResponseHeaders(h *hostsim.HeaderMap, end bool) {
	x.mu.Lock()
	x.respHead, x.respEnd = h, x.respEnd || end
	x.mu.Unlock()
	signal(x.respWake)
}

// ResponseData implements hostsim.Sink.
func (x *exchange) ResponseData(data []byte, end bool) {
	x.mu.Lock()
	if len(data) > 0 && len(data) <= len(x.respNow) && &data[0] == &x.respNow[0] && x.respOut.Len() == 0 {
		x.respPassed = len(data)
	} else {
		x.respOut.Write(data)
	}
	x.respEnd = x.respEnd || end
	x.mu.Unlock()
	signal(x.respWake)
}

// ResponseTrailers implements hostsim.Sink.
func (x *exchange) ResponseTrailers(t *hostsim.HeaderMap) {
	x.mu.Lock()
	x.respTrail, x.respEnd = t, true
	x.mu.Unlock()
	signal(x.respWake)
}

// LocalReply implements hostsim.Sink.
func (x *exchange) LocalReply(reply hostsim.LocalReply) {
	x.mu.Lock()
	x.reply = &reply
	x.mu.Unlock()
	signal(x.reqWake)
	signal(x.respWake)
}

// Reset implements hostsim.Sink.
func (x *exchange) Reset(details string) {
	x.mu.Lock()
	x.reset = details
	x.mu.Unlock()
	signal(x.reqWake)
	signal(x.respWake)
}

// wait blocks until done (called under mu) holds, or the exchange is over. Only
// one goroutine may wait at a wake channel.
func (x *exchange) wait(wake <-chan struct{}, done func() bool) error {
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
		case <-wake:
		case <-timer.C:
			return errAborted
		case <-x.r.Context().Done():
			return x.r.Context().Err()
		}
	}
}

// ended says whether the module's side answered or cut the exchange by itself.
func (x *exchange) ended() (*hostsim.LocalReply, string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reply, x.reset
}

// writeReply sends a local reply to the client, or cuts the exchange where
// response headers are out already.
func (x *exchange) writeReply(reply *hostsim.LocalReply) {
	if x.replied {
		panic(http.ErrAbortHandler)
	}
	x.replied = true
	status := 500
	header := x.w.Header()
	for _, f := range reply.Headers.Fields() {
		if f.Key == ":status" {
			status = statusOf(f.Value)
		} else if f.Key != "content-length" {
			header.Add(f.Key, f.Value)
		}
	}
	x.skipBody()
	x.answering()
	header.Set("Content-Length", strconv.Itoa(len(reply.Body)))
	x.log.status, x.log.details, x.log.bytes = status, reply.Details, int64(len(reply.Body))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(reply.Body)
}

// finish answers from what the module's side left: its reply, or a cut.
func (x *exchange) finish() {
	reply, reset := x.ended()
	switch {
	case reply != nil:
		x.writeReply(reply)
	case reset != "" || x.replied:
		x.log.details = reset
		panic(http.ErrAbortHandler)
	default:
		// The module neither passed nor answered: the client must still hear.
		x.writeReply(&hostsim.LocalReply{Headers: hostsim.NewHeaderMap(":status", "502"), Details: "no_answer"})
	}
}
