package transcripts

import (
	"testing"
	"time"
)

// TestWhereTheHeadersHaveGoneOnAClientsKeyIsKept: in the buffer mode nothing can be read of them once
// the prompt is known. A request that came before there was a copy to make begins none.
func TestWhereTheHeadersHaveGoneOnAClientsKeyIsKept(t *testing.T) {
	h := startHot(t, `,"hold":"buffer"`)
	early := &exchange{}
	early.Stream = h.fleet.Plugins[0][0].NewStream(&early.out)
	early.RequestHeaders(post("/v1/chat/completions", "authorization", "Bearer early"), false)
	h.plan("gw-a", h.others(1)...)
	early.body(h.next(), 0)
	h.whole(early)
	if n := len(h.calls()); n != 0 {
		t.Fatalf("%d calls for a request of which no key was kept", n)
	}
	for _, key := range []string{"Bearer late", ""} {
		h.plan("gw-a")
		h.advance(6 * time.Second)
		h.plan("gw-a", h.others(1)...)
		if key == "" {
			h.request(0)
		} else {
			h.request(0, "authorization", key, "authorization", "Bearer other")
		}
		call := h.call()
		if got := call.Headers.Value("authorization"); got != key {
			t.Errorf("the slice bears %q, want %q", got, key)
		}
		h.plan("gw-a") // nobody wants it any more
		call.Reply(status(200), usage(slice, 0), nil)
		h.settle()
	}
	h.idle()
}
