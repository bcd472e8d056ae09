package hosttest

import (
	"fmt"
	"strings"
)

// Transcript is what happened since the request came in.
func (x *Exchange) Transcript() string {
	return strings.Join(x.f.lines[x.from:], "\n") + "\n"
}

func (x *Exchange) wrong(format string, args ...any) *Exchange {
	x.f.t.Helper()
	x.f.t.Errorf("%s%s", fmt.Sprintf(format, args...), x.f.story(x.from))
	return x
}

// fate is what has become of the exchange, for messages.
func (x *Exchange) fate() string {
	held, n := x.Stream.RequestHeld()
	heldBack, m := x.Stream.ResponseHeld()
	switch {
	case x.Out.ResetDetails != "":
		return "the stream was cut (" + x.Out.ResetDetails + ")"
	case x.Out.Replied != nil:
		return "the filter's side answered " + x.Out.Response.Value(":status") + " (" + x.Out.Replied.Details + ")"
	case x.Out.Response != nil:
		return "the client got " + x.Out.Response.Value(":status")
	case heldBack:
		return fmt.Sprintf("the filter holds the response, with %d bytes of body", m)
	case held:
		hint := ""
		if n > 0 && !x.f.set.plugin.AllowOnHeadersStopIteration && !strings.Contains(x.Transcript(), "proxy_on_request_body(") {
			hint = "; without hosttest.AllowStopIteration() a filter that stops at headers sees no body"
		}
		return fmt.Sprintf("the filter holds the request, with %d bytes of body%s", n, hint)
	case x.Out.Request != nil:
		return "the upstream has the request and has not answered"
	}
	return "nothing has left the filter"
}

// Status fails the test unless the client was answered with this code.
func (x *Exchange) Status(code int) *Exchange {
	x.f.t.Helper()
	if x.Out.Response == nil || x.Out.Response.Value(":status") != fmt.Sprint(code) {
		return x.wrong("status: want %d, but %s", code, x.fate())
	}
	return x
}

// Header fails the test unless the client got this field with this value.
func (x *Exchange) Header(name, want string) *Exchange {
	x.f.t.Helper()
	if x.Out.Response == nil {
		return x.wrong("response header %s: want %q, but %s", name, want, x.fate())
	}
	if got, ok := x.Out.Response.Get(name); !ok || got != want {
		return x.wrong("response header %s: want %q, got %s", name, want, found(got, ok))
	}
	return x
}

// NoHeader fails the test if the client got this field.
func (x *Exchange) NoHeader(name string) *Exchange {
	x.f.t.Helper()
	if got, ok := x.Out.Response.Get(name); ok {
		return x.wrong("response header %s: want none, got %q", name, got)
	}
	return x
}

// Body fails the test unless the client got exactly this body.
func (x *Exchange) Body(want string) *Exchange {
	x.f.t.Helper()
	if got := string(x.Out.ResponseBody); got != want {
		return x.wrong("response body: want %q, got %q", want, got)
	}
	return x
}

// BodyContains fails the test unless the client's body contains part.
func (x *Exchange) BodyContains(part string) *Exchange {
	x.f.t.Helper()
	if got := string(x.Out.ResponseBody); !strings.Contains(got, part) {
		return x.wrong("response body: want %q in it, got %q", part, got)
	}
	return x
}

// UpstreamHeader fails the test unless the upstream got this field with this
// value; also for ":path" and the like.
func (x *Exchange) UpstreamHeader(name, want string) *Exchange {
	x.f.t.Helper()
	if x.Out.Request == nil {
		return x.wrong("upstream header %s: want %q, but %s", name, want, x.fate())
	}
	if got, ok := x.Out.Request.Get(name); !ok || got != want {
		return x.wrong("upstream header %s: want %q, got %s", name, want, found(got, ok))
	}
	return x
}

// NoUpstreamHeader fails the test if the upstream got this field.
func (x *Exchange) NoUpstreamHeader(name string) *Exchange {
	x.f.t.Helper()
	if got, ok := x.Out.Request.Get(name); ok {
		return x.wrong("upstream header %s: want none, got %q", name, got)
	}
	return x
}

// UpstreamBody fails the test unless the upstream got exactly this body, whole.
func (x *Exchange) UpstreamBody(want string) *Exchange {
	x.f.t.Helper()
	if got := string(x.Out.RequestBody); got != want || !x.Out.RequestEnded {
		return x.wrong("upstream body: want %q and its end, got %q, ended %t", want, got, x.Out.RequestEnded)
	}
	return x
}

// Held fails the test unless the filter holds the request or the response back.
func (x *Exchange) Held() *Exchange {
	x.f.t.Helper()
	held, _ := x.Stream.RequestHeld()
	heldBack, _ := x.Stream.ResponseHeld()
	if !held && !heldBack {
		return x.wrong("want the filter to hold it, but %s", x.fate())
	}
	return x
}

// NotSent fails the test if anything of the request has reached the upstream.
func (x *Exchange) NotSent() *Exchange {
	x.f.t.Helper()
	if x.Out.Request != nil {
		return x.wrong("want nothing upstream, but it got the request")
	}
	return x
}

// Replied fails the test unless the answer came from the filter (or the host on
// its behalf) and not from the upstream.
func (x *Exchange) Replied(code int) *Exchange {
	x.f.t.Helper()
	if x.Out.Replied == nil || x.Out.Response.Value(":status") != fmt.Sprint(code) {
		return x.wrong("want a local reply %d, but %s", code, x.fate())
	}
	return x
}

// Cut fails the test unless the stream was reset.
func (x *Exchange) Cut() *Exchange {
	x.f.t.Helper()
	if x.Out.ResetDetails == "" {
		return x.wrong("want the stream cut, but %s", x.fate())
	}
	return x
}

// Property fails the test unless the filter has set this property (Envoy:
// filter state wasm.<key>).
func (x *Exchange) Property(key, want string) *Exchange {
	x.f.t.Helper()
	if got, ok := x.Stream.FilterState(key); !ok || string(got) != want {
		return x.wrong("property %s: want %q, got %s", key, want, found(string(got), ok))
	}
	return x
}

func found(got string, ok bool) string {
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%q", got)
}
