// Package vocab is the compiled vocabulary of a byte-level BPE tokenizer: one flat file (.wpv)
// that is used where it lies, without a pointer or an allocation per token.
//
// A vocabulary travels through it like this: tokenizer/hf reads a tokenizer.json or a rank file
// into a Spec; Compile turns the Spec into the bytes of a file; Load (a whole file) or a Loader
// (shard by shard, bounded work per call) checks those bytes and returns a Vocab whose tables
// are views into them; tokenizer/bpe encodes and decodes with these tables.
//
// The file holds no pair table. Merging asks one question, "which token are these bytes, and
// how early was it merged?", and the answer is one number: tokens are numbered by merge rank,
// so the number is both. Why asking by bytes gives the same ids as asking by pairs is proved
// in compile.go.
package vocab

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"unsafe"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
)

const (
	// Version of the file format that Compile writes and Load reads.
	Version = 1
	// None is "no such token", as an index and as an id.
	None = 1<<32 - 1

	// MaxFileBytes bounds a file, as the policy does: 200,000 tokens take about 4.3 MB.
	MaxFileBytes = 12 << 20
	// MaxTokenBytes bounds one token. Known vocabularies end at 128 bytes.
	MaxTokenBytes = 1024
	// MaxIndexes bounds the number of BPE tokens: an index has 20 bits in a slot.
	MaxIndexes = 1<<indexBits - 1
	// MaxAdded bounds the added tokens.
	MaxAdded = 1 << 16
	// MaxEnclosing bounds the ids put before, and the ids put after, a text.
	MaxEnclosing = 16

	indexBits = 20
	tagBits   = 32 - indexBits
	indexMask = 1<<indexBits - 1
	emptySlot = 1<<32 - 1
)

// Flags of a file.
const (
	// FlagNFC: text is brought into normalization form C before it is cut into pieces.
	FlagNFC = 1
	// FlagWhole: a piece that is a token is that token, even where merging would not make it
	// ("ignore_merges" of Llama 3, and what tiktoken does).
	FlagWhole = 2
	// FlagPrefixSpace: a text between added tokens that does not begin with a space gets one.
	FlagPrefixSpace = 4
	// FlagIDs: ids are not indexes; the sections that translate are present.
	FlagIDs = 8

	knownFlags = FlagNFC | FlagWhole | FlagPrefixSpace | FlagIDs
)

// Flags of an added token.
const (
	// AddedSpecial: a control token, dropped by decoders that skip special tokens.
	AddedSpecial = 1
	// AddedLStrip: white space before the token belongs to it.
	AddedLStrip = 2
	// AddedRStrip: white space after the token belongs to it.
	AddedRStrip = 4
	// AddedSingleWord: matches only where no word character touches it.
	AddedSingleWord = 8

	knownAddedFlags = AddedSpecial | AddedLStrip | AddedRStrip | AddedSingleWord
)

// Added is one entry of the table of added tokens.
//
//	offset size
//	0      4    id
//	4      4    where its content begins in the text section
//	8      2    bytes of content, at least 1
//	10     2    flags
//	12     4    where its original content begins: differs for a token that is matched after
//	            normalization; same length rules
//	16     2    bytes of original content
//	18     2    0
type Added struct {
	ID                             uint32
	Content                        uint32
	Bytes, Flags                   uint16
	Original                       uint32
	OriginalBytes, reservedPadding uint16
}

const (
	headerBytes  = 64
	addedBytes   = 20
	paddingBytes = 16
)

// header is the first 64 bytes of a file. All sections follow in the order of layout, without
// gaps; their sizes follow from the counts.
//
//	offset size
//	0      4    magic "WPV1"
//	4      2    version, 1
//	6      2    flags: 1 NFC, 2 whole pieces, 4 prefix space, 8 ids
//	8      16   checksum: HighwayHash-128 of all bytes from offset 24; it is the vocabulary's name
//	24      4   bytes of the file
//	28      1   pre-tokenizer, a pretoken.Kind
//	29      1   bits of the slot table, 8 to 21
//	30      1   bits of the table of whole pieces, 0 to 21; 0 = no such table
//	31      1   0
//	32      4   indexes: number of BPE tokens, with holes
//	36      4   bytes of the text section, its 16 zero bytes included
//	40      4   one more than the highest id
//	44      2   longest token in bytes
//	46      2   added tokens that are matched before normalization
//	48      2   added tokens that are matched after it
//	50      1   ids before a text (BOS)
//	51      1   ids after a text (EOS)
//	52     12   0
type header struct {
	flags                            uint16
	sum                              [16]byte
	size                             int
	kind, slotBits, wholeBits        uint8
	indexes, text, ids               int
	longest, addedRaw, addedNormal   int
	before, after                    int
	atEnds, atSlots, atWholes, atOne int
	atSafe, atIDs, atIndexes         int
	atAdded, atByID, atEnclosing     int
	atText                           int
}

// layout computes where the sections begin.
//
//	ends     indexes+1 x u32   end of each token in the text section; [0] = 0
//	slots    2^bits x u32      hash table over the bytes of the tokens that merging makes
//	wholes   2^bits x u32      the same over tokens that only a whole piece can be
//	ones     256 x u32         index of each byte's token
//	safe     one bit an index in u32: characters that always merge first (compile.go)
//	inside   the same: characters that merge first between characters that are not ASCII
//	ids      indexes x u32     id of each index              (only with flag 8)
//	indexes  ids x u32         index of each id              (only with flag 8)
//	added    20 bytes each     sorted by content: first the raw ones, then the normalized ones
//	by id    u32 each          positions in the added table, ascending by id
//	enclosing u32 each         ids before, ids after
//	text                       the tokens by index, then the contents of added tokens, then 16
//	                           zero bytes, so that eight bytes can be read from any place
func (h *header) layout() {
	added := h.addedRaw + h.addedNormal
	h.atEnds = headerBytes
	h.atSlots = h.atEnds + 4*(h.indexes+1)
	h.atWholes = h.atSlots + 4<<h.slotBits
	h.atOne = h.atWholes
	if h.wholeBits > 0 {
		h.atOne += 4 << h.wholeBits
	}
	h.atSafe = h.atOne + 4*256
	h.atIDs = h.atSafe + 2*4*((h.indexes+31)/32)
	h.atIndexes = h.atIDs
	h.atAdded = h.atIDs
	if h.flags&FlagIDs != 0 {
		h.atIndexes += 4 * h.indexes
		h.atAdded = h.atIndexes + 4*h.ids
	}
	h.atByID = h.atAdded + addedBytes*added
	h.atEnclosing = h.atByID + 4*added
	h.atText = h.atEnclosing + 4*(h.before+h.after)
}

// Vocab is a loaded vocabulary. It is read only and may be shared; its tables are views into
// the file's bytes. Index stands for the position of a token in merge order.
type Vocab struct {
	// Flags are those of the file.
	Flags uint16
	// Kind is the pre-tokenizer.
	Kind pretoken.Kind
	// Longest is the length of the longest BPE token in bytes.
	Longest int
	// IDs is one more than the highest id, added tokens included.
	IDs int
	// Before and After are the ids that enclose a text that is encoded with special tokens.
	Before, After []uint32
	// Ends holds the end of each token in Text; token i is Text[Ends[i]:Ends[i+1]], empty for a
	// hole.
	Ends []uint32
	// Text is the bytes of all tokens.
	Text []byte
	// Ones is the index of each byte's token, None for bytes that never occur in UTF-8.
	Ones []uint32
	// Safe has one bit an index: the token is one character that merges before anything else
	// can touch its bytes, wherever it stands. SafeInside: the same where neither neighbour is
	// ASCII.
	Safe, SafeInside []uint32
	// ToID translates indexes to ids; nil if they are the same.
	ToID []uint32
	// RawAdded are the added tokens found before normalization, NormalAdded those found after
	// it, each ascending by content.
	RawAdded, NormalAdded []Added

	toIndex   []uint32
	slots     []uint32
	slotShift uint8
	wholes    []uint32
	wholeBits uint8
	byID      []uint32
	added     []Added
	sum       [16]byte
	size      int
}

// Hash returns the vocabulary's name, 32 hexadecimal digits: the HighwayHash-128 of everything
// in the file that matters.
func (v *Vocab) Hash() string { return hex.EncodeToString(v.sum[:]) }

// Sum returns the 16 bytes that Hash spells.
func (v *Vocab) Sum() [16]byte { return v.sum }

// Bytes returns the size of the file, which is also what the vocabulary occupies in memory.
func (v *Vocab) Bytes() int { return v.size }

// Multiplier is the base of the hash of a token's bytes: h = 0, then for each byte
// h = (h + byte + 1) * Multiplier modulo 2^64. So the hash of any part of a text is
// prefix[j] - prefix[i]*Multiplier^(j-i), one multiplication whatever its length.
const Multiplier = 0x9e3779b97f4a7c15

// HashBytes returns the hash of b.
func HashBytes(b []byte) uint64 {
	h := uint64(0)
	for _, c := range b {
		h = (h + uint64(c) + 1) * Multiplier
	}
	return h
}

// Find returns the index of the token with the bytes b, whose hash is h, among those that
// merging can make, or None.
func (v *Vocab) Find(h uint64, b []byte) uint32 {
	at := h >> (v.slotShift & 63)
	tag := uint32(h>>((v.slotShift-tagBits)&63)) << indexBits
	slots := v.slots
	for {
		slot := slots[at&uint64(len(slots)-1)]
		if (slot^tag)>>indexBits == 0 {
			index := slot & indexMask
			// The last slot value of a tag can be the empty one.
			if index != indexMask && v.is(index, b) {
				return index
			}
		}
		if slot == emptySlot {
			return None
		}
		at++
	}
}

// FindWhole is Find among the tokens that only a whole piece can be.
func (v *Vocab) FindWhole(h uint64, b []byte) uint32 {
	if v.wholeBits == 0 {
		return None
	}
	at := h >> (64 - v.wholeBits)
	for {
		slot := v.wholes[at&uint64(len(v.wholes)-1)]
		if slot == emptySlot {
			return None
		}
		if v.is(slot, b) {
			return slot
		}
		at++
	}
}

func (v *Vocab) is(index uint32, b []byte) bool {
	ends := v.Ends[index : index+2 : index+2]
	from, to := ends[0], ends[1]
	return int(to-from) == len(b) && string(v.Text[from:to]) == string(b)
}

// Table is what Find looks at, for an encoder that does the same in place.
type Table struct {
	// Slots is the hash table: tag << 20 | index, None if empty. The search begins at
	// hash >> Shift and goes on to the next slot until an empty one; the tag is the 12 bits
	// hash >> TagShift.
	Slots []uint32
	// Ends and Text are those of the Vocab. Text has at least eight bytes after the last token.
	Ends            []uint32
	Text            []byte
	Shift, TagShift uint8
}

// Table returns the tables behind Find.
func (v *Vocab) Table() Table {
	return Table{Slots: v.slots, Ends: v.Ends, Text: v.Text, Shift: v.slotShift, TagShift: v.slotShift - tagBits}
}

// ID returns the id of an index.
func (v *Vocab) ID(index uint32) uint32 {
	if v.ToID != nil {
		return v.ToID[index]
	}
	return index
}

// Token returns the bytes of a BPE token, empty if id is none.
func (v *Vocab) Token(id uint32) []byte {
	if v.toIndex != nil {
		if int64(id) >= int64(len(v.toIndex)) {
			return nil
		}
		if id = v.toIndex[id]; id == None {
			return nil
		}
	}
	if int64(id)+1 >= int64(len(v.Ends)) {
		return nil
	}
	return v.Text[v.Ends[id]:v.Ends[id+1]]
}

// FindAdded returns the added token with this id.
func (v *Vocab) FindAdded(id uint32) (Added, bool) {
	lo, hi := 0, len(v.byID)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if v.added[v.byID[mid]].ID < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(v.byID) && v.added[v.byID[lo]].ID == id {
		return v.added[v.byID[lo]], true
	}
	return Added{}, false
}

// Content returns the bytes that an added token matches.
func (v *Vocab) Content(a Added) []byte { return v.Text[a.Content : a.Content+uint32(a.Bytes)] }

// AppendToken appends the text of an id, added tokens as they were written; nothing for an
// unknown id. With skipSpecial, special tokens append nothing.
func (v *Vocab) AppendToken(dst []byte, id uint32, skipSpecial bool) []byte {
	if a, ok := v.FindAdded(id); ok {
		if skipSpecial && a.Flags&AddedSpecial != 0 {
			return dst
		}
		return append(dst, v.Text[a.Original:a.Original+uint32(a.OriginalBytes)]...)
	}
	return append(dst, v.Token(id)...)
}

// Error says what is wrong with the bytes of a vocabulary and where.
type Error struct {
	// Offset is the position of the first byte that is wrong.
	Offset int
	// What is the fault, and what to do where the user can do something.
	What string
}

func (e *Error) Error() string {
	return "vocabulary: " + e.What + " at offset " + strconv.Itoa(e.Offset)
}

func fault(offset int, what string) error { return &Error{Offset: offset, What: what} }

// littleEndian tells whether a word in memory looks like a word in the file.
var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// words views b as numbers where the machine allows it, and copies elsewhere.
func words(b []byte) []uint32 {
	n := len(b) / 4
	if n == 0 {
		return nil
	}
	if littleEndian && uintptr(unsafe.Pointer(&b[0]))%4 == 0 {
		return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), n)
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func addedTable(b []byte, n int) []Added {
	if n == 0 {
		return nil
	}
	if littleEndian && uintptr(unsafe.Pointer(&b[0]))%4 == 0 {
		return unsafe.Slice((*Added)(unsafe.Pointer(&b[0])), n)
	}
	out := make([]Added, n)
	for i := range out {
		e := b[i*addedBytes:]
		out[i] = Added{
			ID: binary.LittleEndian.Uint32(e), Content: binary.LittleEndian.Uint32(e[4:]),
			Bytes: binary.LittleEndian.Uint16(e[8:]), Flags: binary.LittleEndian.Uint16(e[10:]),
			Original: binary.LittleEndian.Uint32(e[12:]), OriginalBytes: binary.LittleEndian.Uint16(e[16:]),
			reservedPadding: binary.LittleEndian.Uint16(e[18:]),
		}
	}
	return out
}
