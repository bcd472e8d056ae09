package hostsim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// trapOf runs a script that traps and returns how.
func trapOf(t *testing.T, lines string, faults ...string) *TrapError {
	t.Helper()
	s := script(t, lines, faults...)
	s.request()
	var trap *TrapError
	if !errors.As(s.vm.Err(), &trap) {
		t.Fatalf("no trap: %v\n%s", s.vm.Err(), strings.Join(s.log, "\n"))
	}
	return trap
}

func (e *TrapError) has(t *testing.T, function, file string) {
	t.Helper()
	if !slices.ContainsFunc(e.Stack, func(f Frame) bool { return f.Function == function && strings.HasSuffix(f.File, file) && f.Line > 0 }) {
		t.Errorf("the stack has no %s in %s:\n%v", function, file, e)
	}
}

// The guest is built with -ldflags='-s -w': the names come from Go's own table.
func TestAPanicOfAStrippedGoModuleNamesFunctionsAndLines(t *testing.T) {
	e := trapOf(t, "request_body: trap")
	if !strings.HasPrefix(e.Panic, "panic: runtime error: invalid memory address") || e.Callback != "proxy_on_request_body" {
		t.Errorf("%+v", e)
	}
	e.has(t, "main.perform", "guest/env.go")
	e.has(t, "main.onRequestBody", "guest/main.go")
	if strings.Contains(e.Error(), "runtime.sigpanic") {
		t.Errorf("frames of the runtime are not folded:\n%v", e)
	}
}

func TestATrapInAHostCallShowsTheWayToIt(t *testing.T) {
	e := trapOf(t, "request_headers: get request :path", "proxy_get_header_map_value=trap")
	if len(e.Stack) == 0 || e.Stack[0].Function != "env.proxy_get_header_map_value" {
		t.Errorf("%v", e)
	}
	e.has(t, "main.perform", "guest/env.go")
}

// As the SDKs of Rust and AssemblyScript do before they give up.
func TestACriticalLineIsTheLastWord(t *testing.T) {
	m := &wasmModule{}
	log := m.importFunc("proxy_log", 3)
	m.export("proxy_abi_version_0_2_1", 0, 0)
	m.export("malloc", 1, 1, i32Const(1024)...)
	m.export("proxy_on_tick", 1, 0)
	m.export("_initialize", 0, 0, cat(i32Const(5), i32Const(0), i32Const(24), call(log), []byte{0x1a, 0x00})...)
	m.dataAt(0, "panicked at src/lib.rs:1")
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	module, err := h.Compile(context.Background(), "m", m.bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.NewVM(context.Background(), VMConfig{Name: "w", Module: module})
	var trap *TrapError
	if !errors.As(err, &trap) || trap.Panic != "panicked at src/lib.rs:1" {
		t.Errorf("%v: %+v", err, trap)
	}
}

func TestRecursionIsOneLine(t *testing.T) {
	e := trapOf(t, "request_headers: recurse")
	if n := strings.Count(e.Error(), "main.recurse"); n != 1 {
		t.Errorf("main.recurse stands in %d lines:\n%v", n, e)
	}
}

func TestNamesAreMadeReadable(t *testing.T) {
	for raw, want := range map[string]string{
		"_ZN4core9panicking5panic17h0123456789abcdefE":  "core::panicking::panic",
		"_RNvCskwGfYPst2Cb_3foo3bar":                    "foo::bar",
		"_ZN7Context16onRequestHeadersEjb":              "Context::onRequestHeaders(unsigned int, bool)",
		"github.com_x_y.__Filter_.OnHttpRequestHeaders": "github.com_x_y.(*Filter).OnHttpRequestHeaders",
		"assembly/index/onRequest":                      "assembly/index/onRequest",
	} {
		if got := readableName(raw); got != want {
			t.Errorf("%s is %q, want %q", raw, got, want)
		}
	}
}

// A stack of a Rust module without names, and the build that has them.
func TestSymbolsOfAnUnstrippedBuildNameAStrippedOne(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	ctx := context.Background()
	stripped, err := h.Compile(ctx, "hand", handModule())
	if err != nil {
		t.Fatal(err)
	}
	// Function 7 is proxy_on_response_body: two imports, then the exports in order.
	entry := append([]byte{1, 7}, text("_ZN4core9panicking5panic17h0123456789abcdefE")...)
	custom := section(0, append(text("name"), section(1, entry)...))
	if err := stripped.SetSymbols(append(handModule(), custom...)); err != nil {
		t.Fatal(err)
	}
	vm, err := h.NewVM(ctx, VMConfig{Name: "w", Module: stripped})
	if err != nil {
		t.Fatal(err)
	}
	p, err := vm.AddPlugin(PluginConfig{Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	s := p.NewStream(&Recorder{})
	s.RequestHeaders(NewHeaderMap(":method", "GET", ":path", "/", ":authority", "x"), true)
	s.ResponseHeaders(NewHeaderMap(":status", "200"), false)
	s.ResponseData([]byte("x"), true)
	if err := vm.Err(); err == nil || !strings.Contains(err.Error(), "\n\tcore::panicking::panic") {
		t.Errorf("%v", err)
	}
	if err := stripped.SetSymbols(guestWasm(t)); err == nil {
		t.Error("names of another module are taken")
	}
}

func TestTheLastPanicIsReadWithItsReason(t *testing.T) {
	for _, c := range []struct {
		lines, want string
		stack       []string
	}{
		{"hello\nworld", "", nil},
		{"thread '<unnamed>' panicked at 'no', f.rs:13:51\nnote: run with `RUST_BACKTRACE=1`", "thread '<unnamed>' panicked at 'no', f.rs:13:51", nil},
		{"thread '<unnamed>' panicked at src/lib.rs:1:2:\nno\nnote: x", "thread '<unnamed>' panicked at src/lib.rs:1:2: no", nil},
		{"panic: first\npanic: second\n\ngoroutine 1 [running]:\nmain.a(...)\n\t/src/a.go:3\nmain.b(0x1, {0x2, 0x3})\n\t/src/b.go:12 +0x3\n\ngoroutine 2 [select]:\nmain.c()\n\t/c.go:1", "panic: second", []string{"main.a (src/a.go:3)", "main.b (src/b.go:12)"}},
		{"fatal error: out of memory", "fatal error: out of memory", nil},
		{"panic: x\n\ngoroutine 1 [running]:", "panic: x", nil},
	} {
		message, stack := readPanic(strings.Split(c.lines, "\n"))
		var got []string
		for _, f := range stack {
			got = append(got, f.String())
		}
		if message != c.want || !slices.Equal(got, c.stack) {
			t.Errorf("%q: %q %q; want %q %q", c.lines, message, got, c.want, c.stack)
		}
	}
}
