package live

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/warmpath/warmpath/sim/workload"
)

// discard is a response writer that costs nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Flush()                      {}

// BenchmarkRequest16KB is the cost of one request of about 16 KB in a worker:
// body, tokens, blocks, engine and stream, without the HTTP server.
func BenchmarkRequest16KB(b *testing.B) {
	spec := workload.Demo()
	w, err := workload.New(spec)
	if err != nil {
		b.Fatal(err)
	}
	worker := start(b, func(c *Config) {
		c.TimeScale = 1e6
		c.EventTokens = -1
		c.Models = nil
		c.Engine = spec.Fleet.EngineParams(1)
	})
	var bodies [][]byte
	total := 0
	for i := 0; len(bodies) < 200; i++ {
		if body := w.Start(i).Body(); len(body) > 12<<10 && len(body) < 22<<10 {
			bodies = append(bodies, body)
			total += len(body)
		}
	}
	b.SetBytes(int64(total / len(bodies)))
	b.ReportAllocs()
	reader := bytes.NewReader(nil)
	for i := 0; b.Loop(); i++ {
		body := bodies[i%len(bodies)]
		reader.Reset(body)
		r, err := http.NewRequest(http.MethodPost, "/v1/chat/completions", io.NopCloser(reader))
		if err != nil {
			b.Fatal(err)
		}
		r.ContentLength = int64(len(body))
		worker.ServeHTTP(&discard{header: http.Header{}}, r)
	}
	if s := worker.Stats(); s.Finished == 0 || s.HitTokens == 0 {
		b.Fatalf("%+v", s)
	}
}
