package gateway

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// streams is how many are open at once; make strain asks for 2,000.
var streams = flag.Int("streams", 300, "streams that TestStreamsBesideEachOther keeps open at once")

// TestStreamsBesideEachOther opens many streams at once, half of them over few
// HTTP/2 connections. When all are open, some clients leave, some workers reset,
// the module traps; everyone else gets every event, and nothing stays behind.
func TestStreamsBesideEachOther(t *testing.T) {
	const events, size = 5, 4 << 10
	total := *streams
	var opened atomic.Int64
	all := make(chan struct{})
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != size {
			t.Errorf("a worker got %d bytes, %v", n, err)
		}
		fmt.Fprint(w, "data: 0\n\n")
		w.(http.Flusher).Flush()
		if opened.Add(1) == int64(total) {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
			t.Error("a stream ended before all were open")
			return
		}
		if r.Header.Get("X-End") == "reset" {
			reset(w, r)
			return
		}
		for i := 1; i < events; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	})
	g := start(t, []string{up}, nil)
	h1 := &http.Transport{}
	defer h1.CloseIdleConnections()
	h2 := &http.Transport{Protocols: new(http.Protocols), DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	want := ""
	for i := range events {
		want += fmt.Sprintf("data: %d\n\n", i)
	}
	before := memory()
	var held atomic.Uint64
	var crowd sync.WaitGroup
	limit := make(chan struct{}, 100) // that open at the same moment
	for i := range total {
		crowd.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			end := "whole"
			switch i % 20 {
			case 3:
				end = "leave"
			case 7:
				end = "reset"
			}
			body := "dest=" + up + "\n"
			body += strings.Repeat("x", size-len(body))
			req, err := http.NewRequestWithContext(ctx, "POST", g.URL()+pick(i%4 < 2, "/held", "/pass"), strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-End", end)
			if i == total/2 {
				req.Header.Set("X-Fault", "trap response_headers")
			}
			limit <- struct{}{}
			resp, err := pick[http.RoundTripper](i%2 == 0, h1, h2).RoundTrip(req)
			<-limit
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
				return
			}
			defer resp.Body.Close()
			<-all
			if i == 0 {
				held.Store(memory() - before)
			}
			if end == "leave" {
				return
			}
			got, err := io.ReadAll(resp.Body)
			if end == "whole" && (err != nil || string(got) != want) {
				t.Errorf("stream %d: %q, %v", i, got, err)
			}
			if end == "reset" && err == nil {
				t.Errorf("stream %d: a reset arrived as an end after %q", i, got)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("stream %d is stuck", i)
			}
		})
	}
	crowd.Wait()
	eventually(t, "nothing is open", func() bool { return g.open.now() == 0 })
	// About half of them were on the VM that trapped, more on a busy machine, and
	// its next instance knows nothing of them.
	if done := counter(g, "guest.done"); done < uint64(total)/10 {
		t.Errorf("the module heard of %d ends of %d streams", done, total)
	}
	for _, vm := range g.fleet.Workers {
		if n := vm.Stats().ActiveStreams; n != 0 {
			t.Errorf("%s has %d streams left", vm.Name(), n)
		}
	}
	per := held.Load() / uint64(total)
	t.Logf("%d streams: %d KiB of memory each, client and worker included", total, per>>10)
	if per > 512<<10 {
		t.Errorf("%d KiB for each stream", per>>10)
	}
}

// memory is what this process uses of heap and stacks.
func memory() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
