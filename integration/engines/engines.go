// Package engines runs the workers of an integration test on loopback and
// notes what reaches them.
//
// A request travels like this: it arrives at a Worker's own listener; the
// worker notes method, path, headers and the SHA-256 of the body, does what the
// test has ordered (refuse, wait), and hands it to the engine that answers. Kill closes the listener and every connection, as the death
// of a process would; Restart listens on the same address again.
package engines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ServedBy is the response header in which a worker gives its address, so that
// a client can tell who answered, whatever proxy stood between.
const ServedBy = "X-Served-By"

// Request is what a worker saw of one request, noted when it was answered.
type Request struct {
	Worker       string // address
	Method, Path string
	Header       http.Header
	BodyBytes    int64
	BodySHA256   string   // hex
	AnswerSHA256 string   // hex, of the response body as written
	Framing      []string // Transfer-Encoding, or Content-Length when it was given
}

// Worker is one engine on one address.
type Worker struct {
	Address string // 127.0.0.1:port, stays across Kill and Restart

	engine Engine
	fleet  *Fleet
	mu     sync.Mutex
	server *http.Server
	delay  atomic.Int64 // nanoseconds before the engine is asked
}

// Fleet is a set of workers that share one notebook.
type Fleet struct {
	Workers []*Worker

	refuse atomic.Int64 // how many requests to refuse yet
	status atomic.Int64 // with which status

	mu    sync.Mutex
	done  sync.Cond // a request has been noted
	busy  int       // requests not noted yet
	notes []Request
	keep  bool
}

// Engine answers the requests of one worker.
type Engine interface {
	http.Handler
	Restart() error // become a new process: empty cache, new start time
	Close() error
}

// Listen takes a loopback port from below the range that systems hand out to
// outgoing connections (32768 on Linux, 49152 elsewhere). Whoever closes the
// listener finds the port free again later: no connection, least of all one
// that tries this very port, is given it as its own.
func Listen() (net.Listener, error) {
	var last error
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000)))
		if err == nil {
			return listener, nil
		}
		last = err
	}
	return nil, last
}

// Start runs n workers. build makes the engine of each. The caller calls stop.
func Start(n int, build func(address string) (Engine, error)) (fleet *Fleet, stop func(), err error) {
	f := &Fleet{}
	f.done.L = &f.mu
	stop = func() {
		for _, w := range f.Workers {
			w.Kill()
			w.engine.Close()
		}
	}
	for range n {
		listener, err := Listen()
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("listen for a worker: %w", err)
		}
		w := &Worker{Address: listener.Addr().String(), fleet: f}
		if w.engine, err = build(w.Address); err != nil {
			listener.Close()
			stop()
			return nil, nil, fmt.Errorf("build the engine of a worker: %w", err)
		}
		w.serve(listener)
		f.Workers = append(f.Workers, w)
	}
	return f, stop, nil
}

// Port is the port of the worker's address.
func (w *Worker) Port() int {
	_, port, err := net.SplitHostPort(w.Address)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(port)
	return n
}

func (w *Worker) serve(listener net.Listener) {
	server := &http.Server{
		Handler:           http.HandlerFunc(w.answer),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	w.mu.Lock()
	w.server = server
	w.mu.Unlock()
	go server.Serve(listener)
}

// Kill closes the listener and every connection at once.
func (w *Worker) Kill() {
	w.mu.Lock()
	server := w.server
	w.server = nil
	w.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

// Restart listens on the old address again, as a new process would: its cache
// is empty.
func (w *Worker) Restart(ctx context.Context) error {
	if err := w.engine.Restart(); err != nil {
		return fmt.Errorf("restart the engine of %s: %w", w.Address, err)
	}
	var last error
	for ctx.Err() == nil {
		listener, err := net.Listen("tcp", w.Address)
		if err == nil {
			w.serve(listener)
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("listen on %s again: %w", w.Address, last)
}

// Delay lets every request wait before the engine sees it.
func (w *Worker) Delay(d time.Duration) { w.delay.Store(int64(d)) }

// answer notes one request and serves it. What the control service asks for
// passes unnoted: health, metrics, models.
func (w *Worker) answer(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set(ServedBy, w.Address)
	switch r.URL.Path {
	case "/health", "/metrics", "/v1/models":
		w.engine.ServeHTTP(rw, r)
		return
	}
	w.fleet.begin()
	body := &hashingBody{ReadCloser: r.Body, sum: sha256.New()}
	r.Body = body
	out := &hashingWriter{ResponseWriter: rw, sum: sha256.New()}
	defer func() {
		// A handler that is done early leaves the rest unread: it counts too.
		io.Copy(io.Discard, body)
		w.fleet.add(Request{
			Worker: w.Address, Method: r.Method, Path: r.URL.Path, Header: r.Header,
			BodyBytes: body.bytes, BodySHA256: hex.EncodeToString(body.sum.Sum(nil)),
			AnswerSHA256: hex.EncodeToString(out.sum.Sum(nil)),
			Framing:      framing(r),
		})
	}()
	if w.fleet.refuse.Add(-1) >= 0 {
		io.Copy(io.Discard, body)
		status := int(w.fleet.status.Load())
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		out.WriteHeader(status)
		fmt.Fprint(out, `{"error":{"message":"refused on order","type":"overloaded"}}`)
		return
	}
	if d := time.Duration(w.delay.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	w.engine.ServeHTTP(out, r)
}

func framing(r *http.Request) []string {
	if len(r.TransferEncoding) > 0 {
		return r.TransferEncoding
	}
	if r.ContentLength >= 0 {
		return []string{"content-length " + strconv.FormatInt(r.ContentLength, 10)}
	}
	return nil
}

func (f *Fleet) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy++
}

func (f *Fleet) add(r Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	if f.keep {
		f.notes = append(f.notes, r)
	}
	f.done.Broadcast()
}

// RefuseFirst answers the next n requests of the fleet, wherever they arrive,
// with a status, before an engine sees them.
func (f *Fleet) RefuseFirst(n int, status int) {
	f.status.Store(int64(status))
	f.refuse.Store(int64(n))
}

// BreakFirst breaks off the connections of the next n requests of the fleet, once
// their bodies have come.
func (f *Fleet) BreakFirst(n int) { f.RefuseFirst(n, 0) }

// Peek returns a copy of the open notebook.
func (f *Fleet) Peek() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.notes)
}

// Record starts a fresh notebook; until Record is called nothing is kept.
func (f *Fleet) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes, f.keep = nil, true
}

// Recorded closes the notebook and returns what it holds. A client has its
// answer a moment before the worker has noted the request, so it waits until
// no request is being served.
func (f *Fleet) Recorded() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.busy > 0 {
		f.done.Wait()
	}
	f.keep = false
	return f.notes
}

type hashingBody struct {
	io.ReadCloser
	sum   hash.Hash
	bytes int64
}

func (b *hashingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.sum.Write(p[:n])
	b.bytes += int64(n)
	return n, err
}

type hashingWriter struct {
	http.ResponseWriter
	sum hash.Hash
}

func (w *hashingWriter) Write(p []byte) (int, error) {
	w.sum.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (w *hashingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is here for handlers that ask for http.Flusher.
func (w *hashingWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
