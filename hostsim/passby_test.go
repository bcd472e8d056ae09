package hostsim

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var callbacks = []string{"context_create", "request_headers", "request_body", "request_trailers", "response_headers", "response_body", "response_trailers", "log", "done", "delete", "tick"}

// TestATrapInAnyCallbackCostsNoStreamAByte lets three streams through a module
// that holds what it likes and traps at one place: whatever was fed to any of
// them comes out whole, ends included, and the next stream meets a fresh module.
func TestATrapInAnyCallbackCostsNoStreamAByte(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}, LogLevel: LogCritical})
	module := compileGuest(t, h)
	rapid.Check(t, func(t *rapid.T) {
		vm, err := h.NewVM(t.Context(), VMConfig{Name: "w", Module: module, PassStreamsOnTrap: true})
		if err != nil {
			t.Fatal(err)
		}
		defer vm.Close()
		trapping := rapid.SampledFrom(callbacks).Draw(t, "trapping")
		script := "configure: tick 10\n"
		for _, name := range callbacks {
			what := rapid.SampledFrom([]string{"continue", "pause", "action 2"}).Draw(t, name)
			if name == trapping {
				what = "trap"
			}
			for _, end := range []string{"", ".end"} {
				if name != "tick" || what == "trap" {
					script += name + end + ": " + what + "\n"
				}
			}
		}
		p, err := vm.AddPlugin(PluginConfig{Configuration: []byte(script), AllowOnHeadersStopIteration: rapid.Bool().Draw(t, "allow")})
		if err != nil {
			t.Fatal(err)
		}
		var all []*passed
		for range 3 {
			all = append(all, &passed{t: t, sink: &checkedSink{t: t}})
		}
		for _, f := range all {
			f.stream = p.NewStream(f.sink)
		}
		for _, at := range rapid.SliceOfN(rapid.IntRange(0, len(all)-1), 12, 40).Draw(t, "turns") {
			all[at].feed()
			if rapid.IntRange(0, 9).Draw(t, "tick now") == 0 {
				h.Advance(10 * time.Millisecond)
			}
		}
		for _, f := range all {
			for f.feed() {
			}
		}
		h.Advance(10 * time.Millisecond)
		if vm.Stats().Traps == 0 {
			return // the callback was never reached: everything may be held
		}
		for i, f := range all {
			f.check(i)
		}
		if n := vm.Stats().ActiveStreams; n != 0 {
			t.Fatalf("%d streams are still open", n)
		}
		if s := p.NewStream(&checkedSink{t: t}); s.in == nil || s.bypass || vm.Failed() {
			t.Fatal("the next stream does not meet a fresh module")
		}
	})
}

// passed is a stream of that test: an exchange with trailers or without.
type passed struct {
	t      *rapid.T
	stream *Stream
	sink   *checkedSink
	step   int
	sent   [2][]byte
}

// feed does the next step of the exchange as far as the sink is: no response to
// a request that has not left.
func (f *passed) feed() bool {
	piece := []byte(fmt.Sprint("piece ", f.step, ";"))
	switch f.step {
	case 0:
		f.stream.RequestHeaders(postHeaders(), false)
	case 1, 2:
		f.sent[request] = append(f.sent[request], piece...)
		f.stream.RequestData(piece, false)
	case 3:
		f.stream.RequestTrailers(NewHeaderMap("x-sum", "1"))
	case 4:
		if !f.sink.sides[request].ended {
			return false
		}
		f.stream.ResponseHeaders(NewHeaderMap(":status", "200"), false)
	case 5, 6:
		f.sent[response] = append(f.sent[response], piece...)
		f.stream.ResponseData(piece, false)
	case 7:
		f.stream.ResponseTrailers(NewHeaderMap("x-sum", "1"))
	default:
		return false
	}
	f.step++
	return true
}

func (f *passed) check(i int) {
	for f.feed() { // what had to wait for the trap
	}
	for side, state := range f.sink.sides {
		if !state.ended || !bytes.Equal(state.body, f.sent[side]) || f.sink.terminal != "" {
			f.t.Fatalf("stream %d, direction %d: ended %t (%s) with %q of %q", i, side, state.ended, f.sink.terminal, state.body, f.sent[side])
		}
	}
}

func TestBytesThatTheModuleTookAreNotSentByHalves(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}, LogLevel: LogCritical})
	_, p := startGuest(t, h, VMConfig{Name: "w", PassStreamsOnTrap: true}, PluginConfig{
		Configuration: []byte("request_body: action 3\nrequest_body.end: trap"),
	})
	r := &Recorder{}
	s := p.NewStream(r)
	s.RequestHeaders(postHeaders(), false)
	s.RequestData([]byte("taken"), false)
	s.RequestData([]byte("rest"), true)
	if r.Replied == nil || r.Replied.Headers.Value(":status") != "503" {
		t.Errorf("got %q, want a 503", r.Lines)
	}
}

func TestStreamsBeforeTheReloadPassUntouched(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}, LogLevel: LogCritical})
	vm, p := startGuest(t, h, VMConfig{Name: "w", PassStreamsOnTrap: true, ReloadBackoff: time.Second}, PluginConfig{
		Configuration: []byte("request_headers: pause\nrequest_headers.end: trap"),
	})
	p.NewStream(&Recorder{}).RequestHeaders(postHeaders(), true)
	during := &Recorder{}
	s := p.NewStream(during)
	s.RequestHeaders(postHeaders(), false)
	s.RequestData([]byte("body"), true)
	if string(during.RequestBody) != "body" || !during.RequestEnded || !vm.Failed() {
		t.Errorf("got %q, failed %t; want it all to go on", during.Lines, vm.Failed())
	}
	h.Advance(time.Second)
	p.NewStream(&Recorder{}).RequestHeaders(postHeaders(), false)
	if vm.Failed() || vm.Stats().Reloads != 1 {
		t.Errorf("stats %+v, want a reload after the back-off", vm.Stats())
	}
	if slices.Contains(during.Lines, "503") {
		t.Error("a stream was refused")
	}
}
