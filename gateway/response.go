package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

func itoa[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// modifyResponse is ReverseProxy's hook: the response headers pass the module,
// and the body is wrapped so that its pieces will.
func (g *Gateway) modifyResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	h := addFields(hostsim.NewHeaderMap(":status", strconv.Itoa(resp.StatusCode)), resp.Header)
	noBody := resp.ContentLength == 0 && len(resp.Trailer) == 0 || resp.Request.Method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if resp.Request.Header.Get("Upgrade") == "" {
			return errUnasked // so that the connection is closed
		}
		// The connection leaves HTTP: the module has seen the request, no more.
		x.log.status = resp.StatusCode
		return nil
	}
	x.lane.do(func() {
		x.tellAnswerer()
		x.stream.Info.BackendLatency = time.Since(x.start)
		x.stream.ResponseHeaders(h, noBody)
	})
	if err := x.wait(x.respWake, func() bool { return x.respHead != nil }); err != nil {
		return err
	}
	x.drop()
	applyResponseHeaders(resp, x.respHead)
	if _, ok := resp.Header["Content-Type"]; !ok {
		x.w.Header()["Content-Type"] = nil // don't let net/http guess one
	}
	if n := len(x.tried); n > 1 {
		resp.Header.Set(attemptsHeader, strconv.Itoa(n))
	}
	x.answering()
	x.log.status, x.replied = resp.StatusCode, true
	if !noBody {
		resp.Body = newResponseBody(x, resp)
	}
	return nil
}

// responseBody hands each piece of the upstream's body to the module as it
// arrives. Pieces that pass unchanged are not copied.
type responseBody struct {
	x    *exchange
	resp *http.Response
	src  io.ReadCloser
	idle *time.Timer
	slow deadline // for a client that doesn't take what it asked for
	eof  bool
	err  error // what ended src, when it wasn't its end
}

func newResponseBody(x *exchange, resp *http.Response) *responseBody {
	b := &responseBody{x: x, resp: resp, src: resp.Body}
	attempt := resp.Body.(*cancelBody) // as attempts.once left it
	b.idle = time.AfterFunc(x.g.cfg.FirstByteTimeout, func() { attempt.cancel(errTokenTimeout) })
	return b
}

func (b *responseBody) Read(p []byte) (int, error) {
	x := b.x
	for {
		x.mu.Lock()
		n, _ := x.respOut.Read(p)
		end, left, cut := x.respEnd, x.respOut.Len(), x.reset != "" || x.reply != nil
		x.mu.Unlock()
		switch {
		case n > 0:
			return b.count(n), nil
		case cut:
			return 0, errAborted
		case end && left == 0:
			b.copyTrailers()
			return 0, io.EOF
		case b.eof: // all fed; the module still holds some
			if err := x.wait(x.respWake, func() bool { return x.respEnd }); err != nil {
				return 0, err
			}
			continue
		case b.err != nil:
			b.tellFailure()
			return 0, b.err
		}
		if n := b.feed(p); n > 0 {
			return b.count(n), nil
		}
	}
}

// count books n bytes that are about to be written.
func (b *responseBody) count(n int) int {
	if end, due := b.slow.next(b.x.g.cfg.ClientTimeout); due {
		_ = http.NewResponseController(b.x.w).SetWriteDeadline(end)
	}
	if b.x.log.bytes == 0 {
		b.x.log.firstByte = time.Since(b.x.start)
	}
	b.x.log.bytes += int64(n)
	return n
}

// feed reads one piece, passes it through the module and returns how much of p
// is ready to go on.
func (b *responseBody) feed(p []byte) int {
	x := b.x
	b.idle.Reset(pick(x.log.bytes > 0, x.g.cfg.TokenTimeout, x.g.cfg.FirstByteTimeout))
	n, err := b.src.Read(p)
	b.idle.Stop()
	if b.eof = errors.Is(err, io.EOF); !b.eof {
		b.err = err
	}
	x.mu.Lock()
	x.respNow, x.respPassed = p[:n], 0
	x.mu.Unlock()
	x.lane.do(func() {
		switch {
		case b.eof && len(b.resp.Trailer) > 0:
			if n > 0 {
				x.stream.ResponseData(p[:n], false)
			}
			x.stream.ResponseTrailers(addFields(hostsim.NewHeaderMap(), b.resp.Trailer))
		case n > 0 || b.eof:
			x.stream.ResponseData(p[:n], b.eof)
		}
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	passed := x.respPassed
	x.respNow = nil
	return passed
}

// tellFailure lets the module know that the worker broke off, once what came
// before is out.
func (b *responseBody) tellFailure() {
	x := b.x
	if errors.Is(x.r.Context().Err(), context.Canceled) {
		x.log.details = "client_left" // the attempt went with it: no word about the worker
		return
	}
	x.log.details = failureDetails(b.err)
	x.lane.do(func() { x.stream.UpstreamReset(x.log.details) })
}

func (b *responseBody) copyTrailers() {
	if b.x.respTrail == nil {
		return
	}
	if b.resp.Trailer == nil {
		b.resp.Trailer = http.Header{}
	}
	setTrailers(b.resp.Trailer, b.x.respTrail)
}

func (b *responseBody) Close() error {
	b.idle.Stop()
	return b.src.Close()
}

// proxyError is ReverseProxy's hook for an upstream that could not be asked or
// didn't answer. The module hears of it as a reset and its answer is sent on.
func (g *Gateway) proxyError(_ http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	bodyErr, timedOut := x.bodyFailed(), x.timedOut()
	switch {
	case bodyErr != nil && !timedOut:
		x.badBody(bodyErr)
		return
	case r.Context().Err() != nil && !timedOut:
		x.log.details = "client_left"
		panic(http.ErrAbortHandler) // an empty return would be a 200 to one that half closed
	}
	x.log.details = failureDetails(err)
	x.lane.do(func() {
		x.tellAnswerer()
		x.stream.Info.UpstreamTransportFailureReason = err.Error()
		switch {
		case timedOut:
			x.stream.SendLocalReply(http.StatusGatewayTimeout, nil, []byte("the request took too long\n"), "request_timeout")
		case errors.Is(err, errFirstByteTimeout):
			x.stream.SendLocalReply(http.StatusGatewayTimeout, nil, []byte("upstream did not answer in time\n"), "response_timeout")
		case errors.Is(err, errNoEndpoint):
			x.stream.SendLocalReply(http.StatusServiceUnavailable, hostsim.NewHeaderMap("retry-after", itoa(1+rand.IntN(3))), []byte("no worker is known; retry later\n"), x.log.details)
		default:
			x.stream.UpstreamReset(x.log.details)
		}
	})
	x.finish()
}

func failureDetails(err error) string {
	switch {
	case errors.Is(err, errNoEndpoint):
		return "no_healthy_upstream"
	case errors.Is(err, errFirstByteTimeout):
		return "response_timeout"
	case errors.Is(err, errTokenTimeout):
		return "token_timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "upstream_reset"
}
