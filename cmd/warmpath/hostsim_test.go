package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// scriptedGuest builds hostsim's scripted module: its configuration says what it
// does in which callback.
var scriptedGuest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", out, "../../hostsim/testdata/guest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return msg, err
	}
	return os.ReadFile(out)
})

// files writes files into a folder and returns a function that names them.
func files(t *testing.T, byName map[string]string) func(name string) string {
	t.Helper()
	dir := t.TempDir()
	wasm, err := scriptedGuest()
	if err != nil {
		t.Fatalf("%v\n%s", err, wasm)
	}
	byName["guest.wasm"] = string(wasm)
	for name, text := range byName {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string { return filepath.Join(dir, name) }
}

const twoRequests = "### first\nPOST http://h.example/a\nX-A: b\n\nhello\n### second\nGET /b\n"

func TestRunShowsWhatBecameOfEachRequest(t *testing.T) {
	at := files(t, map[string]string{
		"r.http": twoRequests, "a.http": "HTTP/1.1 201 Created\nx-from: up\n\none\n###\n404\n",
		"cfg": "request_headers: set request x-set 1; call auth /check 100\nlog: counter c; inc c 3",
	})
	code, out, errs := warmpath("hostsim", "run", at("guest.wasm"), "--request", at("r.http"), "--config", at("cfg"), "--response", at("a.http"))
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{
		"POST /a  (first)", ":authority: h.example", "x-a: b", "x-set: 1", "    hello\n", ":status: 201", "x-from: up", "    one\n",
		"GET /b  (second)", ":status: 404", "metrics\n  c 6", `--http-call auth=reply.http`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestRunTracesEveryCallAndAnswersCallsOut(t *testing.T) {
	at := files(t, map[string]string{
		"r.http": twoRequests, "allow.http": "200\nx-user: ann\n\nyes\n",
		"cfg": "request_headers: call auth /check 100; hold; pause\ncall_response: get call x-user; effective held; resume",
	})
	run := func(how string) string {
		code, out, errs := warmpath("hostsim", "run", at("guest.wasm"), "--request", at("r.http"), "--config", at("cfg"),
			"--http-call", "auth="+how, "--trace", "--advance", "200ms", "--chunk", "2")
		if code != 0 {
			t.Fatalf("exit %d: %s", code, errs)
		}
		return out
	}
	out := run(at("allow.http"))
	for _, want := range []string{
		"proxy_on_configure(configuration", `client sends body "he"`, `client sends body "o", end`,
		`proxy_http_call("auth", {:method: GET, :path: /check, :authority: auth}, "", {}, 100ms) = Ok call 4`,
		`proxy_get_header_map_value(call_response_headers, "x-user") = Ok "ann"`, "proxy_on_request_body(size 5, end_of_stream true)",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	_, all, _ := warmpath("hostsim", "run", at("guest.wasm"), "--config", at("cfg"), "--trace-all")
	if strings.Contains(out, "clock_time_get") || !strings.Contains(all, "  clock_time_get() = success") || !strings.Contains(all, "    proxy_on_memory_allocate(") {
		t.Errorf("--trace-all shows\n%s", all)
	}
	for how, want := range map[string]string{"dead": "headers 3, body 98", "break": "headers 0, body 0", "silent": "headers 3, body 24"} {
		if out := run(how); !strings.Contains(out, "proxy_on_http_call_response(call 4, "+want) {
			t.Errorf("%s: no %q in\n%s", how, want, out)
		}
	}
}

func TestRunTellsOfATrapWithNames(t *testing.T) {
	at := files(t, map[string]string{"r.http": twoRequests, "cfg": "request_body: trap"})
	code, out, errs := warmpath("hostsim", "run", at("guest.wasm"), "--request", at("r.http"), "--config", at("cfg"), "--json")
	if code != 1 || !strings.Contains(errs, "the module trapped") || !strings.Contains(errs, "main.perform (guest/env.go:") {
		t.Errorf("exit %d: %s", code, errs)
	}
	var report struct {
		Requests []struct{ Outcome, Details string }
		Trap     struct {
			Callback, Panic string
			Stack           []string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(report.Requests) != 2 || report.Requests[0].Outcome != "local_reply" || report.Requests[0].Details != "wasm_fail_stream" {
		t.Errorf("%+v", report.Requests)
	}
	if report.Trap.Callback != "proxy_on_request_body" || !strings.HasPrefix(report.Trap.Panic, "panic: ") || len(report.Trap.Stack) < 3 {
		t.Errorf("%+v", report.Trap)
	}
	if _, _, errs := warmpath("hostsim", "run", at("guest.wasm"), "--fault", "on_tick:7=trap"); !strings.Contains(errs, "fault proxy_on_tick:7=trap hit nothing") {
		t.Errorf("a fault in vain is not told: %s", errs)
	}
	code, _, errs = warmpath("hostsim", "run", at("guest.wasm"), "--request", at("r.http"), "--fault", "on_request_headers:2=trap")
	if code != 1 || !strings.Contains(errs, "injected fault proxy_on_request_headers:2=trap") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestRunShowsTrailersBothWays(t *testing.T) {
	at := files(t, map[string]string{
		"r.http": "POST /a\n\nhello\n> x-checksum: 1\n", "a.http": "HTTP/1.1 200 OK\n\nyes\n> x-done: 2\n", "cfg": "request_headers: continue",
	})
	run := []string{"hostsim", "run", at("guest.wasm"), "--request", at("r.http"), "--response", at("a.http"), "--config", at("cfg")}
	code, out, errs := warmpath(run...)
	if code != 0 || !strings.Contains(out, "    hello\n\n    > x-checksum: 1\n") || !strings.Contains(out, "    yes\n\n    > x-done: 2\n") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if _, out, _ = warmpath(append(run, "--json")...); strings.Count(out, `"trailers"`) != 2 {
		t.Errorf("JSON without trailers\n%s", out)
	}
}

func TestALocalReplyWithoutDetailsHasNoEmptyBrackets(t *testing.T) {
	at := files(t, map[string]string{"cfg": "request_headers: reply 429 no; pause"})
	if _, out, errs := warmpath("hostsim", "run", at("guest.wasm"), "--config", at("cfg")); !strings.Contains(out, "the client got from the filter's side") || strings.Contains(out, "()") {
		t.Errorf("%s%s", out, errs)
	}
}

func TestRunSaysWhyARequestWaits(t *testing.T) {
	at := files(t, map[string]string{"r.http": twoRequests, "cfg": "request_headers: pause"})
	code, out, _ := warmpath("hostsim", "run", at("guest.wasm"), "--request", at("r.http"), "--config", at("cfg"))
	if code != 0 || !strings.Contains(out, "held: the filter holds the request, 5 bytes of body wait; without --allow-stop-iteration") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestCheckFailsForANamedHostOnly(t *testing.T) {
	at := files(t, map[string]string{})
	code, out, _ := warmpath("hostsim", "check", at("guest.wasm"))
	if code != 0 || !strings.Contains(out, "no   envoy-1.33 to 1.38") || !strings.Contains(out, "yes  envoy-1.39 to 1.40") {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, _, errs := warmpath("hostsim", "check", at("guest.wasm"), "--host", "envoy-1.36", "--host", "envoy-1.40")
	if code != 1 || !strings.HasSuffix(errs, "does not run on envoy-1.36\n") {
		t.Errorf("exit %d: %s", code, errs)
	}
	code, out, _ = warmpath("hostsim", "check", at("guest.wasm"), "--host", "envoy-1.40", "--json")
	var report struct {
		ABI   string
		Hosts []struct {
			Host     struct{ ID, Evidence string }
			Findings []struct{ Severity, Subject string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.ABI != "0.2.1" || len(report.Hosts) != 1 || report.Hosts[0].Host.ID != "envoy-1.40" {
		t.Errorf("exit %d, %v, %+v", code, err, report)
	}
}

func TestHostsimUsedWronglySaysWhatWouldBeRight(t *testing.T) {
	for _, verb := range []string{"run", "check"} {
		if code, _, errs := warmpath("hostsim", verb); code != 1 || !strings.Contains(errs, "name the module to "+verb) {
			t.Errorf("%s without a module: exit %d, %s", verb, code, errs)
		}
	}
	at := files(t, map[string]string{"r.http": "GET x", "cfg": "configure: refuse", "text": "(module)"})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "missing.wasm"}, "missing.wasm"},
		{[]string{"run", at("text")}, "not a proxy-wasm 0.2.1 module"},
		{[]string{"run", at("guest.wasm"), "--request", at("r.http")}, "r.http:1: "},
		{[]string{"run", at("guest.wasm"), "--request", "missing.http"}, "missing.http"},
		{[]string{"run", at("guest.wasm"), "--config", at("cfg")}, "answered false"},
		{[]string{"run", at("guest.wasm"), "--fault", "on_tock=trap"}, "no host call or callback"},
		{[]string{"run", at("guest.wasm"), "--http-call", "auth"}, "cluster=dead"},
		{[]string{"run", at("guest.wasm"), "--env", "A"}, "NAME=value"},
		{[]string{"run", at("guest.wasm"), "--symbols", at("guest.wasm")}, "it is stripped too"},
		{[]string{"check", at("text")}, "text file"},
		{[]string{"check", at("guest.wasm"), "--host", "nginx"}, "envoy-1.36"},
	} {
		code, _, errs := warmpath(append([]string{"hostsim"}, c.args...)...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %q; want 1 and %q", c.args, code, errs, c.want)
		}
	}
}
