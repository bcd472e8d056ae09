// Package pretoken cuts text into the pieces that byte-level BPE merges apart. A
// text travels through Next: the class of the first code points of what is left says
// which alternative of the published pattern matches there, a scan finds where that
// match ends, and the caller goes on from there.
//
// Tokenizers publish these rules as regular expressions with look-ahead, which run
// by backtracking. Here each one is written out by hand: no code point is looked at
// more than a few times, whatever the text (RATIONALE.md), nothing is allocated, and
// ASCII takes one look-up in a table of 256 bytes. What a pattern's engine would have
// found, greediness and backtracking included, is found exactly; where that is not
// plain to see, a comment says how it follows.
package pretoken

// Kind is one published set of pre-tokenisation rules. Compiled vocabularies store
// the number, so a number never changes its meaning.
type Kind uint8

// The kinds. KindOf finds them by their pattern.
const (
	GPT2       Kind = 1 // ByteLevel's own pattern: GPT-2, and tiktoken's r50k and p50k
	CL100K     Kind = 2 // Llama 3, GLM-4, OLMo 2, Phi-4; GPT-4 as Hugging Face has it
	Qwen2      Kind = 3 // Qwen 2 to 3: CL100K with each digit alone
	O200K      Kind = 4 // GPT-4o, gpt-oss, Llama 4, MiniMax M2: words end where their case changes
	Tekken     Kind = 5 // Mistral-Nemo: O200K without contractions, each digit alone
	DeepSeekV3 Kind = 6 // three patterns in a row: digits, ideographs, the rest
	StarCoder  Kind = 7 // each digit alone, then GPT2: StarCoder, SmolLM, Command R
	CL100KTail Kind = 8 // CL100K as tiktoken has it: white space at the end is one piece
	Qwen35     Kind = 9 // Qwen 3.5: Qwen2 with marks in words

	KimiK2 Kind = 10 // O200K with the Han script apart, as tiktoken runs it
)

// Known reports whether Next has the rules of k.
func (k Kind) Known() bool { return k >= GPT2 && k <= KimiK2 }

// Next returns where the piece that begins at text[at] ends: more than at, unless
// at is the end of text. text must be valid UTF-8 and at the end of the piece before
// (or 0); all calls over one text together take linear time. Of an unknown kind the
// whole rest is one piece.
func Next(k Kind, text []byte, at int) int {
	if uint(at) >= uint(len(text)) || !k.Known() {
		return len(text)
	}
	// " ?[A-Z]*[a-z]+| ?[A-Z]+" is a piece of every kind, and most of what there is to
	// cut, where a character of ASCII follows that is no letter and no apostrophe.
	rest := text[at:]
	start := 0
	if rest[0] == ' ' {
		start = 1
	}
	end := start
	for end < len(rest) && plain[rest[end]] == plainUpper {
		end++
	}
	for end < len(rest) && plain[rest[end]] == plainLower {
		end++
	}
	if end > start && (end == len(rest) || plain[rest[end]] == plainEnd) {
		return at + end
	}
	switch k {
	case CL100K:
		return cl100k(text, at, 0)
	case Qwen2:
		return cl100k(text, at, singleDigits)
	case O200K:
		return o200k(text, at, contractions)
	case Tekken:
		return o200k(text, at, singleDigits)
	case DeepSeekV3:
		return deepSeek(text, at)
	case GPT2:
		return gpt2(text, at, 0)
	case StarCoder:
		return gpt2(text, at, singleDigits)
	case CL100KTail:
		return cl100k(text, at, tail)
	case KimiK2:
		return kimi(text, at)
	case Qwen35:
		return cl100k(text, at, singleDigits|marks)
	}
	return len(text)
}

// variant is what sets kinds of one family apart.
type variant uint8

const (
	singleDigits variant = 1 << iota // \p{N} where others have \p{N}{1,3} or \p{N}+
	contractions                     // a word takes a 's or 'll after it along
	marks                            // marks count as letters
	tail                             // \s++$ stands before the other white space
)
