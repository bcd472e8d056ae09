package hostsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// startGuest is one VM with one plugin that runs script.
func startGuest(t testing.TB, h *Host, cfg VMConfig, pc PluginConfig) (*VM, *Plugin) {
	t.Helper()
	if cfg.Module == nil {
		cfg.Module = compileGuest(t, h)
	}
	vm, err := h.NewVM(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var p *Plugin
	vm.Do(func() { p, err = vm.AddPlugin(pc) })
	if err != nil {
		t.Fatal(err)
	}
	return vm, p
}

func postHeaders() *HeaderMap {
	return NewHeaderMap(":method", "POST", ":path", "/v1/completions", ":authority", "llm")
}

func TestAModuleAssembledByHandRunsToo(t *testing.T) {
	var logged []string
	h := newTestHost(t, Options{Log: func(e LogEntry) { logged = append(logged, e.Message) }})
	m, err := h.Compile(context.Background(), "hand", handModule())
	if err != nil {
		t.Fatal(err)
	}
	_, p := startGuest(t, h, VMConfig{Name: "w", Module: m}, PluginConfig{})
	sink := &Recorder{}
	s := p.NewStream(sink)
	s.RequestHeaders(postHeaders(), false)
	s.RequestData([]byte("ab"), false)
	if held, n := s.RequestHeld(); !held || n != 2 {
		t.Fatalf("RequestHeld = %t, %d; want the two bytes held", held, n)
	}
	s.RequestData([]byte("cd"), true)
	if got := sink.Request.Value("x-hand"); got != "made" {
		t.Errorf("x-hand = %q", got)
	}
	if got := string(sink.RequestBody); got != "abcd" || !sink.RequestEnded {
		t.Errorf("upstream got %q, ended %t", got, sink.RequestEnded)
	}
	if len(logged) != 1 || logged[0] != "seen" {
		t.Errorf("log = %q", logged)
	}
	s.ResponseHeaders(NewHeaderMap(":status", "200"), false)
	s.ResponseData([]byte("x"), false) // the module traps
	if sink.ResetDetails != "wasm_fail_stream" || !s.Done() || !p.VM().Failed() {
		t.Errorf("after a trap: reset %q, done %t, failed %t", sink.ResetDetails, s.Done(), p.VM().Failed())
	}
}

func TestWhatIsNoProxyWasmModuleIsRefusedWithTheReason(t *testing.T) {
	h := newTestHost(t, Options{})
	noABI := &wasmModule{}
	noABI.importFunc("proxy_log", 3)
	noABI.export("proxy_on_memory_allocate", 1, 1, i32Const(0)...)
	noAlloc := &wasmModule{}
	noAlloc.importFunc("proxy_log", 3)
	noAlloc.export("proxy_abi_version_0_2_1", 0, 0)
	unknown := &wasmModule{}
	unknown.importFunc("proxy_make_coffee", 3)
	unknown.export("proxy_abi_version_0_2_1", 0, 0)
	unknown.export("malloc", 1, 1, i32Const(0)...)
	for _, c := range []struct {
		name, want string
		wasm       []byte
	}{
		{"not wasm", "compile", []byte("hello")},
		{"cut short", "compile", handModule()[:60]},
		{"no ABI version", "proxy_abi_version_0_2_1", noABI.bytes()},
		{"no allocator", "proxy_on_memory_allocate", noAlloc.bytes()},
	} {
		_, err := h.Compile(context.Background(), c.name, c.wasm)
		if !errors.Is(err, ErrModule) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want ErrModule that names %s", c.name, err, c.want)
		}
	}
	m, err := h.Compile(context.Background(), "unknown import", unknown.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.NewVM(context.Background(), VMConfig{Name: "w", Module: m}); err == nil || !strings.Contains(err.Error(), "proxy_make_coffee") {
		t.Errorf("an import that the host lacks: error %v, want its name", err)
	}
	if _, err := h.NewVM(context.Background(), VMConfig{Name: "w"}); err == nil {
		t.Error("a VM without a module was started")
	}
}

func TestOutParametersOutsideOfMemoryAreAnErrorNotACrash(t *testing.T) {
	for _, trace := range []func(Event){nil, func(e Event) { _ = e.String() }} {
		h := newTestHost(t, Options{Calls: NewHandDispatcher("c"), Log: func(LogEntry) {}, Trace: trace})
		callWildly(t, h)
	}
}

// callWildly makes every host call with every argument -1.
func callWildly(t *testing.T, h *Host) {
	t.Helper()
	for _, hc := range hostCalls() {
		m := &wasmModule{}
		// The import's own type: i64 parameters get an i64.const.
		params := []byte{0x60}
		params = append(params, uleb(uint64(len(hc.params)))...)
		body := []byte{}
		for _, p := range hc.params {
			if p == 'l' {
				params = append(params, 0x7e)
				body = append(body, 0x42, 0x7f)
				continue
			}
			params = append(params, i32)
			body = append(body, i32Const(-1)...)
		}
		m.types = append(m.types, append(params, 1, i32))
		m.imports = append(m.imports, append(append(text("env"), text(hc.name)...), 0, 0))
		m.export("proxy_abi_version_0_2_1", 0, 0)
		m.export("malloc", 1, 1, i32Const(-1)...)
		m.export("proxy_on_request_headers", 3, 1, append(append(body, call(0)...), 0x1a, 0x41, 0)...)
		module, err := h.Compile(context.Background(), hc.name, m.bytes())
		if err != nil {
			t.Fatal(err)
		}
		vm, p := startGuest(t, h, VMConfig{Name: "w", Module: module}, PluginConfig{})
		s := p.NewStream(&Recorder{})
		s.RequestHeaders(postHeaders(), true)
		if vm.Failed() {
			t.Errorf("%s with every argument -1 ended the VM: %v", hc.name, vm.inst.failure)
		}
		vm.Close()
	}
}

func TestVMsOnTheRealClockAreSerialisedAndWakeEachOther(t *testing.T) {
	var mu sync.Mutex
	logged := map[string]int{}
	seen := make(chan string, 1024)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "reply to ", r.URL.Path)
	}))
	defer server.Close()
	calls, err := NewHTTPDispatcher(map[string]string{"control": server.URL}, server.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	h := newTestHost(t, Options{Clock: RealClock(), Calls: calls, Log: func(e LogEntry) {
		mu.Lock()
		logged[e.Message]++
		mu.Unlock()
		select {
		case seen <- e.Message:
		default:
		}
	}})
	receiver, p0 := startGuest(t, h, VMConfig{Name: "receiver", VMID: "v"}, PluginConfig{
		AllowOnHeadersStopIteration: true,
		Configuration: []byte(strings.Join([]string{
			"configure: qreg inbox; call control /v1/table 5000; tick 1",
			"request_headers: hold; pause",
			"queue_ready: qget inbox; effective held; resume",
			"call_response: body call",
			"tick: silent",
		}, "\n")),
	})
	sender, p1 := startGuest(t, h, VMConfig{Name: "sender", VMID: "v"}, PluginConfig{
		Configuration: []byte("configure: qresolve v inbox\nrequest_headers: qput inbox go"),
	})

	const streams = 20
	released := make(chan struct{}, streams)
	for range streams {
		receiver.Do(func() {
			p0.NewStream(&signalSink{onRequest: func() { released <- struct{}{} }}).RequestHeaders(postHeaders(), true)
		})
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range streams / 4 {
				sender.Do(func() {
					s := p1.NewStream(&Recorder{})
					s.RequestHeaders(postHeaders(), true)
					s.Close()
				})
			}
		})
	}
	wg.Wait()
	deadline := time.After(20 * time.Second)
	for range streams {
		select {
		case <-released:
		case <-deadline:
			t.Fatal("a held stream was not released by its queue message")
		}
	}
	for {
		mu.Lock()
		n := logged[`body call -> Ok "reply to /v1/table"`]
		mu.Unlock()
		if n == 1 {
			break
		}
		select {
		case <-seen:
		case <-deadline:
			t.Fatal("the http_call was not answered")
		}
	}
	receiver.Do(receiver.Close)
	sender.Do(sender.Close)
	if st := receiver.Stats(); st.ActiveStreams != 0 {
		t.Errorf("%d streams left after Close", st.ActiveStreams)
	}
}

// signalSink tells when the request goes on and drops the rest.
type signalSink struct {
	Recorder
	onRequest func()
}

func (s *signalSink) RequestHeaders(*HeaderMap, bool) { s.onRequest() }

func TestAPanicInPostedWorkIsLoggedAndTheNextWorkRuns(t *testing.T) {
	lines := make(chan LogEntry, 16)
	h := newTestHost(t, Options{Clock: RealClock(), Log: func(e LogEntry) { lines <- e }})
	vm, _ := startGuest(t, h, VMConfig{Name: "w"}, PluginConfig{})
	for len(lines) > 0 {
		<-lines
	}
	done := make(chan struct{})
	vm.Post(func() { panic("from a sink") })
	vm.Post(func() { close(done) })
	<-done
	e := <-lines
	if e.Level != LogCritical || !strings.Contains(e.Message, "from a sink") {
		t.Errorf("logged %v %q", e.Level, e.Message)
	}
}

func TestAGuestWritingGarbageToTheHostKeepsTheHostAlive(t *testing.T) {
	// Pairs come from the module: whatever it writes is an error or a map.
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "bytes")
		fields, err := parsePairs(b)
		if err == nil && len(b) > 0 && len(fields) > len(b)/8 {
			t.Fatalf("%d pairs out of %d bytes", len(fields), len(b))
		}
	})
}

func TestPairsSurviveTheRoundTripAndStayInsideTheirBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Header {
			return Header{rapid.StringMatching(`[a-z:-]{0,12}`).Draw(t, "key"), rapid.String().Draw(t, "value")}
		})).Draw(t, "fields")
		n := pairsSize(fields)
		guarded := bytes.Repeat([]byte{0xa5}, n+16)
		putPairs(guarded[8:8+n], fields)
		for _, guard := range [][]byte{guarded[:8], guarded[8+n:]} {
			if !bytes.Equal(guard, bytes.Repeat([]byte{0xa5}, 8)) {
				t.Fatal("wrote outside of the buffer")
			}
		}
		back, err := parsePairs(guarded[8 : 8+n])
		if err != nil {
			t.Fatal(err)
		}
		if len(back) != len(fields) {
			t.Fatalf("%d pairs came back of %d", len(back), len(fields))
		}
		for i := range back {
			if back[i] != fields[i] {
				t.Fatalf("pair %d: %q came back as %q", i, fields[i], back[i])
			}
		}
		if n > 0 {
			if _, err := parsePairs(guarded[8 : 8+n-1]); n > 4 && err == nil {
				t.Fatal("a truncated map was accepted")
			}
		}
	})
}

func TestHTTPDispatcherAnswersAsEnvoysRouterDoes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/base/broken":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/base/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Host", r.Host)
			w.Header().Set("X-Query", r.URL.RawQuery)
			w.Header().Set("X-Given", r.Header.Get("x-given"))
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write(body)
		}
	}))
	defer server.Close()
	dead := httptest.NewServer(nil)
	deadURL := dead.URL
	dead.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	d, err := NewHTTPDispatcher(map[string]string{"live": server.URL + "/base", "dead": deadURL}, transport)
	if err != nil {
		t.Fatal(err)
	}
	if d.HasCluster("nobody") || !d.HasCluster("dead") {
		t.Error("HasCluster does not tell configured clusters from others")
	}
	ask := func(cluster, path string, body string) callAnswer {
		answers := make(chan callAnswer, 1)
		call := &HTTPCall{
			Cluster: cluster, Body: []byte(body),
			Headers: NewHeaderMap(":method", "POST", ":path", path, ":authority", "control.example", "x-given", "yes"),
			deliver: func(a callAnswer) { answers <- a },
		}
		d.Dispatch(call)
		return <-answers
	}
	a := ask("live", "/echo?a=b", "hello")
	if a.headers.Value(":status") != "202" || string(a.body) != "hello" ||
		a.headers.Value("x-host") != "control.example" || a.headers.Value("x-query") != "a=b" || a.headers.Value("x-given") != "yes" {
		t.Errorf("echo answered %s %q", headerText(a.headers), a.body)
	}
	if a := ask("live", "/redirect", ""); a.headers.Value(":status") != "302" {
		t.Errorf("a redirect was followed: %s", headerText(a.headers))
	}
	if a := ask("dead", "/", ""); a.headers.Value(":status") != "503" || !strings.Contains(string(a.body), "remote connection failure") {
		t.Errorf("a dead cluster answered %s %q", headerText(a.headers), a.body)
	}
	if a := ask("live", "/broken", ""); !a.failed {
		t.Errorf("a reply that broke off was delivered: %s %q", headerText(a.headers), a.body)
	}
	for _, base := range []string{"", "127.0.0.1:80", "http://", "://"} {
		if _, err := NewHTTPDispatcher(map[string]string{"c": base}, nil); err == nil {
			t.Errorf("base URL %q was accepted", base)
		}
	}
}

func TestPrometheusTextHasCumulativeBuckets(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	startGuest(t, h, VMConfig{Name: "w"}, PluginConfig{Configuration: []byte(
		"configure: counter a.b/c; inc a.b/c 2; gauge g; inc g -3; histogram t; rec t 1; rec t 3; rec t 9999999")})
	var out bytes.Buffer
	if err := h.WritePrometheus(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE envoy_wasmcustom_a_b_c counter\nenvoy_wasmcustom_a_b_c{} 2\n",
		"envoy_wasmcustom_g{} -3\n",
		`envoy_wasmcustom_t_bucket{le="0.5"} 0` + "\n" + `envoy_wasmcustom_t_bucket{le="1"} 1` + "\n" + `envoy_wasmcustom_t_bucket{le="5"} 2`,
		`envoy_wasmcustom_t_bucket{le="3.6e+06"} 2` + "\n" + `envoy_wasmcustom_t_bucket{le="+Inf"} 3`,
		"envoy_wasmcustom_t_sum{} 10000003\nenvoy_wasmcustom_t_count{} 3\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in\n%s", want, out.String())
		}
	}
	if m, ok := h.Metric("a.b/c"); !ok || m.Value != 2 {
		t.Errorf("Metric = %+v, %t", m, ok)
	}
}
