package hosttest_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/warmpath/warmpath/hostsim/hosttest"
)

// In a test, t is the *testing.T. Here it is a stand-in that prints failures.
func Example() {
	t := &console{}
	defer t.end()
	wasm := hosttest.BuildGo(t, "../testdata/guest") // or the path of any module

	f := hosttest.Load(t, wasm, hosttest.Config("request_headers: set request x-tenant ann"))
	x := f.Post("/v1/chat", `{"user": "ann"}`)
	x.Status(200).UpstreamHeader("x-tenant", "ann")
	fmt.Println("the upstream saw", x.Out.Request.Value("x-tenant"))
	// Output:
	// the upstream saw ann
}

// A failed assertion shows every call between host and module since the request
// came in.
func ExampleExchange_Status() {
	t := &console{}
	defer t.end()
	f := hosttest.Load(t, hosttest.BuildGo(t, "../testdata/guest"), hosttest.Config("request_headers: reply 429 slow down"))
	f.Get("/").Status(200)
	// Output:
	// FAIL: status: want 200, but the filter's side answered 429 (guest_reply)
	// what happened:
	//     client sends headers {:method: GET, :scheme: http, :authority: example.com, :path: /}, end
	//     #2 proxy_on_context_create(id 2, parent 1)
	//     #2   proxy_log(info, "on_context_create(2, root 1)") = Ok
	//     #2 proxy_on_request_headers(headers 4, end_of_stream true)
	//     #2   proxy_log(info, "on_request_headers(2, 4 headers, end)") = Ok
	//     #2   proxy_send_local_response(429, "guest_reply", "slow down", {retry-after: 1}) = Ok
	//     #2   proxy_log(info, "reply 429 slow down -> Ok") = Ok
	//     #2 proxy_on_request_headers = Continue
	//     #2 proxy_on_response_headers(headers 4, end_of_stream false)
	//     #2   proxy_log(info, "on_response_headers(2, 4 headers)") = Ok
	//     #2 proxy_on_response_headers = Continue
	//     #2 proxy_on_response_body(size 9, end_of_stream true)
	//     #2   proxy_log(info, "on_response_body(2, 9 bytes, end)") = Ok
	//     #2 proxy_on_response_body = Continue
	//     <- client local reply {:status: 429, retry-after: 1, content-length: 9, content-type: text/plain} "slow down" (guest_reply)
	//     #2 proxy_on_log()
	//     #2   proxy_log(info, "on_log(2)") = Ok
	//     #2 proxy_on_done()
	//     #2   proxy_log(info, "on_done(2)") = Ok
	//     #2 proxy_on_done = true
	//     #2 proxy_on_delete()
	//     #2   proxy_log(info, "on_delete(2)") = Ok
}

// The reply to an http_call is given by hand, at the time that the test wants.
func ExampleFilter_Call() {
	t := &console{}
	defer t.end()
	f := hosttest.Load(t, hosttest.BuildGo(t, "../testdata/guest"), hosttest.Cluster("auth", nil), hosttest.Config(
		"request_headers: call auth /check 500; hold; pause\ncall_response: effective held; resume"))
	x := f.Get("/").Held()
	f.Advance(200 * time.Millisecond)
	f.Call("auth").Answer(200, "allowed")
	x.Status(200)
	fmt.Println("released after", x.Stream.Info.StartTime.Sub(hosttest.Start), "and", f.Host.Now().Sub(hosttest.Start))
	// Output:
	// released after 0s and 200ms
}

// A fault comes at an exact call, the same every time.
func ExampleFilter_Fault() {
	t := &console{}
	defer t.end()
	f := hosttest.Load(t, hosttest.BuildGo(t, "../testdata/guest"), hosttest.Config("request_headers: sset k v 0"))
	f.Fault("proxy_set_shared_data:1=CasMismatch", "proxy_on_request_headers:2=trap")
	f.Get("/").Status(200)
	f.Get("/").Replied(503)
	f.Advance(time.Second) // the back-off
	f.Get("/").Status(200)
	fmt.Println(strings.Count(f.Transcript(), "!! fault"), "faults hit, the last:")
	for _, e := range f.Logs() {
		if e.Plugin == "" && e.Level > 3 {
			fmt.Println(e.Message)
		}
	}
	// Output:
	// 2 faults hit, the last:
	// wasm VM failed: injected fault proxy_on_request_headers:2=trap
	// in proxy_on_request_headers of worker_0
}

// console stands in for a test: it prints what fails.
type console struct{ todo []func() }

func (c *console) Helper()                           {}
func (c *console) Errorf(format string, args ...any) { fmt.Printf("FAIL: "+format+"\n", args...) }
func (c *console) Name() string                      { return "Example" }
func (c *console) Cleanup(f func())                  { c.todo = append(c.todo, f) }

func (c *console) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	panic("stop")
}

func (c *console) TempDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	c.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (c *console) end() {
	for i := len(c.todo) - 1; i >= 0; i-- {
		c.todo[i]()
	}
}
