package transcripts

import (
	"strconv"
	"testing"
	"time"
)

// TestSlicesThatFindNothingOfTheOnesBeforeEndTheCopy: of an engine that keeps nothing, or by a proxy that
// sends each elsewhere. All would compute what the ones before did, once more. An engine cuts what it
// finds to its blocks, and a short one is lost soon: a slice less is no proof.
func TestSlicesThatFindNothingOfTheOnesBeforeEndTheCopy(t *testing.T) {
	for _, c := range []struct {
		found  []int // by each slice
		failed uint64
	}{
		{[]int{0, 0, 0}, 1},
		{[]int{0, slice, slice - 1}, 1},
		{[]int{0, slice, 2 * slice, 2*slice - 1}, 1},
		{[]int{0, 0, slice, 2 * slice}, 0},
		{[]int{0, slice - 16, 2*slice - 32, 3*slice - 48}, 0},
		{[]int{-1, -1, -1, -1}, 0}, // it doesn't tell
	} {
		h := startHot(t, "")
		lengths := h.slices()
		if len(lengths) != 4 {
			t.Fatalf("%d slices", len(lengths))
		}
		h.plan("gw-a", h.others(1)...)
		h.request(0)
		for i, tokens := range lengths[:len(c.found)] {
			answer := usage(tokens, c.found[i])
			if c.found[i] < 0 {
				answer = []byte(`{"usage":{"prompt_tokens":` + strconv.Itoa(tokens) + `,"completion_tokens":1}}`)
			}
			h.call().Reply(status(200), answer, nil)
		}
		h.settle()
		if n := len(h.calls()); n != 0 {
			t.Errorf("found %v: %d calls more", c.found, n)
		}
		h.advance(150 * time.Millisecond)
		if failed, made := h.counter("copies_failed.not_exact"), h.counter("copies_made"); failed != c.failed || made != 1-c.failed {
			t.Errorf("found %v: %d failed, %d made", c.found, failed, made)
		}
		h.idle()
	}
}
