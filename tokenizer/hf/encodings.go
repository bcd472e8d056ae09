package hf

import (
	"maps"
	"slices"
)

// encodings are tiktoken's published ones (tiktoken_ext/openai_public.py).
var encodings = map[string]Ranks{
	"r50k_base": {Pattern: "gpt2", Special: map[string]uint32{"<|endoftext|>": 50256}},
	"p50k_base": {Pattern: "gpt2", Special: map[string]uint32{"<|endoftext|>": 50256}},
	"cl100k_base": {Pattern: "cl100k-tail", Special: map[string]uint32{
		"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276,
	}},
	"o200k_base": {Pattern: "o200k", Special: map[string]uint32{"<|endoftext|>": 199999, "<|endofprompt|>": 200018}},
}

// Encoding returns what belongs to a rank file by the name of its encoding, such as
// "cl100k_base". It tells by false that it does not know the name; Encodings lists them.
func Encoding(name string) (Ranks, bool) {
	r, ok := encodings[name]
	return Ranks{Pattern: r.Pattern, Special: maps.Clone(r.Special)}, ok
}

// Encodings returns the names that Encoding knows.
func Encodings() []string { return slices.Sorted(maps.Keys(encodings)) }
