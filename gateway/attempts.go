package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Headers between the module and the proxy (docs/formats.md).
const (
	endpointHeader   = "x-gateway-destination-endpoint"
	poolHeader       = "x-warmpath-pool"
	decisionHeader   = "x-warmpath-decision"
	excludeHeader    = "x-warmpath-exclude"
	bypassHeader     = "x-warmpath-bypass"
	attemptsHeader   = "x-warmpath-attempts"
	maxRetriesHeader = "x-envoy-max-retries"
	ourPrefix        = "x-warmpath-"
)

var (
	errNoEndpoint       = errors.New("no endpoint is known: the worker list, or what it has of the pool, is empty")
	errFirstByteTimeout = errors.New("no response headers within the first-byte timeout")
	errTokenTimeout     = errors.New("upstream fell silent in mid-response")
	errAborted          = errors.New("the module cut the exchange")
	errUnasked          = errors.New("upstream switched protocols without being asked")
)

// retriable are the answers that another worker may better: 429 and 503, never
// 500, never another 4xx (docs: refusal and retry).
func retriable(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// attempts sends an exchange's request: to the best, and once more to the
// second when the connection fails or is reset before response headers, or the
// worker refuses.
type attempts struct {
	endpoints *Endpoints
	transport http.RoundTripper
	metrics   *metrics
	firstByte time.Duration
}

// RoundTrip implements http.RoundTripper for requests that carry an exchange.
func (a *attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	retries := 1
	if x.noRetry {
		retries = 0
	}
	to, fellBack := a.endpoints.choose(x.wanted, x.pool, x.tried)
	if to.address == "" {
		return nil, errNoEndpoint
	}
	for n := 1; ; n++ {
		if fellBack && len(x.wanted) > 0 {
			a.metrics.fallback.WithLabelValues(pick(n > 1, "exhausted", "unknown_endpoint")).Inc()
		}
		x.tried = append(x.tried, to.address)
		resp, err := a.once(req, x, to)
		again := n <= retries && (err != nil && req.Context().Err() == nil && x.bodyFailed() == nil && !errors.Is(err, errFirstByteTimeout) ||
			err == nil && retriable(resp.StatusCode))
		if again {
			to, fellBack = a.endpoints.choose(x.wanted, x.pool, x.tried)
			again = to.address != "" // or nobody is left to ask: the last answer stands
		}
		if again && !x.mayReplay() {
			a.metrics.retryImpossible.Inc()
			again = false
		}
		a.metrics.attempts.WithLabelValues(attemptResult(resp, err)).Inc()
		if !again {
			return resp, err
		}
		if resp != nil {
			finishRefusal(resp.Body.(*cancelBody))
		}
	}
}

// finishRefusal reads what is left of a short refusal, so that the worker's
// connection is kept, unless the worker takes its time.
func finishRefusal(body *cancelBody) {
	timer := time.AfterFunc(skipTimeout, func() { body.cancel(errTokenTimeout) })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}

func attemptResult(resp *http.Response, err error) string {
	switch {
	case err != nil:
		return "failed"
	case retriable(resp.StatusCode):
		return "refused"
	case resp.StatusCode >= 500:
		return "5xx"
	}
	return "answered"
}

// once sends one attempt. The deadline covers the wait for headers only: its
// context lives on with the body, which cancels it when closed.
func (a *attempts) once(req *http.Request, x *exchange, to endpoint) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(a.firstByte, func() { cancel(errFirstByteTimeout) })
	out := req.Clone(ctx)
	out.URL.Scheme, out.URL.Host = to.scheme, to.address
	x.giveBody(out)
	resp, err := a.transport.RoundTrip(out)
	timer.Stop()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errFirstByteTimeout) {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	body := &cancelBody{ReadCloser: resp.Body, cancel: cancel}
	resp.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // 101: the connection itself
		resp.Body = &upgradedBody{cancelBody: body, Writer: w}
	}
	return resp, nil
}

// upgradedBody is the worker's side of a connection that left HTTP.
type upgradedBody struct {
	*cancelBody
	io.Writer
}

// cancelBody releases an attempt's context with its body.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	once   sync.Once
}

func (b *cancelBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { b.cancel(nil) })
	return err
}

func pick[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}
