package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// giveBody sets body, framing and trailers of one attempt. Only an attempt that
// mayReplay allowed comes here a second time.
func (x *exchange) giveBody(out *http.Request) {
	out.Body, out.GetBody, out.Trailer = http.NoBody, nil, nil
	switch {
	case x.whole:
		x.mu.Lock()
		body, trailers := x.reqOut.Bytes(), x.reqTrail
		x.mu.Unlock()
		if trailers.Len() > 0 {
			out.Trailer = http.Header{}
			setTrailers(out.Trailer, trailers)
		}
		out.ContentLength = pick(x.r.ContentLength < 0 || trailers.Len() > 0, -1, int64(len(body)))
		if len(body) > 0 || trailers.Len() > 0 {
			out.Body, out.GetBody = &replay{rest: body}, x.again
		} else {
			out.ContentLength = 0
		}
	case x.r.ContentLength != 0:
		up := &upload{x: x, trailers: http.Header{}}
		for key := range x.in.Trailer {
			up.trailers[key] = nil // announced: HTTP/2 sends no others
		}
		x.mu.Lock()
		x.upload = up
		x.mu.Unlock()
		out.Body, out.Trailer, out.ContentLength = up, up.trailers, x.r.ContentLength
	}
}

// mayReplay says whether the request can be sent again. An attempt that has not
// begun to read the client's body will not from now on.
func (x *exchange) mayReplay() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.whole {
		return true
	}
	if x.uploading {
		return false
	}
	x.upload = nil
	return true
}

// again is the held body once more. It asks the exchange, for the transport keeps
// this function as long as the response lasts.
func (x *exchange) again() (io.ReadCloser, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return &replay{rest: x.reqOut.Bytes()}, nil
}

// replay reads a body that is here whole, and lets go of it at its end.
type replay struct{ rest []byte }

func (b *replay) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		b.rest = nil
		return n, io.EOF
	}
	return n, nil
}

func (b *replay) Close() error { return nil }

// upload streams a body that the module doesn't hold: each piece passes the
// module's callback on its way. The transport may read it for longer than the
// attempt, and even the handler, lasts.
type upload struct {
	x        *exchange
	trailers http.Header // filled before the end is told
	silence  deadline
}

func (u *upload) Read(p []byte) (int, error) {
	x := u.x
	for {
		n, done, err := u.taken(p)
		if n > 0 || done {
			return n, err
		}
		if n, err = u.read(p); errors.Is(err, errAborted) {
			return 0, err
		}
		end := errors.Is(err, io.EOF)
		if n > 0 || end {
			x.feedRequest(p[:n], end)
		}
		if end {
			u.release()
			if err := x.wait(x.reqWake, func() bool { return x.reqEnd }); err != nil {
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

// read reads from the client while the attempt may.
func (u *upload) read(p []byte) (int, error) {
	x := u.x
	x.reading.Lock()
	defer x.reading.Unlock()
	x.mu.Lock()
	over := x.upload != u
	x.mu.Unlock()
	if over {
		return 0, errAborted
	}
	return x.r.Body.Read(p)
}

// taken gives what the module has let through, or says how the body ended, or
// gets the client's connection ready for a read.
func (u *upload) taken(p []byte) (n int, done bool, err error) {
	x := u.x
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.reqEnd && x.uploading && x.reqOut.Len() == 0:
		// Said before all else: the transport asks once more behind the last byte,
		// perhaps when the answer is out already, and keeps the worker's connection
		// only if this is the end.
		if x.reqTrail != nil && x.upload == u {
			setTrailers(u.trailers, x.reqTrail)
		}
		return 0, true, io.EOF
	case x.upload != u:
		return 0, true, errAborted // another attempt has taken over, or all is over
	}
	x.uploading = true
	n, _ = x.reqOut.Read(p)
	switch {
	case n > 0:
		return n, false, nil
	case x.reset != "" || x.reply != nil:
		return 0, true, errAborted
	}
	if end, due := u.silence.next(x.g.cfg.ClientTimeout); due {
		_ = http.NewResponseController(x.w).SetReadDeadline(end)
	}
	return 0, false, nil
}

// release lifts the limit on silence: what comes after the body is waited for.
func (u *upload) release() {
	u.x.mu.Lock()
	defer u.x.mu.Unlock()
	if u.x.upload == u {
		_ = http.NewResponseController(u.x.w).SetReadDeadline(time.Time{})
	}
}

// Close does nothing: the client's body belongs to the server.
func (u *upload) Close() error { return nil }

// skipBody reads what is left of a request that is refused, if that is little and
// here already: so a client that is told to come again keeps its connection. A
// client that waits for a 100 is told at once.
func (x *exchange) skipBody() {
	x.mu.Lock()
	skip := x.bodyRemains() && x.bodyErr == nil && x.upload == nil &&
		x.r.ContentLength <= skipBytes && x.r.Header.Get("Expect") == ""
	x.mu.Unlock()
	if !skip {
		return
	}
	conn := http.NewResponseController(x.w)
	_ = conn.SetReadDeadline(time.Now().Add(skipTimeout))
	n, err := io.CopyN(io.Discard, x.r.Body, skipBytes+1)
	_ = conn.SetReadDeadline(time.Time{})
	x.mu.Lock()
	x.bodyEnded = errors.Is(err, io.EOF) && n <= skipBytes
	x.mu.Unlock()
}

// bodyRemains tells whether more of the body may come on a connection that serves one
// request at a time. Requires mu.
func (x *exchange) bodyRemains() bool {
	return x.r.ProtoMajor == 1 && x.r.ContentLength != 0 && !x.bodyEnded
}

// answering is called before response headers go to the client. Where its body
// hasn't ended, the connection must: what is left of the body would be read as
// the next request. And in a drain: an informational answer has taken with it what
// ServeHTTP said of that.
func (x *exchange) answering() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.g.draining.Load() || x.bodyRemains() {
		x.w.Header().Set("Connection", "close")
	}
}

// endBody keeps the transport from the client's connection once the handler is
// done with it. A client that still has to send is not listened to for ever: the
// server reads on for a while, so that the answer isn't lost in a reset. A read of
// the transport's is ended first: the server would do so itself, and lift the
// deadline with it.
func (x *exchange) endBody() {
	x.mu.Lock()
	uploads := x.upload != nil
	x.upload = nil
	rest := x.bodyRemains()
	x.mu.Unlock()
	if !rest {
		return
	}
	conn := http.NewResponseController(x.w)
	if uploads {
		_ = conn.SetReadDeadline(time.Now())
		x.reading.Lock()
		defer x.reading.Unlock()
	}
	_ = conn.SetReadDeadline(time.Now().Add(lingerTimeout))
}

// deadline spares a busy stream a new deadline for every piece: one that was set
// a moment ago is near enough.
type deadline struct{ set time.Time }

// next is the deadline for what begins now, of at least timeout, and whether it
// has to be set.
func (d *deadline) next(timeout time.Duration) (end time.Time, due bool) {
	now := time.Now()
	if now.Sub(d.set) < timeout/4 {
		return time.Time{}, false
	}
	d.set = now
	return now.Add(timeout + timeout/4), true
}
