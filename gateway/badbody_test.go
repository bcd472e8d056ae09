package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// A body that ends before its end is the client's doing: it is told so, and the
// module hears neither an answer nor a failure of the worker.
func TestBodiesThatCannotBeReadAreTheClientsFault(t *testing.T) {
	ok, _ := worker(t, "ok", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for _, c := range []struct {
		name, path, body string
		half             bool // the client ends its side after the body
		want             int
	}{
		{"wrong chunk while held", "/v1/completions", "zz\r\n", false, 400},
		{"wrong chunk in a streamed body", "/pass", "3\r\nabc\r\nzz\r\n", false, 400},
		{"end while held", "/v1/completions", "3\r\nabc\r\n", true, 400},
		{"end in a streamed body", "/pass", "3\r\nabc\r\n", true, 400},
		{"silence while held", "/v1/completions", "3\r\nabc\r\n", false, 408},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := start(t, []string{ok}, func(cfg *Config) { cfg.ClientTimeout = 200 * time.Millisecond })
			conn, err := net.Dial("tcp", g.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%s", c.path, c.body)
			if c.half {
				_ = conn.(*net.TCPConn).CloseWrite()
			}
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.want {
				t.Errorf("client saw %d, want %d", resp.StatusCode, c.want)
			}
			eventually(t, "done ran", func() bool { return counter(g, "guest.done") == 1 })
			if n := counter(g, "guest.answers"); n != 0 {
				t.Errorf("the module heard of %d answers, want none", n)
			}
		})
	}
}
