package wire

import "encoding/binary"

const (
	chunkHeader     = 16
	sectionChunk    = 8 + chunkHeader
	flagMakesCopies = 1
	gatewayFixed    = 40
	ackedBytes      = 24
	hintsBytes      = 8

	// MaxGatewayName bounds a gateway's name.
	MaxGatewayName = 255
)

// Chunk is the header of a report chunk in shared data; report records follow.
//
//	offset size
//	0      8    sequence within the VM's life, from 1
//	8      8    boot nonce of the VM
//	16     n    report records, at most 32 KiB with this header
type Chunk struct {
	Sequence, Nonce uint64
}

// AppendChunk appends the 16 bytes of c.
func AppendChunk(b []byte, c Chunk) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.Sequence)
	return binary.LittleEndian.AppendUint64(b, c.Nonce)
}

// DecodeChunk splits a chunk into its header and its records, which ForEachReport reads.
func DecodeChunk(b []byte) (c Chunk, reports []byte, err error) {
	switch {
	case len(b) < chunkHeader:
		return Chunk{}, nil, fault(len(b), "chunk: header cut short")
	case len(b) > MaxChunkBytes:
		return Chunk{}, nil, fault(MaxChunkBytes, "chunk: longer than 32 KiB")
	}
	c = Chunk{Sequence: binary.LittleEndian.Uint64(b), Nonce: binary.LittleEndian.Uint64(b[8:])}
	return c, b[chunkHeader:], nil
}

// AppendReports appends a whole REPORTS section: a chunk as it stands in shared data, with the
// slot it came from.
//
//	offset size
//	0      2    slot
//	2      6    0
//	8      16   chunk header
//	24     n    report records
func AppendReports(b []byte, slot uint16, chunk []byte) []byte {
	b, mark := BeginSection(b, SectionReports)
	b = binary.LittleEndian.AppendUint16(b, slot)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return EndSection(append(b, chunk...), mark)
}

// DecodeReports reads a REPORTS payload.
func DecodeReports(b []byte) (slot uint16, c Chunk, reports []byte, err error) {
	if len(b) < sectionChunk {
		return 0, Chunk{}, nil, fault(len(b), "reports: header cut short")
	}
	slot = binary.LittleEndian.Uint16(b)
	if slot >= MaxSlots {
		return 0, Chunk{}, nil, fault(0, "reports: no such slot")
	}
	if c, reports, err = DecodeChunk(b[8:]); err != nil {
		return 0, Chunk{}, nil, at(err, 8)
	}
	return slot, c, reports, nil
}

// Gateway is the GATEWAY section of a batch: who sends it.
//
//	offset size
//	0      8    nonce of the courier's VM
//	8      8    epoch of the table it has
//	16     8    version of the table it has
//	24     8    time of sending, unix ns
//	32     2    live rows: VMs of the gateway
//	34     4    batches that failed since the last one that arrived
//	38     1    n, the length of the name, > 0
//	39     1    flags: 1 it makes the copies that COPIES records give it
//	40     n    name
type Gateway struct {
	Nonce         uint64
	Epoch         uint64
	Version       uint64
	SentUnixNanos int64
	LiveRows      uint16
	FailedBatches uint32
	Name          string
	// Copies tells that the gateway knows COPIES and can send requests to workers itself.
	Copies bool
}

// AppendGateway appends a GATEWAY payload; a name over MaxGatewayName is cut.
func AppendGateway(b []byte, g *Gateway) []byte {
	name := g.Name[:min(len(g.Name), MaxGatewayName)]
	b = binary.LittleEndian.AppendUint64(b, g.Nonce)
	b = binary.LittleEndian.AppendUint64(b, g.Epoch)
	b = binary.LittleEndian.AppendUint64(b, g.Version)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.SentUnixNanos))
	b = binary.LittleEndian.AppendUint16(b, g.LiveRows)
	b = binary.LittleEndian.AppendUint32(b, g.FailedBatches)
	flags := byte(0)
	if g.Copies {
		flags = flagMakesCopies
	}
	b = append(b, byte(len(name)), flags)
	return append(b, name...)
}

// DecodeGateway reads a GATEWAY payload.
func DecodeGateway(b []byte) (Gateway, error) {
	switch {
	case len(b) < gatewayFixed:
		return Gateway{}, fault(len(b), "gateway: cut short")
	case b[38] == 0:
		return Gateway{}, fault(38, "gateway: empty name")
	case len(b) != gatewayFixed+int(b[38]):
		return Gateway{}, fault(38, "gateway: name does not match the length")
	}
	return Gateway{
		Nonce:         binary.LittleEndian.Uint64(b),
		Epoch:         binary.LittleEndian.Uint64(b[8:]),
		Version:       binary.LittleEndian.Uint64(b[16:]),
		SentUnixNanos: int64(binary.LittleEndian.Uint64(b[24:])),
		LiveRows:      binary.LittleEndian.Uint16(b[32:]),
		FailedBatches: binary.LittleEndian.Uint32(b[34:]),
		Name:          string(b[gatewayFixed:]),
		Copies:        b[39]&flagMakesCopies != 0,
	}, nil
}

// Acked is one record of the CHUNKS section of an ack: control has this chunk, or had it
// already.
//
//	offset size
//	0      2    slot
//	2      6    0
//	8      8    boot nonce
//	16     8    sequence
type Acked struct {
	Slot     uint16
	Nonce    uint64
	Sequence uint64
}

// AppendAcked appends one record.
func AppendAcked(b []byte, a Acked) []byte {
	b = binary.LittleEndian.AppendUint16(b, a.Slot)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, a.Nonce)
	return binary.LittleEndian.AppendUint64(b, a.Sequence)
}

// ForEachAcked calls f for the records of a CHUNKS payload.
func ForEachAcked(b []byte, f func(a Acked) error) error {
	n, err := records(b, ackedBytes, "chunks")
	if err != nil {
		return err
	}
	for i := range n {
		r := b[i*ackedBytes:]
		a := Acked{
			Slot: binary.LittleEndian.Uint16(r), Nonce: binary.LittleEndian.Uint64(r[8:]),
			Sequence: binary.LittleEndian.Uint64(r[16:]),
		}
		if a.Slot >= MaxSlots {
			return fault(i*ackedBytes, "chunks: no such slot")
		}
		if err := f(a); err != nil {
			return err
		}
	}
	return nil
}

// Hints is the HINTS section of an ack: what control asks of the courier.
//
//	offset size
//	0      4    send the next batch not before, ms from receipt; 0 as configured
//	4      4    ask for the table not before, ms from receipt; 0 at once
type Hints struct {
	BatchMillis, PollMillis uint32
}

// AppendHints appends the 8 bytes of h.
func AppendHints(b []byte, h Hints) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, h.BatchMillis), h.PollMillis)
}

// DecodeHints reads a HINTS payload.
func DecodeHints(b []byte) (Hints, error) {
	if len(b) != hintsBytes {
		return Hints{}, fault(min(len(b), hintsBytes), "hints: length is not 8")
	}
	return Hints{BatchMillis: binary.LittleEndian.Uint32(b), PollMillis: binary.LittleEndian.Uint32(b[4:])}, nil
}
