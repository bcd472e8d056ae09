package transcripts

import (
	"testing"
	"time"
)

// TestOneClientsBadKeyKeepsNoOtherFromMakingTheCopy: control waits for three seconds, and what is late
// four times is left to requests for ten minutes.
func TestOneClientsBadKeyKeepsNoOtherFromMakingTheCopy(t *testing.T) {
	for _, code := range []int{401, 403} {
		h := startHot(t, "")
		h.plan("gw-a", h.others(2)...)
		h.request(0, "authorization", "Bearer bad")
		for _, call := range h.calls() {
			call.Reply(status(code), []byte(`{"error":"Unauthorized"}`), nil)
		}
		// Not at once: each request with a bad key would become two.
		for range 4 {
			h.request(0, "authorization", "Bearer bad")
			h.request(1, "authorization", "Bearer good")
			h.advance(200 * time.Millisecond)
		}
		if n := len(h.calls()); n != 0 {
			t.Errorf("%d: %d calls within a second", code, n)
		}
		h.advance(300 * time.Millisecond)
		h.request(1, "authorization", "Bearer good")
		calls := h.calls()
		if len(calls) != 2 {
			t.Errorf("%d: %d calls, want both copies begun again", code, len(calls))
		}
		for _, call := range calls {
			if key := call.Headers.Value("authorization"); key != "Bearer good" {
				t.Errorf("%d: with %q", code, key)
			}
			call.Reply(status(500), nil, nil)
		}
		h.idle()
	}
}
