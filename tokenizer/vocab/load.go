package vocab

import (
	"encoding/binary"
	"hash"

	"github.com/minio/highwayhash"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
)

// sumKey is the key of the checksum. It names the format's purpose; changing it is a new version.
var sumKey = []byte("warmpath vocabulary, version 1..")

const sumFrom = 24 // what the checksum covers begins here

func parseHeader(b []byte) (header, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < headerBytes:
		return header{}, fault(len(b), "header cut short")
	case string(b[:4]) != "WPV1":
		return header{}, fault(0, "no .wpv file: wrong magic; compile tokenizer.json with `warmpath tokenizer compile`")
	case le.Uint16(b[4:]) != Version:
		return header{}, fault(4, "unknown version; compile tokenizer.json again with this warmpath")
	}
	h := header{
		flags: le.Uint16(b[6:]), size: int(le.Uint32(b[24:])),
		kind: b[28], slotBits: b[29], wholeBits: b[30],
		indexes: int(le.Uint32(b[32:])), text: int(le.Uint32(b[36:])), ids: int(le.Uint32(b[40:])),
		longest: int(le.Uint16(b[44:])), addedRaw: int(le.Uint16(b[46:])), addedNormal: int(le.Uint16(b[48:])),
		before: int(b[50]), after: int(b[51]),
	}
	copy(h.sum[:], b[8:24])
	switch {
	case h.flags&^knownFlags != 0:
		return header{}, fault(6, "unknown flags")
	case h.size < headerBytes || h.size > MaxFileBytes:
		return header{}, fault(24, "impossible size")
	case !pretoken.Kind(h.kind).Known():
		return header{}, fault(28, "unknown pre-tokenizer; use a newer warmpath")
	case h.slotBits < 8 || h.slotBits > 21:
		return header{}, fault(29, "slot table of an impossible size")
	case h.wholeBits > 21 || (h.wholeBits > 0) != (h.flags&FlagWhole != 0) && h.wholeBits > 0:
		return header{}, fault(30, "table of whole pieces of an impossible size")
	case h.indexes > MaxIndexes || h.indexes >= 1<<h.slotBits:
		return header{}, fault(32, "too many tokens for the slot table")
	case h.text < paddingBytes || h.text > MaxFileBytes:
		return header{}, fault(36, "impossible size of the text")
	case h.ids > MaxFileBytes/4 || h.flags&FlagIDs == 0 && h.ids < h.indexes:
		return header{}, fault(40, "impossible highest id")
	case h.longest < 1 || h.longest > MaxTokenBytes:
		return header{}, fault(44, "impossible longest token")
	case h.before > MaxEnclosing || h.after > MaxEnclosing:
		return header{}, fault(50, "too many enclosing ids")
	}
	h.layout()
	if h.atText+h.text != h.size {
		return header{}, fault(24, "size does not follow from the counts")
	}
	return h, nil
}

// Size reads how many bytes the file has whose beginning b is, at least 64 bytes.
func Size(b []byte) (int, error) {
	h, err := parseHeader(b)
	return h.size, err
}

// Load checks a whole file and returns its vocabulary, whose tables alias file: the caller
// must not change it. Where the tables cannot alias (big-endian machines, a slice that does not
// begin at a multiple of four) they are copied.
func Load(file []byte) (*Vocab, error) {
	l, err := NewLoader(len(file))
	if err != nil {
		return nil, err
	}
	l.file = file
	for from := 0; from < len(file); from += hashStep {
		if err := l.accept(min(from+hashStep, len(file))); err != nil {
			return nil, err
		}
	}
	return l.Finish()
}

const hashStep = 256 << 10

// Loader receives a file in shards: Write copies and hashes one shard, Finish checks the
// checksum and every table. The work of a Write is that of its bytes; that of Finish is one
// pass over the numbers, about 2 ns a token.
type Loader struct {
	file   []byte
	have   int
	header header
	digest hash.Hash
}

// NewLoader returns a loader for a file of so many bytes, and allocates them at once.
func NewLoader(size int) (*Loader, error) {
	if size < headerBytes || size > MaxFileBytes {
		return nil, fault(0, "impossible size")
	}
	digest, err := highwayhash.New128(sumKey)
	if err != nil {
		return nil, err
	}
	return &Loader{digest: digest, file: nil, have: 0, header: header{size: size}}, nil
}

// Size returns the size of the whole file, Have how much of it has been written.
func (l *Loader) Size() int { return l.header.size }

// Have returns how many bytes have been written.
func (l *Loader) Have() int { return l.have }

// Write takes the next shard, of any size up to what is missing.
func (l *Loader) Write(shard []byte) error {
	size := l.header.size
	if len(shard) > size-l.have {
		return fault(l.have, "more bytes than announced")
	}
	if l.file == nil {
		l.file = make([]byte, size)
	}
	copy(l.file[l.have:], shard)
	return l.accept(l.have + len(shard))
}

// accept hashes l.file[have:to], and parses the header once it is there.
func (l *Loader) accept(to int) error {
	from := l.have
	if from < headerBytes && to >= headerBytes {
		h, err := parseHeader(l.file[:headerBytes])
		if err != nil {
			return err
		}
		if h.size != l.header.size {
			return fault(24, "another size than announced")
		}
		l.header = h
	}
	if to > sumFrom {
		if _, err := l.digest.Write(l.file[max(from, sumFrom):to]); err != nil {
			return err
		}
	}
	l.have = to
	return nil
}

// Finish returns the vocabulary, or what is wrong with the bytes. The loader is of no use
// afterwards.
func (l *Loader) Finish() (*Vocab, error) {
	if l.have != l.header.size {
		return nil, fault(l.have, "cut short")
	}
	var sum [16]byte
	if string(l.digest.Sum(sum[:0])) != string(l.header.sum[:]) {
		return nil, fault(8, "wrong checksum; transfer or compile it again")
	}
	return view(l.file, &l.header)
}

// Hash returns the name of a file without looking at its tables, see Vocab.Hash. It trusts the
// checksum in the header.
func Hash(file []byte) (string, error) {
	h, err := parseHeader(file)
	if err != nil {
		return "", err
	}
	return (&Vocab{sum: h.sum}).Hash(), nil
}

// view makes the tables and checks all that the encoder relies on: offsets ascend and lie
// within their sections, every lookup ends at an empty slot, every index and id is within
// bounds, ones and bytes agree.
func view(file []byte, h *header) (*Vocab, error) {
	raw := addedTable(file[h.atAdded:h.atByID], h.addedRaw+h.addedNormal)
	v := &Vocab{
		Flags: h.flags, Kind: pretoken.Kind(h.kind), Longest: h.longest, IDs: h.ids,
		Ends: words(file[h.atEnds:h.atSlots]), Text: file[h.atText:h.size:h.size],
		Ones: words(file[h.atOne:h.atSafe]), Safe: words(file[h.atSafe:h.atIDs]),
		RawAdded: raw[:h.addedRaw:h.addedRaw], NormalAdded: raw[h.addedRaw:],
		slots: words(file[h.atSlots:h.atWholes]), slotShift: 64 - h.slotBits,
		wholes: words(file[h.atWholes:h.atOne]), wholeBits: h.wholeBits,
		added: raw, byID: words(file[h.atByID:h.atEnclosing]), sum: h.sum, size: h.size,
	}
	half := len(v.Safe) / 2
	v.Safe, v.SafeInside = v.Safe[:half:half], v.Safe[half:]
	enclosing := words(file[h.atEnclosing:h.atText])
	v.Before, v.After = enclosing[:h.before:h.before], enclosing[h.before:]
	if h.flags&FlagIDs != 0 {
		v.ToID = words(file[h.atIDs:h.atIndexes])
		v.toIndex = words(file[h.atIndexes:h.atAdded])
	}
	if err := v.check(h); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *Vocab) check(h *header) error {
	last := v.Ends[0]
	if last != 0 {
		return fault(h.atEnds, "tokens do not begin at 0")
	}
	for i, end := range v.Ends {
		if end-last > uint32(h.longest) { // also when end < last
			return fault(h.atEnds+4*i, "token longer than the longest")
		}
		last = end
	}
	if int64(last) > int64(h.text-paddingBytes) {
		return fault(h.atEnds, "tokens end beyond the text")
	}
	indexes := uint32(h.indexes)
	if at := checkSlots(v.slots, indexes, indexMask); at >= 0 {
		return fault(h.atSlots+4*at, "slot table full, or a slot without token")
	}
	if at := checkSlots(v.wholes, indexes, 1<<32-1); at >= 0 {
		return fault(h.atWholes+4*at, "table of whole pieces full, or a slot without token")
	}
	for i, index := range v.Ones {
		if index == None && !neverInUTF8(byte(i)) || index != None && index >= indexes {
			return fault(h.atOne+4*i, "byte without token")
		}
	}
	ids := uint32(h.ids)
	for i, id := range v.ToID {
		if id >= ids {
			return fault(h.atIDs+4*i, "id too high")
		}
	}
	for i, index := range v.toIndex {
		if index != None && index >= indexes {
			return fault(h.atIndexes+4*i, "index too high")
		}
	}
	if err := v.checkAdded(h); err != nil {
		return err
	}
	for i := range v.Before {
		if v.Before[i] >= ids {
			return fault(h.atEnclosing+4*i, "enclosing id too high")
		}
	}
	for i := range v.After {
		if v.After[i] >= ids {
			return fault(h.atEnclosing+4*(h.before+i), "enclosing id too high")
		}
	}
	return nil
}

// checkSlots returns where a table has an index that does not exist, 0 if it has no empty slot
// (a search would not end), and -1 if all is well.
func checkSlots(slots []uint32, indexes, mask uint32) int {
	empty := 0
	for i, slot := range slots {
		if slot == emptySlot {
			empty++
		} else if slot&mask >= indexes {
			return i
		}
	}
	if empty == 0 && len(slots) > 0 {
		return 0
	}
	return -1
}

func (v *Vocab) checkAdded(h *header) error {
	for i := range v.added {
		a, at := &v.added[i], h.atAdded+i*addedBytes
		switch {
		case int64(a.ID) >= int64(h.ids):
			return fault(at, "id of an added token too high")
		case a.Bytes == 0 || int64(a.Content)+int64(a.Bytes) > int64(h.text):
			return fault(at+4, "added token beyond the text")
		case a.Flags&^knownAddedFlags != 0:
			return fault(at+10, "unknown flags of an added token")
		case a.OriginalBytes == 0 || int64(a.Original)+int64(a.OriginalBytes) > int64(h.text):
			return fault(at+12, "added token beyond the text")
		case a.reservedPadding != 0:
			return fault(at+18, "padding is not zero")
		}
		if i > 0 && i != h.addedRaw && string(v.Content(v.added[i-1])) >= string(v.Content(*a)) {
			return fault(at, "added tokens do not ascend")
		}
	}
	for i, at := range v.byID {
		if int64(at) >= int64(len(v.added)) {
			return fault(h.atByID+4*i, "position of an added token too high")
		}
		if i > 0 && v.added[v.byID[i-1]].ID > v.added[at].ID {
			return fault(h.atByID+4*i, "ids of added tokens do not ascend")
		}
	}
	return nil
}

// neverInUTF8 tells bytes that valid UTF-8 does not contain.
func neverInUTF8(b byte) bool { return b == 0xc0 || b == 0xc1 || b >= 0xf5 }
