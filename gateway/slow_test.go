package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestAClientThatTakesNothingIsCutAndItsWorkerFreed: a reader that stops holds up
// its worker for ClientTimeout, and only its own connection's buffers in memory.
func TestAClientThatTakesNothingIsCutAndItsWorkerFreed(t *testing.T) {
	freed := make(chan error, 1)
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		piece := make([]byte, 64<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				freed <- err
				return
			}
		}
	})
	g := start(t, []string{up}, func(c *Config) { c.ClientTimeout = 100 * time.Millisecond })
	t.Run("h1", func(t *testing.T) {
		conn, err := net.Dial("tcp", g.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /pass HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
		within(t, freed)
	})
	t.Run("h2c", func(t *testing.T) {
		resp, err := clients(t)["h2c"].Post(g.URL()+"/pass", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		within(t, freed)
	})
	eventually(t, "nothing is open", func() bool { return g.open.now() == 0 })
}

func within(t *testing.T, what <-chan error) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(5 * time.Second):
		t.Error("the worker still writes after 5 s")
	}
}

// TestAStreamMayLastLongerThanAnyTimeout: the limits are on silence, not on length.
func TestAStreamMayLastLongerThanAnyTimeout(t *testing.T) {
	const pieces, pace, timeout = 30, 50 * time.Millisecond, time.Second
	paced := func(ctx context.Context, each func(i int)) {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := range pieces {
			select {
			case <-tick.C:
				each(i)
			case <-ctx.Done():
				return
			}
		}
	}
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || len(body) != pieces {
			t.Errorf("the worker got %d bytes, %v", len(body), err)
		}
		paced(r.Context(), func(i int) {
			fmt.Fprint(w, i, ";")
			w.(http.Flusher).Flush()
		})
	})
	g := start(t, []string{up}, func(c *Config) {
		c.ClientTimeout, c.TokenTimeout, c.FirstByteTimeout = timeout, timeout, 4*pieces*pace
	})
	var all sync.WaitGroup
	for name, client := range clients(t) {
		for _, path := range []string{"/pass", "/held"} {
			all.Go(func() {
				body, more := io.Pipe()
				go func() {
					defer more.Close()
					paced(t.Context(), func(int) { _, _ = more.Write([]byte("x")) })
				}()
				resp, err := client.Post(g.URL()+path, "text/plain", body)
				if err != nil {
					t.Error(name, path, err)
					return
				}
				defer resp.Body.Close()
				if got, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(got), fmt.Sprint(pieces-1, ";")) {
					t.Errorf("%s %s: %d, %q, %v", name, path, resp.StatusCode, got, err)
				}
			})
		}
	}
	all.Wait()
}

func TestABodyThatDripsForEverIsRefused(t *testing.T) {
	up, hits := worker(t, "up", nil)
	g := start(t, []string{up}, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-tick.C:
				_, _ = conn.Write([]byte("x"))
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout || hits.Load() != 0 {
		t.Errorf("got %v, %v; want 408 and no request to the worker", resp, err)
	}
}

// TestASilentUploadIsRefused: a body that streams through holds a worker's
// connection as well as ours.
func TestASilentUploadIsRefused(t *testing.T) {
	up, _ := worker(t, "up", nil)
	g := start(t, []string{up}, func(c *Config) { c.ClientTimeout = 100 * time.Millisecond })
	for name, client := range clients(t) {
		body, more := io.Pipe()
		go func() { _, _ = more.Write([]byte("x")) }()
		resp, err := client.Post(g.URL()+"/pass", "text/plain", body)
		if err != nil {
			t.Fatal(name, err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: got %d, want 408", name, resp.StatusCode)
		}
		more.CloseWithError(errors.New("over"))
	}
}

// TestAClientThatWontSendWhatIsRefusedIsNotWaitedFor: the answer comes at once, the
// connection is closed after a moment.
func TestAClientThatWontSendWhatIsRefusedIsNotWaitedFor(t *testing.T) {
	up, _ := worker(t, "up", nil)
	g := start(t, []string{up}, func(c *Config) { c.HeldLimitBytes = 10 })
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nmore than ten bytes")
	back := bufio.NewReader(conn)
	resp, err := http.ReadResponse(back, nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("got %v, %v; want 503 with Retry-After", resp, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	// What still comes is body, never a request.
	fmt.Fprint(conn, "\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
	if more, err := io.ReadAll(back); err != nil && !errors.Is(err, syscall.ECONNRESET) || len(more) > 0 {
		t.Errorf("the connection is not closed: %q, %v", more, err)
	}
	eventually(t, "nothing is held", func() bool { return g.held.Load() == 0 && g.open.now() == 0 })
	if got := outcome(http.DefaultClient, g.URL()+"/held", "dest=x"); got != "200" {
		t.Errorf("a small one afterwards: %s", got)
	}
}

// TestAClientThatWontSendWhatNobodyReadsIsNotWaitedFor: the worker has answered, or
// broken off, in the middle of a body.
func TestAClientThatWontSendWhatNobodyReadsIsNotWaitedFor(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nenough\r\n"
	for name, answer := range map[string]string{
		"sized":   "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nenough",
		"chunked": head + "0\r\n\r\n",
		"broken":  head,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, []string{early(t, answer)}, nil)
			conn, err := net.Dial("tcp", g.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * lingerTimeout))
			fmt.Fprint(conn, "POST /pass HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n", strings.Repeat("x", 20_000))
			back, err := io.ReadAll(conn)
			if !strings.Contains(string(back), "enough") || err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %q, %v; want the answer and the end of the connection", back, err)
			}
			eventually(t, "nothing is open", func() bool { return g.open.now() == 0 })
		})
	}
}

// TestARefusedBodyIsReadToItsEndOrTheConnectionEnds: what follows a body is the next
// request, and nothing in a body is. The next one comes in the same segment as the
// end of the body before it.
func TestARefusedBodyIsReadToItsEndOrTheConnectionEnds(t *testing.T) {
	up := early(t, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 6\r\n\r\nenough")
	said := &lines{}
	g := start(t, []string{up}, func(c *Config) {
		c.HeldLimitBytes, c.Logger = 10, slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	head := func(path string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path, length)
	}
	for i := range 80 {
		path, want := "/held", 503
		if i%4 >= 2 {
			path, want = "/pass", 413
		}
		conn, err := net.Dial("tcp", g.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		in := bufio.NewReader(conn)
		answer := func() (status int, last bool) {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return 0, true
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode, resp.Close
		}
		first, rest := strings.Repeat("x", 9000), strings.Repeat("x", 4000)
		if i%2 == 0 { // refused before its end
			_, _ = io.WriteString(conn, head(path, len(first+rest))+first)
		} else {
			_, _ = io.WriteString(conn, head(path, len(first+rest))+first+rest+head(path, 7000)+"y")
		}
		status, last := answer()
		if status != want {
			t.Errorf("%d: %s: got %d, want %d", i, path, status, want)
		}
		if i%2 == 0 {
			_, _ = io.WriteString(conn, rest+head(path, 7000)+"y")
		}
		_, _ = io.WriteString(conn, strings.Repeat("y", 6999))
		if status, _ := answer(); last != (status == 0) || !last && status != want {
			t.Errorf("%d: %s: got %d behind an answer whose connection ends: %v", i, path, status, last)
		}
		conn.Close()
	}
	if text := said.String(); strings.Contains(text, "panic") {
		t.Error(text)
	}
}

// lines is what a logger wrote.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// early is a worker that answers a little of a body and ends its connection when all
// of it has come, or in the middle of an answer at once.
func early(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.ReadFull(r.Body, make([]byte, 1000))
		_, _ = io.WriteString(conn, answer)
		if !strings.HasSuffix(answer, "enough\r\n") {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

// TestARefusalKeepsTheConnectionOfAClientThatHasSentAll: many are refused when the
// fleet is full, and all of them come again.
func TestARefusalKeepsTheConnectionOfAClientThatHasSentAll(t *testing.T) {
	up, _ := worker(t, "up", nil)
	g := start(t, []string{up}, func(c *Config) { c.HeldLimitBytes = 10 })
	big := strings.Repeat("x", 40<<10) // more than is read at once
	for range 3 {
		back := say(t, g, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 40960\r\n\r\n"+big+"GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(back, "HTTP/1.1 503") || strings.Count(back, "HTTP/1.1 200") != 1 {
			t.Fatalf("got %q, want 503 and then 200", back)
		}
	}
	if back := say(t, g, "POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 600000\r\n\r\n"+big); !strings.Contains(back, "Connection: close") {
		t.Errorf("much is left to send: got %q, want the connection closed", back)
	}
}

// TestAStreamOutlivesTheGOAWAYOfItsWorker: an HTTP/2 worker that drains finishes
// what it has.
func TestAStreamOutlivesTheGOAWAYOfItsWorker(t *testing.T) {
	certFile, keyFile := writePair(t, t.TempDir(), 1, time.Now())
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	rest := make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-rest
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	up.EnableHTTP2, up.TLS = true, &tls.Config{Certificates: []tls.Certificate{pair}}
	up.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	up.StartTLS()
	defer up.Close()
	g := start(t, []string{"https://" + up.Listener.Addr().String()}, func(c *Config) { c.UpstreamCAFile = certFile })
	_, events := begin(t, http.DefaultClient, g)
	shut := make(chan error, 1)
	go func() { shut <- up.Config.Shutdown(context.Background()) }()
	eventually(t, "the worker takes no more", func() bool {
		conn, err := net.Dial("tcp", up.Listener.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if got := outcome(http.DefaultClient, g.URL()+"/held", "dest=x"); got != "503" {
		t.Errorf("a request to the draining worker: %s, want 503", got)
	}
	close(rest)
	if tail, err := io.ReadAll(events); err != nil || string(tail) != "\ndata: 2\n\n" {
		t.Errorf("the open stream got %q, %v", tail, err)
	}
	if err := <-shut; err != nil {
		t.Error(err)
	}
}
