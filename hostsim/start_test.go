package hostsim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A module whose exports log their first letter.
func startModule(exports ...string) []byte {
	m := &wasmModule{}
	log := m.importFunc("proxy_log", 3)
	m.export("proxy_abi_version_0_2_0", 0, 0)
	m.export("malloc", 1, 1, i32Const(1024)...)
	at := int32(0)
	for _, e := range exports {
		name, params, _ := strings.Cut(e, "/")
		m.dataAt(at, name)
		n := len(params)
		results := 0
		body := cat(i32Const(2), i32Const(at), i32Const(int32(len(name))), call(log), []byte{0x1a})
		if n > 0 {
			results, body = 1, append(body, i32Const(0)...)
		}
		m.export(name, n, results, body...)
		at += 32
	}
	return m.bytes()
}

func TestModulesOfEverySortAreStarted(t *testing.T) {
	for _, c := range []struct {
		exports []string
		want    []string
	}{
		{[]string{"_initialize"}, []string{"_initialize"}},
		{[]string{"_start"}, []string{"_start"}},
		{[]string{"_start", "_initialize"}, []string{"_initialize"}},
		{[]string{"main/ii", "_initialize"}, []string{"_initialize", "main"}},
		{[]string{"__main_void", "_initialize"}, []string{"_initialize", "__main_void"}},
		{[]string{"main/ii", "__main_void", "_initialize"}, []string{"_initialize", "main"}},
		{[]string{"main/iii", "_initialize"}, []string{"_initialize"}},
		{nil, nil},
	} {
		var got []string
		h := newTestHost(t, Options{Log: func(e LogEntry) { got = append(got, e.Message) }})
		m, err := h.Compile(context.Background(), "m", startModule(c.exports...))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.NewVM(context.Background(), VMConfig{Name: "w", Module: m}); err != nil {
			t.Errorf("%v: %v", c.exports, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v runs %v, want %v", c.exports, got, c.want)
		}
	}
}

func TestTheOldABIIsNamed(t *testing.T) {
	m := &wasmModule{}
	m.export("proxy_abi_version_0_1_0", 0, 0)
	m.export("malloc", 1, 1, i32Const(1024)...)
	h := newTestHost(t, Options{})
	if _, err := h.Compile(context.Background(), "old", m.bytes()); !errors.Is(err, ErrModule) || !strings.Contains(err.Error(), "0.1.0") {
		t.Errorf("%v", err)
	}
}

// As in Envoy proc_exit returns, and what the compiler put behind it traps.
func TestProcExitEndsTheVMWithAStack(t *testing.T) {
	m := &wasmModule{}
	exit := m.importFunc("proc_exit", 1)
	m.types[0] = m.types[0][:len(m.types[0])-2]
	m.types[0] = append(m.types[0], 0) // no result
	m.imports[0] = append(append(text("wasi_unstable"), text("proc_exit")...), 0, 0)
	m.export("proxy_abi_version_0_2_1", 0, 0)
	m.export("malloc", 1, 1, i32Const(1024)...)
	m.export("proxy_on_tick", 1, 0)
	m.export("_initialize", 0, 0, cat(i32Const(3), call(exit), []byte{0x00})...)
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	module, err := h.Compile(context.Background(), "m", m.bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.NewVM(context.Background(), VMConfig{Name: "w", Module: module})
	var trap *TrapError
	if !errors.As(err, &trap) || trap.Reason != "the module exited with code 3" || trap.Callback != "_initialize" || len(trap.Stack) != 1 {
		t.Errorf("%v: %+v", err, trap)
	}
}

func TestHostCallsBeforeTheStartAreATrap(t *testing.T) {
	m := &wasmModule{}
	now := m.importFunc("proxy_get_current_time_nanoseconds", 1)
	m.export("proxy_abi_version_0_2_1", 0, 0)
	m.export("malloc", 1, 1, i32Const(1024)...)
	m.export("_initialize", 0, 0, cat(i32Const(64), call(now), []byte{0x1a})...)
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	module, err := h.Compile(context.Background(), "m", m.bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.NewVM(context.Background(), VMConfig{Name: "w", Module: module})
	var trap *TrapError
	if !errors.As(err, &trap) || !strings.Contains(trap.Reason, "restricted_callback: proxy_get_current_time_nanoseconds") {
		t.Errorf("%v", err)
	}
}
