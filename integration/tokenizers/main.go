package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/warmpath/warmpath/integration/guests"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `tokenizers judges tokenizer/bpe against Hugging Face tokenizers and tiktoken.

  tokenizers test  [--vocab qwen3,gpt-oss] [--strings 200000] [--json file]
  tokenizers bench [--vocab qwen3] [--rounds 7] [--json file]
  tokenizers golden          train the small vocabularies of make test, write their goldens
  tokenizers fetch           fill the cache and print where things are

It needs Go, Python 3.10 with venv and pip, Node 20 with npm; what it fetches and
what the references answered stays in the user's cache directory.`

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(args) == 0 {
		fmt.Fprintln(stderr, usage)
		return 2
	}
	todo := map[string]func(context.Context, []string, io.Writer, io.Writer) error{"test": runTest, "bench": runBench, "golden": runGolden, "fetch": runFetch, "wazero": guests.RunWazero}[args[0]]
	if todo == nil {
		fmt.Fprintf(stderr, "no command %q\n\n%s\n", args[0], usage)
		return 2
	}
	err := todo(ctx, args[1:], stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "tokenizers:", err)
		return 1
	}
	return 0
}

// runFetch fills the cache.
func runFetch(ctx context.Context, _ []string, stdout, _ io.Writer) error {
	c, err := openCache()
	if err != nil {
		return err
	}
	python, err := c.python(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%-14s %s\n", "python", python)
	for _, v := range vocabularies {
		file, err := c.file(ctx, v)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%-14s %s\n", v.Name, file)
	}
	docs, err := c.realTexts(ctx)
	if err != nil {
		return err
	}
	size := 0
	for _, d := range docs {
		size += len(d.Text)
	}
	fmt.Fprintf(stdout, "%-14s %d documents, %.1f MB\n", "real texts", len(docs), float64(size)/1e6)
	return nil
}
