package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// scripted is a worker below HTTP: each connection's request is read, then said
// is written as it stands, then the connection is closed or reset. It listens
// until the test ends.
func scripted(t *testing.T, said string, reset bool) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				_, _ = io.WriteString(conn, said)
				if reset {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
			})
		}
	})
	return l.Addr().String()
}

// clients are the two protocols by which a gateway without TLS is spoken to.
func clients(t *testing.T) map[string]*http.Client {
	t.Helper()
	both := map[string]*http.Client{}
	for name, set := range map[string]func(*http.Protocols){
		"h1":  func(p *http.Protocols) { p.SetHTTP1(true) },
		"h2c": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
		set(tr.Protocols)
		t.Cleanup(tr.CloseIdleConnections)
		both[name] = &http.Client{Transport: tr}
	}
	return both
}

// TestAWorkerThatBreaksOffIsNeverTakenForOneThatIsDone: whatever the phase, a
// client sees a whole answer, a 503, or a cut; and the module hears which.
func TestAWorkerThatBreaksOffIsNeverTakenForOneThatIsDone(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	g := start(t, nil, nil)
	for _, c := range []struct {
		name, said string
		want       string
		failures   uint64
	}{
		{"before a byte", "", "503", 1},
		{"within the status line", "HTTP/1.", "503", 1},
		{"within the headers", head + "X-A: 1\r\nX-", "503", 1},
		{"no HTTP at all", "SSH-2.0-x\r\n", "503", 1},
		{"no status", "HTTP/1.1 abc OK\r\n\r\n", "503", 1},
		{"two lengths", head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "503", 1},
		{"headers without an end of size", head + "X-A: " + strings.Repeat("a", 300<<10), "503", 1},
		{"after the headers of chunks", head + "Transfer-Encoding: chunked\r\n\r\n", "cut", 1},
		{"after the headers of a sized body", head + "Content-Length: 4\r\n\r\n", "cut", 1},
		{"within a sized body", head + "Content-Length: 4\r\n\r\nab", "cut", 1},
		{"within a chunk", head + "Transfer-Encoding: chunked\r\n\r\n4\r\nab", "cut", 1},
		{"within a chunk's length", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n4", "cut", 1},
		{"between chunks", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "cut", 1},
		{"a wrong chunk", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n", "cut", 1},
		{"before trailers", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n", "cut", 1},
		{"within trailers", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-T: 1\r\n", "cut", 1},
		{"after trailers", head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-T: 1\r\n\r\n", "200 ab X-T=1", 0},
		{"after a sized body", head + "Content-Length: 2\r\n\r\nab", "200 ab", 0},
		{"at the end of a body that ends so", head + "\r\nab", "200 ab", 0},
	} {
		for name, client := range clients(t) {
			for _, path := range []string{"/held", "/pass"} {
				t.Run(strings.Join([]string{c.name, name, path}, " "), func(t *testing.T) {
					address := scripted(t, c.said, false)
					if err := g.cfg.Endpoints.Set(map[string][]string{"": {address}}); err != nil {
						t.Fatal(err)
					}
					done, failed := counter(g, "guest.done"), counter(g, "guest.upstream_failures")
					if got := outcome(client, g.URL()+path, "dest="+address+"\n"); got != c.want {
						t.Errorf("the client saw %q, want %q", got, c.want)
					}
					eventually(t, "the exchange is over", func() bool { return testutil.ToFloat64(g.metrics.active) == 0 })
					done, failed = counter(g, "guest.done")-done, counter(g, "guest.upstream_failures")-failed
					if done != 1 || failed != c.failures {
						t.Errorf("the module heard %d ends, %d failures; want 1, %d", done, failed, c.failures)
					}
				})
			}
		}
	}
}

// outcome is what a client sees: status, body, trailers; or a cut, with some of
// that before it or not.
func outcome(client *http.Client, url, body string) string {
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return "cut" // before the headers had left: they go with what comes next
	}
	defer resp.Body.Close()
	got := fmt.Sprint(resp.StatusCode)
	data, err := io.ReadAll(resp.Body)
	if len(data) > 0 && resp.StatusCode == 200 {
		got += " " + string(data)
	}
	for key := range resp.Trailer {
		got += " " + key + "=" + resp.Trailer.Get(key)
	}
	if err != nil && (resp.StatusCode != 200 || !strings.HasPrefix("ab", string(data))) {
		return "cut after " + got
	}
	return pick(err != nil, "cut", got)
}

// TestAResetOfTheConnectionIsNoEnd: an RST takes what was under way with it, so
// the body's length is open; its end is not.
func TestAResetOfTheConnectionIsNoEnd(t *testing.T) {
	g := start(t, nil, nil)
	for _, said := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "HTTP/1.1 200 OK\r\n\r\nab"} {
		address := scripted(t, said, true)
		if err := g.cfg.Endpoints.Set(map[string][]string{"": {address}}); err != nil {
			t.Fatal(err)
		}
		for name, client := range clients(t) {
			if got := outcome(client, g.URL()+"/held", "dest="+address+"\n"); got != "503" && got != "cut" {
				t.Errorf("%s after %q: the client saw %q, want 503 or a cut", name, said, got)
			}
		}
	}
}

// TestAClientThatBreaksOffEndsItsExchange cuts the client's connection at every
// byte of a chunked request, held and streamed, with and without an RST.
func TestAClientThatBreaksOffEndsItsExchange(t *testing.T) {
	hang := make(chan struct{})
	up, _ := worker(t, "up", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	})
	defer close(hang)
	g := start(t, []string{up}, nil)
	for _, path := range []string{"/held", "/pass"} {
		request := "POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n4\r\nhol\n\r\n2\r\nab\r\n0\r\nX-T: 1\r\n\r\n"
		for n := 1; n <= len(request); n++ {
			conn, err := net.Dial("tcp", g.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, request[:n]); err != nil {
				t.Fatal(err)
			}
			if n%2 == 0 {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			conn.Close()
		}
	}
	eventually(t, "nothing is open", func() bool { return g.open.now() == 0 })
	if n := counter(g, "guest.upstream_failures"); n != 0 {
		t.Errorf("the module heard of %d failures of the worker, want none", n)
	}
}

// TestAWorkerThatAnswersEarlyIsHeard: an answer before the end of the request body
// (413, 401) reaches the client, who may still be sending.
func TestAWorkerThatAnswersEarlyIsHeard(t *testing.T) {
	early := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		defer close(early)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}()
	g := start(t, []string{l.Addr().String()}, nil)
	body, more := io.Pipe()
	go func() { _, _ = io.WriteString(more, "dest=x\nfirst") }()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post(g.URL()+"/pass", "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); resp.StatusCode != 413 || string(got) != "no" {
		t.Errorf("got %d %q, %v", resp.StatusCode, got, err)
	}
	resp.Body.Close()
	more.CloseWithError(errors.New("no more"))
	<-early
}

// TestAStreamedBodyThatWasNotTouchedIsSentToAnother: a worker that cannot be
// reached has cost nothing, even where the body isn't kept.
func TestAStreamedBodyThatWasNotTouchedIsSentToAnother(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	l.Close()
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	g := start(t, []string{dead, up}, nil)
	for name, client := range clients(t) {
		for i := range 4 { // the dead one comes first in some of them
			resp, err := client.Post(g.URL()+"/pass", "text/plain", io.MultiReader(strings.NewReader("a body "), strings.NewReader("in two pieces")))
			if err != nil {
				t.Fatal(name, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || string(body) != "a body in two pieces" {
				t.Errorf("%s, request %d: %d %q, %v", name, i, resp.StatusCode, body, err)
			}
		}
	}
	if n := testutil.ToFloat64(g.metrics.attempts.WithLabelValues("failed")); n == 0 {
		t.Error("no attempt met the dead worker")
	}
}

// TestAStreamedBodyThatHasGoneIsNotSentByHalves: nobody keeps it, so the refusal of the worker that
// has read it is the answer, and counted.
func TestAStreamedBodyThatHasGoneIsNotSentByHalves(t *testing.T) {
	const text = "a body in two pieces"
	full, hits := worker(t, "full", status(http.StatusServiceUnavailable))
	up, others := worker(t, "up", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	g := start(t, []string{full, up}, nil)
	sent, refused := 0, 0
	for name, client := range clients(t) {
		for i := range 4 { // the full one comes first in some of them
			resp, err := client.Post(g.URL()+"/pass", "text/plain", io.MultiReader(strings.NewReader(text[:7]), strings.NewReader(text[7:])))
			if err != nil {
				t.Fatal(name, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			sent++
			switch {
			case err != nil:
				t.Errorf("%s, request %d: %v", name, i, err)
			case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("X-Worker") == "full":
				refused++
			case resp.StatusCode != http.StatusOK || string(body) != text:
				t.Errorf("%s, request %d: %d %q of %s", name, i, resp.StatusCode, body, resp.Header.Get("X-Worker"))
			}
		}
	}
	if refused == 0 || int(hits.Load()) != refused || int(others.Load()) != sent-refused {
		t.Errorf("%d of %d refused; the workers got %d and %d", refused, sent, hits.Load(), others.Load())
	}
	if n := testutil.ToFloat64(g.metrics.retryImpossible); int(n) != refused {
		t.Errorf("%v retries counted as impossible, want %d", n, refused)
	}
}
