package pretoken

import "slices"

// The published pattern texts. Where several are applied in a row, KindOf takes them
// in that order.
const (
	// PatternByteLevel is what the ByteLevel pre-tokeniser applies when use_regex is set.
	PatternByteLevel = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	// PatternDigit stands for what the Digits pre-tokeniser does when individual_digits
	// is set. It is no pattern: a Split by \p{N} knows other digits (see isDigit).
	PatternDigit = "Digits, each alone"

	patternCL100K   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTiktoken = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
	patternR50K     = `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
	patternO200K    = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternKimi = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternNumbers    = `\p{N}{1,3}`
	patternIdeographs = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	patternDeepSeek   = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

var published = []struct {
	kind     Kind
	patterns []string
}{
	{GPT2, []string{PatternByteLevel}},
	{CL100K, []string{patternCL100K}},
	{Qwen2, []string{patternQwen2}},
	{Qwen35, []string{patternQwen35}},
	{O200K, []string{patternO200K}},
	{Tekken, []string{patternTekken}},
	{DeepSeekV3, []string{patternNumbers, patternIdeographs, patternDeepSeek}},
	{StarCoder, []string{PatternDigit, PatternByteLevel}},
}

// Only tiktoken's engine is known to read these as meant: to Hugging Face's, {1,3}+ is
// a repeat of a repeat and $ the end of any line.
var tiktoken = []struct {
	kind    Kind
	pattern string
}{
	{CL100KTail, patternTiktoken},
	{GPT2, patternR50K},
	{KimiK2, patternKimi},
}

// KindOf returns the kind whose patterns, as tokenizer.json has them, these are,
// applied one after the other with unmatched text kept (behavior Isolated; Removed
// with invert is the same where a kind has one pattern, as those leave nothing
// unmatched). The texts must be the same byte for byte: a pattern that only looks
// alike is not known.
func KindOf(patterns ...string) (Kind, bool) {
	for _, p := range published {
		if slices.Equal(p.patterns, patterns) {
			return p.kind, true
		}
	}
	return 0, false
}

// KindOfTiktoken returns the kind of a tiktoken encoding's pat_str.
func KindOfTiktoken(pattern string) (Kind, bool) {
	for _, p := range tiktoken {
		if p.pattern == pattern {
			return p.kind, true
		}
	}
	return KindOf(pattern)
}

// String names the kind as docs and errors do.
func (k Kind) String() string {
	if !k.Known() {
		return "unknown"
	}
	return [...]string{"gpt2", "cl100k", "qwen2", "o200k", "tekken", "deepseek-v3", "starcoder", "cl100k-tail", "qwen3.5", "kimi-k2"}[k-GPT2]
}
