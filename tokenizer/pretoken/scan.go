package pretoken

import "github.com/warmpath/warmpath/tokenizer/ucd"

// wide marks, in ascii, the bytes of longer code points. No ASCII character is a
// mark, so the bit is free there.
const wide = ucd.Mark

// ascii is the class of each byte that is a character, and wide for the others.
var ascii = func() (table [256]ucd.Class) {
	for b := range table {
		table[b] = wide
		if b < 0x80 {
			table[b] = ucd.Of(rune(b))
		}
	}
	return table
}()

// classAt returns the class and the length of the code point at text[at].
func classAt(text []byte, at int) (ucd.Class, int) {
	if class := ascii[text[at]]; class != wide {
		return class, 1
	}
	return ucd.ClassAt(text, at)
}

// plain sorts bytes by what they are to the words of ASCII that all kinds cut alike.
var plain = func() (table [256]uint8) {
	for b := range table {
		switch class := ascii[b]; {
		case class == ucd.Upper:
			table[b] = plainUpper
		case class == ucd.Lower:
			table[b] = plainLower
		case class == wide || b == '\'':
			table[b] = plainUnsure
		}
	}
	return table
}()

const (
	plainEnd    uint8 = iota // ends a word, whatever stands before it
	plainUpper               // A to Z
	plainLower               // a to z
	plainUnsure              // kinds differ
)

// run returns the end of the code points from at on whose class is in set, which
// needs a bit for each.
func run(text []byte, at int, set ucd.Class) int {
	plain := set &^ wide
	for at < len(text) {
		class := ascii[text[at]]
		if class&plain != 0 {
			at++
			continue
		}
		if class != wide {
			break
		}
		class, size := ucd.ClassAt(text, at)
		if class&set == 0 {
			break
		}
		at += size
	}
	return at
}

// runOutside returns the end of the code points from at on whose class is not in set.
func runOutside(text []byte, at int, set ucd.Class) int {
	plain := set | wide
	for at < len(text) {
		class := ascii[text[at]]
		if class&plain == 0 {
			at++
			continue
		}
		if class != wide {
			break
		}
		class, size := ucd.ClassAt(text, at)
		if class&set != 0 {
			break
		}
		at += size
	}
	return at
}

// asciiLetters and asciiSymbols return the end of letters, and of what is no letter,
// number or white space, as far as they are ASCII. They are small enough to be
// inlined, which a call of run or runOutside is not: in the module a call costs as
// much as several bytes.
func asciiLetters(text []byte, at int) int {
	for at < len(text) && ascii[text[at]]&(ucd.Upper|ucd.Lower) != 0 {
		at++
	}
	return at
}

func asciiSymbols(text []byte, at int) int {
	for at < len(text) && ascii[text[at]]&(ucd.Letter|ucd.Number|ucd.Space|wide) == 0 {
		at++
	}
	return at
}

// upTo3Numbers returns the end of \p{N}{0,2} at text[at].
func upTo3Numbers(text []byte, at int) int {
	for n := 1; n < 3 && at < len(text); n++ {
		class, size := classAt(text, at)
		if class != ucd.Number {
			break
		}
		at += size
	}
	return at
}

func isLineEnd(b byte) bool { return b == '\n' || b == '\r' }

// lineEnds returns the end of [\r\n]* at text[at].
func lineEnds(text []byte, at int) int {
	for at < len(text) && isLineEnd(text[at]) {
		at++
	}
	return at
}

// contraction returns the end of (?i:'s|'t|'re|'ve|'m|'ll|'d) at text[at], or at
// where it doesn't match.
func contraction(text []byte, at int) int {
	if len(text)-at < 2 || text[at] != '\'' {
		return at
	}
	next := byte(0)
	if len(text)-at > 2 {
		next = text[at+2]
	}
	switch text[at+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return at + 2
	case 'r', 'v':
		if next|0x20 == 'e' {
			return at + 3
		}
	case 'l':
		if next|0x20 == 'l' {
			return at + 3
		}
	}
	// The long s folds to s; nothing else folds to a letter of these.
	if text[at+1] == 0xC5 && next == 0xBF {
		return at + 3
	}
	return at
}

// spaces returns the end of what \s*[\r\n]+|\s+(?!\S)|\s+ matches at text[at], a
// white space.
//
// The first alternative backs up to the last line end of the white space, wherever
// that is. The second leaves the last character to what follows, unless nothing
// does or only that one is there; the third then takes it.
func spaces(text []byte, at int) int {
	end, last, lines := at, at, at
	for end < len(text) {
		b := text[end]
		if class := ascii[b]; class == ucd.Space {
			last = end
			end++
			if isLineEnd(b) {
				lines = end
			}
			continue
		} else if class != wide {
			break
		}
		class, size := ucd.ClassAt(text, end)
		if class != ucd.Space {
			break
		}
		last = end
		end += size
	}
	switch {
	case lines > at:
		return lines
	case end == len(text) || last == at:
		return end
	}
	return last
}
