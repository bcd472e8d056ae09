package text

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAnswerHasExactlyTheTokensAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 600).Draw(t, "tokens")
		seed := rapid.Uint64().Draw(t, "fingerprint")
		answer := AppendAnswer(nil, seed, n)
		if got := len(AppendTokens(nil, answer)); got != n {
			t.Fatalf("answer of %d tokens reads back as %d: %q", n, got, answer)
		}
		if again := AppendAnswer(nil, seed, n); string(again) != string(answer) {
			t.Fatal("the same prompt got two answers")
		}
		if strings.ContainsAny(string(answer), "\"\\\n") {
			t.Fatalf("answer needs escaping: %q", answer)
		}
	})
}

func TestAnswerReadBackContinuesThePromptItAnswered(t *testing.T) {
	var first, second Rendering
	first.Message("system", "You are a careful assistant.")
	first.Message("user", "Where is my parcel 4711?")
	first.Generate()
	answer := string(AppendAnswer(nil, Fingerprint(first.Tokens), 40))
	sequence := AppendTokens(append([]Token(nil), first.Tokens...), answer)

	second.Message("system", "You are a careful assistant.")
	second.Message("user", "Where is my parcel 4711?")
	second.Message("assistant", answer)
	second.Message("user", "And the other one?")
	if len(second.Tokens) <= len(sequence) {
		t.Fatal("the second prompt is shorter than the first sequence")
	}
	for i, want := range sequence {
		if second.Tokens[i] != want {
			t.Fatalf("token %d differs", i)
		}
	}
}

func TestProseCostsAboutFourBytesAToken(t *testing.T) {
	prose := strings.Repeat("When the shipment leaves our warehouse the customer receives a message with a tracking "+
		"number, and the support team can follow every step of the delivery in the internal dashboard. ", 20)
	perToken := float64(len(prose)) / float64(CountTokens(prose))
	if perToken < 3.7 || perToken > 4.7 {
		t.Fatalf("%.2f bytes a token", perToken)
	}
}

func TestCountAgreesWithAppendOnAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringMatching(`([a-zA-Z0-9 .,\n"]{0,20} )*`),
			rapid.String(),
			rapid.StringMatching(` *`),
			rapid.StringMatching(`[a-z]*( [a-z]*)*`),
		).Draw(t, "text")
		if got, want := CountTokens(s), len(AppendTokens(nil, s)); got != want {
			t.Fatalf("CountTokens %d, AppendTokens %d", got, want)
		}
	})
}

func TestTextCannotForgeAMarker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, token := range AppendTokens(nil, rapid.String().Draw(t, "text")) {
			if token&markerBit != 0 {
				t.Fatalf("text gave the marker %x", token)
			}
		}
	})
}

func TestRolesAndBoundariesAreInThePrompt(t *testing.T) {
	render := func(messages ...[2]string) uint64 {
		var r Rendering
		for _, m := range messages {
			r.Message(m[0], m[1])
		}
		r.Generate()
		return Fingerprint(r.Tokens)
	}
	seen := map[uint64]int{}
	for i, f := range []uint64{
		render([2]string{"user", "ab cd"}),
		render([2]string{"system", "ab cd"}),
		render([2]string{"user", "ab"}, [2]string{"user", " cd"}),
		render([2]string{"user", "ab"}, [2]string{"assistant", " cd"}),
		render([2]string{"critic", "ab cd"}),
		render(),
	} {
		if other, dup := seen[f]; dup {
			t.Errorf("renderings %d and %d are the same prompt", other, i)
		}
		seen[f] = i
	}
}

func TestDifferentImagesShareNoTokenAfterTheMarker(t *testing.T) {
	var a, b Rendering
	a.Image("data:image/png;base64,AAAA")
	b.Image("data:image/png;base64,BBBB")
	for i := 1; i < len(a.Tokens); i++ {
		if a.Tokens[i] == b.Tokens[i] {
			t.Fatalf("token %d is shared", i)
		}
	}
}

func BenchmarkTokens16KB(b *testing.B) {
	prose := strings.Repeat("when the shipment leaves our warehouse the customer receives a message. ", 230)[:16<<10]
	var dst []Token
	b.SetBytes(int64(len(prose)))
	for b.Loop() {
		dst = AppendTokens(dst[:0], prose)
	}
}
