package ucd

import "unicode/utf8"

// Hangul syllables are put together by arithmetic (Unicode, section 3.12).
const (
	hangulL, hangulV, hangulT, hangulS = 0x1100, 0x1161, 0x11A7, 0xAC00
	countL, countV, countT             = 19, 21, 28
	countS                             = countL * countV * countT
)

// longestMapping is the most code points that one decomposes to.
const longestMapping = 4

// property returns the code of r, inert for what is no code point.
func property(r rune) uint8 {
	c := uint32(r)
	if c >= nfcLimit {
		return inert
	}
	block := uint32(nfcIndex[c>>6])
	if c >= 0x10000 {
		block += nfcHigh
	}
	return nfcBlocks[block<<6|c&63]
}

// propertyAt returns the code and length of the code point at text[at], as ClassAt
// does its class.
func propertyAt(text []byte, at int) (uint8, int) {
	if rest := text[at:]; len(rest) >= 3 {
		lead, second, third := uint32(rest[0]), uint32(rest[1])-0x80, uint32(rest[2])-0x80
		switch {
		case lead-0xE1 < 0xC && lead != 0xED && second < 64 && third < 64:
			return nfcBlocks[uint32(nfcIndex[lead&15<<6|second])<<6|third], 3
		case lead-0xC2 < 0x1E && second < 64:
			return nfcBlocks[uint32(nfcIndex[lead&31])<<6|second], 2
		}
	}
	r, size := utf8.DecodeRune(text[at:])
	return property(r), size
}

// classOf numbers the combining class of a property code, 0 for starters. The
// numbers have the order of the classes.
func classOf(code uint8) uint8 {
	if code < nonstarters {
		return 0
	}
	return (code-nonstarters)/3 + 1
}

// decompose writes the full canonical decomposition of r, whose property code is
// given, and returns its length.
func decompose(parts *[longestMapping]rune, r rune, code uint8) int {
	// Marks that decompose never compose again, so their code says No.
	if r < 0xC0 || code >= nonstarters && (code-nonstarters)%3 != decomposes {
		parts[0] = r
		return 1
	}
	if s := r - hangulS; s >= 0 && s < countS {
		parts[0] = hangulL + s/(countV*countT)
		parts[1] = hangulV + s%(countV*countT)/countT
		parts[2] = hangulT + s%countT
		if parts[2] == hangulT {
			return 2
		}
		return 3
	}
	// Only first halves decompose further, so the second ones come out last first.
	n := 1
	var tail [longestMapping]rune
	for {
		first, second, ok := mapped(r)
		if !ok {
			break
		}
		if second != 0 {
			tail[n] = second
			n++
		}
		r = first
	}
	parts[0] = r
	for i := 1; i < n; i++ {
		parts[i] = tail[n-i]
	}
	return n
}

// mapped looks up one step of r's decomposition; second is 0 for a singleton.
func mapped(r rune) (first, second rune, ok bool) {
	c := uint32(r)
	if c-0x2F800 < uint32(len(nfcCompat)) {
		return rune(nfcCompat[c-0x2F800]), 0, true
	}
	if c < 0x10000 {
		low, high := 0, len(nfcFrom)
		for low < high {
			mid := int(uint(low+high) >> 1)
			if nfcFrom[mid] < uint16(c) {
				low = mid + 1
			} else {
				high = mid
			}
		}
		if low < len(nfcFrom) && nfcFrom[low] == uint16(c) {
			return rune(nfcFirst[low]), rune(nfcSecond[low]), true
		}
	}
	if c >= 0xF900 {
		for i := 0; i+2 < len(nfcWide); i += 3 {
			if nfcWide[i] == c {
				return rune(nfcWide[i+1]), rune(nfcWide[i+2]), true
			}
		}
	}
	return 0, 0, false
}

// compose returns the code point that stands for first and second together.
func compose(first, second rune) (rune, bool) {
	code := property(second)
	if first < 0 || code != maybe && (code < nonstarters || (code-nonstarters)%3 != 2) {
		return 0, false
	}
	if v := second - hangulV; v >= 0 && v < countV {
		l := first - hangulL
		return hangulS + (l*countV+v)*countT, l >= 0 && l < countL
	}
	if t := second - hangulT; t > 0 && t < countT {
		s := first - hangulS
		return first + t, s >= 0 && s < countS && s%countT == 0
	}
	if first >= 0x10000 || second >= 0x10000 {
		for i := 0; i+2 < len(nfcWide); i += 3 {
			whole := rune(nfcWide[i])
			if rune(nfcWide[i+1]) == first && rune(nfcWide[i+2]) == second && property(whole) != decomposes {
				return whole, true
			}
		}
		return 0, false
	}
	key := uint32(first)<<16 | uint32(second)
	low, high := 0, len(nfcCompose)
	for low < high {
		mid := int(uint(low+high) >> 1)
		at := nfcCompose[mid]
		if uint32(nfcFirst[at])<<16|uint32(nfcSecond[at]) < key {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(nfcCompose) {
		return 0, false
	}
	at := nfcCompose[low]
	return rune(nfcFrom[at]), uint32(nfcFirst[at])<<16|uint32(nfcSecond[at]) == key
}
