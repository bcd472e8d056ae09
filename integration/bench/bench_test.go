package bench

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestBodiesHaveTheirSizeAndHalfOfThemRepeatAPrefix(t *testing.T) {
	for _, size := range []int{1_000, 16_000, 100_000, 400_000, 2 << 20} {
		b := NewBodies(size)
		prefixes := map[string]int{}
		const n = 64
		for range n {
			body := b.Next()
			if len(body) < size*85/100 || len(body) > size*105/100 {
				t.Fatalf("a body for %d bytes has %d", size, len(body))
			}
			if !json.Valid(body) {
				t.Fatalf("a body for %d bytes is no JSON", size)
			}
			at := bytes.Index(body, []byte(`"role":"system"`))
			if at < 0 {
				t.Fatal("no system prompt")
			}
			start := bytes.LastIndex(body[:at], []byte(`"content":"`))
			if start < 0 {
				start = at + bytes.Index(body[at:], []byte(`"content":"`))
			}
			prefixes[string(body[start+11:start+27])]++
		}
		if got := len(prefixes); got < n/2-2 || got > n/2+2 {
			t.Errorf("%d bytes: %d prefixes in %d bodies, want half", size, got, n)
		}
	}
}

func TestTheMedianIgnoresAnOutlier(t *testing.T) {
	if m := Median([]float64{5, 900, 3, 4}); m != 4.5 {
		t.Errorf("median %v", m)
	}
	if m := Median(nil); m != 0 {
		t.Errorf("median of nothing %v", m)
	}
}
