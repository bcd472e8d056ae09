// Package wire is the bytes that travel between the gateways and the control service, and
// between the VMs of one gateway.
//
// Downwards, an update frame carries sections of table changes, the roster, loads and the
// policy; the courier stores the payloads in shared data as they are and every VM decodes them
// with the functions here. Upwards, every VM appends report records to chunks and keeps a row;
// the courier puts them into a batch frame. Everything is little endian.
//
// Decoders take untrusted bytes: they return an *Error with the offset, never panic, and
// bound what they read by the length of the input. The ForEach functions do not allocate per
// record; what they pass to the callback is valid during the call.
package wire

import (
	"encoding/binary"
	"strconv"
)

const (
	// Version is the newest wire version that this code speaks, OldestVersion the one before,
	// which it speaks with whoever knows no newer one. Version 2 compares the pages of a range
	// (POST /v1/table/pages); its frames are otherwise those of version 1.
	Version       = 2
	OldestVersion = 1
	// MaxBody bounds the body of a response that a courier is sent. Envoy copies it into the VM
	// whole: 256 KiB cost about 0.1 ms.
	MaxBody = 256 << 10
	// HeaderBytes is the size of a frame header, SectionHeaderBytes that of a section's.
	HeaderBytes        = 32
	SectionHeaderBytes = 8
)

// Error says what is wrong with encoded bytes and where.
type Error struct {
	// Offset is the position of the first byte that is wrong, in the slice given to the decoder.
	Offset int
	// What names the format and the fault.
	What string
}

func (e *Error) Error() string { return e.What + " at offset " + strconv.Itoa(e.Offset) }

func fault(offset int, what string) error { return &Error{Offset: offset, What: what} }

// at adds the place of an inner slice to an *Error of it.
func at(err error, offset int) error {
	if e, ok := err.(*Error); ok {
		return &Error{Offset: e.Offset + offset, What: e.What}
	}
	return err
}

// Kind is the kind of a frame.
type Kind uint8

const (
	// Update: control -> gateway, answer of GET /v1/table.
	Update Kind = 1
	// Pages: control -> gateway, answer of GET and POST /v1/table/pages; gateway -> control, body
	// of the POST.
	Pages Kind = 2
	// Batch: gateway -> control, body of POST /v1/batch.
	Batch Kind = 3
	// Ack: control -> gateway, answer of POST /v1/batch.
	Ack Kind = 4
)

// Flags of a frame.
const (
	// FlagResync: the log does not reach back to From, or the epoch is another; compare digests
	// and fetch pages.
	FlagResync = 1
	// FlagOff: every pool observes.
	FlagOff = 2
	// FlagKeepPages, with FlagResync: control has just started and is still learning what the
	// workers hold. A courier whose refs mean the same workers as before keeps its pages and goes
	// on from the frame's version.
	FlagKeepPages = 4
)

// Header starts every frame.
//
//	offset size
//	0      4    magic "WPF1"
//	4      1    kind
//	5      1    wire version
//	6      2    flags: 1 resync, 2 off, 4 keep pages
//	8      8    epoch of the table
//	16     8    from: the version the changes start after
//	24     8    to: the version after the changes
type Header struct {
	Kind Kind
	// Wire is the version the frame is written in; 0 stands for OldestVersion, which everybody
	// reads.
	Wire            uint8
	Flags           uint16
	Epoch, From, To uint64
}

// Resync tells whether FlagResync is set.
func (h *Header) Resync() bool { return h.Flags&FlagResync != 0 }

// Off tells whether FlagOff is set.
func (h *Header) Off() bool { return h.Flags&FlagOff != 0 }

// KeepPages tells whether FlagKeepPages is set.
func (h *Header) KeepPages() bool { return h.Flags&FlagKeepPages != 0 }

// AppendHeader appends the 32 bytes of h.
func AppendHeader(b []byte, h *Header) []byte {
	b = append(b, "WPF1"...)
	b = append(b, byte(h.Kind), max(h.Wire, OldestVersion))
	b = binary.LittleEndian.AppendUint16(b, h.Flags)
	b = binary.LittleEndian.AppendUint64(b, h.Epoch)
	b = binary.LittleEndian.AppendUint64(b, h.From)
	return binary.LittleEndian.AppendUint64(b, h.To)
}

// DecodeHeader reads the header of a frame; the sections follow at HeaderBytes.
func DecodeHeader(frame []byte) (Header, error) {
	switch {
	case len(frame) < HeaderBytes:
		return Header{}, fault(len(frame), "frame: header cut short")
	case string(frame[:4]) != "WPF1":
		return Header{}, fault(0, "frame: wrong magic")
	case frame[4] < byte(Update) || frame[4] > byte(Ack):
		return Header{}, fault(4, "frame: unknown kind "+strconv.Itoa(int(frame[4])))
	case frame[5] < OldestVersion || frame[5] > Version:
		return Header{}, fault(5, "frame: unknown wire version "+strconv.Itoa(int(frame[5])))
	}
	return Header{
		Kind:  Kind(frame[4]),
		Wire:  frame[5],
		Flags: binary.LittleEndian.Uint16(frame[6:]),
		Epoch: binary.LittleEndian.Uint64(frame[8:]),
		From:  binary.LittleEndian.Uint64(frame[16:]),
		To:    binary.LittleEndian.Uint64(frame[24:]),
	}, nil
}

// SectionType is the type of a section.
type SectionType uint8

// The sections.
const (
	SectionGeometry SectionType = 1
	SectionRoster   SectionType = 2
	SectionLoads    SectionType = 3
	SectionPolicy   SectionType = 4 // JSON, see package policy
	SectionPuts     SectionType = 5 // n x 24-byte table entries, each replaces the whole entry
	SectionRemoves  SectionType = 6 // n x 8-byte fingerprints
	SectionSets     SectionType = 7
	SectionDigests  SectionType = 8 // n x u64: one per range in an update, one per page of a range in its comparison
	SectionPages    SectionType = 9 // n x 2,040-byte pages
	SectionGateway  SectionType = 10
	SectionReports  SectionType = 11 // one chunk; a batch has one section per chunk
	SectionAcked    SectionType = 12
	SectionInFlight SectionType = 13
	SectionHints    SectionType = 14
	SectionExact    SectionType = 15 // JSON, see policy.ParseExact
	SectionReady    SectionType = 16
	SectionCaches   SectionType = 17
	// SectionAdmission is JSON, see policy.ParseAdmission.
	SectionAdmission SectionType = 18
	SectionLeases    SectionType = 19
	SectionUsage     SectionType = 20
	SectionLatency   SectionType = 21

	SectionHomes SectionType = 22
	// SectionOrder is between replicas of control: u64, the order of a batch's reports.
	SectionOrder SectionType = 23

	SectionCopies SectionType = 24
)

// Section is one section of a frame.
//
//	offset size
//	0      1    type
//	1      3    0
//	4      4    length of the payload
//	8      n    payload
type Section struct {
	Type    SectionType
	Payload []byte
	// Offset of the payload in the frame, for errors.
	Offset int
}

// BeginSection starts a section whose payload is appended next; EndSection, given the returned
// mark, fills in the length.
func BeginSection(b []byte, t SectionType) (section []byte, mark int) {
	return append(b, byte(t), 0, 0, 0, 0, 0, 0, 0), len(b)
}

// EndSection completes the section that BeginSection started at mark.
func EndSection(b []byte, mark int) []byte {
	binary.LittleEndian.PutUint32(b[mark+4:], uint32(len(b)-mark-SectionHeaderBytes))
	return b
}

// AppendSection appends a section with a ready payload.
func AppendSection(b []byte, t SectionType, payload []byte) []byte {
	b, mark := BeginSection(b, t)
	return EndSection(append(b, payload...), mark)
}

// ForEachSection calls f for the sections of a frame in order. Section types that this version
// does not know are passed too: skip them. An error of f ends it and is returned with the
// section's offset added.
func ForEachSection(frame []byte, f func(s Section) error) error {
	if len(frame) < HeaderBytes {
		return fault(len(frame), "frame: header cut short")
	}
	for offset := HeaderBytes; offset < len(frame); {
		rest := frame[offset:]
		if len(rest) < SectionHeaderBytes {
			return fault(len(frame), "frame: section header cut short")
		}
		length := binary.LittleEndian.Uint32(rest[4:])
		if uint64(length) > uint64(len(rest)-SectionHeaderBytes) {
			return fault(offset+4, "frame: section is longer than the frame")
		}
		start := offset + SectionHeaderBytes
		end := start + int(length)
		s := Section{Type: SectionType(rest[0]), Payload: frame[start:end:end], Offset: start}
		if err := f(s); err != nil {
			return at(err, start)
		}
		offset = end
	}
	return nil
}

// records checks that b is a whole number of records and returns how many.
func records(b []byte, size int, name string) (int, error) {
	if extra := len(b) % size; extra != 0 {
		return 0, fault(len(b)-extra, name+": record cut short")
	}
	return len(b) / size, nil
}
