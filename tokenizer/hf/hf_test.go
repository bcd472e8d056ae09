package hf_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

const (
	words     = "the lazy dog jumps over the other dog and the quick fox, 1234 times"
	byteLevel = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
)

// change returns the tokenizer.json of a small vocabulary with one block replaced.
func change(t testing.TB, path, block string) []byte {
	t.Helper()
	s := vocabtest.Train(words, pretoken.GPT2, 20)
	s.Added = []vocab.AddedSpec{{ID: uint32(len(s.Tokens)), Content: "<s>", Special: true}}
	s.Before = []uint32{s.Added[0].ID}
	var file map[string]any
	if err := json.Unmarshal(vocabtest.JSON(s, byteLevel), &file); err != nil {
		t.Fatal(err)
	}
	if path != "" {
		at, keys := file, strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			at = at[key].(map[string]any)
		}
		at[keys[len(keys)-1]] = json.RawMessage(block)
	}
	out, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestABlockWeDoNotHaveIsRefusedByItsPath(t *testing.T) {
	split := func(rest string) string {
		return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s+"},` + rest + `},` +
			`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}`
	}
	for _, c := range []struct{ path, block, want, what string }{
		{"version", `"2.0"`, "version", `"2.0"`},
		{"model.type", `"Unigram"`, "model.type", `"Unigram"`},
		{"model.type", `"WordPiece"`, "model.type", `"WordPiece"`},
		{"model.dropout", `0.1`, "model.dropout", "0.1"},
		{"model.continuing_subword_prefix", `"##"`, "model.continuing_subword_prefix", `"##"`},
		{"model.end_of_word_suffix", `"</w>"`, "model.end_of_word_suffix", `"</w>"`},
		{"normalizer", `{"type":"NFKC"}`, "normalizer.type", `"NFKC"`},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}`, "normalizer.normalizers[1].type", `"Lowercase"`},
		{"normalizer", `{"type":"Prepend","prepend":"▁"}`, "normalizer.type", `"Prepend"`},
		{"pre_tokenizer", `null`, "pre_tokenizer", "none"},
		{"pre_tokenizer", `{"type":"Whitespace"}`, "pre_tokenizer.type", `"Whitespace"`},
		{"pre_tokenizer", `{"type":"Metaspace","replacement":"▁"}`, "pre_tokenizer.type", `"Metaspace"`},
		{"pre_tokenizer", `{"type":"Digits","individual_digits":true}`, "pre_tokenizer.type", "at the end"},
		{"pre_tokenizer", split(`"behavior":"Isolated","invert":false`), "pre_tokenizer", `\\s+`},
		{"pre_tokenizer", split(`"behavior":"Removed","invert":false`), "pre_tokenizer.pretokenizers[0].behavior", `"Removed"`},
		{"pre_tokenizer", split(`"behavior":"MergedWithNext","invert":false`), "pre_tokenizer.pretokenizers[0].behavior", `"MergedWithNext"`},
		{"pre_tokenizer", strings.Replace(split(`"behavior":"Isolated","invert":false`), "Regex", "String", 1), "pre_tokenizer.pretokenizers[0].pattern", "no Regex"},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}]}`, "pre_tokenizer.pretokenizers[1].add_prefix_space", "after another"},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[` + byteLevel + `,{"type":"Digits","individual_digits":true}]}`, "pre_tokenizer.pretokenizers[1].type", "after ByteLevel"},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":false},` + byteLevel + `]}`, "pre_tokenizer", "the pattern"},
		{"post_processor", `{"type":"BertProcessing","sep":["a",1],"cls":["b",2]}`, "post_processor.type", `"BertProcessing"`},
		{"post_processor", `{"type":"Sequence","processors":[{"type":"RobertaProcessing"}]}`, "post_processor.processors[0].type", `"RobertaProcessing"`},
		{"post_processor", `{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{}}`, "post_processor.single", "without the text"},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`, "post_processor.single[1]", "once"},
		{"decoder", `{"type":"Sequence","decoders":[{"type":"Replace"}]}`, "decoder.decoders[0].type", `"Replace"`},
		{"added_tokens", `[{"id":999,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`, "added_tokens[0].id", "numbers it 276"},
		{"added_tokens", `[{"id":276,"content":"\ufffd","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`, "added_tokens[0].content", "replacement"},
	} {
		_, err := hf.Read(change(t, c.path, c.block))
		var refused *hf.Unsupported
		if !errors.As(err, &refused) || refused.Path != c.want || !strings.Contains(refused.What, c.what) {
			t.Errorf("%s = %s: got %v\nwant %s refused with %q", c.path, c.block, err, c.want, c.what)
		} else if !strings.Contains(err.Error(), "routed by text") {
			t.Errorf("%v does not say what to do", err)
		}
	}
}

func TestAFileThatIsWrongSaysWhere(t *testing.T) {
	for _, c := range []struct{ path, block, want string }{
		{"model", `null`, "no model"},
		{"model.vocab", `{}`, "model.vocab is empty"},
		{"model.vocab", `{"a":1,"b":1}`, "two tokens have id 1"},
		{"model.vocab", `{"a":4000000000}`, "higher than"},
		{"model.merges", `["a b c"]`, "not two tokens"},
		{"model.merges", `[["a"]]`, "a merge of 1 parts"},
		{"model.merges", `[["zz","a"]]`, `model.merges[0]: "zz" is not in model.vocab`},
		{"model.surprise", `1`, `unknown field "surprise"`},
		{"normalizer", `{"type":"NFC","strength":3}`, `unknown field "strength"`},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}}],"pair":[],"special_tokens":{}}`, `"<x>" is not in special_tokens`},
	} {
		if _, err := hf.Read(change(t, c.path, c.block)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: got %v, want %q", c.path, c.block, err, c.want)
		}
	}
	if _, err := hf.Read([]byte("{")); err == nil {
		t.Error("half a file is read")
	}
}

func TestWhatNothingDependsOnIsAccepted(t *testing.T) {
	want := encode(t, change(t, "", ""))
	for path, block := range map[string]string{
		"truncation":                      `{"max_length":4}`,
		"padding":                         `{"strategy":"BatchLongest"}`,
		"something_new":                   `{"a":1}`,
		"model.unk_token":                 `"<unk>"`, // every byte has a token
		"model.byte_fallback":             `true`,
		"model.continuing_subword_prefix": `""`,
		"model.dropout":                   `0.0`,
		"normalizer":                      `{"type":"Sequence","normalizers":[]}`,
		"decoder":                         `null`,
		"post_processor":                  `{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}]}`,
		"pre_tokenizer":                   `{"type":"Sequence","pretokenizers":[` + byteLevel + `]}`,
	} {
		if got := encode(t, change(t, path, block)); !slices.Equal(got, want) {
			t.Errorf("with %s %s: %v, want %v", path, block, got, want)
		}
	}
}

func encode(t testing.TB, tokenizer []byte) []uint32 {
	t.Helper()
	ids, _ := bpe.New(load(t, tokenizer), bpe.Config{}).Encode(nil, []byte(words+"<s> "+words), bpe.Options{})
	return ids
}

func TestMergesAsStringsAndAsPairsAreTheSame(t *testing.T) {
	pairs := change(t, "", "")
	var file struct {
		Model struct{ Merges [][2]string }
	}
	if err := json.Unmarshal(pairs, &file); err != nil {
		t.Fatal(err)
	}
	var merges []string
	for _, m := range file.Model.Merges {
		merges = append(merges, m[0]+" "+m[1])
	}
	block, err := json.Marshal(merges)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := encode(t, change(t, "model.merges", string(block))), encode(t, pairs); !slices.Equal(got, want) || len(want) < 20 {
		t.Fatalf("%v, want %v", got, want)
	}
}

// A rank file and the tokenizer.json made of it give the same ids.
func TestRanksAreMerges(t *testing.T) {
	s := vocabtest.Train(words, pretoken.O200K, 30)
	var file strings.Builder
	for rank, token := range s.Tokens {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString(token), rank)
	}
	n := uint32(len(s.Tokens))
	s.Added = []vocab.AddedSpec{{ID: n, Content: "<|end|>", Special: true}, {ID: n + 5, Content: "<|endofprompt|>", Special: true}}
	ranks, err := hf.ReadRanks([]byte(file.String()), hf.Ranks{Pattern: "o200k", Special: map[string]uint32{"<|end|>": n, "<|endofprompt|>": n + 5}})
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(words + "<|end|>" + strings.ToUpper(words) + " <|endofprompt|> dogs lazy")
	var got [2][]uint32
	for i, s := range []*vocab.Spec{ranks, s} {
		got[i], _ = bpe.New(vocabtest.Compile(t, s), bpe.Config{}).Encode(nil, text, bpe.Options{})
	}
	if !slices.Equal(got[0], got[1]) || !slices.Contains(got[0], n+5) {
		t.Fatalf("by rank %v\nby pairs %v", got[0], got[1])
	}
}

func TestRankFilesThatAreWrongSayWhichLine(t *testing.T) {
	for data, want := range map[string]string{
		"YQ==":           "line 1 is not base64",
		"YQ== 0\n?? 1":   "line 2",
		"YQ== x":         "line 1",
		"YQ== 0\nYg== 0": "line 2: two tokens have id 0",
		" 5":             "line 1",
	} {
		if _, err := hf.ReadRanks([]byte(data), hf.Ranks{Pattern: "o200k"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", data, err, want)
		}
	}
	var refused *hf.Unsupported
	if _, err := hf.ReadRanks(nil, hf.Ranks{Pattern: `\w+`}); !errors.As(err, &refused) || refused.Path != "pattern" {
		t.Errorf("a pattern that is not known: %v", err)
	}
}

func TestTekkenCountsItsSpecialTokensFirst(t *testing.T) {
	s := vocabtest.Train(words, pretoken.Tekken, 30)
	type row map[string]any
	var rows, special []row
	for rank, token := range s.Tokens {
		rows = append(rows, row{"rank": rank, "token_bytes": token, "token_str": nil})
	}
	for rank, name := range []string{"<unk>", "<s>", "</s>", "[INST]"} {
		special = append(special, row{"rank": rank, "token_str": name, "is_control": true})
	}
	pattern, err := os.ReadFile("testdata/golden/tekken.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Tokenizer struct {
			PreTokenizer struct {
				PreTokenizers []struct{ Pattern struct{ Regex string } } `json:"pretokenizers"`
			} `json:"pre_tokenizer"`
		}
	}
	if err := json.Unmarshal(pattern, &golden); err != nil {
		t.Fatal(err)
	}
	config := row{"pattern": golden.Tokenizer.PreTokenizer.PreTokenizers[0].Pattern.Regex, "default_vocab_size": 4 + 280, "default_num_special_tokens": 4, "num_vocab_tokens": 286, "version": "v3"}
	data, err := json.Marshal(row{"config": config, "vocab": rows, "special_tokens": special})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := hf.ReadTekken(data)
	if err != nil {
		t.Fatal(err)
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if v.IDs != 284 {
		t.Fatalf("%d ids, the size in the config is 284", v.IDs)
	}
	e := bpe.New(v, bpe.Config{})
	ids, _ := e.Encode(nil, []byte("[INST]a the"), bpe.Options{AddSpecial: true})
	if len(ids) < 4 || ids[0] != 1 || ids[1] != 3 || ids[2] != 4+'a' || string(e.Decode(nil, ids, true)) != "a the" {
		t.Fatalf("%v", ids)
	}
	delete(config, "default_num_special_tokens")
	config["default_num_special_tokens"] = 1 << 40
	if data, err = json.Marshal(row{"config": config, "vocab": rows}); err != nil {
		t.Fatal(err)
	}
	if _, err := hf.ReadTekken(data); err == nil {
		t.Fatal("an impossible count of special tokens is read")
	}
}

// FuzzRead: whatever is read must also compile or say why not, and encode.
func FuzzRead(f *testing.F) {
	f.Add(change(f, "", ""))
	f.Add(change(f, "normalizer", `{"type":"NFC"}`))
	f.Add(change(f, "model.ignore_merges", `true`))
	f.Add([]byte(`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]},"pre_tokenizer":` + byteLevel + `}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := hf.Read(data)
		if err != nil {
			return
		}
		file, err := s.Compile()
		if err != nil {
			return
		}
		v, err := vocab.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		e := bpe.New(v, bpe.Config{})
		ids, _ := e.Encode(nil, []byte(words), bpe.Options{})
		if v.Flags&vocab.FlagPrefixSpace == 0 && len(v.RawAdded)+len(v.NormalAdded) == 0 && string(e.Decode(nil, ids, false)) != words {
			t.Fatalf("%v is %q", ids, e.Decode(nil, ids, false))
		}
	})
}
