package guard

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ahead is the body of a request that waits. It is read up to a limit meanwhile:
// HTTP/1.1 tells that a client has left only behind the end of its body.
type ahead struct {
	src    io.ReadCloser
	conn   *http.ResponseController
	broken chan struct{} // closed when the client broke off
	done   chan struct{} // closed when no more is read ahead

	mu   sync.Mutex
	news sync.Cond
	buf  []byte
	off  int
	over bool  // no more is read ahead
	err  error // how the body ended, nil beyond the limit
}

func readAhead(w http.ResponseWriter, r *http.Request, limit int) *ahead {
	a := &ahead{src: r.Body, conn: http.NewResponseController(w), broken: make(chan struct{}), done: make(chan struct{}), buf: make([]byte, 0, limit+1)}
	a.news.L = &a.mu
	go a.read(limit)
	return a
}

func (a *ahead) read(limit int) {
	defer close(a.done)
	for over := false; !over; {
		// A byte beyond the limit finds the end of a body that is as long. Nobody
		// else touches what is behind len(buf).
		n, err := a.src.Read(a.buf[len(a.buf) : limit+1])
		over = err != nil || len(a.buf)+n > limit
		if err != nil && !errors.Is(err, io.EOF) {
			close(a.broken)
		}
		a.mu.Lock()
		a.buf, a.err, a.over = a.buf[:len(a.buf)+n], err, over
		a.news.Broadcast()
		a.mu.Unlock()
	}
}

// Read gives what was read ahead, and then the rest.
func (a *ahead) Read(p []byte) (int, error) {
	a.mu.Lock()
	for a.off == len(a.buf) && !a.over {
		a.news.Wait()
	}
	n := copy(p, a.buf[a.off:])
	a.off += n
	rest, err := a.off == len(a.buf), a.err
	a.mu.Unlock()
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case err != nil:
		return 0, err
	case rest:
		return a.src.Read(p)
	}
	return 0, nil
}

// Close ends the reading of what is beyond the limit; all else is the server's business.
func (a *ahead) Close() error {
	a.mu.Lock()
	beyond := a.over && a.err == nil
	a.mu.Unlock()
	if beyond {
		return a.src.Close()
	}
	return nil
}

// cut tells whether the reading ended before the body did.
func (a *ahead) cut() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil && !errors.Is(a.err, io.EOF)
}

// ended tells whether the client has sent all.
func (a *ahead) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Is(a.err, io.EOF)
}

// stop ends the reading, so that the handler may.
func (a *ahead) stop() {
	select {
	case <-a.done:
	default:
		_ = a.conn.SetReadDeadline(time.Unix(1, 0))
		<-a.done
	}
}
