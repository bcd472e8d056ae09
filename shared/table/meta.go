package table

import (
	"encoding/binary"
	"strconv"
)

// MetaBytes is the size of an encoded Meta.
const MetaBytes = 64

const (
	// FlagOff: the whole deployment observes only.
	FlagOff = 1
	// FlagReady: the pages, roster and policy are complete as of Version.
	FlagReady = 2
)

// Meta describes the table that is in shared data; readers look at it first.
//
//	offset size
//	0      4    magic "WPM1"
//	4      1    wire version
//	5      1    bits: the size class
//	6      1    flags: 1 off, 2 ready
//	7      1    0
//	8      8    epoch of the table: changes when control starts a new history
//	16     8    version within the epoch
//	24     8    time of the last successful poll, unix ns
//	32     8    version of the roster
//	40     8    version of the loads
//	48     8    version of the policy
//	56     8    version of the sets
//
// Little endian.
type Meta struct {
	Bits                                                    uint8
	Off, Ready                                              bool
	Epoch, Version                                          uint64
	UpdatedUnixNanos                                        int64
	RosterVersion, LoadsVersion, PolicyVersion, SetsVersion uint64
}

// AppendMeta appends the 64 bytes of m.
func AppendMeta(b []byte, m *Meta) []byte {
	var flags byte
	if m.Off {
		flags |= FlagOff
	}
	if m.Ready {
		flags |= FlagReady
	}
	b = append(b, "WPM1"...)
	b = append(b, Wire, m.Bits, flags, 0)
	b = binary.LittleEndian.AppendUint64(b, m.Epoch)
	b = binary.LittleEndian.AppendUint64(b, m.Version)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.UpdatedUnixNanos))
	b = binary.LittleEndian.AppendUint64(b, m.RosterVersion)
	b = binary.LittleEndian.AppendUint64(b, m.LoadsVersion)
	b = binary.LittleEndian.AppendUint64(b, m.PolicyVersion)
	return binary.LittleEndian.AppendUint64(b, m.SetsVersion)
}

// DecodeMeta reads a Meta. The error is an *Error.
func DecodeMeta(b []byte) (Meta, error) {
	switch {
	case len(b) != MetaBytes:
		return Meta{}, &Error{What: "meta: length is not 64 but " + strconv.Itoa(len(b))}
	case string(b[:4]) != "WPM1":
		return Meta{}, &Error{What: "meta: wrong magic"}
	case b[4] != Wire:
		return Meta{}, &Error{Offset: 4, What: "meta: unknown wire version " + strconv.Itoa(int(b[4]))}
	case !ValidBits(b[5]):
		return Meta{}, &Error{Offset: 5, What: "meta: no such size class: " + strconv.Itoa(int(b[5])) + " bits"}
	case b[6]&^(FlagOff|FlagReady) != 0:
		return Meta{}, &Error{Offset: 6, What: "meta: unknown flag"}
	case b[7] != 0:
		return Meta{}, &Error{Offset: 7, What: "meta: padding is not zero"}
	}
	return Meta{
		Bits: b[5], Off: b[6]&FlagOff != 0, Ready: b[6]&FlagReady != 0,
		Epoch:            binary.LittleEndian.Uint64(b[8:]),
		Version:          binary.LittleEndian.Uint64(b[16:]),
		UpdatedUnixNanos: int64(binary.LittleEndian.Uint64(b[24:])),
		RosterVersion:    binary.LittleEndian.Uint64(b[32:]),
		LoadsVersion:     binary.LittleEndian.Uint64(b[40:]),
		PolicyVersion:    binary.LittleEndian.Uint64(b[48:]),
		SetsVersion:      binary.LittleEndian.Uint64(b[56:]),
	}, nil
}
