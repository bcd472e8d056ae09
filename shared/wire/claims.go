package wire

import (
	"encoding/binary"
	"time"

	"github.com/warmpath/warmpath/shared/table"
)

const (
	// CopyClaimTime is how long a claim counts that isn't renewed: a VM that dies leaves nothing for ever.
	CopyClaimTime = 5 * time.Second
	// MaxCopyClaims bounds their record: twice what control has one gateway make at a time.
	MaxCopyClaims = 64

	claimsMagic       = 0x4b505057 // "WPPK"
	claimsHeaderBytes = 8
	claimBytes        = 24
)

// CopyClaim says that a VM of the gateway makes a copy of a hot prefix, so that the others don't.
//
//	offset size
//	0      8    fingerprint of the prefix
//	8      8    when it was claimed, or renewed, unix ns
//	16     2    ref of the worker
//	18     6    0
//
// The record begins with 8 bytes: magic "WPPK", wire version, 3 of 0. Claims follow, at most 64.
type CopyClaim struct {
	Fingerprint uint64
	UnixNanos   int64
	Ref         uint16
}

// Live tells whether the claim counts at a time. One from the future, by a clock that was set back,
// does for no longer than any other.
func (c *CopyClaim) Live(now int64) bool {
	age := now - c.UnixNanos
	return age < int64(CopyClaimTime) && age > -int64(CopyClaimTime)
}

// AppendCopyClaims appends the record with its header.
func AppendCopyClaims(b []byte, claims []CopyClaim) []byte {
	b = append(binary.LittleEndian.AppendUint32(b, claimsMagic), table.Wire, 0, 0, 0)
	for i := range claims {
		b = binary.LittleEndian.AppendUint64(b, claims[i].Fingerprint)
		b = binary.LittleEndian.AppendUint64(b, uint64(claims[i].UnixNanos))
		b = append(binary.LittleEndian.AppendUint16(b, claims[i].Ref), 0, 0, 0, 0, 0, 0)
	}
	return b
}

// DecodeCopyClaims appends the claims of a record to out.
func DecodeCopyClaims(b []byte, out []CopyClaim) ([]CopyClaim, error) {
	switch n := len(b) - claimsHeaderBytes; {
	case n < 0:
		return out, fault(len(b), "claims: header cut short")
	case binary.LittleEndian.Uint32(b) != claimsMagic:
		return out, fault(0, "claims: wrong magic")
	case b[4] != table.Wire:
		return out, fault(4, "claims: unknown wire version")
	case n%claimBytes != 0:
		return out, fault(len(b)-n%claimBytes, "claims: claim cut short")
	case n > MaxCopyClaims*claimBytes:
		return out, fault(claimsHeaderBytes+MaxCopyClaims*claimBytes, "claims: more than 64")
	}
	for b = b[claimsHeaderBytes:]; len(b) > 0; b = b[claimBytes:] {
		out = append(out, CopyClaim{
			Fingerprint: binary.LittleEndian.Uint64(b), UnixNanos: int64(binary.LittleEndian.Uint64(b[8:])),
			Ref: binary.LittleEndian.Uint16(b[16:]),
		})
	}
	return out, nil
}

// CopyClaims is the copies of hot prefixes that VMs of the gateway make.
func (k Keys) CopyClaims() string { return k.prefix + "copying" }
