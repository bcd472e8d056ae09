package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/tokenizer/bpe"
)

// benchText is what is measured when nobody names a text.
const benchText = `The router sends every request to the worker that already holds its prefix. It's quick:
	func (t *Table) Lookup(prefix []uint64) (holders []Holder, depth int) {
		for i, key := range prefix { /* 1,234,567 entries, 98.6 % hits */ }
	}
Zażółć gęślą jaźń. Все люди рождаются свободными. 人人生而自由，在尊严和权利上一律平等。すべての人間は。
{"type": "function", "function": {"name": "get_weather", "parameters": {"city": "Zürich 🙂"}}}
`

// tokenizerBenchCommand measures speed on this machine.
func tokenizerBenchCommand() *cobra.Command {
	var vocabulary string
	var rounds int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench --vocab FILE.wpv [TEXT-FILE...]",
		Short: "Measure how fast a vocabulary tokenises on this machine",
		Long: `Tokenises the texts (or a built-in mixture of 100 KB) again and again on one thread
and prints the median of the rounds. New text is measured without the memo of whole
messages; the second figure is the same text found in that memo.

This is native speed. Inside a proxy the module runs at about a third of it;
docs/tokenizer.md has the comparison and how to repeat it.`,
		Example: `  warmpath tokenizer bench --vocab qwen3.wpv
  warmpath tokenizer bench --vocab qwen3.wpv --rounds 50 README.md`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if rounds < 1 {
				return fmt.Errorf("--rounds %d: want one or more", rounds)
			}
			warm, err := openVocabulary(vocabulary)
			if err != nil {
				return err
			}
			var texts [][]byte
			for _, name := range args {
				text, err := os.ReadFile(name)
				if err != nil {
					return fmt.Errorf("read the text: %w", err)
				}
				texts = append(texts, text)
			}
			if len(args) == 0 {
				var text []byte
				for len(text) < 100<<10 {
					text = append(text, benchText...)
				}
				texts = append(texts, text)
			}
			size := 0
			for _, text := range texts {
				size += len(text)
			}
			if size == 0 {
				return errors.New("the texts are empty")
			}
			cold := bpe.New(warm.Vocab(), bpe.Config{MemoIDs: -1})
			fresh, tokens := speed(cold, texts, size, rounds)
			memoised, _ := speed(warm, texts, size, rounds)
			return printSpeed(cmd.OutOrStdout(), asJSON, size, tokens, fresh, memoised)
		},
	}
	cmd.Flags().StringVar(&vocabulary, "vocab", "", "compiled vocabulary")
	cmd.Flags().IntVar(&rounds, "rounds", 15, "how often everything is measured")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// speed returns the median of MB/s over the rounds and the tokens of one. A
// round repeats the texts until about a megabyte has gone by.
func speed(enc *bpe.Encoder, texts [][]byte, size, rounds int) (mbPerSecond float64, tokens int) {
	repeat := max(1, 1<<20/size)
	var ids []uint32
	once := func() {
		tokens = 0
		for _, text := range texts {
			ids, _ = enc.Encode(ids[:0], text, bpe.Options{})
			tokens += len(ids)
		}
	}
	once() // warms the caches
	spent := make([]time.Duration, rounds)
	for i := range spent {
		start := time.Now()
		for range repeat {
			once()
		}
		spent[i] = time.Since(start)
	}
	slices.Sort(spent)
	return float64(size*repeat) / 1e6 / spent[rounds/2].Seconds(), tokens
}

func printSpeed(out io.Writer, asJSON bool, size, tokens int, fresh, memoised float64) error {
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{
			"bytes": size, "tokens": tokens, "bytesPerToken": float64(size) / float64(max(1, tokens)), "mbPerSecond": fresh, "memoMBPerSecond": memoised,
		})
	}
	fmt.Fprintf(out, "%d bytes, %d tokens (%.2f bytes each)\nnew text   %8.1f MB/s\nfrom memo  %8.1f MB/s\n",
		size, tokens, float64(size)/float64(max(1, tokens)), fresh, memoised)
	return nil
}
