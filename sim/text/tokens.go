// Package text is the simulated engine's own view of a prompt: a pseudo
// tokeniser, a chat rendering and the answers it gives.
//
// A prompt travels through it once: a Rendering is started, messages are
// appended as marker and content tokens, Generate closes it with the marker
// that asks for an answer, and Answer makes the text that the engine "decodes".
// The tokens of an answer, read back as an assistant message of the next turn,
// are the very tokens that were decoded, so a follow-up turn finds the blocks
// that its predecessor left in the cache.
//
// It shares no code with the router's tokenizer on purpose: a router that
// counts tokens differently from the engine must be visible in a simulation.
package text

// A Token is a pseudo token id: a hash of the token's bytes. Markers of the
// chat rendering use the top bit, so no text can forge one.
type Token uint32

const markerBit Token = 1 << 31

// Markers of the chat rendering. They are not text: a user who types
// "<|end|>" gets ordinary tokens.
const (
	markEnd       = markerBit | iota // ends a message
	markSystem                       // opens a message of this role, and so on
	markUser                         //
	markAssistant                    //
	markTool                         //
	markOther                        //
	markTools                        // tool definitions follow
	markToolCall                     // one tool call of an assistant message follows
	markImage                        // stands for an image; its digest follows
	markAudio                        //
)

// maxPieceBytes is the longest run of letters, leading space included, that is
// one token. With six, English prose comes to 4.2 bytes a token, close to what
// the large byte-level vocabularies reach.
const maxPieceBytes = 6

const (
	classLetter = iota
	classDigit
	classSpace
	classOther
)

var classOf = func() (table [256]uint8) {
	for i := range table {
		c := byte(i)
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
			table[i] = classLetter
		case c >= '0' && c <= '9':
			table[i] = classDigit
		case c == ' ':
			table[i] = classSpace
		default:
			table[i] = classOther
		}
	}
	return table
}()

const (
	fnvOffset32 = 2166136261
	fnvPrime32  = 16777619
)

// AppendTokens appends the tokens of s to dst. A token is an optional space
// and a run of letters (cut at six bytes), up to three digits, a run of
// spaces, or one other byte.
func AppendTokens[T string | []byte](dst []Token, s T) []Token {
	for i := 0; i < len(s); {
		h := uint32(fnvOffset32)
		start := i
		if s[i] == ' ' {
			h = (h ^ ' ') * fnvPrime32
			i++
			if i < len(s) && classOf[s[i]] == classSpace {
				for i < len(s) && s[i] == ' ' {
					h = (h ^ ' ') * fnvPrime32
					i++
				}
				dst = append(dst, Token(h)&^markerBit)
				continue
			}
			if i == len(s) || classOf[s[i]] != classLetter {
				dst = append(dst, Token(h)&^markerBit)
				continue
			}
		}
		limit := start + maxPieceBytes
		class := classOf[s[i]]
		switch class {
		case classDigit:
			limit = start + 3
		case classOther:
			limit = start + 1
		}
		limit = min(limit, len(s))
		for i < limit && classOf[s[i]] == class {
			h = (h ^ uint32(s[i])) * fnvPrime32
			i++
		}
		dst = append(dst, Token(h)&^markerBit)
	}
	return dst
}

// CountTokens is len(AppendTokens(nil, s)) without the slice.
func CountTokens(s string) int {
	var scratch [64]Token
	n := 0
	for len(s) > 0 {
		// Cut where a token surely ends: before a space that follows a letter.
		end := min(len(s), 200)
		if end < len(s) {
			for end > 1 && !(s[end] == ' ' && classOf[s[end-1]] == classLetter) {
				end--
			}
			if end == 1 {
				end = len(s)
			}
		}
		n += len(AppendTokens(scratch[:0], s[:end]))
		s = s[end:]
	}
	return n
}
