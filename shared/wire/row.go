package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/table"
)

const (
	// MaxRowBytes bounds a row.
	MaxRowBytes = 8 << 10
	// MaxRowWorkers is the number of workers a row can list.
	MaxRowWorkers = (MaxRowBytes - rowHeaderBytes) / InFlightBytes
	// InFlightBytes is the size of one in-flight record.
	InFlightBytes = 8

	rowMagic       = 0x31525057 // "WPR1"
	rowHeaderBytes = 40
)

// Row is the header of a VM's row in shared data; in-flight records follow. Only that VM
// writes it. The sum over live rows is what the gateway has in flight.
//
//	offset size
//	0      4    magic "WPR1"
//	4      1    wire version
//	5      1    0
//	6      2    slot
//	8      8    boot nonce of the VM
//	16     8    time of the VM's last tick, unix ns
//	24     8    sequence of the last report chunk written, 0 none
//	32     2    n, the number of in-flight records, at most 1,019
//	34     2    version of the policy that the next field speaks of, low 16 bits
//	36     4    bit i: vocabulary i of that policy is loaded
//	40     8n   in-flight records
type Row struct {
	Slot           uint16
	Nonce          uint64
	TickUnixNanos  int64
	ReportSequence uint64
	PolicyVersion  uint16
	Vocabularies   uint32
}

// InFlight is what is on its way to one worker.
//
//	offset size
//	0      2    ref
//	2      2    requests dispatched and not done
//	4      4    uncached tokens of those whose first token has not been seen
type InFlight struct {
	Ref            uint16
	Requests       uint16
	UncachedTokens uint32
}

// AppendRow appends a row without in-flight records. Append those with AppendInFlight and
// finish with EndRow, all three with the same b and start = len(b) before AppendRow.
func AppendRow(b []byte, r *Row) []byte {
	b = binary.LittleEndian.AppendUint32(b, rowMagic)
	b = append(b, table.Wire, 0)
	b = binary.LittleEndian.AppendUint16(b, r.Slot)
	b = binary.LittleEndian.AppendUint64(b, r.Nonce)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.TickUnixNanos))
	b = binary.LittleEndian.AppendUint64(b, r.ReportSequence)
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint16(b, r.PolicyVersion)
	return binary.LittleEndian.AppendUint32(b, r.Vocabularies)
}

// AppendInFlight appends one in-flight record, to a row or to an INFLIGHT payload.
func AppendInFlight(b []byte, f InFlight) []byte {
	b = binary.LittleEndian.AppendUint16(b, f.Ref)
	b = binary.LittleEndian.AppendUint16(b, f.Requests)
	return binary.LittleEndian.AppendUint32(b, f.UncachedTokens)
}

// EndRow fills in the number of records of the row that starts at start. Records beyond
// MaxRowWorkers are cut off.
func EndRow(b []byte, start int) []byte {
	n := min((len(b)-start-rowHeaderBytes)/InFlightBytes, MaxRowWorkers)
	binary.LittleEndian.PutUint16(b[start+32:], uint16(n))
	return b[:start+rowHeaderBytes+n*InFlightBytes]
}

// DecodeRow reads a row and calls f, which may be nil, for its in-flight records.
func DecodeRow(b []byte, f func(r InFlight)) (Row, error) {
	switch {
	case len(b) < rowHeaderBytes:
		return Row{}, fault(len(b), "row: header cut short")
	case len(b) > MaxRowBytes:
		return Row{}, fault(MaxRowBytes, "row: longer than 8 KiB")
	case binary.LittleEndian.Uint32(b) != rowMagic:
		return Row{}, fault(0, "row: wrong magic")
	case b[4] != table.Wire:
		return Row{}, fault(4, "row: unknown wire version")
	case binary.LittleEndian.Uint16(b[6:]) >= MaxSlots:
		return Row{}, fault(6, "row: no such slot")
	case len(b) != rowHeaderBytes+int(binary.LittleEndian.Uint16(b[32:]))*InFlightBytes:
		return Row{}, fault(32, "row: count does not match the length")
	}
	if f != nil {
		for at := rowHeaderBytes; at < len(b); at += InFlightBytes {
			f(decodeInFlight(b[at:]))
		}
	}
	return Row{
		Slot:           binary.LittleEndian.Uint16(b[6:]),
		Nonce:          binary.LittleEndian.Uint64(b[8:]),
		TickUnixNanos:  int64(binary.LittleEndian.Uint64(b[16:])),
		ReportSequence: binary.LittleEndian.Uint64(b[24:]),
		PolicyVersion:  binary.LittleEndian.Uint16(b[34:]),
		Vocabularies:   binary.LittleEndian.Uint32(b[36:]),
	}, nil
}

func decodeInFlight(b []byte) InFlight {
	return InFlight{
		Ref:            binary.LittleEndian.Uint16(b),
		Requests:       binary.LittleEndian.Uint16(b[2:]),
		UncachedTokens: binary.LittleEndian.Uint32(b[4:]),
	}
}

// ForEachInFlight calls f for the records of an INFLIGHT payload: what a whole gateway has in
// flight.
func ForEachInFlight(b []byte, f func(r InFlight) error) error {
	n, err := records(b, InFlightBytes, "inflight")
	if err != nil {
		return err
	}
	for i := range n {
		if err := f(decodeInFlight(b[i*InFlightBytes:])); err != nil {
			return err
		}
	}
	return nil
}
