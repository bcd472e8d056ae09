package pretoken

import "github.com/warmpath/warmpath/tokenizer/ucd"

// deepSeek finds the end of the piece at text[at] by three patterns in a row, each
// cutting what the ones before left whole:
//
//	\p{N}{1,3}
//
//	[一-龥぀-ゟ゠-ヿ]+
//
//	[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+
//	[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//	 ?[\p{P}\p{S}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
// So the third sees a region: text without numbers that is all in the second's set,
// or all outside. What it doesn't match, between two matches, is a piece as well.
func deepSeek(text []byte, at int) int {
	first := text[at]
	class, next := ascii[first], at+1
	region := region{text: text}
	if class == wide {
		var size int
		class, size = ucd.ClassAt(text, at)
		next = at + size
		region.ideographic = ideographic(text, at)
	}
	if class == ucd.Number {
		return upTo3Numbers(text, next)
	}
	var second ucd.Class
	size := 0
	if next < len(text) && text[next] < 0x80 {
		if second = ascii[text[next]]; second != ucd.Number && !region.ideographic {
			size = 1
		} else {
			second = 0
		}
	} else {
		second, size = region.classAt(next)
	}
	switch {
	case class&word != 0:
		return region.run(next, word)
	case class&symbol != 0:
		if first < 0x80 && second&(ucd.Upper|ucd.Lower) != 0 && text[next] < 0x80 {
			return asciiLetters(text, next+1)
		}
		return region.symbols(next)
	case second&word != 0 && !isLineEnd(first):
		return region.run(next+size, word)
	case first == ' ' && second&symbol != 0:
		return region.symbols(next + size)
	case class == ucd.Space:
		return region.spaces(at)
	}
	// Neither of the alternatives begins with this one. The next match does where a
	// word follows the last of its sort.
	last := at
	for size > 0 && second == 0 {
		last = next
		next += size
		second, size = region.classAt(next)
	}
	if size > 0 && second&word != 0 {
		return last
	}
	return next
}

const (
	word   = ucd.Letter | ucd.Mark
	symbol = ucd.Punct | ucd.Symbol
)

// ideographic reports whether the second pattern has the code point at text[at].
func ideographic(text []byte, at int) bool {
	lead := text[at]
	if lead < 0xE3 || lead > 0xE9 || len(text)-at < 3 {
		return false
	}
	switch second := text[at+1]; lead {
	case 0xE3: // U+3040 to U+30FF
		return second >= 0x81 && second <= 0x83
	case 0xE4: // from U+4E00
		return second >= 0xB8
	case 0xE9: // to U+9FA5
		return second < 0xBE || second == 0xBE && text[at+2] <= 0xA5
	}
	return true
}

// region is what the third pattern sees: it ends before a number and where the
// second pattern's set begins or ends.
type region struct {
	text        []byte
	ideographic bool
}

// classAt returns the class and length of the code point at, or 0, 0 at the end.
func (r region) classAt(at int) (ucd.Class, int) {
	if at >= len(r.text) {
		return 0, 0
	}
	class, size := classAt(r.text, at)
	if class == ucd.Number || ideographic(r.text, at) != r.ideographic {
		return 0, 0
	}
	return class, size
}

func (r region) run(at int, set ucd.Class) int {
	text := r.text
	for at < len(text) {
		b := text[at]
		switch {
		case b < 0x80:
			if r.ideographic || ascii[b]&set == 0 {
				return at
			}
			at++
			continue
		case b >= 0xE5 && b <= 0xE8 && r.ideographic && set == word && len(text)-at >= 3:
			at += 3 // letters all, whatever follows the first byte
			continue
		}
		class, size := r.classAt(at)
		if class&set == 0 {
			return at
		}
		at += size
	}
	return at
}

// symbols returns the end of [\p{P}\p{S}]*[\r\n]* at text[at].
func (r region) symbols(at int) int {
	at = r.run(at, symbol)
	if r.ideographic {
		return at
	}
	return lineEnds(r.text, at)
}

// spaces is the function of that name within the region.
func (r region) spaces(at int) int {
	end, last, lines := at, at, at
	for {
		if end < len(r.text) && ascii[r.text[end]] == ucd.Space {
			last = end
			if end++; isLineEnd(r.text[last]) {
				lines = end
			}
			continue
		}
		class, size := r.classAt(end)
		if class != ucd.Space {
			switch {
			case lines > at:
				return lines
			case size == 0 || last == at:
				return end
			}
			return last
		}
		last = end
		end += size
	}
}
