package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// tokenizerCommand is everything about exact tokens: compiled vocabularies and
// what they make of texts and request bodies.
func tokenizerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokenizer",
		Short: "Compile a model's vocabulary; see the tokens an engine will see",
		Long: `The router can follow an engine's KV cache exactly only if it knows the tokens
that the engine will see. For that it needs the model's vocabulary, compiled once
into a flat file (.wpv), and the name of the model's chat template.

Typical steps:
  1. compile the model's tokenizer.json, beside the weights of every model
  2. look at a request with render: the prompt, its tokens, where each turn ends
  3. compare with a running engine: verify
  4. name the file and the template in the pool's policy

docs/tokenizer.md has the supported families and the limits.`,
		Example: `  warmpath tokenizer compile tokenizer.json -o qwen3.wpv
  echo -n 'Hello, world' | warmpath tokenizer encode --vocab qwen3.wpv
  warmpath tokenizer render --template qwen3 --vocab qwen3.wpv request.json`,
	}
	cmd.AddCommand(compileCommand(), encodeCommand(), decodeCommand(), countCommand(), renderCommand(), tokenizerVerifyCommand(), tokenizerBenchCommand())
	return cmd
}

// ranksOf says what a rank file doesn't hold, from the flags of compile.
type ranksOf struct {
	encoding, pattern string
	special           []string // NAME=ID
}

// compileCommand makes a .wpv file of a published one.
func compileCommand() *cobra.Command {
	var out string
	var ranks ranksOf
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compile FILE -o VOCABULARY.wpv",
		Short: "Compile a tokenizer.json, a tekken.json or a tiktoken rank file",
		Long: `Compiles a vocabulary as it is published: a model's tokenizer.json, Mistral's
tekken.json, or a rank file of tiktoken (FILE.tiktoken). A rank file doesn't say how
text is cut and what its special tokens are, so it needs the name of its encoding (a
file called like its encoding is recognised), or --pattern and --special.

The result is the same for the same input on every machine; its checksum is its
name in policies and metrics. A file with a part that isn't implemented exactly is
refused, and the message names the part.`,
		Example: `  warmpath tokenizer compile tokenizer.json -o qwen3.wpv
  warmpath tokenizer compile o200k_base.tiktoken -o o200k.wpv
  warmpath tokenizer compile tiktoken.model --pattern cl100k-tail --special '<|eot|>=128009' -o my.wpv`,
		Args: exactlyOne("the tokenizer.json, tekken.json or rank file to compile"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("say where the compiled vocabulary goes: -o NAME.wpv")
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read the vocabulary: %w", err)
			}
			wpv, err := compileVocabulary(args[0], data, ranks)
			if err != nil {
				return err
			}
			v, err := vocab.Load(wpv)
			if err != nil {
				return fmt.Errorf("check what was compiled of %s: %w", args[0], err)
			}
			if err := writeFileWhole(out, wpv); err != nil {
				return fmt.Errorf("write the compiled vocabulary: %w", err)
			}
			tokens, added := len(v.Ends)-1, len(v.RawAdded)+len(v.NormalAdded)
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
					"file": out, "hash": v.Hash(), "bytes": len(wpv), "tokens": tokens, "added": added, "rules": v.Kind.String(),
				})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d tokens and %d added ones, rules %s, %.2f MB, hash %s\n",
				out, tokens, added, v.Kind, float64(len(wpv))/1e6, v.Hash())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "where the compiled vocabulary goes")
	f.StringVar(&ranks.encoding, "encoding", "", "FILE has the ranks of this encoding of tiktoken: "+strings.Join(hf.Encodings(), ", "))
	f.StringVar(&ranks.pattern, "pattern", "", "FILE has ranks of an encoding with this `pattern`, as published, or the name of a rule set (docs/tokenizer.md)")
	f.StringArrayVar(&ranks.special, "special", nil, "with --pattern: a special token, as `NAME=ID`; may be repeated")
	f.BoolVar(&asJSON, "json", false, "describe the result as JSON")
	return cmd
}

// compileVocabulary decides by flags, name and content which form a published
// vocabulary has.
func compileVocabulary(name string, data []byte, ranks ranksOf) ([]byte, error) {
	base, isRanks := strings.CutSuffix(filepath.Base(name), ".tiktoken")
	if ranks.encoding == "" && ranks.pattern == "" && isRanks {
		ranks.encoding = base
	}
	spec, err := readVocabulary(data, ranks)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", name, err)
	}
	wpv, err := spec.Compile()
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", name, err)
	}
	return wpv, nil
}

func readVocabulary(data []byte, ranks ranksOf) (*vocab.Spec, error) {
	switch {
	case ranks.encoding != "" && ranks.pattern != "":
		return nil, errors.New("--encoding and --pattern exclude each other")
	case ranks.pattern == "" && len(ranks.special) > 0:
		return nil, errors.New("--special goes with --pattern")
	case ranks.encoding != "":
		known, ok := hf.Encoding(ranks.encoding)
		if !ok {
			return nil, fmt.Errorf("no encoding %q; there are %s (others: --pattern and --special)", ranks.encoding, strings.Join(hf.Encodings(), ", "))
		}
		return hf.ReadRanks(data, known)
	case ranks.pattern != "":
		special := map[string]uint32{}
		for _, s := range ranks.special {
			at := strings.LastIndexByte(s, '=')
			id, err := strconv.ParseUint(s[at+1:], 10, 32)
			if at < 1 || err != nil {
				return nil, fmt.Errorf("--special %q: want NAME=ID, such as '<|eot|>=128009'", s)
			}
			special[s[:at]] = uint32(id)
		}
		return hf.ReadRanks(data, hf.Ranks{Pattern: ranks.pattern, Special: special})
	}
	if isCompiled(data) {
		return nil, errors.New("it is compiled already")
	}
	var keys struct {
		Config, Model json.RawMessage
	}
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("it is no JSON (%w); a tiktoken rank file needs --encoding", err)
	}
	if keys.Config != nil && keys.Model == nil {
		return hf.ReadTekken(data)
	}
	return hf.Read(data)
}

func isCompiled(data []byte) bool { return bytes.HasPrefix(data, []byte("WPV")) }

// writeFileWhole writes by renaming: a reader sees the old file or the new one.
func writeFileWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func exactlyOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("name " + what)
		}
		return nil
	}
}

// openVocabulary loads a compiled vocabulary, or compiles a published one on the
// fly: that costs a second, which is fine for a look.
func openVocabulary(path string) (*bpe.Encoder, error) {
	if path == "" {
		return nil, errors.New("say which vocabulary: --vocab FILE.wpv (warmpath tokenizer compile makes one)")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the vocabulary: %w", err)
	}
	if !isCompiled(data) {
		if data, err = compileVocabulary(path, data, ranksOf{}); err != nil {
			return nil, err
		}
	}
	v, err := vocab.Load(data)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w (compile it again with warmpath tokenizer compile)", path, err)
	}
	return bpe.New(v, bpe.Config{}), nil
}

// input opens the text argument: a file, or standard input without one.
func input(cmd *cobra.Command, args []string) (io.ReadCloser, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	return f, nil
}
