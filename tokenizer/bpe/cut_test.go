package bpe

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// adversarial is chat with added tokens that overlap, strip spaces and look at their neighbours.
func adversarial(t *rapid.T, s vocab.Spec) *vocab.Spec {
	s.Added = slices.Clone(s.Added)
	for i, a := range []vocab.AddedSpec{
		{Content: "<|end|>x"},
		{Content: "b|>"},
		{Content: "ab|>cd"},
		{Content: "<r>", RStrip: true},
		{Content: "<l>", LStrip: true},
		{Content: "word", SingleWord: true},
		{Content: "<n>", Normalized: true, Match: "<n>"},
	} {
		if rapid.Bool().Draw(t, "added") {
			a.ID = 5000 + uint32(i)
			s.Added = append(s.Added, a)
		}
	}
	s.PrefixSpace = rapid.Bool().Draw(t, "prefix space")
	return &s
}

func drawMarked(t *rapid.T, name string) string {
	text := ""
	for _, part := range rapid.SliceOfN(rapid.SampledFrom([]string{
		"<|start|>", "<|end|>", "<think>", "x", "ab|>", "cd", "b|>", " ", "\n", "<r>", "<l>", "word", "y", "<n>",
		"e\u0301", "\u0301", "\xff", "dog", "中", " the quick brown fox\n",
	}), 0, 14).Draw(t, name) {
		text += part
	}
	return text
}

func TestEncodingGoesOnFromACutAsIfFromTheBeginning(t *testing.T) {
	base, cuts := chat(), 0
	rapid.Check(t, func(t *rapid.T) {
		v := vocabtest.Compile(t, adversarial(t, *base))
		for range 30 {
			begin := drawMarked(t, "begin")
			cuts += goesOn(t, v, begin, begin+drawMarked(t, "one end"), begin+drawMarked(t, "other end"))
		}
	})
	if cuts < 1000 {
		t.Fatalf("%d cuts were tried", cuts)
	}
}

// goesOn finds the cuts of one text in what another has in common with it, and encodes that one
// from there. It returns how many there were.
func goesOn(t *rapid.T, v *vocab.Vocab, common, one, other string) (cuts int) {
	encode := func(text string, from Cut) ([]uint32, Result, Options) {
		o := Options{AddSpecial: true, From: from.At}
		for at := from.At; at <= len(text); at++ {
			o.Marks = append(o.Marks, at)
		}
		o.MarkIDs, o.Cuts = make([]int, len(o.Marks)), make([]Cut, len(o.Marks))
		ids, r := New(v, Config{CacheEntries: 16, MemoIDs: -1}).Encode(nil, []byte(text), o)
		return ids, r, o
	}
	ids, _, o := encode(one, Cut{})
	want, r, whole := encode(other, Cut{})
	for i, cut := range o.Cuts {
		if cut.At > o.Marks[i] || cut.IDs > o.MarkIDs[i] {
			t.Fatalf("%q: cut %v is behind mark %d at %d ids", one, cut, o.Marks[i], o.MarkIDs[i])
		}
		if cut.At == 0 || cut.At > len(common) || i > 0 && cut == o.Cuts[i-1] {
			continue
		}
		cuts++
		if cut.IDs > len(want) || !equal(want[:cut.IDs], ids[:cut.IDs]) {
			t.Fatalf("%q is %v before %q and %v before %q", one[:cut.At], ids[:cut.IDs], one[cut.At:], want, other[cut.At:])
		}
		got, again, rest := encode(other, cut)
		if !equal(got, want[cut.IDs:]) || again.Covered != r.Covered || max(again.Cut.At, cut.At) != r.Cut.At {
			t.Fatalf("%q from %d is %v (%+v), from its beginning %v (%+v)", other, cut.At, got, again, want[cut.IDs:], r)
		}
		for j, n := range rest.MarkIDs {
			if n+cut.IDs != whole.MarkIDs[cut.At+j] {
				t.Fatalf("%q from %d: %d ids before %d, want %d", other, cut.At, n+cut.IDs, cut.At+j, whole.MarkIDs[cut.At+j])
			}
		}
	}
	return cuts
}
