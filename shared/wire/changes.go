package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/table"
)

// Geometry is the GEOMETRY section.
//
//	offset size
//	0      1    bits: the size class
//	1      3    0
//	4      4    entries in the table
type Geometry struct {
	Bits    uint8
	Entries uint32
}

// AppendGeometry appends the 8 bytes of g.
func AppendGeometry(b []byte, g Geometry) []byte {
	return binary.LittleEndian.AppendUint32(append(b, g.Bits, 0, 0, 0), g.Entries)
}

// DecodeGeometry reads a GEOMETRY payload.
func DecodeGeometry(b []byte) (Geometry, error) {
	switch {
	case len(b) != 8:
		return Geometry{}, fault(min(len(b), 8), "geometry: length is not 8")
	case !table.ValidBits(b[0]):
		return Geometry{}, fault(0, "geometry: no such size class")
	}
	return Geometry{Bits: b[0], Entries: binary.LittleEndian.Uint32(b[4:])}, nil
}

// ForEachPut calls f for the entries of a PUTS payload, which table.AppendEntry wrote.
func ForEachPut(b []byte, f func(e *table.Entry) error) error {
	n, err := records(b, table.EntryBytes, "puts")
	if err != nil {
		return err
	}
	var e table.Entry
	for i := range n {
		e = table.DecodeEntry(b[i*table.EntryBytes:])
		if err := f(&e); err != nil {
			return err
		}
	}
	return nil
}

// AppendRemove appends one fingerprint to a REMOVES payload.
func AppendRemove(b []byte, fingerprint uint64) []byte {
	return binary.LittleEndian.AppendUint64(b, fingerprint)
}

// ForEachRemove calls f for the fingerprints of a REMOVES payload.
func ForEachRemove(b []byte, f func(fingerprint uint64) error) error {
	return forEachUint64(b, "removes", func(_ int, v uint64) error { return f(v) })
}

// AppendDigest appends the digest of the next range to a DIGESTS payload. A range's digest is
// the exclusive or of its pages' digests.
func AppendDigest(b []byte, digest uint64) []byte {
	return binary.LittleEndian.AppendUint64(b, digest)
}

// ForEachDigest calls f for the digests of a DIGESTS payload; there are table.Ranges(bits).
func ForEachDigest(b []byte, f func(rangeIndex int, digest uint64) error) error {
	return forEachUint64(b, "digests", f)
}

func forEachUint64(b []byte, name string, f func(i int, v uint64) error) error {
	n, err := records(b, 8, name)
	if err != nil {
		return err
	}
	for i := range n {
		if err := f(i, binary.LittleEndian.Uint64(b[8*i:])); err != nil {
			return err
		}
	}
	return nil
}

// ForEachPage calls f for the pages of a PAGES payload. Every page has passed Check; at most
// table.RangePages are accepted.
func ForEachPage(b []byte, f func(p table.Page) error) error {
	n, err := records(b, table.PageBytes, "pages")
	if err != nil {
		return err
	}
	if n > table.RangePages {
		return fault(table.RangePages*table.PageBytes, "pages: more than one range")
	}
	for i := range n {
		offset := i * table.PageBytes
		p := table.Page(b[offset : offset+table.PageBytes : offset+table.PageBytes])
		if err := p.Check(); err != nil {
			if e, ok := err.(*table.Error); ok {
				return fault(offset+e.Offset, e.What)
			}
			return err
		}
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}
