package guard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// front is a guard on a port of its own before an engine that the test plays.
type front struct {
	*Guard
	t      *testing.T
	engine *httptest.Server
	url    string
	client *http.Client
}

func newFront(t *testing.T, c Config, engine http.HandlerFunc) *front {
	t.Helper()
	f := &front{t: t, engine: httptest.NewServer(engine)}
	c.Engine = f.engine.URL
	var err error
	if f.Guard, err = New(c); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.url = "http://" + ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.Serve(ln) }()
	f.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		f.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		f.engine.Close()
	})
	return f
}

const chat = "/v1/chat/completions"

func (f *front) post(ctx context.Context, path string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return f.client.Do(req)
}

// whole posts and reads the answer.
func (f *front) whole(path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	resp, err := f.post(f.t.Context(), path, strings.NewReader(body), headers...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, string(text)
}

// until waits for a state of the gate.
func (f *front) until(what string, ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("not after 10 s: %s (%d in flight, %d wait)", what, f.InFlight(), f.Waiting())
		}
	}
}

func (f *front) idle() {
	f.t.Helper()
	f.until("nothing is left", func() bool { return f.InFlight() == 0 && f.Waiting() == 0 })
	f.mu.Lock()
	defer f.mu.Unlock()
	(&play{t: f.t, gate: f.gate}).empty()
}

func TestRequestAndAnswerPassAsTheyAre(t *testing.T) {
	type seen struct {
		method, uri, host string
		header            http.Header
		sum               [32]byte
		length            int64
	}
	got := make(chan seen, 1)
	f := newFront(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.RequestURI, r.Host, r.Header, sha256.Sum256(body), r.ContentLength}
		w.Header()["X-Engine"] = []string{"a", "b"}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", "5")
	})
	for _, protocol := range []string{"h1", "h2c"} {
		transport := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(protocol == "h1")
		transport.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
		for _, size := range []int{0, 1, 1 << 16, 2<<20 + 1} {
			for _, chunked := range []bool{false, true} {
				text := make([]byte, size)
				for i := range text {
					text[i] = byte(rand.Uint32())
				}
				var body io.Reader = bytes.NewReader(text)
				if chunked {
					body = io.MultiReader(body)
				}
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+chat+"?a=1;b&c=%zz", body)
				req.Header = http.Header{
					"Authorization": {"Bearer k"}, "X-Forwarded-For": {"10.1.2.3"}, "X-Forwarded-Proto": {"https"}, "X-Vllm-Priority": {"2"},
					"Forwarded": {"for=10.1.2.3"}, "X-Twice": {"1", "2"}, "User-Agent": nil, "Accept-Encoding": {"zstd"},
				}
				if protocol == "h1" { // HTTP/2 has no such headers
					req.Header["Connection"], req.Header["X-Hop"] = []string{"x-hop"}, []string{"1"}
				}
				req.Host = "models.example.com"
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				back, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				s := <-got
				want := http.Header{
					"Authorization": {"Bearer k"}, "X-Forwarded-For": {"10.1.2.3"}, "X-Forwarded-Proto": {"https"}, "X-Vllm-Priority": {"2"},
					"Forwarded": {"for=10.1.2.3"}, "X-Twice": {"1", "2"}, "Accept-Encoding": {"zstd"},
				}
				delete(s.header, "Content-Length")
				if s.method != "POST" || s.uri != chat+"?a=1;b&c=%zz" || s.host != "models.example.com" || s.sum != sha256.Sum256(text) || !chunked && s.length != int64(size) {
					t.Errorf("%s %d %v: %s %s %s, %d bytes", protocol, size, chunked, s.method, s.uri, s.host, s.length)
				}
				if diff := cmp.Diff(want, s.header); diff != "" {
					t.Errorf("%s: %s", protocol, diff)
				}
				if err != nil || resp.StatusCode != http.StatusTeapot || !bytes.Equal(back, text) || !slices.Equal(resp.Header["X-Engine"], []string{"a", "b"}) ||
					resp.Header.Get("Content-Type") != "application/json" || resp.Trailer.Get("X-Sum") != "5" || resp.Header.Get(RefusedHeader) != "" {
					t.Errorf("%s %d: %v %d %v %v", protocol, size, err, resp.StatusCode, resp.Header, resp.Trailer)
				}
			}
		}
		transport.CloseIdleConnections()
	}
	f.idle()
}

// TestOnlyAWholeAnswerProvesThatAPromptWasComputed: not an error, nor a stream that broke.
func TestOnlyAWholeAnswerProvesThatAPromptWasComputed(t *testing.T) {
	f := newFront(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "error":
			w.WriteHeader(http.StatusBadRequest)
		case "broken":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "{}")
	})
	for _, step := range []struct {
		query string
		want  tally
	}{{"error", tally{sent: 1, ended: 1}}, {"broken", tally{sent: 2, ended: 2}}, {"", tally{sent: 3, ended: 3, served: 1}}} {
		resp, err := f.post(t.Context(), chat+"?"+step.query, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		f.idle()
		got := f.Ask().tally
		if got.answered = 0; got != step.want {
			t.Errorf("%q: %+v, want %+v", step.query, got, step.want)
		}
	}
}

func TestAStreamIsPassedOnPieceByPiece(t *testing.T) {
	more := make(chan string)
	f := newFront(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for text := range more {
			fmt.Fprint(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		more <- "data: 0\n\n"
	}()
	resp, err := f.post(t.Context(), chat, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-sent
	lines := bufio.NewReader(resp.Body)
	for i := range 50 {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q %v", line, err)
		}
		if line, _ := lines.ReadString('\n'); line != "\n" {
			t.Fatalf("%q", line)
		}
		// Only now is there more: what was there has come.
		more <- fmt.Sprintf("data: %d\n\n", i+1)
	}
	close(more)
	if rest, err := io.ReadAll(lines); string(rest) != "data: 50\n\n" || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	f.idle()
}

// An engine may refuse a request by its first bytes: what is left of the body must
// not cut the answer.
func TestAnEngineMayAnswerBeforeItHasReadTheBody(t *testing.T) {
	f := newFront(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 20 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	for i := range 50 {
		resp, text := f.whole(chat, strings.Repeat("x", 20_000*(i%5)))
		if resp.StatusCode != 200 || !strings.HasSuffix(text, "data: 19\n\ndata: [DONE]\n\n") {
			t.Fatalf("%d: %d ...%q", i, resp.StatusCode, text[max(0, len(text)-100):])
		}
	}
	f.idle()
}

// A client that leaves is heard of at the engine, whenever it does.
func TestAClientThatLeavesIsHeardOfAtOnce(t *testing.T) {
	began, gone := make(chan struct{}, 8), make(chan struct{}, 8)
	f := newFront(t, Config{Limits: Limits{MaxRunning: 1, EngineQueue: 1}}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "messages") {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		began <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	for _, protocol := range []string{"h1", "h2c"} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(protocol == "h1")
		transport.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
		f.client = &http.Client{Transport: transport}
		start := func(path string, body io.Reader) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if resp, err := f.post(ctx, path, body); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			return func() { cancel(); <-ended }
		}
		before := start(chat, strings.NewReader("{}"))           // before headers
		within := start("/v1/messages", strings.NewReader("{}")) // within a stream
		<-began
		<-began
		waits := start(chat, strings.NewReader(strings.Repeat("x", 100_000)))
		halfBody, half := io.Pipe()
		slow := start(chat, halfBody)
		go func() { _, _ = half.Write([]byte("{")) }()
		f.until("two wait", func() bool { return f.Waiting() == 2 })
		waits()
		f.until("one waits", func() bool { return f.Waiting() == 1 })
		half.CloseWithError(context.Canceled)
		slow()
		f.until("nobody waits", func() bool { return f.Waiting() == 0 })
		within()
		<-gone
		before()
		<-gone
		f.idle()
		transport.CloseIdleConnections()
	}
	counted := f.metrics.requests[p1][aborted]
	if n := value(t, counted); n != 8 {
		t.Errorf("%v counted as aborted", n)
	}
}

func TestWhoWaitsIsServedByteForByte(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, Config{Limits: Limits{MaxRunning: 1, EngineQueue: 1}}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hold") != "" {
			<-release
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	ends := make(chan error, 22)
	send := func(body io.Reader, want []byte, headers ...string) {
		go func() {
			resp, err := f.post(t.Context(), chat, body, headers...)
			if err != nil {
				ends <- err
				return
			}
			defer resp.Body.Close()
			back, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != 200 || !bytes.Equal(back, want)) {
				err = fmt.Errorf("status %d, %d of %d bytes", resp.StatusCode, len(back), len(want))
			}
			ends <- err
		}()
	}
	for range 2 {
		send(strings.NewReader("{}"), []byte("{}"), "X-Hold", "1")
	}
	f.until("two are at the engine", func() bool { return f.InFlight() == 2 })
	for i := range 20 {
		text := bytes.Repeat([]byte{byte(i), 2, 3, 5, 7}, 1+i*i*500)
		var body io.Reader = bytes.NewReader(text)
		if i%2 == 1 {
			body = io.MultiReader(body) // beyond what is read ahead of an unknown length, mostly
		}
		send(body, text)
	}
	f.until("twenty wait", func() bool { return f.Waiting() == 20 })
	close(release)
	for range 22 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	f.idle()
}

func TestARefusalIsToldInTheDialectOfThePath(t *testing.T) {
	f := newFront(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	f.Drain()
	for path, want := range map[string]string{
		chat:                `{"error":{"message":"This worker is about to end; another one serves.","type":"server_error","param":null,"code":"overloaded"}}`,
		"/team/v1/messages": `{"type":"error","error":{"type":"overloaded_error","message":"This worker is about to end; another one serves."}}`,
		"/v1/embeddings":    `"code":"overloaded"`,
		"/v1/responses?x=1": `"code":"overloaded"`,
		"/v1/completions/":  `"code":"overloaded"`,
	} {
		resp, text := f.whole(path, strings.Repeat("x", 300_000))
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != 503 || resp.Header.Get("X-Warmpath-Refused") != "draining" || err != nil || after < 1 || after > 4 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, text)
		}
	}
	// What is no work passes.
	if resp, _ := f.whole("/tokenize", "{}"); resp.StatusCode != 200 {
		t.Errorf("/tokenize: %d", resp.StatusCode)
	}
	if n := value(t, f.metrics.refusals[p1][draining]); n != 5 {
		t.Errorf("%v refusals counted", n)
	}
}

// TestARefusedBodyIsReadToItsEndOrTheConnectionEnds: what follows a body is the next request, and
// nothing in a body is. The next one comes in the same segment as the end of the body before it.
func TestARefusedBodyIsReadToItsEndOrTheConnectionEnds(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, Config{Limits: Limits{MaxRunning: 1, EngineQueue: 1, QueueBytes: 10}}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	ends := make(chan struct{})
	for range 2 {
		go func() {
			f.whole(chat, "{}")
			ends <- struct{}{}
		}()
	}
	f.until("two are at the engine", func() bool { return f.InFlight() == 2 })
	head := func(path string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, length)
	}
	for range 50 {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(c)
		answer := func() int {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return 0
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		_, _ = io.WriteString(c, head(chat, 5000)+strings.Repeat("x", 1000))
		if got := answer(); got != 503 {
			t.Fatalf("the first: %d", got)
		}
		_, _ = io.WriteString(c, strings.Repeat("x", 4000)+head(chat, 7000)+strings.Repeat("y", 10))
		time.Sleep(time.Millisecond)
		_, _ = io.WriteString(c, strings.Repeat("y", 6990))
		if got := answer(); got != 503 {
			t.Fatalf("the second: %d", got)
		}
		_ = c.Close()
	}
	refusals := value(t, f.metrics.refusals[p1][queueFull])
	c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hidden := head(chat, 11)
	_, _ = io.WriteString(c, head(chat, len(hidden))+hidden[:1])
	in := bufio.NewReader(c)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 503 {
		t.Fatal(resp, err)
	} else {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	time.Sleep(2 * skipTimeout)
	_, _ = io.WriteString(c, hidden[1:])
	if resp, err := http.ReadResponse(in, nil); err == nil {
		t.Errorf("what is in a body was answered: %d", resp.StatusCode)
	}
	if n := value(t, f.metrics.refusals[p1][queueFull]); n != refusals+1 {
		t.Errorf("%v requests were seen in one", n-refusals)
	}
	close(release)
	<-ends
	<-ends
}

func TestWhoHasWaitedLongEnoughIsTold(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, Config{
		ClassHeader: "X-Class", TenantHeader: "X-Tenant",
		Limits: Limits{MaxRunning: 1, EngineQueue: 1, QueueWait: [classes]time.Duration{p0: 50 * time.Millisecond}},
	}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	ends := make(chan struct{})
	for range 2 {
		go func() {
			f.whole(chat, "{}", "X-Tenant", "a")
			ends <- struct{}{}
		}()
	}
	f.until("two are at the engine", func() bool { return f.InFlight() == 2 })
	for _, class := range []string{"p0", "P0", "0"} {
		began := time.Now()
		resp, _ := f.whole(chat, strings.Repeat("x", 1000), "X-Class", class, "X-Tenant", "b")
		if took := time.Since(began); resp.StatusCode != 503 || resp.Header.Get(RefusedHeader) != "queue_timeout" || took < 50*time.Millisecond {
			t.Errorf("%s: %d %v after %v", class, resp.StatusCode, resp.Header, took)
		}
	}
	close(release)
	<-ends
	<-ends
	f.idle()
}

func TestAnEngineThatIsGoneIsToldApart(t *testing.T) {
	f := newFront(t, Config{TokenTimeout: 200 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		what := r.Header.Get("X-Do")
		if strings.Contains(what, "stream") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		if strings.Contains(what, "begin") {
			fmt.Fprint(w, "data: 1\n\ndat")
			_ = http.NewResponseController(w).Flush()
		}
		if strings.Contains(what, "silent") {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	})
	for do, want := range map[string]struct{ path, text string }{
		"":                    {chat, ""}, // reset before its headers: a reset
		"begin":               {chat, "data: 1\n\ndat"},
		"stream begin":        {chat, "data: 1\n\ndat\n\ndata: {\"error\":{\"message\":\"The answer is incomplete: the engine broke off in mid-answer.\",\"type\":\"server_error\",\"param\":null,\"code\":\"incomplete\"}}\n\n"},
		"stream begin ant":    {"/v1/messages", "data: 1\n\ndat\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"The answer is incomplete: the engine broke off in mid-answer.\"}}\n\n"},
		"stream begin silent": {chat, "data: 1\n\ndat\n\ndata: {\"error\":{\"message\":\"The answer is incomplete: the engine fell silent in mid-answer.\",\"type\":\"server_error\",\"param\":null,\"code\":\"incomplete\"}}\n\n"},
	} {
		resp, err := f.post(t.Context(), want.path, strings.NewReader("{}"), "X-Do", do)
		if want.text == "" {
			if err == nil {
				t.Errorf("%q: status %d", do, resp.StatusCode)
				resp.Body.Close()
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(text) != want.text || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %q, %v", do, text, err)
		}
	}
	if n := value(t, f.metrics.requests[p1][broken]); n != 5 {
		t.Errorf("%v counted as broken", n)
	}
	// It takes no connection: nothing has begun, and another may serve.
	f.engine.Close()
	resp, _ := f.whole(chat, "{}")
	if resp.StatusCode != 503 || resp.Header.Get(RefusedHeader) != "engine_down" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	f.idle()
}

func TestADrainEndsWhoWaitsAndLeavesWhoRuns(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, Config{Limits: Limits{MaxRunning: 1, EngineQueue: 1}}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		if r.Header.Get("X-Long") == "" {
			fmt.Fprint(w, "data: 2\n\n")
			return
		}
		<-r.Context().Done()
	})
	type end struct {
		status int
		text   string
		err    error
	}
	send := func(ends chan end, headers ...string) {
		go func() {
			resp, err := f.post(t.Context(), chat, strings.NewReader("{}"), headers...)
			if err != nil {
				ends <- end{err: err}
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			ends <- end{resp.StatusCode, string(text), err}
		}()
	}
	runs, long, waits := make(chan end, 1), make(chan end, 1), make(chan end, 3)
	send(runs)
	send(long, "X-Long", "1")
	f.until("two run", func() bool { return f.InFlight() == 2 })
	for range 3 {
		send(waits)
	}
	f.until("three wait", func() bool { return f.Waiting() == 3 })
	f.until("both answers have begun", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.gate.prefill.pending == 0
	})
	f.Drain()
	for range 3 {
		if e := <-waits; e.status != 503 {
			t.Errorf("who waited: %+v", e)
		}
	}
	close(release)
	if e := <-runs; e.status != 200 || e.text != "data: 1\n\ndata: 2\n\n" || e.err != nil {
		t.Errorf("who ran: %+v", e)
	}
	if left := f.Close(); left != 1 {
		t.Errorf("%d cut", left)
	}
	if e := <-long; e.status != 200 || e.err == nil || !strings.Contains(e.text, `"The answer is incomplete: the worker ends."`) {
		t.Errorf("who ran for too long: %+v", e)
	}
	f.idle()
}

func TestTheEnginesMetricsHaveTheGuardsBehind(t *testing.T) {
	f := newFront(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "" || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("asked for %v", r.Header)
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, "vllm:num_requests_running 3\nvllm:num_requests_waiting 1")
	})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text")
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	for _, want := range []string{"vllm:num_requests_waiting 1\n", "\nwarmpath_guard_queue_requests 0\n", `warmpath_guard_in_flight{class="p0"} 0`, `warmpath_guard_refused_total{class="p1",reason="queue_full"} 0`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []Config{
		{},
		{Engine: "http://127.0.0.1:8000/v1"},
		{Engine: "http://x", Limits: Limits{EngineQueue: -1}},
		{Engine: "http://x", Limits: Limits{MemoryHigh: 90}},
		{Engine: "http://x", Limits: Limits{MemoryHigh: 0.5, MemoryLow: 0.6}},
		{Engine: "http://x", Limits: Limits{QueueWait: [classes]time.Duration{-1}}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
