package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	// ShardBytes is the size of a piece of a vocabulary, of all but the last.
	ShardBytes = MaxBody

	vocabulariesMagic  = 0x31565057 // "WPV1"
	vocabulariesHeader = 8
	vocabularyBytes    = 24
)

// Shards is the number of pieces of a vocabulary of that size.
func Shards(bytes int) int { return (bytes + ShardBytes - 1) / ShardBytes }

// ShardSize is the size of piece n of a vocabulary, 0 for a piece that it does not have.
func ShardSize(bytes, n int) int { return max(0, min(ShardBytes, bytes-n*ShardBytes)) }

// Stored is one record of the list of vocabularies in shared data: what the next courier goes on
// from, and what it takes away when the policy names it no longer.
//
//	offset size
//	0      16   hash
//	16     4    size in bytes
//	20     4    pieces that are stored, from 0 on
type Stored struct {
	Vocabulary policy.Vocabulary
	Pieces     int
}

// AppendVocabularies appends the list, at most policy.MaxVocabularies records of it.
//
//	offset size
//	0      4    magic "WPV1"
//	4      1    wire version
//	5      1    n, the number of records
//	6      2    0
//	8      24n  records
func AppendVocabularies(b []byte, list []Stored) []byte {
	list = list[:min(len(list), policy.MaxVocabularies)]
	b = binary.LittleEndian.AppendUint32(b, vocabulariesMagic)
	b = append(b, table.Wire, byte(len(list)), 0, 0)
	for i := range list {
		b = append(b, list[i].Vocabulary.Hash[:]...)
		b = binary.LittleEndian.AppendUint32(b, uint32(list[i].Vocabulary.Bytes))
		b = binary.LittleEndian.AppendUint32(b, uint32(list[i].Pieces))
	}
	return b
}

// DecodeVocabularies appends the records of the list to out.
func DecodeVocabularies(b []byte, out []Stored) ([]Stored, error) {
	switch {
	case len(b) < vocabulariesHeader:
		return out, fault(len(b), "vocabularies: header cut short")
	case binary.LittleEndian.Uint32(b) != vocabulariesMagic:
		return out, fault(0, "vocabularies: wrong magic")
	case b[4] != table.Wire:
		return out, fault(4, "vocabularies: unknown wire version")
	case b[5] > policy.MaxVocabularies || len(b) != vocabulariesHeader+int(b[5])*vocabularyBytes:
		return out, fault(5, "vocabularies: count does not match the length")
	}
	for at := vocabulariesHeader; at < len(b); at += vocabularyBytes {
		r := b[at : at+vocabularyBytes]
		size, pieces := binary.LittleEndian.Uint32(r[16:]), binary.LittleEndian.Uint32(r[20:])
		switch {
		case size == 0 || size > policy.MaxVocabularyBytes:
			return out, fault(at+16, "vocabularies: size out of range")
		case pieces > uint32(Shards(int(size))):
			return out, fault(at+20, "vocabularies: more pieces than there are")
		}
		out = append(out, Stored{policy.Vocabulary{Hash: policy.Hash(r[:16]), Bytes: int(size)}, int(pieces)})
	}
	return out, nil
}

// Ready is one record of the READY section of a batch: how far a gateway has a vocabulary of its
// policy.
//
//	offset size
//	0      16   hash
//	16     2    VMs that have it loaded
//	18     2    pieces in shared data
//	20     4    0
type Ready struct {
	Hash   policy.Hash
	VMs    uint16
	Pieces uint16
}

// AppendReady appends the 24 bytes of r.
func AppendReady(b []byte, r Ready) []byte {
	b = append(b, r.Hash[:]...)
	b = binary.LittleEndian.AppendUint16(b, r.VMs)
	b = binary.LittleEndian.AppendUint16(b, r.Pieces)
	return append(b, 0, 0, 0, 0)
}

// ForEachReady calls f for the records of a READY payload.
func ForEachReady(b []byte, f func(r Ready) error) error {
	n, err := records(b, vocabularyBytes, "ready")
	if err != nil {
		return err
	}
	for i := range n {
		r := b[i*vocabularyBytes:]
		ready := Ready{policy.Hash(r[:16]), binary.LittleEndian.Uint16(r[16:]), binary.LittleEndian.Uint16(r[18:])}
		if err := f(ready); err != nil {
			return err
		}
	}
	return nil
}
