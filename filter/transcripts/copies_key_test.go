package transcripts

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/shared/fingerprint"
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

// TestARequestThatNamesNothingHasItsPrefixCopied: engines take a request without a model for their own, and
// refuse an empty salt. Neither keeps others, whose prefix is the same, from having it copied.
func TestARequestThatNamesNothingHasItsPrefixCopied(t *testing.T) {
	for _, names := range []string{"", `,"model":"","cache_salt":""`} {
		h := startHot(t, "")
		var chain fingerprint.Chain
		chain.Reset(fingerprint.Salt("default", "", 0, "", fingerprint.Exact))
		chain.WriteTokens(h.prefix)
		found := chain.Finish()
		h.fp = found[len(found)-1].Fingerprint
		h.plan("gw-a", h.others(2)...)
		h.whole(h.send(0, post("/v1/chat/completions"), bytes.Replace(h.next(), []byte(`,"model":"m"`), []byte(names), 1), 0))
		var end []byte
		for _, call := range h.calls() {
			end = call.Body[bytes.IndexByte(call.Body, ']'):]
			call.Reply(status(500), nil, nil)
		}
		if diff := cmp.Diff(`],"max_tokens":1,"temperature":0}`, string(end)); diff != "" {
			t.Errorf("%s: %s", names, diff)
		}
		h.idle()
	}
}
