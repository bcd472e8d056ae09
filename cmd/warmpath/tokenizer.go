package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// compileCommand makes a .wpv file of a published one.
func compileCommand() *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compile FILE -o VOCABULARY.wpv",
		Short: "Compile a model's tokenizer.json",
		Long: `Compiles a vocabulary as it is published: the tokenizer.json of a model.

The result is the same for the same input on every machine; its checksum is its
name in policies and metrics. A tokenizer.json with a part that isn't implemented
exactly is refused, and the message names the part.`,
		Example: `  warmpath tokenizer compile tokenizer.json -o qwen3.wpv`,
		Args:    exactlyOne("the tokenizer.json to compile"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("say where the compiled vocabulary goes: -o NAME.wpv")
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read the vocabulary: %w", err)
			}
			wpv, err := compileVocabulary(args[0], data)
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
	cmd.Flags().StringVarP(&out, "output", "o", "", "where the compiled vocabulary goes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "describe the result as JSON")
	return cmd
}

// compileVocabulary compiles a published vocabulary.
func compileVocabulary(name string, data []byte) ([]byte, error) {
	spec, err := hf.Read(data)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", name, err)
	}
	wpv, err := spec.Compile()
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", name, err)
	}
	return wpv, nil
}

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
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name %s (see warmpath %s --help)", what, strings.TrimPrefix(cmd.CommandPath(), "warmpath "))
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
	if !strings.HasPrefix(string(data), "WPV") {
		if data, err = compileVocabulary(path, data); err != nil {
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
