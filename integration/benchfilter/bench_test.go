package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestBodiesHaveTheirSizeAndHalfOfThemRepeatAPrefix(t *testing.T) {
	for _, size := range sizes {
		b := newBodies(size.bytes)
		prefixes := map[string]int{}
		const n = 64
		for range n {
			body := b.next()
			if len(body) < size.bytes*85/100 || len(body) > size.bytes*105/100 {
				t.Fatalf("a body for %d bytes has %d", size.bytes, len(body))
			}
			if !json.Valid(body) {
				t.Fatalf("a body for %d bytes is no JSON", size.bytes)
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
			t.Errorf("%d bytes: %d prefixes in %d bodies, want half", size.bytes, got, n)
		}
	}
}

func TestTheMedianIgnoresAnOutlier(t *testing.T) {
	if m := median([]float64{5, 900, 3, 4}); m != 4.5 {
		t.Errorf("median %v", m)
	}
	if m := median(nil); m != 0 {
		t.Errorf("median of nothing %v", m)
	}
}
