package hf_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

type golden struct {
	Tokenizer json.RawMessage
	Cases     []struct {
		Text         string
		IDs, Special []uint32
	}
}

func load(t testing.TB, tokenizer []byte) *vocab.Vocab {
	t.Helper()
	s, err := hf.Read(tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	return vocabtest.Compile(t, s)
}

// The goldens are what Hugging Face's tokenizers answered, see testdata/golden/make.py.
func TestEveryFamilyGivesTheIDsOfTheReference(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d goldens, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := json.Unmarshal(data, &g); err != nil {
				t.Fatal(err)
			}
			e := bpe.New(load(t, g.Tokenizer), bpe.Config{})
			for round := range 2 { // the second round finds its words in the caches
				for _, c := range g.Cases {
					got, r := e.Encode(nil, []byte(c.Text), bpe.Options{})
					if !slices.Equal(got, c.IDs) || r.Covered != len(c.Text) || r.Exhausted {
						t.Errorf("round %d: %q\n is %v\nnot %v", round, c.Text, got, c.IDs)
					}
					got, _ = e.Encode(nil, []byte(c.Text), bpe.Options{AddSpecial: true})
					if !slices.Equal(got, c.Special) {
						t.Errorf("round %d: %q with special tokens\n is %v\nnot %v", round, c.Text, got, c.Special)
					}
				}
			}
		})
	}
}
