package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

const copyBytes = 24

// Copy is one record of the COPIES section: a hot prefix whose copy at a worker is being made in
// slices, and the gateway that makes it. It goes with LOADS, as HOMES does, where the worker isn't
// until it has its copy.
//
//	offset size
//	0      8    fingerprint of the prefix
//	8      4    its length in units, > 0
//	12     1    pool: index in the policy
//	13     1    0
//	14     2    ref of the worker, > 0
//	16     8    maker: MakerOf the gateway's name
type Copy struct {
	Fingerprint uint64
	Units       uint32
	Pool        uint8
	Ref         uint16
	Maker       uint64
}

// AppendCopy appends the 24 bytes of c.
func AppendCopy(b []byte, c *Copy) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.Fingerprint)
	b = binary.LittleEndian.AppendUint32(b, c.Units)
	b = append(b, c.Pool, 0)
	b = binary.LittleEndian.AppendUint16(b, c.Ref)
	return binary.LittleEndian.AppendUint64(b, c.Maker)
}

// ForEachCopy calls f for the records of a COPIES payload. c is valid during the call.
func ForEachCopy(b []byte, f func(c *Copy) error) error {
	n, err := records(b, copyBytes, "copies")
	if err != nil {
		return err
	}
	var c Copy
	for i := range n {
		record := b[i*copyBytes:]
		c = Copy{
			Fingerprint: binary.LittleEndian.Uint64(record), Units: binary.LittleEndian.Uint32(record[8:]), Pool: record[12],
			Ref: binary.LittleEndian.Uint16(record[14:]), Maker: binary.LittleEndian.Uint64(record[16:]),
		}
		switch {
		case c.Units == 0:
			return fault(i*copyBytes+8, "copies: no units")
		case c.Ref == 0:
			return fault(i*copyBytes+14, "copies: ref 0 names no worker")
		}
		if err := f(&c); err != nil {
			return err
		}
	}
	return nil
}

// MakerOf is what a COPIES record calls a gateway, by the name that its batches give: a longer one
// is cut as theirs is.
func MakerOf(gateway string) uint64 {
	return fingerprint.Hash(gateway[:min(len(gateway), MaxGatewayName)])
}

// Copies is the payload of the COPIES section that came with the last LOADS, empty for none.
func (k Keys) Copies() string { return k.prefix + "copies" }

// Copying is the copies of hot prefixes that the gateway's VMs are making.
func (k Keys) Copying() string { return k.prefix + "copying" }
