package bpe

import (
	"slices"
	"testing"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// withWords returns a vocabulary of the bytes and of what halving the words
// makes; the merge of a word's halves is there for the whole ones only.
func withWords(t *testing.T, whole, halved string) *vocab.Vocab {
	t.Helper()
	s := &vocab.Spec{Kind: pretoken.GPT2}
	ids := map[string]uint32{}
	token := func(b string) uint32 {
		id, ok := ids[b]
		if !ok {
			id = uint32(len(s.Tokens))
			ids[b] = id
			s.Tokens = append(s.Tokens, []byte(b))
		}
		return id
	}
	for b := range 256 {
		token(string([]byte{byte(b)}))
	}
	var make func(word string)
	make = func(word string) {
		if _, ok := ids[word]; ok {
			return
		}
		half := len(word) / 2
		make(word[:half])
		make(word[half:])
		s.Merges = append(s.Merges, [2]uint32{token(word[:half]), token(word[half:])})
		token(word)
	}
	make(whole)
	make(halved[:len(halved)/2])
	make(halved[len(halved)/2:])
	return vocabtest.Compile(t, s)
}

// Texts of 8 and 16 bytes that share place and tag with a token are found in real
// text ("شانی" and "Practice" in Llama 3): they must be compared byte for byte.
func TestALookalikeInTheHashTableIsNoToken(t *testing.T) {
	for _, whole := range []string{"abcdefgh", "abcdefghijklmnop"} {
		kept := len(whole) - 8
		v := withWords(t, whole, whole[:kept]+"qrstuvwx") // as many tokens as below
		table, h := v.Table(), vocab.HashBytes([]byte(whole))
		look := []byte(whole)
		state := uint64(1)
		for found := false; !found; {
			for i := kept; i < len(look); i++ {
				state = state*6364136223846793005 + 1442695040888963407
				look[i] = 'a' + byte(state>>40)%26
			}
			g := vocab.HashBytes(look)
			found = g>>table.Shift == h>>table.Shift && uint32(g>>table.TagShift)<<20 == uint32(h>>table.TagShift)<<20 && string(look) != whole
		}
		v = withWords(t, whole, string(look))
		if v.Table().Shift != table.Shift {
			t.Fatalf("%s: the tables differ in size", look)
		}
		e := New(v, Config{})
		ids, _ := e.Encode(nil, look, Options{})
		if got := e.Decode(nil, ids, false); string(got) != string(look) {
			t.Errorf("%s is taken for %s: ids %v", look, got, ids)
		}
		if own, _ := e.Encode(nil, []byte(whole), Options{}); len(own) != 1 || slices.Equal(own, ids) {
			t.Errorf("%s has ids %v", whole, own)
		}
	}
}
