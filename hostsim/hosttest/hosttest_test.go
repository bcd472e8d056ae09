package hosttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/hostsim"
)

// guest is hostsim's scripted module, built once for all tests: a line of its
// configuration names a callback and the host calls it makes.
var guest string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hosttest-")
	if err != nil {
		panic(err)
	}
	guest = filepath.Join(dir, "guest.wasm")
	code := func() int {
		defer os.RemoveAll(dir)
		return m.Run()
	}()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func load(t T, script string, options ...Option) *Filter {
	t.Helper()
	if _, err := os.Stat(guest); err != nil {
		built, err := os.ReadFile(BuildGo(t, "../testdata/guest", "-trimpath", "-ldflags=-s -w"))
		if err == nil {
			err = os.WriteFile(guest, built, 0o644)
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
	return Load(t, guest, append([]Option{Config(script)}, options...)...)
}

// failing is a testing.TB that collects failures.
type failing struct {
	testing.TB
	messages []string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(f)
}

// fails runs g and returns its failure; none is a failure of the test itself.
func fails(t *testing.T, f *Filter, g func()) string {
	t.Helper()
	fake := &failing{TB: t}
	before := f.t
	f.t = fake
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(fake) {
				panic(r)
			}
		}()
		g()
	}()
	f.t = before
	if len(fake.messages) == 0 {
		t.Error("it does not fail")
	}
	return strings.Join(fake.messages, "\n")
}

func TestFiveLinesAreEnough(t *testing.T) {
	f := load(t, "request_headers: set request x-tenant ann")
	x := f.Post("/v1/chat", `{"user": "ann"}`)
	x.Status(200).Body("ok").UpstreamHeader("x-tenant", "ann").UpstreamBody(`{"user": "ann"}`).NoUpstreamHeader("x-other")
	f.NoCalls()
}

func TestEveryAssertionFailsWithWhatHappened(t *testing.T) {
	f := load(t, "request_headers: set request x-a b")
	x := f.Get("/")
	for name, g := range map[string]func(){
		"status: want 503, but the client got 200":                      func() { x.Status(503) },
		`response header x-b: want "c", got none`:                       func() { x.Header("x-b", "c") },
		`response header :status: want none, got "200"`:                 func() { x.NoHeader(":status") },
		`response body: want "no", got "ok"`:                            func() { x.Body("no") },
		`want "no" in it`:                                               func() { x.BodyContains("no") },
		`upstream header x-a: want "c", got "b"`:                        func() { x.UpstreamHeader("x-a", "c") },
		`upstream header x-a: want none`:                                func() { x.NoUpstreamHeader("x-a") },
		`upstream body: want "x"`:                                       func() { x.UpstreamBody("x") },
		"want the filter to hold it, but the client got 200":            func() { x.Held() },
		"want nothing upstream":                                         func() { x.NotSent() },
		"want a local reply 429, but the client got 200":                func() { x.Replied(429) },
		"want the stream cut":                                           func() { x.Cut() },
		`property k: want "v", got none`:                                func() { x.Property("k", "v") },
		`no log line contains "nothing of the kind"`:                    func() { f.Logged("nothing of the kind") },
		`cluster "auth" is unknown to the host; load with hosttest.Clu`: func() { f.Call("auth") },
		"there is no worker 3":                                          func() { f.On(3) },
	} {
		got := fails(t, f, g)
		if !strings.Contains(got, name) {
			t.Errorf("want %q in\n%s", name, got)
		}
		if !strings.Contains(name, "worker") && !strings.Contains(got, "proxy_replace_header_map_value(request_headers, \"x-a\", \"b\") = Ok") {
			t.Errorf("%s: no transcript in\n%s", name, got)
		}
	}
}

func TestAFilterThatWaitsForACallGoesOnWithItsReply(t *testing.T) {
	script := "request_headers: call auth /check 500; hold; pause\ncall_response: effective held; reply 403 no"
	f := load(t, script, Cluster("auth", nil))
	x := f.Get("/").Held().NotSent()
	c := f.Call("auth")
	if c.Headers.Value(":path") != "/check" {
		t.Errorf("%v", c.Headers)
	}
	c.Answer(200, "denied")
	x.Replied(403).Body("no")

	f = load(t, script, Cluster("auth", func(c *Call) { c.AnswerDead() }))
	f.Get("/").Replied(403)

	f = load(t, script, Cluster("auth", nil))
	x = f.Get("/").Held()
	f.Advance(600 * time.Millisecond)
	x.Replied(403)
	f.NoCalls()
	if got := fails(t, f, func() { f.Call("auth") }); !strings.Contains(got, `no http_call to "auth" waits`) {
		t.Error(got)
	}
}

func TestALongTimePassesQuicklyAndCallsAreAnsweredOnTheWay(t *testing.T) {
	answered := map[time.Duration]bool{}
	var f *Filter
	f = load(t, "configure: tick 60000\ntick: silent; call auth /check 500", Cluster("auth", func(c *Call) {
		answered[f.Host.Now().Sub(Start)] = true
		c.Answer(200, "")
	}))
	f.Advance(time.Hour)
	if len(answered) != 60 || !answered[time.Minute] || !answered[time.Hour] {
		t.Errorf("calls were answered at %v", answered)
	}
}

func TestAHeldRequestIsReleasedByTheTick(t *testing.T) {
	f := load(t, "configure: tick 100\nrequest_headers: hold; pause\ntick: effective held; set request x-a b; resume")
	x := f.Get("/").Held()
	f.Advance(100 * time.Millisecond)
	x.Status(200).UpstreamHeader("x-a", "b")
}

func TestBodiesAreSeenAsEnvoyShowsThem(t *testing.T) {
	script := "request_headers: pause\nrequest_body: pause\nrequest_body.end: continue"
	f := load(t, script, AllowStopIteration())
	x := f.Do(Request{Path: "/", Chunks: []string{"ab", "cd", "ef"}}).Status(200).UpstreamBody("abcdef")
	if !strings.Contains(x.Transcript(), "proxy_on_request_body(size 6, end_of_stream true)") {
		t.Errorf("sizes are not cumulative:\n%s", x.Transcript())
	}
	// Without the flag the body callback never runs.
	g := load(t, script)
	x = g.Do(Request{Path: "/", Chunks: []string{"ab", "cd"}}).Held()
	if got := fails(t, g, func() { x.Status(200) }); !strings.Contains(got, "without hosttest.AllowStopIteration()") {
		t.Errorf("no hint in\n%s", got)
	}
	load(t, script, AllowStopIteration(), BufferLimit(3)).Do(Request{Path: "/", Chunks: []string{"ab", "cd"}}).Replied(413)
}

func TestAnUpstreamIsScripted(t *testing.T) {
	f := load(t, "response_headers: prop upstream/address", Upstream(func(r Request) Response {
		switch r.Path {
		case "/reset":
			return Response{Reset: "remote reset"}
		case "/half":
			return Response{Status: 200, Chunks: []string{"a"}, Reset: "connection termination"}
		case "/hold":
			return Response{Hold: true}
		}
		return Response{Status: 201, Headers: Header("x-path", r.Path), Chunks: []string{"a", "b"}, Trailers: Header("x-sum", "1"), From: "10.9.9.9:1"}
	}))
	f.Get("/plain").Status(201).Header("x-path", "/plain").Body("ab")
	f.Logged(`"10.9.9.9:1"`)
	f.Get("/reset").Replied(503)
	f.Get("/half").Cut()
	x := f.Get("/hold")
	if got := fails(t, f, func() { x.Status(200) }); !strings.Contains(got, "the upstream has the request and has not answered") {
		t.Error(got)
	}
	x.Answer(Response{Status: 204}).Status(204)
	f.Open(Request{Path: "/plain", Method: "PUT"}).Send("x").End("y").Status(201).UpstreamBody("xy").UpstreamHeader(":method", "PUT")
	f.Open(Request{Path: "/plain"}).Abort()
	f.Open(Request{Path: "/plain"}).Trailers(Header("x-t", "1")).Status(201)
	f.Reconfigure("request_headers: set request x-new 1")
	f.Get("/plain").UpstreamHeader("x-new", "1")
}

func TestFaultsHitAndMissedOnesFail(t *testing.T) {
	f := load(t, "request_headers: sset k v 0; counter c; inc c 1", Names("p", "", "v"), FailurePolicy(hostsim.FailReload, 0))
	f.Fault("proxy_on_request_headers:2=trap", "proxy_set_shared_data:2=CasMismatch")
	f.Get("/").Status(200)
	if v, ok := f.SharedData("k"); !ok || v != "v" || f.Metric("c") != 1 || f.Metric("none") != 0 {
		t.Errorf("shared data %q, metric %d", v, f.Metric("c"))
	}
	f.Get("/").Replied(503)
	var trap *hostsim.TrapError
	if !f.Failed() || !errors.As(f.Err(), &trap) {
		t.Errorf("%v", f.Err())
	}
	f.Get("/").Status(200)
	f.Logged("sset k v 0 -> CasMismatch")
	if got := fails(t, f, func() { f.Fault("on_request_bodies=trap") }); !strings.Contains(got, "proxy_on_request_body") {
		t.Error(got)
	}
	g, cleanup := load(t, ""), &cleanupNow{TB: t}
	fake := &failing{TB: cleanup}
	g.t = fake
	g.Fault("proxy_http_call:7=lose")
	cleanup.run()
	if len(fake.messages) != 1 || !strings.Contains(fake.messages[0], "hit nothing") {
		t.Errorf("a fault that misses is no failure: %q", fake.messages)
	}
}

// cleanupNow runs cleanups when told to.
type cleanupNow struct {
	testing.TB
	todo []func()
}

func (c *cleanupNow) Cleanup(f func()) { c.todo = append(c.todo, f) }

func (c *cleanupNow) run() {
	for _, f := range c.todo {
		f()
	}
}

func TestAFleetHasACanaryAMainAndItsWorkers(t *testing.T) {
	f := load(t, "configure: sadd started\nrequest_headers: sset from one 0", Workers(2), Names("p", "", "v"))
	if v, _ := f.SharedData("started"); v != "4" {
		t.Errorf("%q VMs were configured, want 4", v)
	}
	f.On(1).Do(Request{Path: "/"}).Status(200)
	if !strings.Contains(f.Transcript(), "worker_1: #") {
		t.Errorf("lines do not name their VM:\n%s", f.Transcript())
	}
}

func TestWhatMustNotStartSaysWhy(t *testing.T) {
	load(t, "")
	wasm, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(t, "guest", wasm, Config("configure: refuse")); !errors.Is(err, hostsim.ErrRejected) {
		t.Errorf("%v", err)
	}
	var trap *hostsim.TrapError
	if _, err := Try(t, "guest", wasm, Config("configure: trap")); !errors.As(err, &trap) || trap.Callback != "proxy_on_configure" {
		t.Errorf("%v", err)
	}
	if _, err := Try(t, "text", []byte("(module)")); !errors.Is(err, hostsim.ErrModule) {
		t.Errorf("%v", err)
	}
}

func TestARaceFindsTheLostUpdateAndNamesItsSchedule(t *testing.T) {
	race := func(script string) (*Filter, func()) {
		f := load(t, script, Workers(2), Names("p", "", "v"))
		return f, func() {
			f.Race(hostsim.EverySchedule(1, 1000), func(xs []*Exchange) error {
				for _, x := range xs {
					x.Status(200)
				}
				if v, _ := f.SharedData("n"); v != "2" {
					return fmt.Errorf("n is %s", v)
				}
				return f.Host.SetSharedData("v", "n", []byte("0"))
			}, Request{Path: "/a"}, Request{Path: "/b", Body: "b"})
		}
	}
	f, run := race("request_headers: sadd n cas")
	if err := f.Host.SetSharedData("v", "n", []byte("0")); err != nil {
		t.Fatal(err)
	}
	run()
	f, run = race("request_headers: sadd n")
	if err := f.Host.SetSharedData("v", "n", []byte("0")); err != nil {
		t.Fatal(err)
	}
	got := fails(t, f, run)
	for _, want := range []string{"n is 1", "it fails by schedule ", "worker_0: #", "worker_1: #"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
