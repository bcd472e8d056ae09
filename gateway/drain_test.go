package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// drainable is a gateway in front of a worker that sends "data: 1" and, when told
// so, the rest.
func drainable(t *testing.T, edit func(*Config)) (g *Gateway, stop func() error, rest chan struct{}) {
	t.Helper()
	rest = make(chan struct{})
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-rest:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "data: 2\n\n")
	})
	known, err := NewEndpoints("", up)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Module: guest, Endpoints: known, VMs: 1,
		CacheDir: filepath.Join(os.TempDir(), "warmpath-test-wazero"), DrainTimeout: 10 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
	edit(&cfg)
	g, stop = launch(t, cfg)
	return g, stop, rest
}

// begin sends a request and returns its answer once the first event is here.
func begin(t *testing.T, client *http.Client, g *Gateway) (*http.Response, *bufio.Reader) {
	t.Helper()
	resp, err := client.Post(g.URL()+"/pass", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	events := bufio.NewReader(resp.Body)
	if line, err := events.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("first event %q, %v", line, err)
	}
	return resp, events
}

func ready(g *Gateway) int {
	resp, err := http.Get("http://" + g.AdminAddr() + "/readyz")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestADrainTellsFirstThenRefusesThenWaits follows a drain through its three
// phases, with a stream open all the way.
func TestADrainTellsFirstThenRefusesThenWaits(t *testing.T) {
	for name, client := range clients(t) {
		t.Run(name, func(t *testing.T) {
			g, stop, rest := drainable(t, func(c *Config) { c.DrainDelay = 300 * time.Millisecond })
			_, events := begin(t, client, g)
			if got := ready(g); got != 200 {
				t.Fatalf("/readyz says %d before the drain", got)
			}
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			eventually(t, "/readyz says 503", func() bool { return ready(g) == 503 })

			// Those who haven't heard yet are served, on a connection that is not kept.
			resp, _ := begin(t, http.DefaultClient, g)
			if !resp.Close {
				t.Error("a connection is kept during the drain")
			}
			eventually(t, "new connections are refused", func() bool {
				conn, err := net.Dial("tcp", g.Addr())
				if err == nil {
					conn.Close()
				}
				return errors.Is(err, syscall.ECONNREFUSED)
			})
			if got := ready(g); got != 503 {
				t.Errorf("/readyz says %d while streams finish", got)
			}
			select {
			case err := <-ended:
				t.Fatalf("the gateway ended (%v) with a stream open", err)
			default:
			}
			close(rest)
			if tail, err := io.ReadAll(events); err != nil || string(tail) != "\ndata: 2\n\n" {
				t.Errorf("the open stream got %q, %v", tail, err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADrainThatTakesTooLongCutsWhatIsOpen(t *testing.T) {
	for name, client := range clients(t) {
		t.Run(name, func(t *testing.T) {
			g, stop, _ := drainable(t, func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
			_, events := begin(t, client, g)
			began := time.Now()
			if err := stop(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the drain took %v", took)
			}
			if tail, err := io.ReadAll(events); err == nil {
				t.Errorf("a cut stream ended as if it were whole: %q", tail)
			}
			if n := g.open.now(); n != 0 {
				t.Errorf("%d exchanges are open", n)
			}
		})
	}
}

// TestADrainCountsConnectionsThatLeftHTTP: the server forgets a WebSocket, the
// gateway doesn't.
func TestADrainCountsConnectionsThatLeftHTTP(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint("patient ", patient), func(t *testing.T) {
			echo, _ := worker(t, "echo", func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, _ := w.(http.Hijacker).Hijack()
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				_, _ = io.Copy(conn, rw)
			})
			g, stop, _ := drainable(t, func(c *Config) {
				c.DrainTimeout = pick(patient, 10*time.Second, 50*time.Millisecond)
				_ = c.Endpoints.Set(map[string][]string{"": {echo}})
			})
			conn, err := net.Dial("tcp", g.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(8 * time.Second))
			fmt.Fprint(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			back := bufio.NewReader(conn)
			if resp, err := http.ReadResponse(back, nil); err != nil || resp.StatusCode != 101 {
				t.Fatalf("got %v, %v", resp, err)
			}
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			eventually(t, "the drain has begun", func() bool { return g.draining.Load() })
			if patient {
				fmt.Fprint(conn, "one\n")
				if heard, err := back.ReadString('\n'); heard != "one\n" {
					t.Errorf("heard %q, %v during the drain", heard, err)
				}
				conn.Close()
			} else if _, err := back.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("the connection is not cut: %v", err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADrainEndsTheConnectionBehindAnInformationalAnswerToo(t *testing.T) {
	up, _ := worker(t, "up", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(200)
	})
	g := start(t, []string{up}, nil)
	g.draining.Store(true)
	resp, err := http.Get(g.URL() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !resp.Close {
		t.Error("the connection is kept")
	}
}
