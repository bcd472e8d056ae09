package hostsim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkedSink fails the test when a stream breaks the order that Sink promises.
type checkedSink struct {
	t        *rapid.T
	sides    [2]sideState
	terminal string // LocalReply or Reset
}

type sideState struct {
	headers, ended bool
	body           []byte
}

func (c *checkedSink) step(side direction, what string, end bool) {
	s := &c.sides[side]
	switch {
	case c.terminal != "":
		c.t.Fatalf("%s after %s", what, c.terminal)
	case s.ended:
		c.t.Fatalf("%s after the end of its direction", what)
	case what == "headers" && s.headers:
		c.t.Fatalf("headers twice")
	case what != "headers" && !s.headers:
		c.t.Fatalf("%s before headers", what)
	}
	s.headers, s.ended = true, end
}

func (c *checkedSink) data(side direction, b []byte, end bool) {
	c.step(side, "data", end)
	c.sides[side].body = append(c.sides[side].body, b...)
}

func (c *checkedSink) end(what string) {
	if c.terminal != "" || c.sides[response].ended {
		c.t.Fatalf("%s after %s (response ended: %t)", what, c.terminal, c.sides[response].ended)
	}
	if what == "LocalReply" && c.sides[response].headers {
		c.t.Fatalf("LocalReply after response headers")
	}
	c.terminal = what
}

func (c *checkedSink) RequestHeaders(_ *HeaderMap, end bool)  { c.step(request, "headers", end) }
func (c *checkedSink) RequestData(b []byte, end bool)         { c.data(request, b, end) }
func (c *checkedSink) RequestTrailers(*HeaderMap)             { c.step(request, "trailers", true) }
func (c *checkedSink) ResponseHeaders(_ *HeaderMap, end bool) { c.step(response, "headers", end) }
func (c *checkedSink) ResponseData(b []byte, end bool)        { c.data(response, b, end) }
func (c *checkedSink) ResponseTrailers(*HeaderMap)            { c.step(response, "trailers", true) }
func (c *checkedSink) LocalReply(LocalReply)                  { c.end("LocalReply") }
func (c *checkedSink) Reset(string)                           { c.end("Reset") }

// TestWhateverTheModuleAnswersEveryStreamEndsOnceAndNoByteIsLost drives streams
// with arbitrary pieces through a module that pauses, resumes, answers and cuts
// at arbitrary points.
func TestWhateverTheModuleAnswersEveryStreamEndsOnceAndNoByteIsLost(t *testing.T) {
	var ends []string // on_log, on_done, on_delete of streams
	h := newTestHost(t, Options{Log: func(e LogEntry) {
		if strings.HasPrefix(e.Message, "on_log") || strings.HasPrefix(e.Message, "on_done") || strings.HasPrefix(e.Message, "on_delete") {
			ends = append(ends, e.Message)
		}
	}})
	module := compileGuest(t, h)
	_, p := startGuest(t, h, VMConfig{Name: "w", Module: module}, PluginConfig{})
	rapid.Check(t, func(t *rapid.T) {
		answers := []string{"continue", "continue", "pause", "pause", "hold; pause", "action 2", "action 2"}
		if rapid.IntRange(0, 3).Draw(t, "disruptive") == 0 {
			answers = append(answers, "reply 429 busy", "close", "resume; pause", "resume response; pause")
		}
		answer := rapid.SampledFrom(answers)
		script := ""
		for _, name := range []string{
			"request_headers", "request_headers.end", "request_body", "request_body.end", "request_trailers",
			"response_headers", "response_headers.end", "response_body", "response_body.end", "response_trailers",
		} {
			script += name + ": " + answer.Draw(t, name) + "\n"
		}
		tick := rapid.SampledFrom([]string{"resume; resume response", "resume", "resume response", "reply 503 late", "close"}).Draw(t, "tick")
		script += "configure: tick 10\ntick: effective held; " + tick + "\n"
		err := p.Reconfigure(PluginConfig{
			Configuration: []byte(script), BufferLimitBytes: rapid.SampledFrom([]int{0, 6}).Draw(t, "limit"),
			AllowOnHeadersStopIteration: rapid.Bool().Draw(t, "allow"),
		})
		if err != nil {
			t.Fatal(err)
		}
		ends = nil
		sink := &checkedSink{t: t}
		s := p.NewStream(sink)
		s.RequestHeaders(postHeaders(), false)
		id := s.ContextID()
		var sent [2][]byte
		// Ordinary traffic mostly, so that many streams get far.
		events := []string{
			"request", "request", "request", "request", "request", "response", "response", "response data", "response data",
			"response data", "response data", "trailers", "response trailers", "tick", "tick", "close", "reset", "reply",
		}
		for _, step := range rapid.SliceOfN(rapid.SampledFrom(events), 4, 16).Draw(t, "steps") {
			piece := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "piece")
			end := rapid.IntRange(0, 3).Draw(t, "end") == 0
			switch step {
			case "request":
				if !s.req.ended {
					sent[request] = append(sent[request], piece...)
				}
				s.RequestData(piece, end)
			case "trailers":
				s.RequestTrailers(NewHeaderMap("x-sum", "1"))
			case "response":
				if sink.sides[request].headers && !s.resp.started {
					s.ResponseHeaders(NewHeaderMap(":status", "200"), false)
				}
			case "response data":
				if s.resp.started && !s.resp.ended {
					sent[response] = append(sent[response], piece...)
				}
				s.ResponseData(piece, end)
			case "response trailers":
				s.ResponseTrailers(NewHeaderMap("x-sum", "1"))
			case "tick":
				h.Advance(10 * time.Millisecond)
			case "close":
				s.Close()
			case "reset":
				s.UpstreamReset("connection termination")
			case "reply":
				s.SendLocalReply(504, nil, []byte("late"), "response_timeout")
			}
		}
		for side, state := range sink.sides {
			if !bytes.HasPrefix(sent[side], state.body) {
				t.Fatalf("direction %d: %q went on of %q", side, state.body, sent[side])
			}
			if state.ended && sink.terminal == "" && !bytes.Equal(sent[side], state.body) {
				t.Fatalf("direction %d ended with %q of %q", side, state.body, sent[side])
			}
		}
		if (sink.terminal != "" || sink.sides[response].ended) && !s.Done() {
			t.Fatal("the response is over, the stream is not")
		}
		s.Close()
		s.Close()
		h.Advance(10 * time.Millisecond)
		want := []string{fmt.Sprintf("on_log(%d)", id), fmt.Sprintf("on_done(%d)", id), fmt.Sprintf("on_delete(%d)", id)}
		if !slices.Equal(ends, want) {
			t.Fatalf("ends %q, want %q", ends, want)
		}
		if n := p.VM().Stats().ActiveStreams; n != 0 || p.VM().Failed() {
			t.Fatalf("%d active streams, failed %t", n, p.VM().Failed())
		}
	})
}

func FuzzParsePairs(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 'a', 0, 'b', 'c', 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := parsePairs(b)
		if err != nil {
			return
		}
		again, err := parsePairs(func() []byte { out := make([]byte, pairsSize(fields)); putPairs(out, fields); return out }())
		if err != nil || !slices.Equal(fields, again) {
			t.Fatalf("%q came back as %q, %v", fields, again, err)
		}
	})
}

func TestTheModuleSeesItsEnvironment(t *testing.T) {
	var lines []string
	h := newTestHost(t, Options{Log: func(e LogEntry) { lines = append(lines, e.Message) }})
	startGuest(t, h, VMConfig{Name: "w", Env: map[string]string{"GOGC": "400"}}, PluginConfig{Configuration: []byte("configure: env GOGC")})
	if !slices.Contains(lines, "env GOGC = 400") {
		t.Errorf("log %q", lines)
	}
}
