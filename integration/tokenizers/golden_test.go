package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// families are the sets of rules with a small vocabulary in testdata, and how
// many of their goldens must differ with BOS asked for.
var families = []struct {
	name string
	bos  bool
}{
	{"qwen", false}, {"llama3", true}, {"gpt-oss", false}, {"mistral-nemo", true}, {"deepseek-v3", false}, {"gpt2", false}, {"starcoder", false}, {"qwen3.5", false}, {"flags", false},
}

func small(t *testing.T, family string) *bpe.Encoder {
	t.Helper()
	return encoderOf(t, smallSpec(t, family))
}

func smallSpec(t *testing.T, family string) *vocab.Spec {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "small", family+".tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := hf.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func encoderOf(t *testing.T, spec *vocab.Spec) *bpe.Encoder {
	t.Helper()
	wpv, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.Load(wpv)
	if err != nil {
		t.Fatal(err)
	}
	return bpe.New(v, bpe.Config{})
}

func goldens(t *testing.T, family string) []golden {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "small", family+".goldens"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []golden
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		if g.Special == nil {
			g.Special = g.IDs
		}
		all = append(all, g)
	}
	if err := lines.Err(); err != nil || len(all) < 400 {
		t.Fatalf("%d goldens of %s, %v; make golden-tokenizers writes them", len(all), family, err)
	}
	return all
}

// The ids were made by Hugging Face tokenizers from vocabularies with the
// settings of the published ones; make golden-tokenizers does it again.
func TestEveryFamilysRulesGiveTheReferencesIDs(t *testing.T) {
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			enc := small(t, family.name)
			enclosed := 0
			for _, g := range goldens(t, family.name) {
				plain, _ := enc.Encode(nil, []byte(g.Text), bpe.Options{})
				special, _ := enc.Encode(nil, []byte(g.Text), bpe.Options{AddSpecial: true})
				if !slices.Equal(plain, g.IDs) || !slices.Equal(special, g.Special) {
					t.Errorf("%+q\n   got %v\n  want %v\n  with special %v\n          want %v", g.Text, plain, g.IDs, special, g.Special)
				}
				if len(g.Special) != len(g.IDs) {
					enclosed++
				}
			}
			if (enclosed > 0) != family.bos {
				t.Errorf("%d goldens have tokens around the text", enclosed)
			}
		})
	}
}

// Were one rule of a family another, its goldens would show it.
func TestGoldensNoticeEveryRuleThatIsChanged(t *testing.T) {
	kinds := []pretoken.Kind{pretoken.GPT2, pretoken.CL100K, pretoken.Qwen2, pretoken.O200K, pretoken.Tekken, pretoken.DeepSeekV3, pretoken.StarCoder, pretoken.CL100KTail, pretoken.Qwen35, pretoken.KimiK2}
	for _, family := range families {
		all := goldens(t, family.name)
		pass := func(change func(*vocab.Spec)) bool {
			spec := smallSpec(t, family.name)
			change(spec)
			enc := encoderOf(t, spec)
			for _, g := range all {
				if ids, _ := enc.Encode(nil, []byte(g.Text), bpe.Options{}); !slices.Equal(ids, g.IDs) {
					return false
				}
			}
			return true
		}
		right := smallSpec(t, family.name).Kind
		for _, kind := range kinds {
			if kind != right && pass(func(s *vocab.Spec) { s.Kind = kind }) {
				t.Errorf("%s: the rules of %s pass too", family.name, kind)
			}
		}
		if pass(func(s *vocab.Spec) { s.NFC = !s.NFC }) {
			t.Errorf("%s: passes with the other normalisation too", family.name)
		}
		if pass(func(s *vocab.Spec) { s.Whole = !s.Whole }) {
			t.Errorf("%s: passes with ignore_merges the other way too", family.name)
		}
		if family.name == "flags" {
			for i := range smallSpec(t, family.name).Added {
				if content := smallSpec(t, family.name).Added[i].Content; strings.HasPrefix(content, "<|") {
					continue
				}
				if pass(func(s *vocab.Spec) { s.Added = slices.Delete(s.Added, i, i+1) }) {
					t.Errorf("flags: passes without the added token %d too", i)
				}
			}
		}
	}
}

func TestGeneratedTextsAreTheSameEveryTimeAndHoldEveryPlane(t *testing.T) {
	added, pieces := []string{"<|im_start|>", "<|im_end|>"}, []string{"the", " of", "\xe4\xb8"}
	first, again := generate(3000, added, pieces), generate(3000, added, pieces)
	if !slices.EqualFunc(first, again, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Fatal("two runs differ")
	}
	seen := map[rune]bool{}
	for _, text := range first {
		for _, r := range string(text) {
			seen[r] = true
		}
	}
	for r := rune(0); r < 0x40000; r++ {
		if (r < 0xD800 || r > 0xDFFF) && !seen[r] {
			t.Fatalf("%U is in no text", r)
		}
	}
	for _, want := range []string{"<|im_start|><|im_end|>", "\r\n", "'S", "\u200d"} {
		if !slices.ContainsFunc(first, func(text []byte) bool { return strings.Contains(string(text), want) }) {
			t.Errorf("no text holds %q", want)
		}
	}
}

// A judge that cannot say no is none.
func TestADifferenceIsFoundAndShownWithItsContext(t *testing.T) {
	enc := small(t, "qwen")
	text := []byte("All human beings are born free")
	ids, _ := enc.Encode(nil, text, bpe.Options{})
	wrong := slices.Clone(ids)
	wrong[3]++
	var v verdict
	v.compare(enc, [][]byte{text, text}, [][]uint32{wrong, ids}, false, func(int) string { return "here" })
	if v.Differences != 1 || len(v.First) != 1 || v.First[0].AtToken != 3 || !strings.Contains(v.First[0].Text, "human") {
		t.Fatalf("found %+v", v)
	}
	var out strings.Builder
	v.print(&out)
	if !strings.Contains(out.String(), "1 differences") || !strings.Contains(out.String(), "here, token 3") {
		t.Errorf("printed %s", out.String())
	}
}
