package abi_test

import (
	"slices"
	"strings"
	"testing"
)

// callbackCalls is each callback with arguments and what it returns when it
// panics: Continue (0) for streams, done (1), failed (0) for start and
// configuration; -1 where there is no result.
var callbackCalls = []struct {
	name      string
	arguments []uint64
	recovered int
}{
	{"proxy_on_vm_start", []uint64{1, 0}, 0},
	{"proxy_on_configure", []uint64{1, 0}, 0},
	{"proxy_on_tick", []uint64{1}, -1},
	{"proxy_on_queue_ready", []uint64{1, 5}, -1},
	{"proxy_on_request_headers", []uint64{2, 3, 0}, 0},
	{"proxy_on_request_body", []uint64{2, 3, 0}, 0},
	{"proxy_on_request_trailers", []uint64{2, 3}, 0},
	{"proxy_on_request_metadata", []uint64{2, 3}, 0},
	{"proxy_on_response_headers", []uint64{2, 3, 0}, 0},
	{"proxy_on_response_body", []uint64{2, 3, 0}, 0},
	{"proxy_on_response_trailers", []uint64{2, 3}, 0},
	{"proxy_on_response_metadata", []uint64{2, 3}, 0},
	{"proxy_on_http_call_response", []uint64{1, 31, 1, 2, 3}, -1},
	{"proxy_on_grpc_receive_initial_metadata", []uint64{1, 7, 1}, -1},
	{"proxy_on_grpc_receive", []uint64{1, 7, 1}, -1},
	{"proxy_on_grpc_receive_trailing_metadata", []uint64{1, 7, 1}, -1},
	{"proxy_on_grpc_close", []uint64{1, 7, 1}, -1},
	{"proxy_on_new_connection", []uint64{1000}, 0},
	{"proxy_on_downstream_data", []uint64{1000, 3, 0}, 0},
	{"proxy_on_downstream_connection_close", []uint64{1000, 1}, -1},
	{"proxy_on_upstream_data", []uint64{1000, 3, 0}, 0},
	{"proxy_on_upstream_connection_close", []uint64{1000, 1}, -1},
	{"proxy_on_log", []uint64{2}, -1},
	{"proxy_on_done", []uint64{1}, 1},
	{"proxy_on_context_create", []uint64{9, 1}, -1},
}

func TestPanicInAnyCallbackIsRecoveredLoggedAndCounted(t *testing.T) {
	for _, c := range callbackCalls {
		t.Run(c.name, func(t *testing.T) {
			r := newRecorder(t, guestWasm)
			r.start(t)
			if c.name == "proxy_on_http_call_response" {
				r.answers["proxy_http_call"] = answer{id: 31}
				r.run(t, "HTTPCall")
			}
			r.run(t, "panic string "+c.name)
			r.take()
			results := r.call(t, c.name, c.arguments...)
			if c.recovered >= 0 && int(results[0]) != c.recovered {
				t.Errorf("a panic made it answer %d, want %d", results[0], c.recovered)
			}
			lines := r.take()
			logged := slices.ContainsFunc(lines, func(line string) bool {
				return strings.HasPrefix(line, `proxy_log(4, "panic in `+c.name+` (1): a string at main.`) &&
					strings.Contains(line, " panics.go:")
			})
			if !logged {
				t.Errorf("no log line names callback, value and place:\n%s", strings.Join(lines, "\n"))
			}
			if told := `proxy_log(2, "OnPanic(` + c.name + `)")`; lines[len(lines)-1] != told {
				t.Errorf("OnPanic was not called last:\n%s", strings.Join(lines, "\n"))
			}
			if got := r.run(t, "panics"); got != "1" {
				t.Errorf("Panics() = %s, want 1", got)
			}

			// The VM lives: the same callback works again.
			r.run(t, "calm")
			if c.name == "proxy_on_http_call_response" {
				r.run(t, "HTTPCall")
			}
			if c.name == "proxy_on_context_create" {
				return // 9 was not created; creating it again is what the next line would test
			}
			results = r.call(t, c.name, c.arguments...)
			if c.recovered >= 0 && int(results[0]) == c.recovered {
				t.Errorf("after the panic it answers %d, as if it had panicked again", results[0])
			}
			if got := r.run(t, "panics"); got != "1" {
				t.Errorf("Panics() = %s after a good call, want 1", got)
			}
		})
	}
}

func TestCallbacksOfAStreamWhoseCreationPanickedLetItPass(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	r.run(t, "panic string proxy_on_context_create")
	r.call(t, "proxy_on_context_create", 9, 1)
	r.run(t, "calm")
	for _, c := range []string{"proxy_on_request_headers", "proxy_on_request_body", "proxy_on_response_headers", "proxy_on_response_body"} {
		if got := r.call(t, c, 9, 1, 1); got[0] != 0 {
			t.Errorf("%s answers %d, want Continue", c, got[0])
		}
	}
	r.call(t, "proxy_on_log", 9)
	r.call(t, "proxy_on_delete", 9)
	if r.call(t, "proxy_on_request_headers", 2, 1, 1)[0] != 1 {
		t.Error("the stream created before does not reach its context any more")
	}
}

func TestEveryKindOfPanicIsRecovered(t *testing.T) {
	kinds := map[string]string{
		"string":   "a string",
		"error":    "an error",
		"stringer": "stringer value",
		"other":    "(a value that is neither error nor string)",
		"nil":      "runtime error: invalid memory address or nil pointer dereference",
		"index":    "runtime error: index out of range [1] with length 1",
		"map":      "assignment to entry in nil map",
		"divide":   "runtime error: integer divide by zero",
		"convert":  "interface conversion: *main.location is not interface { Missing() int }: missing method Missing",
	}
	for kind, want := range kinds {
		r := newRecorder(t, guestWasm)
		r.start(t)
		r.run(t, "panic "+kind+" proxy_on_request_headers")
		r.take()
		if got := r.call(t, "proxy_on_request_headers", 2, 0, 0); got[0] != 0 {
			t.Errorf("%s: answered %d, want Continue", kind, got[0])
		}
		if lines := strings.Join(r.take(), "\n"); !strings.Contains(lines, "(1): "+want+" at main.") {
			t.Errorf("%s: the log lacks %q:\n%s", kind, want, lines)
		}
	}
}

func TestRepeatedPanicsAreLoggedLessAndLessOften(t *testing.T) {
	r := newRecorder(t, guestWasm)
	r.start(t)
	r.run(t, "panic nil proxy_on_request_body")
	r.take()
	for range 100 {
		r.call(t, "proxy_on_request_body", 2, 1, 1)
	}
	logged := 0
	for _, line := range r.take() {
		if strings.HasPrefix(line, "proxy_log(4, ") {
			logged++
		}
	}
	if logged != 7 { // 1, 2, 4, 8, 16, 32, 64
		t.Errorf("100 panics were logged %d times, want 7", logged)
	}
	if got := r.run(t, "panics"); got != "100" {
		t.Errorf("Panics() = %s, want 100", got)
	}
}
