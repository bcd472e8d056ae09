package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/ucd"
	"github.com/warmpath/warmpath/tokenizer/utf8text"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// shown bounds the differences that are printed and kept for the JSON, for each
// vocabulary.
const shown = 5

// difference is one text on which we and the reference disagree.
type difference struct {
	Where   string   `json:"where"`   // what kind of text
	Text    string   `json:"text"`    // quoted; cut around the first difference
	AtToken int      `json:"atToken"` // index of the first id that differs
	Before  string   `json:"before"`  // text of the tokens before it
	Ours    []string `json:"ours"`    // "id text" from there on, at most eight
	Theirs  []string `json:"theirs"`
}

// verdict is what the comparison found for one vocabulary.
type verdict struct {
	Vocabulary   string       `json:"vocabulary"`
	FileBytes    int          `json:"fileBytes"` // of the compiled vocabulary
	Strings      int          `json:"strings"`
	StringBytes  int          `json:"stringBytes"`
	Documents    int          `json:"documents"`
	RealBytes    int          `json:"realBytes"`
	Tokens       int          `json:"tokens"`
	Recorded     int          `json:"recorded,omitempty"` // answers of a running engine
	Prompts      []prompts    `json:"prompts,omitempty"`
	Differences  int          `json:"differences"`
	First        []difference `json:"first,omitempty"`
	ClaimsBroken []string     `json:"claimsBroken,omitempty"`
	Seconds      float64      `json:"seconds"`
}

type report struct {
	Machine      string    `json:"machine"`
	Tokenizers   string    `json:"tokenizers"`
	Tiktoken     string    `json:"tiktoken"`
	Vocabularies []verdict `json:"vocabularies"`
	Refused      []string  `json:"refused,omitempty"`
	Differences  int       `json:"differences"`
}

// runTest compares every vocabulary and fails on a single difference.
func runTest(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(stderr)
	names := flags.String("vocab", "", "vocabularies, separated by commas (default: all)")
	count := flags.Int("strings", 200_000, "generated strings per vocabulary")
	jsonFile := flags.String("json", "", "write the result to this `file` too (- for standard output)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	some, err := pick(*names)
	if err != nil {
		return err
	}
	c, err := openCache()
	if err != nil {
		return err
	}
	docs, err := c.realTexts(ctx)
	if err != nil {
		return err
	}
	if *jsonFile == "-" {
		stdout = stderr
	}
	result := report{Machine: machine(), Tokenizers: tokenizersVersion, Tiktoken: tiktokenVersion}
	broken := 0
	for _, v := range some {
		one, err := c.judge(ctx, v, *count, docs)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		one.print(stdout)
		result.Vocabularies = append(result.Vocabularies, one)
		result.Differences += one.Differences
		broken += len(one.ClaimsBroken)
	}
	if *names == "" {
		if result.Refused, err = c.refusals(ctx); err != nil {
			return err
		}
		for _, r := range result.Refused {
			fmt.Fprintln(stdout, "refused, as it must be:", r)
		}
	}
	if err := writeJSON(*jsonFile, result); err != nil {
		return err
	}
	if result.Differences > 0 || broken > 0 {
		return fmt.Errorf("%d differences, %d broken claims", result.Differences, broken)
	}
	return nil
}

// refusals tries vocabularies that can't be done exactly: none may be compiled,
// and the message must name the part.
func (c cache) refusals(ctx context.Context) ([]string, error) {
	var told []string
	for _, pack := range slices.Sorted(maps.Keys(refusedPacks)) {
		v := vocabulary{Name: pack, Pack: pack}
		file, err := c.file(ctx, v)
		if err != nil {
			return nil, err
		}
		_, err = compiled(v, file)
		if err == nil {
			return nil, fmt.Errorf("%s was compiled: it has %s, which we don't do", pack, refusedPacks[pack])
		}
		var unsupported *hf.Unsupported
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), refusedPacks[pack]) {
			return nil, fmt.Errorf("%s should be refused because of %s: %w", pack, refusedPacks[pack], err)
		}
		told = append(told, pack+": "+unsupported.Path+": "+unsupported.What)
	}
	return told, nil
}

func writeJSON(file string, v any) error {
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if file == "-" {
		_, err = os.Stdout.Write(data)
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// judge compares one vocabulary on generated and real texts and tries the
// claims that need no reference.
func (c cache) judge(ctx context.Context, v vocabulary, count int, docs []document) (verdict, error) {
	file, err := c.file(ctx, v)
	if err != nil {
		return verdict{}, err
	}
	added, pieces, err := published(v, file)
	if err != nil {
		return verdict{}, err
	}
	texts := generate(count, added, pieces)
	theirs, err := c.reference(ctx, v, file, texts, false)
	if err != nil {
		return verdict{}, err
	}
	real := make([][]byte, len(docs))
	for i, d := range docs {
		real[i] = d.Text
	}
	// Real texts are asked with BOS and what else belongs around a prompt.
	realTheirs, err := c.reference(ctx, v, file, real, true)
	if err != nil {
		return verdict{}, err
	}

	start := time.Now()
	wpv, err := compiled(v, file)
	if err != nil {
		return verdict{}, err
	}
	voc, err := vocab.Load(wpv)
	if err != nil {
		return verdict{}, fmt.Errorf("load what was compiled: %w", err)
	}
	enc := bpe.New(voc, bpe.Config{})
	one := verdict{Vocabulary: v.Name, FileBytes: len(wpv), Strings: len(texts), Documents: len(docs)}
	one.compare(enc, texts, theirs, false, func(i int) string { return fmt.Sprintf("generated %d", i) })
	one.StringBytes = size(texts)
	one.compare(enc, real, realTheirs, true, func(i int) string { return docs[i].Name })
	one.RealBytes = size(real)
	one.ClaimsBroken = claims(voc, texts, theirs, added)
	if v.Name == "qwen2.5" {
		checked, broken, err := recorded(voc)
		if err != nil {
			return verdict{}, err
		}
		one.Recorded, one.ClaimsBroken = checked, append(one.ClaimsBroken, broken...)
	}
	one.Seconds = time.Since(start).Seconds()
	if len(v.Families) > 0 {
		if one.Prompts, err = c.judgePrompts(ctx, v, file, voc); err != nil {
			return verdict{}, err
		}
		for _, p := range one.Prompts {
			one.Differences += p.Different + p.OtherIDs
		}
	}
	return one, nil
}

func size(texts [][]byte) int {
	n := 0
	for _, t := range texts {
		n += len(t)
	}
	return n
}

// compare encodes the texts and notes where the ids differ from the reference's.
func (o *verdict) compare(enc *bpe.Encoder, texts [][]byte, theirs [][]uint32, special bool, name func(int) string) {
	var ids []uint32
	for i, text := range texts {
		text = utf8text.Replaced(text)
		ids, _ = enc.Encode(ids[:0], text, bpe.Options{AddSpecial: special})
		o.Tokens += len(theirs[i])
		if slices.Equal(ids, theirs[i]) {
			continue
		}
		if o.Differences++; len(o.First) < shown {
			o.First = append(o.First, explain(enc, name(i), text, ids, theirs[i]))
		}
	}
}

// explain shows the first difference with the text before it.
func explain(enc *bpe.Encoder, where string, text []byte, ours, theirs []uint32) difference {
	at := 0
	for at < min(len(ours), len(theirs)) && ours[at] == theirs[at] {
		at++
	}
	before := enc.Decode(nil, theirs[:at], false)
	from := min(len(text), max(0, len(before)-60))
	return difference{
		Where: where, AtToken: at,
		Text:   fmt.Sprintf("%+q", text[from:min(len(text), from+160)]),
		Before: fmt.Sprintf("%+q", before[max(0, len(before)-40):]),
		Ours:   words(enc, ours[at:]), Theirs: words(enc, theirs[at:]),
	}
}

func words(enc *bpe.Encoder, ids []uint32) []string {
	var out []string
	for _, id := range ids[:min(len(ids), 8)] {
		out = append(out, fmt.Sprintf("%d %+q", id, enc.Decode(nil, []uint32{id}, false)))
	}
	return out
}

func (o *verdict) print(w io.Writer) {
	fmt.Fprintf(w, "%-13s %7d strings (%.1f MB), %d documents (%.1f MB), %.1f M tokens: %d differences (%.1f s of ours)\n",
		o.Vocabulary, o.Strings, float64(o.StringBytes)/1e6, o.Documents, float64(o.RealBytes)/1e6, float64(o.Tokens)/1e6, o.Differences, o.Seconds)
	for _, d := range o.First {
		fmt.Fprintf(w, "  %s, token %d\n    text   %s\n    before %s\n    ours   %s\n    theirs %s\n",
			d.Where, d.AtToken, d.Text, d.Before, strings.Join(d.Ours, " | "), strings.Join(d.Theirs, " | "))
	}
	if o.Recorded > 0 {
		fmt.Fprintf(w, "  %d answers of a running vLLM's /tokenize compared\n", o.Recorded)
	}
	for _, p := range o.Prompts {
		fmt.Fprintf(w, "  prompts of %-12s %-6s %-9s %5d requests: %d equal in text and ids, %d stop early, %d refused by both, %d differ, %d other ids\n",
			p.Family, p.Engine, p.Endpoint, p.Requests, p.Equal, p.Beginning, p.Refused, p.Different, p.OtherIDs)
		for _, f := range p.First {
			fmt.Fprintf(w, "    %s\n", f)
		}
	}
	for _, b := range o.ClaimsBroken {
		fmt.Fprintf(w, "  claim broken: %s\n", b)
	}
}

// claims tries, on a sample, what the encoder promises beyond its ids: the same
// again from its memo; texts joined by an added token are the sum of their ids,
// with a mark at each joint; a budget ends at a piece and leaves a prefix; and
// decoding gives the text back. theirs are the right ids.
func claims(voc *vocab.Vocab, texts [][]byte, theirs [][]uint32, added []string) []string {
	var broken []string
	fail := func(format string, args ...any) {
		if len(broken) < shown {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	enc := bpe.New(voc, bpe.Config{})
	for i := 0; i+8 < len(texts); i += 97 {
		text := utf8text.Replaced(texts[i])
		ids, _ := enc.Encode(nil, text, bpe.Options{})
		again, res := enc.Encode(nil, text, bpe.Options{})
		if !slices.Equal(again, ids) || res.Covered != len(text) {
			fail("text %d encoded twice differs, or %d of %d bytes are covered", i, res.Covered, len(text))
		}
		// Normalisation stops at added tokens, which doesn't show in the text.
		nfc := voc.Flags&vocab.FlagNFC != 0
		if !nfc || !slices.ContainsFunc(added, func(a string) bool { return bytes.Contains(text, []byte(a)) }) {
			want := text
			if nfc {
				want = ucd.NFC(nil, text)
			}
			if back := enc.Decode(nil, ids, false); !bytes.Equal(back, want) {
				fail("text %d decodes to %+q, want %+q", i, back, want)
			}
		}
		part, res := enc.Encode(nil, text, bpe.Options{Budget: 1 + len(text)/3})
		if len(part) > len(ids) || !slices.Equal(part, ids[:len(part)]) || res.Exhausted == (res.Covered == len(text)) {
			fail("text %d with a budget: %d ids that are no prefix, covered %d of %d, exhausted %v", i, len(part), res.Covered, len(text), res.Exhausted)
		}
		if len(added) > 0 {
			joined(enc, texts[i:i+8], theirs[i:i+8], added[i%len(added)], fail)
		}
	}
	return broken
}

// joined encodes several texts with an added token between them.
func joined(enc *bpe.Encoder, texts [][]byte, theirs [][]uint32, token string, fail func(string, ...any)) {
	var whole []byte
	var want []uint32
	var marks, wantMarks []int
	one, _ := enc.Encode(nil, []byte(token), bpe.Options{})
	for i, text := range texts {
		text = utf8text.Replaced(text)
		// A text that could melt with the token into another added token says
		// nothing about joints.
		if bytes.ContainsAny(text, "<|>[]") {
			continue
		}
		whole = append(append(whole, text...), token...)
		want = append(append(want, theirs[i]...), one...)
		marks, wantMarks = append(marks, len(whole)), append(wantMarks, len(want))
	}
	got := make([]int, len(marks))
	ids, _ := enc.Encode(nil, whole, bpe.Options{Marks: marks, MarkIDs: got})
	if !slices.Equal(ids, want) || !slices.Equal(got, wantMarks) {
		fail("texts joined by %q: ids or marks (%v, want %v) are not the sum of the parts: %+q", token, got, wantMarks, whole[:min(len(whole), 200)])
	}
}
