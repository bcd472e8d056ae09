package utf8text

import (
	"testing"
	"unicode/utf8"
)

// The right column is what Python 3.11 prints for
// bytes.decode("utf-8", errors="replace").
func TestBrokenBytesBecomeWhatPythonMakesOfThem(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain é 中 😀", "plain é 中 😀"},
		{"\uFFFD stays", "\uFFFD stays"},
		{"\x80", "\uFFFD"},
		{"a\xffb", "a\uFFFDb"},
		{"\xc3", "\uFFFD"},
		{"\xc0\x80", "\uFFFD\uFFFD"},
		{"\xc3(", "\uFFFD("},
		{"\xe4\xb8", "\uFFFD"},
		{"\xe4\xb8x", "\uFFFDx"},
		{"\xe0\x80\xaf", "\uFFFD\uFFFD\uFFFD"},
		{"\xe0\xa0", "\uFFFD"},
		{"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"\xed\x9f", "\uFFFD"},
		{"\xf0\x9f\x98", "\uFFFD"},
		{"\xf0\x9f\x98😀", "\uFFFD😀"},
		{"\xf0\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"\xf4\x8f\xbf", "\uFFFD"},
		{"\xf8\x88\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"\xe4\xb8\xe4\xb8\xad", "\uFFFD中"},
	} {
		if got := string(Replaced([]byte(c.in))); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestValidTextIsNotCopied(t *testing.T) {
	text := []byte("Zażółć 😀")
	if got := Replaced(text); &got[0] != &text[0] {
		t.Error("copied")
	}
}

func FuzzReplacedIsValidAndIdempotent(f *testing.F) {
	for _, seed := range []string{"", "a\xf0\x9f\x98b", "\xed\xa0\x80", "\xf4\x90"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := Replaced(text)
		if !utf8.Valid(got) {
			t.Fatalf("%q became %q", text, got)
		}
		if again := string(Replaced(got)); again != string(got) {
			t.Fatalf("%q became %q, then %q", text, got, again)
		}
	})
}
