//go:build unix

package guard

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkAdded asks an engine directly and through a guard in turn, over loopback,
// and tells what the guard adds: to the median time of a request, and to the CPU time
// of client, guard and engine together. The engine of the test does next to nothing,
// so the ratios are the worst there can be.
//
//	go test ./agent/guard -run xxx -bench Added
func BenchmarkAdded(b *testing.B) {
	for _, c := range []struct {
		name          string
		bytes, events int
	}{
		{"1KB-whole", 1 << 10, 0},
		{"16KB-whole", 16 << 10, 0},
		{"100KB-whole", 100 << 10, 0},
		{"16KB-500-events", 16 << 10, 500},
	} {
		b.Run(c.name, func(b *testing.B) { added(b, c.bytes, c.events) })
	}
}

func added(b *testing.B, bytes, events int) {
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if events == 0 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(event)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		for range events {
			_, _ = w.Write(event)
			_ = out.Flush()
		}
	}))
	defer engine.Close()
	g, err := New(Config{Engine: engine.URL, Limits: Limits{MaxRunning: 64}})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = g.Serve(ln) }()
	defer g.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	body := strings.Repeat("x", bytes)
	urls := [2]string{engine.URL + chat, "http://" + ln.Addr().String() + chat}
	var took [2][]time.Duration
	var cpu [2]time.Duration
	ask := func(way int) {
		before, began := cpuTime(b), time.Now()
		resp, err := client.Post(urls[way], "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if want := int64(max(events, 1) * len(event)); err != nil || n != want {
			b.Fatal(fmt.Errorf("%d of %d bytes: %w", n, want, err))
		}
		took[way] = append(took[way], time.Since(began))
		cpu[way] += cpuTime(b) - before
	}
	for b.Loop() {
		ask(0)
		ask(1)
	}
	var median [2]time.Duration
	for way := range took {
		slices.Sort(took[way])
		median[way] = took[way][len(took[way])/2]
	}
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	n := float64(len(took[0]))
	b.ReportMetric(0, "ns/op") // of both ways together: says nothing
	b.ReportMetric(micros(median[0]), "direct-us")
	b.ReportMetric(micros(median[1]), "guarded-us")
	b.ReportMetric(float64(median[1])/float64(median[0]), "time-ratio")
	b.ReportMetric(micros(cpu[1]-cpu[0])/n, "added-cpu-us")
	b.ReportMetric(float64(cpu[1])/float64(cpu[0]), "cpu-ratio")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkGate is the decision alone: in and out, nobody waits.
func BenchmarkGate(b *testing.B) {
	g := newGate(Limits{MaxRunning: 64}.withDefaults(), true)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		t := &ticket{class: p1, tenant: 7, tokens: 1000, bytes: 4000}
		g.enter(t, now)
		g.answers(t, true, now)
		g.leave(t)
		g.next(now)
	}
}
