package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// pieces hands a body out as it was cut.
type pieces struct {
	cuts     [][]byte
	trailers func()
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.cuts) == 0 {
		if p.trailers != nil {
			p.trailers()
			p.trailers = nil
		}
		return 0, io.EOF
	}
	n := copy(b, p.cuts[0])
	if p.cuts[0] = p.cuts[0][n:]; len(p.cuts[0]) == 0 {
		p.cuts = p.cuts[1:]
	}
	return n, nil
}

// message is a body in pieces, with trailers or without.
type message struct {
	cuts     [][]byte
	trailers map[string]string
	sized    bool
}

func (m message) body() []byte { return bytes.Join(m.cuts, nil) }

func drawMessage(t *rapid.T, what string) message {
	m := message{trailers: map[string]string{}}
	for _, size := range rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 9, 255, 4095, 4096, 4097, 20_000, 32 << 10, 70_000}), 0, 6).Draw(t, what+" cuts") {
		piece := bytes.Repeat([]byte(rapid.StringN(1, 20, 40).Draw(t, what)), size/4+1)
		m.cuts = append(m.cuts, piece[:min(size, len(piece))])
	}
	if m.sized = rapid.Bool().Draw(t, what+" sized"); !m.sized {
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"X-A", "X-B", "X-Checksum"}), 0, 3, rapid.ID).Draw(t, what+" trailers") {
			m.trailers[key] = rapid.StringMatching(`[a-z0-9]{0,20}`).Draw(t, key)
		}
	}
	return m
}

func (m message) String() string {
	return fmt.Sprintf("%d pieces, %d bytes, sized %t, trailers %v", len(m.cuts), len(m.body()), m.sized, m.trailers)
}

// differs says how what arrived differs from m, "" if it doesn't.
func (m message) differs(body []byte, trailers http.Header, length int64) string {
	switch want := m.body(); {
	case !bytes.Equal(body, want):
		return fmt.Sprintf("%d bytes arrived, %d were sent", len(body), len(want))
	case m.sized && length != int64(len(want)):
		return fmt.Sprintf("the length arrived as %d", length)
	}
	for key, value := range m.trailers {
		if got, ok := trailers[key]; !ok || !slices.Equal(got, []string{value}) {
			return fmt.Sprintf("trailer %s arrived as %q in %v", key, got, trailers)
		}
	}
	if len(trailers) != len(m.trailers) {
		return fmt.Sprintf("trailers arrived as %v", trailers)
	}
	return ""
}

// trial is one exchange: what is sent, what is answered, what the worker found
// wrong.
type trial struct {
	sent, answer message
	seen         chan string
}

func newTrial(sent, answer message) *trial { return &trial{sent, answer, make(chan string, 2)} }

// faults are what the module is told to do, mostly nothing.
var faults = []string{
	"", "", "", "", "", "", "", "", "trap request_headers", "trap request_body", "trap request_end", "trap request_trailers",
	"trap response_headers", "trap response_body", "trap response_trailers", "trap done", "panic request_end", "panic response_body",
}

// TestBodiesAndTrailersAreExactBothWaysHoweverTheyAreCut sends arbitrary messages
// through the gateway, by both protocols, with the module holding the request or
// not, or failing anywhere, to a worker that checks what it gets and answers with
// another.
func TestBodiesAndTrailersAreExactBothWaysHoweverTheyAreCut(t *testing.T) {
	var trial atomic.Pointer[trial]
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		now := trial.Load()
		body, err := io.ReadAll(r.Body)
		how := now.sent.differs(body, r.Trailer, r.ContentLength)
		if err != nil {
			how = err.Error()
		}
		now.seen <- how
		answer := now.answer
		if answer.sized {
			w.Header().Set("Content-Length", fmt.Sprint(len(answer.body())))
		}
		var announced []string
		for key := range answer.trailers {
			announced = append(announced, key)
		}
		if len(announced) > 0 {
			w.Header().Set("Trailer", strings.Join(announced, ", "))
		}
		w.(http.Flusher).Flush() // or net/http puts short answers' trailers among the headers, too
		for _, piece := range answer.cuts {
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
		}
		for key, value := range answer.trailers {
			w.Header().Set(key, value)
		}
	})
	g := start(t, []string{up}, nil)
	both := clients(t)
	rapid.Check(t, func(t *rapid.T) {
		now := newTrial(drawMessage(t, "request"), drawMessage(t, "answer"))
		trial.Store(now)
		sent, answer := now.sent, now.answer
		path := rapid.SampledFrom([]string{"/held", "/pass"}).Draw(t, "path")
		client := both[rapid.SampledFrom([]string{"h1", "h2c"}).Draw(t, "protocol")]
		req, err := http.NewRequest("POST", g.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Fault", rapid.SampledFrom(faults).Draw(t, "fault"))
		body := &pieces{cuts: slices.Clone(sent.cuts)}
		req.Body, req.ContentLength = io.NopCloser(body), -1
		if sent.sized {
			req.ContentLength = int64(len(sent.body()))
			if req.ContentLength == 0 {
				req.Body = http.NoBody
			}
		}
		if len(sent.trailers) > 0 {
			req.Trailer = http.Header{}
			for key := range sent.trailers {
				req.Trailer[key] = nil
			}
			body.trailers = func() {
				for key, value := range sent.trailers {
					req.Trailer.Set(key, value)
				}
			}
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("status %d, %v", resp.StatusCode, err)
		}
		if how := <-now.seen; how != "" {
			t.Fatalf("request of %v: %s", sent, how)
		}
		if how := answer.differs(got, resp.Trailer, resp.ContentLength); how != "" {
			t.Fatalf("answer of %v: %s", answer, how)
		}
	})
}
