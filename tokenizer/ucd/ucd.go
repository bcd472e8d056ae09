// Package ucd answers what tokenizers ask of the Unicode Character Database: the
// class of a code point and the NFC form of a text. A code point reaches Of or
// ClassAt, which look up one block of 64 by what UTF-8's leading bytes say, and one
// half byte in it; a text reaches NFC, which copies what is normal and rewrites the
// rest, one combining sequence at a time.
//
// The standard library is not used: its tables are Unicode 15, have no general
// categories in one look-up, and weigh ten times as much in the module.
//
// Two versions of Unicode stand here because two stand in Hugging Face's tokenizers
// 0.21 to 0.23, which engines run: categories are Unicode 16 as in its regexp engine,
// NFC is Unicode 9 as in its normaliser. All code points were compared; make
// test-pieces does it again.
package ucd

import "unicode/utf8"

//go:generate go run ../../build/ucd -o tables.go

// Class is a set of general categories. The classes don't overlap, so Of gives one
// bit or none: controls, format characters, private use and unassigned code points
// have none. Sets of several bits are for asking.
type Class uint8

// The classes that published pre-tokeniser patterns name.
const (
	Upper       Class = 1 << iota // \p{Lu} and \p{Lt}
	Lower                         // \p{Ll}
	OtherLetter                   // \p{Lm} and \p{Lo}
	Mark                          // \p{M}
	Number                        // \p{N}
	Space                         // \s: White_Space, so with U+0085, without U+001C to U+001F, U+180E and U+200B
	Punct                         // \p{P}
	Symbol                        // \p{S}

	Letter = Upper | Lower | OtherLetter // \p{L}
)

// Of returns the class of r in Unicode 16. Anything that is no code point has none.
func Of(r rune) Class {
	c := uint32(r)
	if c >= classLimit {
		if c-0xE0100 < 240 { // variation selectors
			return Mark
		}
		return 0
	}
	block := uint32(classIndex[c>>6])
	if c >= 0x10000 {
		block += classHigh
	}
	// A shift by 8 leaves nothing, which is the class of what has none.
	return 1 << (classBlocks[block<<5|c&63>>1] >> (c & 1 << 2) & 15)
}

// ClassAt returns the class of the code point that begins at text[at], and its
// length in bytes. A broken sequence counts one byte and has the class of U+FFFD,
// by which callers should have replaced it.
func ClassAt(text []byte, at int) (Class, int) {
	// Two and three bytes are most of what is not ASCII: their leading bits are the
	// index, their last byte is the place in the block.
	if rest := text[at:]; len(rest) >= 3 {
		lead, second, third := uint32(rest[0]), uint32(rest[1])-0x80, uint32(rest[2])-0x80
		switch {
		case lead-0xE1 < 0xC && lead != 0xED && second < 64 && third < 64: // U+D800 follows in ED
			block := uint32(classIndex[lead&15<<6|second])
			return 1 << (classBlocks[block<<5|third>>1] >> (third & 1 << 2) & 15), 3
		case lead-0xC2 < 0x1E && second < 64:
			block := uint32(classIndex[lead&31])
			return 1 << (classBlocks[block<<5|second>>1] >> (second & 1 << 2) & 15), 2
		}
	}
	r, size := utf8.DecodeRune(text[at:])
	return Of(r), size
}
