package text

import "math/bits"

// answerWords are at most five letters, so that each, with its leading space,
// is exactly one token.
var answerWords = [...]string{
	"the", "order", "was", "sent", "on", "time", "and", "it", "will", "reach", "you", "soon", "after", "that",
	"we", "can", "check", "if", "any", "part", "needs", "a", "new", "label", "or", "more", "care", "in", "this",
	"case", "first", "open", "page", "then", "go", "to", "main", "view", "look", "for", "small", "icon", "near",
	"top", "press", "once", "wait", "until", "green", "light", "shows", "some", "users", "find", "easy", "start",
	"over", "when", "field", "shows", "no", "value", "there", "are", "three", "ways", "of", "doing", "so", "each",
	"with", "own", "limit", "cost", "plan", "under", "which", "team", "works", "may", "need", "right", "role",
	"read", "only", "keys", "do", "not", "allow", "write", "calls", "but", "they", "help", "you", "see", "how",
	"much", "space", "is", "left", "today", "since", "last", "week", "your", "usage", "grew", "by", "half", "from",
	"here", "at", "about", "five", "times", "what", "old", "site", "could", "carry", "let", "me", "know", "short",
	"list", "like", "than", "long", "one",
}

// Fingerprint sums a whole prompt up in 64 bits; the answer depends on it
// alone, so every worker and every routing policy gives the same answer.
func Fingerprint(prompt []Token) uint64 {
	h := uint64(len(prompt)) + 0x9e3779b97f4a7c15
	for _, t := range prompt {
		hi, lo := bits.Mul64(h^uint64(t), 0xa0761d6478bd642f)
		h = hi ^ lo
	}
	return h
}

// AppendAnswer appends the answer of exactly tokens tokens to a prompt with
// this fingerprint. It holds only letters, spaces and full stops: nothing that
// JSON would escape.
func AppendAnswer(dst []byte, fingerprint uint64, tokens int) []byte {
	state := fingerprint | 1
	sentence := 0
	for i := range tokens {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		if sentence >= 7 && i < tokens-1 && state>>60 < 3 || sentence > 0 && i == tokens-1 {
			dst = append(dst, '.')
			sentence = 0
			continue
		}
		if i > 0 {
			dst = append(dst, ' ')
		}
		at := len(dst)
		dst = append(dst, answerWords[(state>>20)%uint64(len(answerWords))]...)
		if sentence == 0 {
			dst[at] -= 'a' - 'A'
		}
		sentence++
	}
	return dst
}
