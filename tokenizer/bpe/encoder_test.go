package bpe

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/ucd"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

const sentences = `The quick brown fox jumps over the lazy dog, and 1234567 more foxes follow.
    def route(prompt, workers):  # the longest match wins
        return max(workers, key=lambda w: w.match(prompt))
Größe Übung naïve café. Быстрая лиса. 敏捷的棕色狐狸跳过懒狗。人工智能 빠른 여우 😀👍🏽`

// chat is a vocabulary trained on the sentences, with the turn markers of a chat.
func chat() *vocab.Spec {
	s := vocabtest.Train(sentences, pretoken.Qwen2, 200)
	s.NFC = true
	for _, content := range []string{"<|start|>", "<|end|>", "<think>"} {
		s.Added = append(s.Added, vocab.AddedSpec{
			ID: uint32(len(s.Tokens) + len(s.Added)), Content: content, Special: content != "<think>",
		})
	}
	s.Before = []uint32{s.Added[0].ID}
	return s
}

func drawText(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.OneOf(
		rapid.StringN(0, 20, -1),
		rapid.SampledFrom([]string{"<|start|>", "<|end|>", "<think>", "<|sta", "e\u0301", "\u1112\u1161\u11ab", "\n\n", "   "}),
		rapid.Custom(func(t *rapid.T) string {
			from := rapid.IntRange(0, len(sentences)-1).Draw(t, "from")
			return sentences[from:rapid.IntRange(from, len(sentences)).Draw(t, "to")]
		}),
	), 0, 12).Draw(t, "text")
	return strings.Join(parts, "")
}

func TestASpentBudgetLeavesTheBeginningOfTheIDs(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawText(t))
		whole, r := New(v, Config{}).Encode(nil, text, Options{})
		if r.Exhausted || r.Covered != len(text) {
			t.Fatalf("without a limit: %+v", r)
		}
		budget := rapid.IntRange(1, len(text)+50).Draw(t, "budget")
		ids, r := New(v, Config{}).Encode(nil, text, Options{Budget: budget})
		if len(ids) > len(whole) || !equal(ids, whole[:len(ids)]) {
			t.Fatalf("%v is no beginning of %v", ids, whole)
		}
		if r.Exhausted == (len(ids) == len(whole)) && len(whole) > 0 && r.Covered != len(text) {
			t.Fatalf("%d of %d ids, %+v", len(ids), len(whole), r)
		}
		if !r.Exhausted && r.Covered != len(text) {
			t.Fatalf("not exhausted, but %+v", r)
		}
		// What is covered gives these ids by itself, but for a part that normalization changed.
		if ucd.IsNFC(text) && bytes.Equal([]byte(strings.ToValidUTF8(string(text), "")), text) {
			again := 0
			for _, id := range ids {
				again += len(v.AppendToken(nil, id, false))
			}
			if again != r.Covered {
				t.Fatalf("ids stand for %d bytes, covered %d", again, r.Covered)
			}
		}
	})
}

func TestTheBudgetIsCountedInBytesAndNotByWhatIsCached(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	text := []byte(strings.Repeat("lazy dogs and quick foxes ", 8)) // too short for the memo
	cold, r1 := New(v, Config{}).Encode(nil, text, Options{Budget: 100})
	e := New(v, Config{})
	e.Encode(nil, text, Options{})
	warm, r2 := e.Encode(nil, text, Options{Budget: 100})
	if !equal(cold, warm) || r1 != r2 || !r1.Exhausted || r1.Covered > 100 || r1.Covered < 90 {
		t.Fatalf("cold %+v, warm %+v", r1, r2)
	}
	long := []byte(strings.Repeat("a", 1000))
	if _, r := e.Encode(nil, long, Options{Budget: 10_000}); !r.Exhausted || r.Covered != 0 {
		t.Fatalf("a piece of 1,000 bytes costs more than 10,000 units, got %+v", r)
	}
	if _, r := e.Encode(nil, long, Options{Budget: 20_000}); r.Exhausted {
		t.Fatalf("a piece of 1,000 bytes costs less than 20,000 units, got %+v", r)
	}
}

func TestMarksAreTheIDsThatLieWhollyBefore(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	e := New(v, Config{})
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawText(t))
		var marks []int
		for at := 0; at <= len(text); at++ {
			for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "marks") {
				marks = append(marks, at)
			}
		}
		special := rapid.Bool().Draw(t, "special")
		got := make([]int, len(marks)+1)
		got[len(marks)] = 12345
		ids, _ := e.Encode([]uint32{7, 7}, text, Options{AddSpecial: special, Marks: marks, MarkIDs: got})
		ids = ids[2:]
		if got[len(marks)] != 12345 {
			t.Fatal("wrote beyond the marks")
		}
		if !ucd.IsNFC(text) || strings.ToValidUTF8(string(text), "") != string(text) {
			// Lengths may differ: only that they ascend and end within the ids.
			for i, n := range got[:len(marks)] {
				if n < 0 || n > len(ids) || i > 0 && n < got[i-1] {
					t.Fatalf("marks %v of %d ids", got, len(ids))
				}
			}
			return
		}
		first := 0
		if special {
			first = 1
		}
		for i, mark := range marks {
			want, position := first, 0
			for _, id := range ids[first:] {
				if position += len(v.AppendToken(nil, id, false)); position > mark {
					break
				}
				want++
			}
			if got[i] != want {
				t.Fatalf("mark %d of %q has %d ids before it, want %d", mark, text, got[i], want)
			}
		}
	})
}

func TestMarksBeyondTheBudgetAreMinusOne(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	text := []byte("<|start|>quick brown fox<|end|>lazy dog jumps over the lazy dog<|end|>")
	marks := []int{9, 31, 50, len(text)}
	got := make([]int, len(marks))
	ids, r := e.Encode(nil, text, Options{Budget: 25, Marks: marks, MarkIDs: got})
	if !r.Exhausted || got[0] != 1 || got[1] <= 1 || got[1] > len(ids) || got[2] != -1 || got[3] != -1 {
		t.Fatalf("%v of %d ids, %+v", got, len(ids), r)
	}
}

func TestPartsAreIndependentOfWhatWasEncodedBefore(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	// A memo of a few messages and a cache of a few words: everything is pushed out all the time.
	e := New(v, Config{CacheEntries: 16, MemoIDs: 600, MemoEntries: 8})
	rapid.Check(t, func(t *rapid.T) {
		var text string
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			n := rapid.IntRange(0, 5).Draw(t, "message")
			text += "<|start|>" + strings.Repeat(sentences[n*30:n*30+100], 1+n) + "<|end|>"
		}
		want, _ := New(v, Config{MemoIDs: -1}).Encode(nil, []byte(text), Options{})
		got, r := e.Encode(nil, []byte(text), Options{})
		if !equal(got, want) {
			t.Fatalf("%q\nis %v\nwant %v", text, got, want)
		}
		if sum := r.Fresh + r.Memoised + strings.Count(text, "<|start|>")*16; sum != len(text) {
			t.Fatalf("fresh %d, memoised %d of %d bytes", r.Fresh, r.Memoised, len(text))
		}
	})
}

func TestAFollowUpTurnCostsItsNewMessage(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	message := strings.Repeat(sentences, 4)
	body := ""
	for i := range 30 {
		body += "<|start|>" + string(rune('a'+i)) + message + "<|end|>"
		_, r := e.Encode(nil, []byte(body), Options{})
		if want := (len(message) + 1) * i; r.Memoised != want {
			t.Fatalf("turn %d: %d bytes from the memo, want %d", i, r.Memoised, want)
		}
	}
	// A thousand other conversations later it is forgotten.
	for i := range 1000 {
		e.Encode(nil, []byte(strings.Repeat(string(rune(0x4e00+i)), 400)), Options{})
	}
	if _, r := e.Encode(nil, []byte(body), Options{}); r.Memoised != 0 {
		t.Fatalf("%d bytes still known", r.Memoised)
	}
}

func TestBrokenUTF8IsOneReplacementForEachMaximalPart(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	for broken, repaired := range map[string]string{
		"a\xffb":             "a\ufffdb",
		"\xe4\xb8":           "\ufffd",             // the beginning of an ideograph
		"\xe4\xb8x":          "\ufffdx",            // and then something else
		"\xed\xa0\x80":       "\ufffd\ufffd\ufffd", // a surrogate: no byte of it can go on
		"\xf0\x9f\x98 \x80z": "\ufffd \ufffdz",
		"\xc0\xaf":           "\ufffd\ufffd",
	} {
		got, r := e.Encode(nil, []byte(broken), Options{})
		want, _ := e.Encode(nil, []byte(repaired), Options{})
		if !equal(got, want) || r.Covered != len(broken) {
			t.Errorf("%q is %v, want %v; %+v", broken, got, want, r)
		}
	}
}

func TestDecodeGivesTheTextBack(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(drawText(t), "?")
		ids, _ := e.Encode(nil, []byte(text), Options{AddSpecial: true})
		want := "<|start|>" + string(ucd.NFC(nil, []byte(text)))
		if got := string(e.Decode(nil, ids, false)); got != want {
			t.Fatalf("%q comes back as %q", want, got)
		}
		bare := strings.NewReplacer("<|start|>", "", "<|end|>", "").Replace(want)
		if got := string(e.Decode([]byte("x"), ids, true)); got != "x"+bare {
			t.Fatalf("without special tokens %q, want %q", got, bare)
		}
	})
	if got := e.Decode(nil, []uint32{1 << 30, vocab.None}, false); len(got) != 0 {
		t.Fatalf("unknown ids are %q", got)
	}
}

func TestEncodeWritesNothingBehindItsIDs(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	for range 2 {
		room := make([]uint32, 400)
		for i := range room {
			room[i] = 0xdeadbeef
		}
		ids, _ := e.Encode(room[:3], []byte("The quick brown fox"), Options{})
		if &ids[0] != &room[0] {
			t.Fatal("room was enough")
		}
		for i, id := range room {
			if inside := i >= 3 && i < len(ids); (id == 0xdeadbeef) == inside {
				t.Fatalf("id %d of %d is %x", i, len(ids), id)
			}
		}
	}
}

func TestASteadyEncoderAllocatesNothing(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	text := []byte("<|start|>" + strings.Repeat(sentences, 5) + "<|end|>" + strings.Repeat("x", 500) + " e\u0301 " + sentences)
	ids := make([]uint32, 0, len(text))
	marks, markIDs := []int{9, 60, len(text)}, make([]int, 3)
	turn := byte(0)
	encode := func() {
		turn++
		text[len(text)/2] = 'a' + turn%26 // never the same message
		ids, _ = e.Encode(ids[:0], text, Options{AddSpecial: true, Budget: 1 << 20, Marks: marks, MarkIDs: markIDs})
	}
	for range 30 {
		encode()
	}
	if n := testing.AllocsPerRun(50, encode); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestHostilePiecesTakeMemoryLikeTheirLength(t *testing.T) {
	v := vocabtest.Compile(t, chat())
	for _, letter := range []string{"a", "ab", "the", "中"} {
		for _, n := range []int{1000, 10_000, keptBytes} {
			e := New(v, Config{})
			piece := []byte(strings.Repeat(letter, n/len(letter)))
			ids, _ := e.Encode(nil, piece, Options{})
			if back := e.Decode(nil, ids, false); !bytes.Equal(back, piece) {
				t.Fatalf("%d times %q does not come back", n, letter)
			}
			if most := cap(e.long.heap); most > 4*blockBytes {
				t.Fatalf("the heap of %d bytes held up to %d entries", n, most)
			}
		}
	}
}

func TestScratchOfAHugePieceIsGivenBack(t *testing.T) {
	e := New(vocabtest.Compile(t, chat()), Config{})
	e.Encode(nil, bytes.Repeat([]byte("e\u0301"), 4*keptBytes), Options{})
	if cap(e.long.at)+cap(e.long.out) > 0 || cap(e.normal) > 16*keptBytes {
		t.Fatalf("%d symbols, %d tokens and %d bytes are kept", cap(e.long.at), cap(e.long.out), cap(e.normal))
	}
}
