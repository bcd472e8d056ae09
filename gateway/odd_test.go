package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"
)

// say sends bytes on a connection of their own and returns all that comes back
// until the gateway closes it: the last request asks for that.
func say(t *testing.T, g *Gateway, bytes string) string {
	t.Helper()
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(conn, bytes)
	all, _ := io.ReadAll(conn)
	return string(all)
}

// recording is a worker that writes down what it was asked.
func recording(t *testing.T) (address string, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var lines []string
	address, _ = worker(t, "w", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf("%s %s %q %v", r.Method, r.RequestURI, body, err))
		fmt.Fprintf(w, "<%s>", body)
	})
	return address, func() []string { mu.Lock(); defer mu.Unlock(); return lines }
}

// TestSmuggledRequestsDontArrive: what two parsers could read in two ways is
// refused, or sent on in one way only, with framing of our own.
func TestSmuggledRequestsDontArrive(t *testing.T) {
	const second = "GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for _, c := range []struct{ name, request, want string }{
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "400"},
		{"a list of lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 4\r\n\r\nabcd", "400"},
		{"a signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc", "400"},
		{"a negative length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
		{"a length in hex", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc", "400"},
		{"two codings", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "501"},
		{"an unknown coding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501"},
		{"chunked among others", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
		{"a space before the colon", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"},
		{"a folded header", "POST / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n Transfer-Encoding: chunked\r\nContent-Length: 1, 2\r\n\r\n", "400"},
		{"a NUL in a value", "GET / HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\n\r\n", "400"},
		{"a bare CR in a value", "GET / HTTP/1.1\r\nHost: x\r\nX-A: a\rTransfer-Encoding: chunked\r\n\r\n", "400"},
		{"a length of a chunk that overflows", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff1\r\na\r\n0\r\n\r\n", "400"},
		{"a chunk longer than it says", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", "400"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "400"},
		{"a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
		{"an unknown version", "GET / HTTP/3.7\r\nHost: x\r\n\r\n", "505"},
		{"a tunnel", "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", "405"},
	} {
		t.Run(c.name, func(t *testing.T) {
			up, asked := recording(t)
			g := start(t, []string{up}, nil)
			back := say(t, g, c.request+second)
			if !strings.HasPrefix(back, "HTTP/1.1 "+c.want) {
				t.Errorf("the client saw %.60q, want %s", back, c.want)
			}
			for _, line := range asked() {
				if strings.Contains(line, "<nil>") && !strings.Contains(line, "smuggled") {
					t.Errorf("a worker took it for whole: %s", line)
				}
				if strings.Contains(line, "smuggled") && c.name != "a tunnel" {
					t.Errorf("what followed it was taken for a request: %s", line)
				}
			}
		})
	}
	t.Run("a length beside chunks is dropped", func(t *testing.T) {
		up, asked := recording(t)
		g := start(t, []string{up}, nil)
		back := say(t, g, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if got := asked(); strings.Count(back, "HTTP/1.1 200") != 2 || len(got) != 2 || got[0] != `POST /a "abc" <nil>` || got[1] != `GET /b "" <nil>` {
			t.Errorf("the worker was asked %q; the client saw %q", got, back)
		}
	})
}

func TestRequestsInOneGoAreAnsweredInTurn(t *testing.T) {
	up, asked := recording(t)
	g := start(t, []string{up}, nil)
	var all strings.Builder
	for i := range 20 {
		fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: x\r\nConnection: %s\r\nContent-Length: 2\r\n\r\n%02d", i, pick(i < 19, "keep-alive", "close"), i)
	}
	back := say(t, g, all.String())
	if n := strings.Count(back, "HTTP/1.1 200"); n != 20 || len(asked()) != 20 {
		t.Fatalf("%d answers, %d requests, want 20", n, len(asked()))
	}
	at := 0
	for i := range 20 {
		next := strings.Index(back[at:], fmt.Sprintf("<%02d>", i))
		if next < 0 {
			t.Fatalf("answer %d is not in its place", i)
		}
		at += next
	}
}

func TestHTTP10ClientsGetWhatTheyCanRead(t *testing.T) {
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints) // unknown to HTTP/1.0
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush() // chunked from here on
		_, _ = io.WriteString(w, "b")
	})
	g := start(t, []string{up}, nil)
	back := say(t, g, "GET /x HTTP/1.0\r\n\r\n")
	head, body, _ := strings.Cut(back, "\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.0 200") || body != "ab" || strings.Contains(head, "chunked") || strings.Contains(back, "103") {
		t.Errorf("got %q", back)
	}
}

func TestAnswersWithoutABodyKeepTheirHeaders(t *testing.T) {
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(304)
		case "/empty":
			w.Header().Set("Content-Length", "0")
		default: // HEAD of something long
			w.Header().Set("Content-Length", "1000000")
		}
	})
	g := start(t, []string{up}, nil)
	for name, client := range clients(t) {
		for _, c := range []struct {
			method, path string
			status       int
			length       int64
		}{{"GET", "/204", 204, 0}, {"GET", "/304", 304, 0}, {"POST", "/empty", 200, 0}, {"HEAD", "/long", 200, 1000000}} {
			req, _ := http.NewRequest(c.method, g.URL()+c.path, nil)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(name, c.method, c.path, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || len(body) != 0 || resp.StatusCode != c.status || resp.ContentLength != c.length || c.status == 304 && resp.Header.Get("ETag") != `"x"` {
				t.Errorf("%s %s %s: %d, length %d, %d bytes, %v, %v", name, c.method, c.path, resp.StatusCode, resp.ContentLength, len(body), resp.Header, err)
			}
		}
	}
}

func TestInformationalAnswersGoAhead(t *testing.T) {
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(200)
	})
	g := start(t, []string{up}, nil)
	for name, client := range clients(t) {
		var hints []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h.Get("Link")))
			return nil
		}}
		req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", g.URL()+"/held", strings.NewReader("dest="+up+"\n"))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if len(hints) != 1 || hints[0] != "103</a>" || resp.StatusCode != 200 {
			t.Errorf("%s: %q, then %d", name, hints, resp.StatusCode)
		}
	}
}

func TestAbsurdHeadersAreRefused(t *testing.T) {
	up, hits := worker(t, "up", nil)
	g := start(t, []string{up}, nil)
	for _, header := range []string{"X-Long: " + strings.Repeat("a", 200<<10), strings.Repeat("X-Many: 1\r\n", 20_000) + "X-A: 1", strings.Repeat("x", 100<<10) + ": 1"} {
		if back := say(t, g, "GET / HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 431") {
			t.Errorf("h1, %.10q: got %.60q, want 431", header, back)
		}
	}
	req, _ := http.NewRequest("GET", g.URL(), nil)
	req.Header.Set("X-Long", strings.Repeat("a", 200<<10))
	if resp, err := clients(t)["h2c"].Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != 431 {
			t.Errorf("h2: got %d, want 431", resp.StatusCode)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d of them reached the worker", n)
	}
	if back := say(t, g, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Large: "+strings.Repeat("a", 60<<10)+"\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 200") {
		t.Errorf("a large header that Envoy takes: got %.60q", back)
	}
}

func TestWhatIsForThisHopStaysHere(t *testing.T) {
	var seen http.Header
	var length int64
	up, _ := worker(t, "up", func(_ http.ResponseWriter, r *http.Request) { seen, length = r.Header.Clone(), r.ContentLength })
	g := start(t, []string{up}, nil)
	back := say(t, g, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close, X-Mine, Upgrade, HTTP2-Settings\r\nX-Mine: 1\r\nUpgrade: h2c\r\n"+
		"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nKeep-Alive: 5\r\nProxy-Authorization: secret\r\nTE: gzip, trailers\r\nX-Theirs: 1\r\n\r\n")
	if !strings.HasPrefix(back, "HTTP/1.1 200") {
		t.Fatalf("got %.60q", back)
	}
	for _, key := range []string{"X-Mine", "Upgrade", "Http2-Settings", "Keep-Alive", "Proxy-Authorization", "Connection"} {
		if v, ok := seen[key]; ok {
			t.Errorf("%s went on: %q", key, v)
		}
	}
	if seen.Get("Te") != "trailers" || seen.Get("X-Theirs") != "1" || length != 0 {
		t.Errorf("the worker saw %v with length %d", seen, length)
	}
}

// TestNoHeaderMakesABodyOneThatIsNotAdmitted: an upgrade that nobody offers is an
// ordinary request.
func TestNoHeaderMakesABodyOneThatIsNotAdmitted(t *testing.T) {
	for _, connection := range []string{"", "keep-alive", "Upgrade"} {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}"))
		r.Header.Set("Upgrade", "anything")
		r.Header.Set("Connection", connection)
		if value, ok := headerMap(r).Get("upgrade"); ok {
			t.Errorf("Connection %q: the module sees an upgrade to %q", connection, value)
		}
	}
}

func TestAnUnknownExpectationIsRefused(t *testing.T) {
	up, _ := worker(t, "up", nil)
	g := start(t, []string{up}, nil)
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\nExpect: something-else\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusExpectationFailed {
		t.Errorf("got %v, %v; want 417", resp, err)
	}
}

// TestPathsGoOnByteForByte: what a path means is the worker's to say.
func TestPathsGoOnByteForByte(t *testing.T) {
	up, asked := recording(t)
	g := start(t, []string{up}, nil)
	for i, path := range []string{
		"/", "//a//b", "/a/../b/./c", "/a%2Fb", "/a%2fb", "/%2e%2e/x", "/a%00b", "/caf%C3%A9", "/a;b=c", "/a?", "/a?b", "/a?b=c;d=e&f=%zz", "/a?b=c?d#e",
		"/a:b@c", "/~x/!$&'()*+,;=", "/a|b", "/a%7Cb", "/" + strings.Repeat("x", 8000),
	} {
		if back := say(t, g, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 200") {
			t.Errorf("%.40s: got %.60q", path, back)
			continue
		}
		if got := asked(); len(got) != i+1 || got[i] != "GET "+path+` "" <nil>` {
			t.Errorf("%.40q arrived as %.60q", path, got[len(got)-1])
		}
	}
}

func TestAWorkerThatSwitchesUnaskedIsCutOff(t *testing.T) {
	ended := make(chan error, 1)
	up, _ := worker(t, "up", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, _ := w.(http.Hijacker).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, rw)
		ended <- nil
	})
	g := start(t, []string{up}, nil)
	if back := say(t, g, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.1 503") {
		t.Errorf("got %.60q, want 503", back)
	}
	within(t, ended)
}

func TestAStatusThatIsNoneIsA500(t *testing.T) {
	for value, want := range map[string]int{"200": 200, "599": 599, "": 500, "abc": 500, "99": 500, "100": 500, "1000": 500, "-1": 500} {
		if got := statusOf(value); got != want {
			t.Errorf("%q became %d, want %d", value, got, want)
		}
	}
}

func TestTrailersThatNobodyAnnouncedArriveAndThoseOfHeadersDont(t *testing.T) {
	var got http.Header
	up, _ := worker(t, "up", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r.Trailer
	})
	g := start(t, []string{up}, nil)
	for _, path := range []string{"/held", "/pass"} {
		back := say(t, g, "POST "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"+
			"3\r\nabc\r\n0\r\nX-Sum: 1\r\nTransfer-Encoding: gzip\r\nContent-Length: 7\r\nHost: y\r\nAuthorization: z\r\n\r\n")
		if !strings.HasPrefix(back, "HTTP/1.1 200") || len(got) != 1 || got.Get("X-Sum") != "1" {
			t.Errorf("%s: the worker got trailers %v; the client %.40q", path, got, back)
		}
	}
}
