package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/table"
)

const homeFixed = 16

// Home is one record of the HOMES section: a hot prefix and the workers that shall hold it. It
// goes with LOADS, as CACHES does.
//
//	offset size
//	0      8    fingerprint of the prefix
//	8      4    its length in units, > 0
//	12     1    pool: index in the policy
//	13     1    0
//	14     2    n, the length of the bitmap, at most 8,192
//	16     n    bitmap over refs (bit r%8 of byte r/8 for ref r)
type Home struct {
	Fingerprint uint64
	Units       uint32
	Pool        uint8
	Bitmap      []byte
}

// AppendHome appends a record; a bitmap beyond all refs is cut.
func AppendHome(b []byte, h *Home) []byte {
	bitmap := h.Bitmap[:min(len(h.Bitmap), table.MaxBitmapBytes)]
	b = binary.LittleEndian.AppendUint64(b, h.Fingerprint)
	b = binary.LittleEndian.AppendUint32(b, h.Units)
	b = append(b, h.Pool, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(bitmap)))
	return append(b, bitmap...)
}

// ForEachHome calls f for the records of a HOMES payload. h and its Bitmap are valid during the
// call.
func ForEachHome(b []byte, f func(h *Home) error) error {
	var h Home
	for offset := 0; offset < len(b); {
		rest := b[offset:]
		if len(rest) < homeFixed {
			return fault(len(b), "homes: record cut short")
		}
		n := int(binary.LittleEndian.Uint16(rest[14:]))
		h = Home{Fingerprint: binary.LittleEndian.Uint64(rest), Units: binary.LittleEndian.Uint32(rest[8:]), Pool: rest[12]}
		switch {
		case h.Units == 0:
			return fault(offset+8, "homes: no units")
		case n > table.MaxBitmapBytes:
			return fault(offset+14, "homes: bitmap longer than all refs")
		case len(rest) < homeFixed+n:
			return fault(len(b), "homes: bitmap cut short")
		}
		h.Bitmap = rest[homeFixed : homeFixed+n : homeFixed+n]
		if err := f(&h); err != nil {
			return err
		}
		offset += homeFixed + n
	}
	return nil
}

// Refs calls f for the workers of a record, ascending.
func (h *Home) Refs(f func(ref uint16)) {
	for i, byte8 := range h.Bitmap {
		for bit := range 8 {
			if byte8>>bit&1 != 0 {
				f(uint16(i*8 + bit))
			}
		}
	}
}

// Homes is the payload of the HOMES section that came with the last LOADS, empty for none.
func (k Keys) Homes() string { return k.prefix + "homes" }
