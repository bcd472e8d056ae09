package texthash

import (
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

func (h *Hasher) sum(pieces ...string) Sum {
	h.Reset()
	for _, p := range pieces {
		h.Write([]byte(p))
	}
	return h.Sum()
}

func TestNamesDifferByTextAndByWhereItIsCut(t *testing.T) {
	var h Hasher
	names := map[Sum]string{}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(1000, 1050), rapid.IntRange(0, 5000)).Draw(t, "bytes")
		text := make([]byte, n) // zeroes: padding must not count
		for range rapid.IntRange(0, 3).Draw(t, "others") {
			if n > 0 {
				text[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
		}
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		name := h.sum(string(text[:cut]), string(text[cut:]))
		what := string(text[:cut]) + "|" + string(text[cut:])
		if before, ok := names[name]; ok && before != what {
			t.Fatalf("%q and %q have one name", before, what)
		}
		names[name] = what
		if again := h.sum(string(text[:cut]), string(text[cut:])); again != name {
			t.Fatalf("%q is %x and then %x", what, name, again)
		}
	})
}

func TestASumInBetweenChangesNothing(t *testing.T) {
	var h Hasher
	want := h.sum("one", "two")
	h.Reset()
	h.Write([]byte("one"))
	if h.Sum() == want {
		t.Error("a beginning has the name of the whole")
	}
	h.Write([]byte("two"))
	if h.Sum() != want {
		t.Error("the name depends on an earlier Sum")
	}
}

func TestEveryBitOfATextChangesHalfOfTheName(t *testing.T) {
	var h Hasher
	text := []byte("a text of more than one word, and of more than one block too: ")
	for len(text) < 1100 {
		text = append(text, text...)
	}
	name := h.sum(string(text))
	changed := 0
	for bit := range 8 * len(text) {
		text[bit/8] ^= 1 << (bit % 8)
		other := h.sum(string(text))
		changed += bits.OnesCount64(other.Low^name.Low) + bits.OnesCount64(other.High^name.High)
		text[bit/8] ^= 1 << (bit % 8)
		if other.Low == name.Low || other.High == name.High {
			t.Fatalf("bit %d changes only one half of the name", bit)
		}
	}
	if mean := float64(changed) / float64(8*len(text)); mean < 60 || mean > 62 {
		t.Errorf("%.1f of 122 bits change, want 61", mean)
	}
}

func TestEveryHasherHasItsOwnKey(t *testing.T) {
	var a, b Hasher
	if a.sum("text") == b.sum("text") {
		t.Error("two hashers give a text one name")
	}
}

func BenchmarkWrite(b *testing.B) {
	var h Hasher
	text := make([]byte, 100_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		h.Reset()
		h.Write(text)
		h.Sum()
	}
}
