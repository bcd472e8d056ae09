package abi

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestHeaderMapsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) [2]string {
			return [2]string{rapid.String().Draw(t, "key"), rapid.String().Draw(t, "value")}
		})).Draw(t, "pairs")
		guard := []byte("guard")
		wire := AppendPairs(slices.Clone(guard), want)
		if string(wire[:len(guard)]) != string(guard) {
			t.Fatal("AppendPairs wrote before its end")
		}
		p, st := parsePairs(wire[len(guard):])
		if st != OK || p.Len() != len(want) {
			t.Fatalf("%v, %d pairs, want %d", st, p.Len(), len(want))
		}
		for _, w := range want {
			key, value, ok := p.Next()
			if !ok || string(key) != w[0] || string(value) != w[1] {
				t.Fatalf("got %q=%q %v, want %q=%q", key, value, ok, w[0], w[1])
			}
		}
		if _, _, ok := p.Next(); ok {
			t.Fatal("a pair too many")
		}
	})
}

func TestTruncatedHeaderMapsAreRefused(t *testing.T) {
	wire := AppendPairs(nil, [][2]string{{"a", "bc"}, {"key", ""}})
	for n := 1; n < len(wire); n++ {
		if _, st := parsePairs(wire[:n]); st != ParseFailure {
			t.Errorf("%d of %d bytes: %v, want %v", n, len(wire), st, ParseFailure)
		}
	}
}

func FuzzHeaderMap(f *testing.F) {
	f.Add(AppendPairs(nil, [][2]string{{"a", "bc"}}))
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		p, st := parsePairs(wire)
		if st != OK {
			return
		}
		n := 0
		for {
			key, value, ok := p.Next()
			if !ok {
				break
			}
			n += len(key) + len(value) + 10
		}
		if n > len(wire) {
			t.Errorf("%d bytes of pairs in a map of %d", n, len(wire))
		}
	})
}
