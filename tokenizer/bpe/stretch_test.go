package bpe

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// Long texts are remembered in stretches; their ends must be ends of pieces in every kind.
func TestAStretchEndsWithAPieceInEveryKind(t *testing.T) {
	around := rapid.StringOf(rapid.SampledFrom([]rune("aZé中ſ'sdlt 1٣½ \t\n\r/.,_-“。　 \u0085\u0301\u200b👍")))
	letter := rapid.SampledFrom([]rune("aZst"))
	rapid.Check(t, func(t *rapid.T) {
		before := around.Draw(t, "before")
		if rapid.Bool().Draw(t, "newline") {
			before += "\n"
		} else {
			before += string(letter.Draw(t, "last"))
		}
		after := string(letter.Draw(t, "first"))
		if strings.HasSuffix(before, "\n") {
			after = rapid.SampledFrom([]string{after, "中", "一", "龥", "䷀"}).Draw(t, "character")
		} else {
			after = " " + after
		}
		after += around.Draw(t, "after")
		text := strings.Repeat("x", 1+stretchBytes-len(before)%stretchBytes) + before
		cut := len(text)
		text += after + strings.Repeat("-", stretchBytes)
		if end, certain := stretch([]byte(text), cut-stretchBytes); !certain || end != cut {
			t.Fatalf("%q | %q is no end of a stretch: %d of %d", before, after, end, cut)
		}
		for kind := pretoken.Kind(1); kind.Known(); kind++ {
			at := 0
			for at < cut {
				at = pretoken.Next(kind, []byte(text), at)
			}
			if at != cut {
				t.Fatalf("%v has a piece across %q | %q", kind, before, after)
			}
			// The pieces before do not depend on what follows such an end.
			other := []byte(text[:cut] + map[bool]string{true: "d", false: " z"}[strings.HasSuffix(before, "\n")])
			for at, more := 0, 0; at < cut; at, more = pretoken.Next(kind, []byte(text), at), pretoken.Next(kind, other, more) {
				if at != more {
					t.Fatalf("%v cuts %q otherwise before %q than before %q", kind, before, after, other[cut:])
				}
			}
		}
	})
}

func TestADocumentBeyondTheBudgetGetsFurtherWithEveryRequest(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	var b strings.Builder
	for i := range 2000 {
		b.WriteString(string([]rune(sentences)[i%190 : i%190+60]))
		b.WriteByte("\n .'"[i%4])
	}
	text := []byte(b.String())
	want, _ := New(v, Config{MemoIDs: -1}).Encode(nil, text, Options{})
	e := New(v, Config{})
	covered, rounds := 0, 0
	for covered < len(text) {
		ids, r := e.Encode(nil, text, Options{Budget: 40_000})
		if r.Covered <= covered {
			t.Fatalf("round %d covers %d, the one before %d", rounds, r.Covered, covered)
		}
		if !slices.Equal(ids, want[:len(ids)]) {
			t.Fatalf("round %d: other ids than without a limit", rounds)
		}
		covered = r.Covered
		rounds++
	}
	if rounds < 3 || rounds > len(text)/20_000 {
		t.Fatalf("%d rounds for %d bytes", rounds, len(text))
	}
	// Another document that begins alike shares the beginning.
	other := append(slices.Clone(text[:80_000]), vocabtest.Written([]byte("an end"))...)
	if _, r := e.Encode(nil, other, Options{}); r.Memoised < 60_000 || r.Memoised+r.Fresh != len(other) {
		t.Fatalf("%+v of %d bytes", r, len(other))
	}
}

// A text whose normalization was cut short ends where a piece of the whole does.
func TestTheLastEndIsTheEndOfAPieceInEveryKind(t *testing.T) {
	around := rapid.StringOf(rapid.SampledFrom([]rune("aZé中ſ'sdlt 1٣½ \t\n\r/.,_-“。　\u00a0\u0085\u0301\u200b👍")))
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(around.Draw(t, "text"))
		end := lastEnd(text)
		if end == 0 {
			return
		}
		whole := append(slices.Clone(text), around.Draw(t, "more")...)
		for kind := pretoken.Kind(1); kind.Known(); kind++ {
			for at := 0; at < end; {
				alone, next := pretoken.Next(kind, text[:end], at), pretoken.Next(kind, whole, at)
				if alone != next {
					t.Fatalf("%v cuts %q at %d, and %q at %d", kind, text[:end], alone, whole, next)
				}
				at = next
			}
		}
	})
}
