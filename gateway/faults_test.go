package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// trailing is a request with trailers, so that every callback runs.
func trailing(t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequest("POST", url, io.MultiReader(strings.NewReader(body))) // hides its length
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-Sum": {"1"}}
	req.Header.Set("X-Trailer", "1")
	return req
}

// TestAFaultOfTheModuleCostsNoRequest breaks the only VM in each callback in turn,
// while other requests are held by it, stream through it, and arrive.
func TestAFaultOfTheModuleCostsNoRequest(t *testing.T) {
	const answer = "data: 1\n\ndata: 2\n\n"
	echo, _ := worker(t, "echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if want := r.Header.Get("X-Trailer"); err != nil || r.Trailer.Get("X-Sum") != want {
			w.WriteHeader(500)
		}
		w.Header().Set("Trailer", "X-Len")
		_, _ = io.WriteString(w, answer[:9])
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, answer[9:])
		w.Header().Set("X-Len", fmt.Sprint(len(body)))
	})
	gate := make(chan struct{})
	slow, _ := worker(t, "slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer[:9])
		w.(http.Flusher).Flush()
		<-gate
		_, _ = io.WriteString(w, answer[9:])
	})
	for _, kind := range []string{"trap", "panic", "exhaust"} {
		for _, callback := range []string{
			"request_headers", "request_body", "request_end", "request_trailers", "response_headers", "response_body", "response_trailers", "done",
		} {
			if kind == "exhaust" && callback != "request_end" {
				continue // a trap like any other, after a while
			}
			for _, path := range []string{"/held", "/pass"} {
				t.Run(kind+" "+callback+path, func(t *testing.T) {
					gate = make(chan struct{})
					g := start(t, []string{echo, slow}, func(c *Config) { c.VMs = 1 })
					body := "dest=" + echo + "\n" + strings.Repeat("x", 40<<10)

					// Streaming before and after the fault, and held across it.
					streaming, err := http.DefaultClient.Do(trailing(t, g.URL()+"/held", "dest="+slow+"\n"))
					if err != nil {
						t.Fatal(err)
					}
					defer streaming.Body.Close()
					held := trailing(t, g.URL()+"/held", body)
					upper, lower := io.Pipe()
					held.Body = upper
					var others sync.WaitGroup
					others.Go(func() { whole(t, "held meanwhile", held, answer, len(body)) })
					_, _ = io.WriteString(lower, body[:100])
					eventually(t, "both are in", func() bool { return testutil.ToFloat64(g.metrics.active) == 2 })

					// The echo is the only one that is asked if the module names nobody.
					if err := g.cfg.Endpoints.Set(map[string][]string{"": {echo}}); err != nil {
						t.Fatal(err)
					}
					req := trailing(t, g.URL()+path, body)
					req.Header.Set("X-Fault", kind+" "+callback)
					if callback == "request_end" { // else the trailers are the end
						req.Trailer = nil
						req.Header.Del("X-Trailer")
					}
					whole(t, "at fault", req, answer, len(body))

					if n := g.fleet.Workers[0].Stats().Traps; kind != "panic" && n != 1 {
						t.Errorf("%d traps, want the one that was ordered", n)
					}

					_, _ = io.WriteString(lower, body[100:])
					lower.Close()
					close(gate)
					others.Wait()
					if rest, err := io.ReadAll(streaming.Body); err != nil || string(rest) != answer {
						t.Errorf("streaming meanwhile: %q, %v", rest, err)
					}
					whole(t, "afterwards", trailing(t, g.URL()+path, body), answer, len(body))
				})
			}
		}
	}
}

// whole sends a request of size bytes and wants the whole answer of the echo.
func whole(t *testing.T, what string, req *http.Request, answer string, size int) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || string(got) != answer || resp.Trailer.Get("X-Len") != fmt.Sprint(size) {
		t.Errorf("%s: %d %q with trailers %v, %v", what, resp.StatusCode, got, resp.Trailer, err)
	}
}
