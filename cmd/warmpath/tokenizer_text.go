package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/utf8text"
)

// encodeCommand prints the ids of texts.
func encodeCommand() *cobra.Command {
	var vocabulary string
	var lines, asJSON, special bool
	cmd := &cobra.Command{
		Use:   "encode --vocab FILE.wpv [TEXT-FILE]",
		Short: "Print the token ids of a text",
		Long: `Reads a text from a file or standard input and prints its token ids, separated by
spaces. Added tokens in the text (<|im_end|>) become their ids, as in engines. The
text is taken as it is, a newline at its end included; bytes that are no UTF-8 are
read as U+FFFD, as Python's codec does.

With --json-lines every line of the input is a text, written as a JSON string, and
every line of the output has its ids.`,
		Example: `  echo -n 'Hello, world' | warmpath tokenizer encode --vocab qwen3.wpv
  printf '"one"\n"two\\nlines"\n' | warmpath tokenizer encode --vocab qwen3.wpv --json-lines --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			enc, err := openVocabulary(vocabulary)
			if err != nil {
				return err
			}
			in, err := input(cmd, args)
			if err != nil {
				return err
			}
			defer in.Close()
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
			var ids []uint32
			err = eachText(in, lines, func(text []byte) error {
				ids, _ = enc.Encode(ids[:0], text, bpe.Options{AddSpecial: special})
				_, err := out.Write(append(appendIDs(nil, ids, asJSON), '\n'))
				return err
			})
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().StringVar(&vocabulary, "vocab", "", "compiled vocabulary (a tokenizer.json works too, slower)")
	cmd.Flags().BoolVar(&lines, "json-lines", false, "the input has one text a line, as a JSON string")
	cmd.Flags().BoolVar(&asJSON, "json", false, `print {"ids":[...]} a line`)
	cmd.Flags().BoolVar(&special, "special", false, "add the tokens that belong around a completion's prompt (BOS)")
	return cmd
}

func appendIDs(dst []byte, ids []uint32, asJSON bool) []byte {
	separator := byte(' ')
	if asJSON {
		dst, separator = append(dst, `{"ids":[`...), ','
	}
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, separator)
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	if asJSON {
		dst = append(dst, `]}`...)
	}
	return dst
}

// maxText bounds what is read at once: a text, its tokens and what lies between
// take some ten times that.
const maxText = 256 << 20

// readText reads the whole input.
func readText(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("it is longer than %d MiB: give it in pieces, one JSON string a line, with --json-lines", maxText>>20)
	}
	return text, err
}

// eachText calls f with the whole input, or with every line's JSON string.
func eachText(in io.Reader, lines bool, f func([]byte) error) error {
	if !lines {
		text, err := readText(in)
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
		return f(text)
	}
	return eachLine(in, func(number int, line []byte) error {
		var text *string
		if err := json.Unmarshal(line, &text); err != nil || text == nil {
			return fmt.Errorf("line %d of the input is no JSON string: write every text on its own line, in quotes, newlines as \\n", number)
		}
		return f([]byte(*text))
	})
}

// eachLine calls f with the lines of the input that aren't blank, of any length.
func eachLine(in io.Reader, f func(number int, line []byte) error) error {
	reader := bufio.NewReaderSize(in, 1<<16)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := f(number, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
	}
}

// decodeCommand prints the text of ids.
func decodeCommand() *cobra.Command {
	var vocabulary string
	var lines, asJSON, skipSpecial bool
	cmd := &cobra.Command{
		Use:   "decode --vocab FILE.wpv [ID-FILE]",
		Short: "Print the text of token ids",
		Long: `Reads token ids from a file or standard input, separated by anything that isn't a
digit (what encode prints, with or without --json), and prints their text.

With --json-lines every line of the input is one text's ids; --json prints every
text as a JSON string on its own line.`,
		Example: `  echo 9707 11 1879 | warmpath tokenizer decode --vocab qwen3.wpv
  warmpath tokenizer encode --vocab qwen3.wpv --json --json-lines < texts.jsonl |
    warmpath tokenizer decode --vocab qwen3.wpv --json --json-lines`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			enc, err := openVocabulary(vocabulary)
			if err != nil {
				return err
			}
			in, err := input(cmd, args)
			if err != nil {
				return err
			}
			defer in.Close()
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
			show := func(number int, line []byte) error {
				ids, err := parseIDs(line)
				if err != nil {
					return fmt.Errorf("line %d of the input: %w", number, err)
				}
				for _, id := range ids {
					if _, added := enc.Vocab().FindAdded(id); !added && len(enc.Vocab().Token(id)) == 0 {
						return fmt.Errorf("line %d of the input: the vocabulary has no token %d (is it the vocabulary that made these ids?)", number, id)
					}
				}
				text := enc.Decode(nil, ids, skipSpecial)
				if asJSON {
					quoted := json.NewEncoder(out)
					quoted.SetEscapeHTML(false)
					return quoted.Encode(string(utf8text.Replaced(text)))
				}
				if lines {
					text = append(text, '\n')
				}
				_, err = out.Write(text)
				return err
			}
			if lines {
				err = eachLine(in, show)
			} else {
				var all []byte
				if all, err = readText(in); err == nil {
					err = show(1, all)
				}
			}
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().StringVar(&vocabulary, "vocab", "", "compiled vocabulary (a tokenizer.json works too, slower)")
	cmd.Flags().BoolVar(&lines, "json-lines", false, "every line of the input is one text's ids")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print texts as JSON strings")
	cmd.Flags().BoolVar(&skipSpecial, "skip-special", false, "leave out special tokens")
	return cmd
}

// parseIDs reads numbers separated by blanks, commas, or what JSON puts around
// them: 1 2 3, [1,2,3], {"ids":[1,2,3]}.
func parseIDs(line []byte) ([]uint32, error) {
	line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte(`{"ids":`))
	fields := bytes.FieldsFunc(line, func(r rune) bool {
		return unicode.IsSpace(r) || r == ',' || r == '[' || r == ']' || r == '}'
	})
	ids := make([]uint32, 0, len(fields))
	for _, f := range fields {
		id, err := strconv.ParseUint(string(f), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no token id: want numbers, such as 1 2 3 or [1,2,3]", f)
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

// countCommand prints how many tokens texts have.
func countCommand() *cobra.Command {
	var vocabulary string
	var asJSON, special bool
	cmd := &cobra.Command{
		Use:   "count --vocab FILE.wpv [TEXT-FILE...]",
		Short: "Count the tokens of texts",
		Long: `Counts the tokens of files, or of standard input without any: tokens, bytes, name,
one line each, with a total for several.`,
		Example: `  warmpath tokenizer count --vocab qwen3.wpv README.md docs/*.md
  git diff | warmpath tokenizer count --vocab qwen3.wpv`,
		RunE: func(cmd *cobra.Command, args []string) error {
			enc, err := openVocabulary(vocabulary)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{"-"}
			}
			lines := json.NewEncoder(cmd.OutOrStdout())
			show := func(name string, tokens, size int) error {
				if asJSON {
					return lines.Encode(map[string]any{"name": name, "tokens": tokens, "bytes": size})
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%9d %10d %s\n", tokens, size, name)
				return nil
			}
			var ids []uint32
			tokens, size := 0, 0
			for _, name := range args {
				var text []byte
				if name == "-" {
					text, err = readText(cmd.InOrStdin())
				} else {
					text, err = os.ReadFile(name)
				}
				if err != nil {
					return fmt.Errorf("read the input: %w", err)
				}
				ids, _ = enc.Encode(ids[:0], text, bpe.Options{AddSpecial: special})
				if err := show(name, len(ids), len(text)); err != nil {
					return err
				}
				tokens, size = tokens+len(ids), size+len(text)
			}
			if len(args) > 1 {
				return show("total", tokens, size)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&vocabulary, "vocab", "", "compiled vocabulary (a tokenizer.json works too, slower)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a text")
	cmd.Flags().BoolVar(&special, "special", false, "count the tokens that belong around a completion's prompt (BOS) too")
	return cmd
}
