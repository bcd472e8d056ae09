package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// start runs a gateway with the guest module in front of endpoints.
func start(t *testing.T, endpoints []string, edit func(*Config)) *Gateway {
	t.Helper()
	known, err := NewEndpoints("", endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(os.TempDir(), "warmpath-test-wazero")
	cfg := Config{
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Module: guest, Endpoints: known, VMs: 2,
		CacheDir: cache, DrainTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&cfg)
	}
	g, stop := launch(t, cfg)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := testutil.ToFloat64(g.metrics.active); n != 0 {
			t.Errorf("%v exchanges are booked as open", n)
		}
		if n := g.held.Load(); n != 0 {
			t.Errorf("%d bytes are booked as held", n)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return g
}

// launch runs a gateway until stop, which waits for the drain.
func launch(t *testing.T, cfg Config) (g *Gateway, stop func() error) {
	t.Helper()
	g, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	return g, func() error { cancel(); return <-ended }
}

// worker is an upstream that answers with its name and counts requests.
func worker(t *testing.T, name string, h http.HandlerFunc) (address string, hits *atomic.Int64) {
	t.Helper()
	hits = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		w.Header().Set("X-Worker", name)
		if h != nil {
			h(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), hits
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
	}
}

// reset closes the connection before any response byte.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, _ := w.(http.Hijacker).Hijack()
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

func post(t *testing.T, g *Gateway, body string) *http.Response {
	t.Helper()
	resp, err := http.Post(g.URL()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func counter(g *Gateway, name string) uint64 {
	m, _ := g.Host().Metric(name)
	return m.Value
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5 s: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestModulesChoiceIsHonouredAndTheSecondServesWhenTheBestCannot(t *testing.T) {
	dead := httptest.NewServer(nil)
	deadAddr := dead.Listener.Addr().String()
	dead.Close()
	ok, _ := worker(t, "ok", nil)
	other, _ := worker(t, "other", nil)
	best, _ := worker(t, "best", nil)
	refusing, _ := worker(t, "refusing", status(503))
	stalling, _ := worker(t, "stalling", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(503)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	limited, _ := worker(t, "limited", status(429))
	failing, _ := worker(t, "failing", status(500))
	bad, _ := worker(t, "bad", status(400))
	resetting, _ := worker(t, "resetting", reset)
	g := start(t, []string{ok, other, best, refusing, stalling, limited, failing, bad, resetting, deadAddr}, nil)

	for _, c := range []struct {
		name, dest string
		status     int
		worker     string
		attempts   string
	}{
		{"the best alone", best + "," + ok, 200, "best", ""},
		{"503", refusing + "," + ok, 200, "ok", "2"},
		{"503 that never ends", stalling + "," + ok, 200, "ok", "2"},
		{"429", limited + "," + ok, 200, "ok", "2"},
		{"refused connection", deadAddr + "," + ok, 200, "ok", "2"},
		{"reset before headers", resetting + "," + ok, 200, "ok", "2"},
		{"500 is never retried", failing + "," + ok, 500, "failing", ""},
		{"400 is never retried", bad + "," + ok, 400, "bad", ""},
		{"one retry, not two", refusing + "," + limited + "," + ok, 429, "limited", "2"},
		{"an unknown entry costs no attempt", "127.0.0.1:1," + ok, 200, "ok", ""},
		{"a malformed entry is left out", "nonsense," + ok, 200, "ok", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := post(t, g, "dest="+c.dest+"\n{}")
			if resp.StatusCode != c.status || resp.Header.Get("X-Worker") != c.worker || resp.Header.Get(attemptsHeader) != c.attempts {
				t.Fatalf("got %d from %q with attempts %q, want %d from %q with %q", resp.StatusCode,
					resp.Header.Get("X-Worker"), resp.Header.Get(attemptsHeader), c.status, c.worker, c.attempts)
			}
		})
	}
	t.Run("no retry when the module forbids it", func(t *testing.T) {
		if resp := post(t, g, "once="+refusing+","+ok+"\n{}"); resp.StatusCode != 503 {
			t.Fatalf("got %d from %s", resp.StatusCode, resp.Header.Get("X-Worker"))
		}
	})
}

func TestUnknownEndpointsFallBackInTurn(t *testing.T) {
	a, hitsA := worker(t, "a", nil)
	b, hitsB := worker(t, "b", nil)
	g := start(t, []string{a, b}, nil)
	for range 10 {
		if resp := post(t, g, "dest=127.0.0.1:1\n{}"); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	if hitsA.Load() != 5 || hitsB.Load() != 5 {
		t.Fatalf("a served %d, b %d; want 5 each", hitsA.Load(), hitsB.Load())
	}
}

func TestClientsCannotNameTheEndpoint(t *testing.T) {
	var seen http.Header
	a, _ := worker(t, "a", func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })
	b, hitsB := worker(t, "b", nil)
	g := start(t, []string{a, b}, nil)
	req, _ := http.NewRequest("POST", g.URL()+"/v1/chat/completions", strings.NewReader("dest="+a+"\n"))
	req.Header.Set("x-gateway-destination-endpoint", b)
	req.Header.Set("x-warmpath-pool", "theirs")
	req.Header.Set("x-envoy-max-retries", "9")
	req.Header.Set("Authorization", "Bearer keep")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if hitsB.Load() != 0 || seen == nil {
		t.Fatal("the client's endpoint was used")
	}
	for _, key := range []string{"X-Gateway-Destination-Endpoint", "X-Warmpath-Pool", "X-Envoy-Max-Retries"} {
		if v := seen.Get(key); v != "" {
			t.Errorf("%s reached the worker: %q", key, v)
		}
	}
	if seen.Get("Authorization") != "Bearer keep" || seen.Get("X-Forwarded-For") == "" {
		t.Errorf("end-to-end headers: %v", seen)
	}
}

// chunked hides a reader's length and hands it out in random pieces.
type chunked struct {
	r   io.Reader
	rng *rand.Rand
}

func (c chunked) Read(p []byte) (int, error) { return c.r.Read(p[:1+c.rng.IntN(len(p))]) }

func TestBodiesAreByteExactBothWaysInWhateverPieces(t *testing.T) {
	echo, _ := worker(t, "echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rng := rand.New(rand.NewPCG(1, uint64(len(body))))
		fmt.Fprintf(w, "%x %d\n", sha256.Sum256(body), r.ContentLength)
		for len(body) > 0 {
			n := min(len(body), 1+rng.IntN(50_000))
			_, _ = w.Write(body[:n])
			w.(http.Flusher).Flush()
			body = body[n:]
		}
	})
	g := start(t, []string{echo}, nil)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, size := range []int{0, 1, 100, 4 << 10, 32<<10 - 1, 32 << 10, 400 << 10, 2 << 20} {
		for _, path := range []string{"/held", "/pass"} {
			for _, sized := range []bool{true, false} {
				body := append([]byte("dest="+echo+"\n"), make([]byte, size)...)
				for i := len(body) - size; i < len(body); i++ {
					body[i] = byte(rng.Uint32())
				}
				var r io.Reader = bytes.NewReader(body)
				if !sized {
					r = chunked{r, rng}
				}
				resp, err := http.Post(g.URL()+path, "application/octet-stream", r)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				length := len(body)
				if !sized {
					length = -1
				}
				want := fmt.Appendf(nil, "%x %d\n%s", sha256.Sum256(body), length, body)
				if !bytes.Equal(answer, want) {
					t.Fatalf("%s, %d bytes, sized %v: the answer differs (%d bytes, want %d)", path, size, sized, len(answer), len(want))
				}
			}
		}
	}
}

func TestEachEventReachesTheClientBeforeTheNextIsSent(t *testing.T) {
	next := make(chan struct{})
	up, _ := worker(t, "sse", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	g := start(t, []string{up}, nil)
	resp := post(t, g, "dest="+up+"\n")
	if resp.ContentLength != -1 {
		t.Errorf("a stream got Content-Length %d", resp.ContentLength)
	}
	lines := bufio.NewScanner(resp.Body)
	for i := range 5 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) {
			t.Fatalf("event %d: %q", i, lines.Text())
		}
		lines.Scan()
		next <- struct{}{}
	}
	eventually(t, "the module saw every piece", func() bool { return counter(g, "guest.response_chunks") >= 5 })
}

func TestWhateverEndsAnExchangeTheModuleHearsOnce(t *testing.T) {
	hang, _ := worker(t, "hang", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server can't see the client leave
		<-r.Context().Done()
	})
	silent, _ := worker(t, "silent", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("data: 1\n\n"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	midReset, _ := worker(t, "mid", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("data: 1\n\n"))
		w.(http.Flusher).Flush()
		reset(w, r)
	})
	ok, _ := worker(t, "ok", nil)
	short := func(c *Config) {
		c.HeldTimeout, c.FirstByteTimeout, c.TokenTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	}
	brief := func(c *Config) { c.RequestTimeout = 50 * time.Millisecond }
	long := func(*Config) {}
	for _, c := range []struct {
		name  string
		edit  func(*Config)
		body  string
		leave bool // the client leaves once the gateway has the request
		want  string
	}{
		{"a complete answer", long, "dest=" + ok, false, "200"},
		{"a refusal by the module", long, "refuse", false, "429"},
		{"held for ever", short, "hold", false, "504"},
		{"no first byte", short, "dest=" + hang, false, "504"},
		{"all time is up while held", brief, "hold", false, "504"},
		{"all time is up before headers", brief, "dest=" + hang, false, "504"},
		{"all time is up in mid-stream", brief, "dest=" + silent, false, "200 cut"},
		{"silence in mid-stream", short, "dest=" + silent, false, "200 cut"},
		{"reset in mid-stream", long, "dest=" + midReset, false, "200 cut"},
		{"client leaves while held", long, "hold", true, "left"},
		{"client leaves before headers", long, "dest=" + hang, true, "left"},
		{"client leaves in mid-stream", long, "dest=" + silent, true, "left"},
		{"a panic in the module", long, "panic", false, "200"},
	} {
		for _, protocol := range []string{"h1", "h2c"} {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				g := start(t, []string{ok, hang, silent, midReset}, c.edit)
				client := clients(t)[protocol]
				if c.body == "panic" { // goes to the fallback: give it one that answers
					_ = g.cfg.Endpoints.Set(map[string][]string{"": {ok}})
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.leave {
					go func() {
						for testutil.ToFloat64(g.metrics.active) == 0 {
							runtime.Gosched()
						}
						cancel()
					}()
				}
				req, _ := http.NewRequestWithContext(ctx, "POST", g.URL()+"/v1/completions", strings.NewReader(c.body+"\n"))
				got := "left"
				if resp, err := client.Do(req); err == nil {
					got = fmt.Sprint(resp.StatusCode)
					if _, err := io.ReadAll(resp.Body); errors.Is(err, context.Canceled) {
						got = "left"
					} else if err != nil {
						got += " cut"
					}
					resp.Body.Close()
				} else if !errors.Is(err, context.Canceled) {
					got = err.Error()
				}
				if got != c.want {
					t.Errorf("client saw %q, want %q", got, c.want)
				}
				eventually(t, "done ran", func() bool { return counter(g, "guest.done") == 1 })
				if got == "left" && counter(g, "guest.upstream_failures") != 0 {
					t.Error("the client left and the module hears of a worker that failed")
				}
				if c.body == "dest="+midReset && counter(g, "guest.upstream_failures") != 1 {
					t.Error("the module doesn't hear that the worker failed")
				}
			})
		}
	}
}

func TestALongPrefillIsNoSilence(t *testing.T) {
	prefilled := make(chan struct{})
	up, _ := worker(t, "slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush() // headers at once
		<-prefilled
		_, _ = w.Write([]byte("data: 1\n\n"))
	})
	g := start(t, []string{up}, func(c *Config) { c.TokenTimeout = 20 * time.Millisecond })
	resp := post(t, g, "dest="+up+"\n")
	time.AfterFunc(100*time.Millisecond, func() { close(prefilled) })
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "data: 1\n\n" {
		t.Fatalf("%q, %v", body, err)
	}
}

func TestMetricsShowTheModulesWithLabels(t *testing.T) {
	ok, _ := worker(t, "ok", nil)
	g := start(t, []string{ok}, nil)
	post(t, g, "dest="+ok+"\n")
	eventually(t, "the exchange is over", func() bool { return testutil.ToFloat64(g.metrics.active) == 0 })
	resp, err := http.Get("http://" + g.AdminAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, want := range []string{"guest_done_total 1", `warmpath_gateway_requests_total{class="2xx"} 1`, `warmpath_gateway_attempts_total{result="answered"} 1`, "warmpath_gateway_module_traps_total 0", "warmpath_gateway_held_bytes 0"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("metrics lack %q", want)
		}
	}
	name, labels, values := promName("warmpath.no_key.bad_json")
	if name != "warmpath_no_key" || labels[0] != "reason" || values[0] != "bad_json" {
		t.Errorf("promName gave %q %v %v", name, labels, values)
	}
	name, labels, values = promName("warmpath.fingerprint_mode.no-key.exact")
	if name != "warmpath_fingerprint_mode" || !slices.Equal(labels, []string{"pool", "mode"}) || !slices.Equal(values, []string{"no-key", "exact"}) {
		t.Errorf("promName gave %q %v %v", name, labels, values)
	}
}

func TestHTTP2WithoutTLSIsServed(t *testing.T) {
	ok, _ := worker(t, "ok", nil)
	g := start(t, []string{ok}, nil)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post(g.URL()+"/v1/completions", "application/json", strings.NewReader("dest="+ok+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 {
		t.Fatalf("got %s over %s", resp.Status, resp.Proto)
	}
}

func TestExpectContinueIsAnsweredWhileTheModuleHolds(t *testing.T) {
	var expect string
	ok, _ := worker(t, "ok", func(_ http.ResponseWriter, r *http.Request) { expect = r.Header.Get("Expect") })
	g := start(t, []string{ok}, nil)
	req, _ := http.NewRequest("POST", g.URL()+"/v1/completions", strings.NewReader("dest="+ok+"\n"))
	req.Header.Set("Expect", "100-continue")
	tr := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || expect != "" {
		t.Fatalf("status %d, the worker saw Expect %q", resp.StatusCode, expect)
	}
}

func TestConnectionsThatLeaveHTTPAreJoined(t *testing.T) {
	const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	echo, _ := worker(t, "echo", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, _ := w.(http.Hijacker).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, switched)
		_, _ = io.Copy(conn, rw)
	})
	g := start(t, []string{echo}, nil)
	conn, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	back := bufio.NewReader(conn)
	resp, err := http.ReadResponse(back, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", resp, err)
	}
	for _, said := range []string{"one\n", "two\n"} {
		fmt.Fprint(conn, said)
		if heard, err := back.ReadString('\n'); heard != said {
			t.Errorf("heard %q, %v, want %q", heard, err, said)
		}
	}
	conn.Close()
	eventually(t, "done ran", func() bool { return counter(g, "guest.done") == 1 })
}

func TestNoContentTypeIsMadeUp(t *testing.T) {
	plain, _ := worker(t, "plain", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, _ := w.(http.Hijacker).Hijack()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nuntil the end")
		conn.Close()
	})
	g := start(t, []string{plain}, nil)
	for range 30 { // net/http guesses when the body is there before the headers are out
		if got, ok := post(t, g, "dest="+plain+"\n").Header["Content-Type"]; ok {
			t.Fatalf("the client sees content type %q, the worker sent none", got)
		}
	}
}

func TestConfigErrorsSayWhatToDo(t *testing.T) {
	known, _ := NewEndpoints("", "127.0.0.1:1")
	for want, cfg := range map[string]Config{
		"make wasm":        {Endpoints: known},
		"list the workers": {Module: guest},
		"base URL":         {Module: guest, Endpoints: known, Clusters: map[string][]string{"c": {"localhost"}}},
		"not host:port":    {Module: guest, Endpoints: known, Listen: "nowhere"},
		"start the module": {Module: []byte("not wasm"), Endpoints: known, Listen: "127.0.0.1:0"},
	} {
		if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	for _, bad := range []string{"no-port", "name:80", "10.0.0.7"} {
		if _, err := NewEndpoints("", bad); err == nil || !strings.Contains(err.Error(), "ip:port") {
			t.Errorf("endpoint %q: %v", bad, err)
		}
	}
}
