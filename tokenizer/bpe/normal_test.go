package bpe

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// decomposed is text that NFC rewrites, with places where a piece surely ends.
const decomposed = "Gro\u0308\u00dfe U\u0308bung nai\u0308ve cafe\u0301. \u1112\u1161\u11ab\u1100\u1173\u11af e\u0301\u0323\n"

// spaceless is the same without a space.
const spaceless = "\u304b\u3099\u304d\u3099\u3001\u1112\u1161\u11ab\u1100\u1173\u11af\u4e2d\u6587\u3002"

func TestABudgetThatEndsInDecomposedTextLeavesTheBeginningOfTheIDs(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{
			decomposed, decomposed[:40], "e\u0301", "\u0301\u0323", "the lazy dog ", "1234567", "\n\n", "   ", "<|end|>", "<|e ",
			strings.Repeat("\u0323\u0301", 60), strings.Repeat("fox ", 80), spaceless, "1", "\u3002",
		}), 1, 30).Draw(t, "text")
		text := []byte(strings.Join(parts, ""))
		whole, _ := New(v, Config{}).Encode(nil, text, Options{})
		budget := rapid.IntRange(1, 2*len(text)).Draw(t, "budget")
		ids, r := New(v, Config{MemoIDs: rapid.SampledFrom([]int{0, -1}).Draw(t, "memo")}).Encode(nil, text, Options{Budget: budget})
		if len(ids) > len(whole) || !slices.Equal(ids, whole[:len(ids)]) {
			t.Fatalf("budget %d: %v is no beginning of %v", budget, ids, whole)
		}
		if r.Exhausted != (r.Covered < len(text)) || !r.Exhausted && len(ids) < len(whole) {
			t.Fatalf("budget %d: %d of %d ids, %+v", budget, len(ids), len(whole), r)
		}
	})
}

func TestTheBudgetBoundsNormalization(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	const budget = 2_000
	for name, text := range map[string]string{
		"decomposed text":       strings.Repeat(decomposed, 10_000),
		"marks without end":     "x e" + strings.Repeat("\u0301\u0323", 200_000),
		"a mark at the end":     strings.Repeat("the lazy dog ", 50_000) + "e\u0301",
		"a mark at the head":    "e\u0301 " + strings.Repeat("the lazy dog ", 50_000),
		"no spaces":             strings.Repeat(spaceless, 10_000),
		"ideographs and a mark": strings.Repeat("\u4e2d\u6587 ", 100_000) + "e\u0301",
	} {
		e := New(v, Config{})
		ids, r := e.Encode(nil, []byte(text), Options{Budget: budget})
		if !r.Exhausted || len(ids) == 0 {
			t.Errorf("%s: %d ids, %+v", name, len(ids), r)
		}
		// Half of the budget is for rewriting, and what is normal costs a sixteenth; slices have
		// up to twice the room.
		if most := 2 * (budget*memoUnits + budget/2 + aheadBytes); cap(e.normal) > most {
			t.Errorf("%s: %d bytes of normalized text for a budget of %d", name, cap(e.normal), budget)
		}
	}
}

func TestTheBudgetBoundsTheSearchForAddedTokens(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	const budget = 40_000
	for _, c := range []struct {
		text              string
		leastIDs, mostIDs int
	}{
		// Half of the budget is 5,000 looks. The memo knows the text, so it is the looks that end it.
		{strings.Repeat("<|", 15_000), 0, 0},
		{strings.Repeat("<| ", 15_000), 9_000, 15_000},
		{strings.Repeat("<|end|>", 15_000), 9_900, 10_000},
		{strings.Repeat("<|end|> ", 15_000), 15_000, 17_000},
	} {
		e := New(v, Config{})
		whole, _ := e.Encode(nil, []byte(c.text), Options{})
		ids, r := e.Encode(nil, []byte(c.text), Options{Budget: budget})
		if !r.Exhausted || r.Covered == len(c.text) || !slices.Equal(ids, whole[:len(ids)]) {
			t.Errorf("%.12q: %d of %d ids, %+v", c.text, len(ids), len(whole), r)
		}
		if len(ids) < c.leastIDs || len(ids) > c.mostIDs {
			t.Errorf("%.12q: %d ids, want %d to %d", c.text, len(ids), c.leastIDs, c.mostIDs)
		}
	}
}
