package vocab_test

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// The example in docs/formats.md is what Compile writes.
func TestTheDocsShowTheHeader(t *testing.T) {
	s := vocabtest.Train("the the the", pretoken.Qwen2, 0)
	s.Tokens = append(s.Tokens, []byte("th"), []byte("the"))
	s.Merges = [][2]uint32{{'t', 'h'}, {256, 'e'}}
	s.NFC = true
	var want strings.Builder
	for at := 0; at < 64; at += 16 {
		want.WriteString(strings.ToLower(hex.EncodeToString([]byte{byte(at >> 8), byte(at)})))
		for _, b := range compile(t, s)[at : at+16] {
			want.WriteString(" " + hex.EncodeToString([]byte{b}))
		}
		want.WriteByte('\n')
	}
	docs, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(docs), "<!-- vocabulary: header -->\n```\n")
	shown, _, closed := strings.Cut(after, "```")
	if !ok || !closed || shown != want.String() {
		t.Fatalf("docs/formats.md shows\n%s\nCompile writes\n%s", shown, want.String())
	}
}
