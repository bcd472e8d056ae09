// Package jsontext reads the JSON text of a request without building anything
// from it.
//
// A text travels through it in two steps. Doc.Scan walks the bytes once, checks
// that they are one JSON object, and notes where its members lie and where long
// strings end. From then on indices into the text stand for values: a Walker
// moves from one to the next and need not check anything again, and Decode
// takes the escapes out of a string when its text is wanted.
//
// Everything is bounded whatever the input: one pass for Scan, no recursion, no
// allocation (deep nesting and many strings included).
package jsontext

import "unicode/utf8"

// MaxDepth is how deeply arrays and objects may nest. encoding/json stops at
// 10,000 and Python's parser at about 1,000.
const MaxDepth = 4096

// MaxBytes keeps offsets, and a flag beside them, within 32 bits.
const MaxBytes = 1 << 30

// Fault says why a text was refused.
type Fault uint8

// Faults that Scan finds.
const (
	None      Fault = iota
	Invalid         // not one JSON text (RFC 8259)
	TooDeep         // nested deeper than MaxDepth
	NotObject       // the top level is not an object; the rest was not looked at
	TooLong         // more than MaxBytes
)

// longStringBytes is from where on a string's end is remembered: shorter ones
// are found again faster than looked up.
const longStringBytes = 64

// maxLongStrings bounds that memory (32 KiB). Strings beyond it are searched
// for their end again, nothing else changes.
const maxLongStrings = 4096

// longString is a string whose first byte is text[start].
type longString struct {
	start uint32
	end   uint32 // the closing quote's index; the top bit tells that there are escapes
}

// escBit beside an offset tells that the string holds escapes.
const escBit = 1 << 31

// maxTops is how many top-level members are noted. Those beyond are found by
// walking, which takes longer and gives the same.
const maxTops = 64

// top is a top-level member: where its name and its value lie.
type top struct {
	name    uint32 // first byte after the opening quote
	nameEnd uint32 // the closing quote; with escBit
	value   uint32
	end     uint32
}

// Doc is one scanned text. It is large (about 35 KB) and meant to be used again
// for the next text; it must not be copied. The text must stay as it is for as
// long as the Doc is asked about it.
type Doc struct {
	text    []byte
	stray   bool // bytes 0xF8..0xFF occur in some string
	numTop  int  // all of them, also those that were not noted
	numLong int
	walker  Walker // of Tops
	tops    [maxTops]top
	longs   [maxLongStrings]longString
}

// Text returns the text that was scanned; nil if that failed.
func (d *Doc) Text() []byte { return d.text }

// Stray tells whether a byte that cannot occur in UTF-8 (0xF8 to 0xFF) stands
// in some string.
func (d *Doc) Stray() bool { return d.stray }

// Reset forgets the text.
func (d *Doc) Reset() {
	d.text = nil
	d.stray = false
	d.numTop, d.numLong = 0, 0
}

// noteString remembers where a long string ends.
func (d *Doc) noteString(start, end, flags int) {
	if flags&flagStray != 0 {
		d.stray = true
	}
	if end-start < longStringBytes || d.numLong == maxLongStrings {
		return
	}
	l := longString{uint32(start), uint32(end)}
	if flags&flagEsc != 0 {
		l.end |= escBit
	}
	d.longs[d.numLong] = l
	d.numLong++
}

// Member is one name and value of an object.
type Member struct {
	Name  []byte // decoded; empty where it has escapes and is longer than MaxName; holds until the next call
	Value int    // index of the value's first byte
}

// Tops goes through the members of the top-level object in their order,
// duplicates included: for t := d.Tops(); t.Next(); { ... t.Name ... }.
type Tops struct {
	Member
	End int // index after the value
	doc *Doc
	n   int
}

// Tops returns an iterator before the first member. One at a time may be in use.
func (d *Doc) Tops() Tops {
	d.walker.Reset(d)
	return Tops{doc: d}
}

// Next moves to the next member and tells whether there is one.
func (t *Tops) Next() bool {
	d := t.doc
	if t.n == d.numTop {
		return false
	}
	if t.n < maxTops {
		m := &d.tops[t.n]
		t.Name = d.text[m.name : m.nameEnd&^escBit]
		if m.nameEnd&escBit != 0 {
			t.Name = unescapeName(&d.walker.name, t.Name)
		}
		t.Value, t.End = int(m.value), int(m.end)
	} else {
		t.Member, _ = d.walker.Member(t.End)
		t.End = d.walker.Skip(t.Value)
	}
	t.n++
	return true
}

// MaxName is the longest escaped name that a Member shows, and the longest escaped
// string that Walker.Word does: nothing that means something here is longer.
const MaxName = 32

type nameText [MaxName + utf8.UTFMax]byte
