package hostsim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// scripted is one VM with the guest and a script, its trace and its log.
type scripted struct {
	t      *testing.T
	host   *Host
	calls  *HandDispatcher
	vm     *VM
	plugin *Plugin
	events []string // without log calls
	log    []string
}

func script(t *testing.T, lines string, faults ...string) *scripted {
	t.Helper()
	s := &scripted{t: t, calls: NewHandDispatcher("control")}
	s.host = newTestHost(t, Options{
		Calls: s.calls, MemoryLimitMiB: 64,
		Log: func(e LogEntry) { s.log = append(s.log, e.Message) },
		Trace: func(e Event) {
			if e.Name != "proxy_log" && e.Kind != EventAllocate {
				s.events = append(s.events, e.String())
			}
		},
	})
	s.inject(faults...)
	var err error
	s.vm, err = s.host.NewVM(context.Background(), VMConfig{Name: "worker_0", Module: compileGuest(t, s.host), VMID: "v"})
	if err != nil {
		t.Fatal(err)
	}
	s.plugin, err = s.vm.AddPlugin(PluginConfig{Name: "p", Configuration: []byte(lines), AllowOnHeadersStopIteration: true})
	if err != nil {
		t.Fatal(err)
	}
	s.events, s.log = nil, nil
	return s
}

func (s *scripted) inject(faults ...string) {
	s.t.Helper()
	for _, text := range faults {
		f, err := ParseFault(text)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.host.Inject(f); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scripted) request() *Recorder {
	r := &Recorder{}
	st := s.plugin.NewStream(r)
	st.RequestHeaders(NewHeaderMap(":method", "POST", ":path", "/", ":authority", "x"), false)
	st.RequestData([]byte("abc"), true)
	return r
}

func (s *scripted) wantLog(lines ...string) {
	s.t.Helper()
	for _, want := range lines {
		if !slices.ContainsFunc(s.log, func(l string) bool { return strings.HasPrefix(l, want) }) {
			s.t.Errorf("the log has no %q:\n%s", want, strings.Join(s.log, "\n"))
		}
	}
}

func TestAFaultAnswersTheNthHostCall(t *testing.T) {
	s := script(t, "request_headers: sset a 1 0; sset a 2 0; sset a 3 0; sget a", "set_shared_data:2=casmismatch")
	s.request()
	s.wantLog("sset a 1 0 -> Ok", "sset a 2 0 -> CasMismatch", "sset a 3 0 -> Ok", `sget a -> Ok "3"`)
	want := []string{
		`#2 !! fault proxy_set_shared_data:2=CasMismatch`,
		`#2   proxy_set_shared_data("a", "2", cas 0) = CasMismatch`,
	}
	if at := slices.Index(s.events, want[0]); at < 0 || s.events[at+1] != want[1] {
		t.Errorf("want %q in the trace:\n%s", want, strings.Join(s.events, "\n"))
	}
	if missed := s.host.ClearFaults(); len(missed) != 0 {
		t.Errorf("missed %v", missed)
	}
}

func TestAFaultHoldsOnlyWhereItIsAskedFor(t *testing.T) {
	s := script(t, "request_headers: sget a\nrequest_body.end: sget a; sget b",
		"proxy_get_shared_data@proxy_on_request_body:2=InternalFailure", "worker_1/proxy_get_shared_data:1+=BadArgument")
	s.request()
	s.wantLog("sget a -> NotFound", "sget b -> InternalFailure")
	missed := s.host.ClearFaults()
	if len(missed) != 1 || missed[0].VM != "worker_1" {
		t.Errorf("missed %v", missed)
	}
	s.log = nil
	s.request()
	s.wantLog("sget b -> NotFound")
}

func TestATrapComesBeforeOrAfterTheCall(t *testing.T) {
	for fault, stored := range map[string]bool{
		"on_request_headers=trap":       false,
		"on_request_headers=trap-after": true,
		"set_shared_data=trap":          false,
		"set_shared_data=trap-after":    true,
	} {
		s := script(t, "request_headers: sset a 1 0")
		s.inject(fault)
		r := s.request()
		if r.Replied == nil || r.Response.Value(":status") != "503" || !s.vm.Failed() {
			t.Errorf("%s: %v", fault, r.Lines)
		}
		if _, _, ok := s.host.SharedData("v", "a"); ok != stored {
			t.Errorf("%s: the write happened %t", fault, ok)
		}
		var trap *TrapError
		if err := s.vm.Err(); !errors.As(err, &trap) || trap.Callback != "proxy_on_request_headers" || !strings.HasPrefix(err.Error(), "injected fault proxy_") {
			t.Errorf("%s: %v", fault, err)
		}
		if err := s.vm.Reload(context.Background()); err != nil || s.vm.Err() != nil {
			t.Errorf("%s: %v, %v", fault, err, s.vm.Err())
		}
	}
}

func TestAFailedAllocationIsInvalidMemoryAccess(t *testing.T) {
	s := script(t, "request_headers: get request :path; get request :method")
	s.inject("proxy_on_memory_allocate:1=fail")
	s.request()
	s.wantLog("get request :path -> InvalidMemoryAccess", `get request :method -> Ok "POST"`)
}

func TestMemoryThatCannotGrowEndsTheVM(t *testing.T) {
	s := script(t, "request_headers: exhaust")
	s.inject("memory.grow:1+=fail")
	if r := s.request(); r.Replied == nil {
		t.Errorf("%v", r.Lines)
	}
	if err := s.vm.Err(); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("%v", err)
	}
	if used := s.vm.Stats().MemoryBytes; used > 16<<20 {
		t.Errorf("memory grew to %d bytes", used)
	}
}

func TestALostReplyEndsAtTheTimeout(t *testing.T) {
	s := script(t, "configure: tick 100\ntick: call control /t 1000", "proxy_http_call:1=lose")
	s.host.Advance(150 * time.Millisecond)
	if n := len(s.calls.Pending()); n != 0 {
		t.Fatalf("%d calls arrived", n)
	}
	s.host.Advance(900 * time.Millisecond)
	for c := s.calls.Take(); c != nil; c = s.calls.Take() {
		c.Reply(NewHeaderMap(":status", "200"), nil, nil)
	}
	s.host.Advance(100 * time.Millisecond)
	s.wantLog("on_http_call_response(1, call 4, 3 headers, 24 body bytes", "on_http_call_response(1, call 8, 1 headers, 0 body bytes")
}

func TestTicksAreLostLateAndOutOfTime(t *testing.T) {
	s := script(t, "configure: tick 100\ntick: time", "on_tick:2=lose", "on_tick:4=stall 250ms", "on_tick:6=clock +1h")
	s.host.Advance(time.Second)
	var at []time.Duration
	for _, l := range s.log {
		if ns, ok := strings.CutPrefix(l, "time -> Ok "); ok {
			d, err := time.ParseDuration(ns + "ns")
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, time.Unix(0, int64(d)).Sub(start))
		}
	}
	// The clock fault counts the ticks that are made, the others those that come due.
	ms := time.Millisecond
	want := []time.Duration{100 * ms, 300 * ms, 650 * ms, 750 * ms, 850 * ms, 950*ms + time.Hour}
	if !slices.Equal(at, want) {
		t.Errorf("ticks at %v, want %v", at, want)
	}
	if got := s.host.Now().Sub(start); got != time.Second+time.Hour {
		t.Errorf("the clock shows %v", got)
	}
}

func TestAStalledVMTakesItsWorkLaterInOrder(t *testing.T) {
	for _, clock := range []Clock{NewVirtualClock(start), RealClock()} {
		h := newTestHost(t, Options{Clock: clock, Log: func(LogEntry) {}})
		vm, err := h.NewVM(context.Background(), VMConfig{Name: "w", Module: compileGuest(t, h)})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan int, 3)
		began := h.Now()
		vm.Stall(20 * time.Millisecond)
		vm.Stall(time.Hour) // within a stall
		for i := range 3 {
			vm.Post(func() { ran <- i })
		}
		if h.virtual != nil {
			h.Advance(19 * time.Millisecond)
			if len(ran) > 0 {
				t.Error("a stalled VM works")
			}
			h.Advance(time.Millisecond)
		}
		for want := range 3 {
			if got := <-ran; got != want {
				t.Errorf("work %d came as %d", got, want)
			}
		}
		if took := h.Now().Sub(began); took < 20*time.Millisecond {
			t.Errorf("the stall took %v", took)
		}
	}
}

func TestFaultsReadAndWriteTheSame(t *testing.T) {
	for text, want := range map[string]string{
		"proxy_on_request_body:2=trap":                     "",
		"on_tick=trap-after":                               "proxy_on_tick:1=trap-after",
		"worker_1/set_shared_data@on_tick:2-4=casmismatch": "worker_1/proxy_set_shared_data@proxy_on_tick:2-4=CasMismatch",
		"memory.grow:3+=fail":                              "",
		"malloc:1=fail":                                    "",
		"http_call:1=lose":                                 "proxy_http_call:1=lose",
		" proxy_on_tick:4 = stall 2s ":                     "proxy_on_tick:4=stall 2s",
		"proxy_on_tick:4=stall 2s":                         "",
		"proxy_get_current_time_nanoseconds:1=clock -1h":   "proxy_get_current_time_nanoseconds:1=clock -1h0m0s",
		"trap":                 "-",
		"on_tick:0=trap":       "-",
		"on_tick:3-2=trap":     "-",
		"on_tick=CasMismatch":  "-",
		"set_shared_data=Nope": "-",
		"set_shared_data@set_shared_data=NotFound": "-",
		"on_request_body=lose":                     "-",
		"on_tick=stall":                            "-",
		"on_tick=trap 2s":                          "-",
		"memory.grow=trap":                         "-",
		"on_request_bod=trap":                      "-",
	} {
		f, err := ParseFault(text)
		if want == "-" {
			if err == nil {
				t.Errorf("%q is taken as %v", text, f)
			} else if !errors.Is(err, ErrFault) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if want == "" {
			want = text
		}
		if err != nil || f.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, f, err, want)
		}
	}
	if _, err := ParseFault("on_request_bodies=trap"); err == nil || !strings.Contains(err.Error(), "proxy_on_request_body") {
		t.Errorf("no suggestion: %v", err)
	}
	h := newTestHost(t, Options{Clock: RealClock()})
	if err := h.Inject(Fault{Call: "proxy_on_tick", Do: FaultClock, By: time.Second}); !errors.Is(err, ErrFault) {
		t.Errorf("a real clock is moved: %v", err)
	}
}

func FuzzParseFault(f *testing.F) {
	for _, text := range []string{"proxy_on_request_body:2=trap", "w/set_shared_data@on_tick:2-4=CasMismatch", "on_tick:1+=stall 2s", "a=b", ":=", "on_log=clock -1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			return
		}
		again, err := ParseFault(fault.String())
		if err != nil || again != fault {
			t.Fatalf("%q is %+v, written as %q, and read as %+v, %v", text, fault, fault, again, err)
		}
	})
}
