package abi_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/hostsim"
)

// proxy is a host with the router module in some VMs.
type proxy struct {
	*hostsim.Host
	plugins []*hostsim.Plugin
	control *hostsim.HandDispatcher
	logs    []hostsim.LogEntry
}

func newProxy(t *testing.T, wasm []byte, vms int) *proxy {
	t.Helper()
	ctx := context.Background()
	p := &proxy{control: hostsim.NewHandDispatcher("control")}
	var err error
	p.Host, err = hostsim.NewHost(ctx, hostsim.Options{
		Clock:    hostsim.NewVirtualClock(time.Unix(1_700_000_000, 0)),
		Calls:    p.control,
		Log:      func(e hostsim.LogEntry) { p.logs = append(p.logs, e) },
		LogLevel: hostsim.LogInfo,
		CacheDir: filepath.Join(cacheDir(), "wazero"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(ctx) })
	module, err := p.Compile(ctx, "router", wasm)
	if err != nil {
		t.Fatal(err)
	}
	for i := range vms {
		vm, err := p.NewVM(ctx, hostsim.VMConfig{Name: "worker_" + strconv.Itoa(i), Module: module, VMID: "router"})
		if err != nil {
			t.Fatal(err)
		}
		plugin, err := vm.AddPlugin(hostsim.PluginConfig{Name: "router", AllowOnHeadersStopIteration: true, BufferLimitBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		p.plugins = append(p.plugins, plugin)
	}
	return p
}

// request feeds a whole request with that x-do and body, in three pieces, and
// trailers if asked.
func (p *proxy) request(vm int, do string, body []byte, trailers bool) (*hostsim.Stream, *hostsim.Recorder) {
	out := &hostsim.Recorder{}
	s := p.plugins[vm].NewStream(out)
	s.RequestHeaders(hostsim.NewHeaderMap(":method", "POST", ":path", "/v1/chat/completions", ":authority", "x", "x-do", do), body == nil)
	if body != nil {
		third := len(body) / 3
		s.RequestData(body[:third], false)
		s.RequestData(body[third:2*third], false)
		s.RequestData(body[2*third:], !trailers)
	}
	if trailers {
		s.RequestTrailers(hostsim.NewHeaderMap("x-trailer", "1"))
	}
	return s, out
}

// respond plays the upstream.
func respond(s *hostsim.Stream, trailers bool) {
	s.Info.UpstreamAddress = "10.0.0.7:8000"
	s.ResponseHeaders(hostsim.NewHeaderMap(":status", "200"), false)
	s.ResponseData([]byte("data: 1\n\n"), false)
	s.ResponseData([]byte("data: 2\n\n"), !trailers)
	if trailers {
		s.ResponseTrailers(hostsim.NewHeaderMap("x-trailer", "2"))
	}
}

func (p *proxy) count(name string) uint64 {
	m, _ := p.Metric(name)
	return m.Value
}

func (p *proxy) logged(substring string) int {
	n := 0
	for _, e := range p.logs {
		if strings.Contains(e.Message, substring) {
			n++
		}
	}
	return n
}

func TestRequestTravelsThroughHeldAndEdited(t *testing.T) {
	p := newProxy(t, routerWasm, 2)
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	for i := range 6 {
		s, out := p.request(i%2, "", body, false)
		if out.Request == nil {
			t.Fatalf("request %d did not leave the filter", i)
		}
		if got := out.Request.Value("x-seen"); got != strconv.Itoa(i+1) { // both VMs count together
			t.Errorf("request %d was counted as %s", i, got)
		}
		if out.Request.Value("x-bytes") != "100000" || !bytes.Equal(out.RequestBody, body) || !out.RequestEnded {
			t.Errorf("request %d: x-bytes %s, %d bytes on, ended %v", i, out.Request.Value("x-bytes"), len(out.RequestBody), out.RequestEnded)
		}
		respond(s, false)
		if got := out.Response.Value("x-upstream"); got != "10.0.0.7:8000" {
			t.Errorf("x-upstream %q", got)
		}
		if string(out.ResponseBody) != "data: 1\n\ndata: 2\n\n[end]" || !s.Done() {
			t.Errorf("response body %q, done %v", out.ResponseBody, s.Done())
		}
	}
	if p.count("live") != 0 {
		t.Errorf("%d streams were not reported done", p.count("live"))
	}
}

func TestHeldRequestIsReleasedFromTickAndQueue(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	_, byTick := p.request(0, "hold", []byte("{}"), false)
	if byTick.Request != nil {
		t.Fatal("a held request left the filter")
	}
	p.Advance(100 * time.Millisecond)
	if byTick.Request == nil || byTick.Request.Value("x-released-by") != "tick" || string(byTick.RequestBody) != "{}" {
		t.Fatalf("after the tick: %v", byTick.Lines)
	}
	_, byQueue := p.request(0, "hold", []byte("{}"), false)
	if err := p.Enqueue("router", "wake."+strconv.Itoa(int(p.plugins[0].ContextID())), []byte("a sibling")); err != nil {
		t.Fatal(err)
	}
	p.Run()
	if byQueue.Request == nil || byQueue.Request.Value("x-released-by") != "a sibling" {
		t.Fatalf("after the message: %v", byQueue.Lines)
	}
}

func TestLocalAnswerReachesTheClient(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	s, out := p.request(0, "answer", []byte("{}"), false)
	if out.Replied == nil || out.Replied.Headers.Value(":status") != "429" || out.Replied.Headers.Value("retry-after") != "2" ||
		!strings.HasPrefix(string(out.Replied.Body), "later\n") {
		t.Fatalf("got %v", out.Lines)
	}
	if out.Request != nil || !s.Done() {
		t.Error("the request went on although it was answered")
	}
}

func TestControlIsAskedAndItsAnswerRead(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	p.Advance(100 * time.Millisecond)
	call := p.control.Take()
	if call == nil || call.Headers.Value(":path") != "/v1/batch" || string(call.Body) != "held 0" || call.Timeout != time.Second {
		t.Fatalf("call %+v", call)
	}
	call.Reply(hostsim.NewHeaderMap(":status", "200"), []byte("ack"), nil)
	p.Run()
	if p.logged(`control answered 200 "ack"`) != 1 {
		t.Errorf("logs %v", p.logs)
	}
}

// TestPanicNeverCostsAnybodyARequest panics in each callback of a stream and of
// the plugin, and expects this request and another one to reach the upstream
// and the answers to reach the clients.
func TestPanicNeverCostsAnybodyARequest(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	for i, callback := range []string{
		"proxy_on_request_headers", "proxy_on_request_body", "proxy_on_request_trailers",
		"proxy_on_response_headers", "proxy_on_response_body", "proxy_on_response_trailers", "proxy_on_log",
	} {
		other, otherOut := p.request(0, "hold", []byte("other"), false)
		trailers := strings.HasSuffix(callback, "trailers")
		s, out := p.request(0, "panic in "+callback, []byte("mine"), trailers)
		if out.Request == nil || string(out.RequestBody) != "mine" || !out.RequestEnded {
			t.Fatalf("%s: the request did not go on: %v", callback, out.Lines)
		}
		respond(s, trailers)
		if !out.ResponseEnd || !strings.HasPrefix(string(out.ResponseBody), "data: 1\n\ndata: 2\n\n") || !s.Done() {
			t.Errorf("%s: the answer did not arrive: %v", callback, out.Lines)
		}
		if got := p.count("panics"); got <= uint64(i) {
			t.Errorf("%s: %d panics counted after %d callbacks panicked", callback, got, i+1)
		}
		if p.logged("panic in "+callback+" (1): ") != 1 {
			t.Errorf("%s: not logged once: %v", callback, p.logs)
		}
		p.Advance(100 * time.Millisecond)
		respond(other, false)
		if otherOut.Request == nil || otherOut.Response.Value("x-upstream") == "" || !other.Done() {
			t.Errorf("%s: another request suffered: %v", callback, otherOut.Lines)
		}
	}
	if stats := p.plugins[0].VM().Stats(); stats.Traps != 0 || stats.ActiveStreams != 0 {
		t.Errorf("%+v", stats)
	}
	if p.count("live") != 0 {
		t.Errorf("%d streams were not reported done", p.count("live"))
	}
}

func TestPluginGoesOnAfterAPanicOfItsOwn(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	trigger := map[string]func(){
		"proxy_on_tick": func() { p.Advance(100 * time.Millisecond) },
		"proxy_on_http_call_response": func() {
			p.Advance(100 * time.Millisecond)
			for call := p.control.Take(); call != nil; call = p.control.Take() {
				call.Reply(hostsim.NewHeaderMap(":status", "200"), nil, nil)
			}
			p.Run()
		},
		"proxy_on_queue_ready": func() {
			if err := p.Enqueue("router", "wake."+strconv.Itoa(int(p.plugins[0].ContextID())), []byte("x")); err != nil {
				t.Fatal(err)
			}
			p.Run()
		},
	}
	for callback, run := range trigger {
		before := p.count("panics")
		p.request(0, "later panic in "+callback, nil, false)
		run()
		if p.count("panics") != before+1 || p.logged("panic in "+callback+" (1): as asked") != 1 {
			t.Errorf("%s: %d panics, logs %v", callback, p.count("panics")-before, p.logs)
		}
	}
	// Ticks, calls and releases work as before.
	_, out := p.request(0, "hold", []byte("{}"), false)
	p.Advance(100 * time.Millisecond)
	if out.Request == nil || p.control.Take() == nil {
		t.Error("the plugin does not tick any more")
	}
}

func TestConfigurationThatPanicsIsRefusedAndTheOldOneStays(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	for _, bad := range []string{"panic", "refuse"} {
		config := p.plugins[0].Config()
		config.Configuration = []byte(bad)
		if err := p.plugins[0].Reconfigure(config); !errors.Is(err, hostsim.ErrRejected) {
			t.Errorf("configuration %q: %v, want it rejected", bad, err)
		}
		if s, out := p.request(0, "", []byte("{}"), false); out.Request.Value("x-bytes") != "2" {
			t.Errorf("after configuration %q: %v", bad, out.Lines)
		} else {
			s.Close()
		}
	}
}

func TestModuleWithoutResponseBodyExportIsNotAskedPerChunk(t *testing.T) {
	wasm, err := buildModule(cacheDir(), "router", "noresponsebody")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, wasm, 1)
	s, out := p.request(0, "", []byte("{}"), false)
	respond(s, false)
	if string(out.ResponseBody) != "data: 1\n\ndata: 2\n\n" || out.Response.Value("x-upstream") == "" || !s.Done() {
		t.Errorf("got %v", out.Lines)
	}
	r := newRecorder(t, wasm)
	var names []string
	for name := range r.mod.ExportedFunctionDefinitions() {
		names = append(names, name)
	}
	if slices.Contains(names, "proxy_on_response_body") || !slices.Contains(names, "proxy_on_response_headers") {
		t.Errorf("exports %v", names)
	}
}

// TestMemoryStaysFlatOverManyLargeRequests sends bodies of 100 KB through a
// whole host.
func TestMemoryStaysFlatOverManyLargeRequests(t *testing.T) {
	p := newProxy(t, routerWasm, 1)
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	send := func(n int) {
		for range n {
			s, out := p.request(0, "", body, false)
			if out.Request.Value("x-bytes") != "100000" {
				t.Fatalf("%v", out.Lines)
			}
			respond(s, false)
		}
	}
	send(100)
	before := p.plugins[0].VM().Stats().MemoryBytes
	send(2_000)
	if after := p.plugins[0].VM().Stats().MemoryBytes; after > before {
		t.Errorf("2,000 requests grew the VM from %d to %d bytes", before, after)
	} else {
		t.Logf("VM memory %d bytes", after)
	}
}
