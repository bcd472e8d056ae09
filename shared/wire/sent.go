package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	// SentCells is the number of cells in which the VMs of a gateway tell each other of prompts that
	// they have just sent. A prompt's ring key chooses the cell.
	SentCells = 8
	// MaxSentBytes bounds a cell, MaxSentCheckpoints what is told of one prompt.
	MaxSentBytes       = 4 << 10
	MaxSentCheckpoints = 32

	sentMagic       = 0x31445057 // "WPD1"
	sentHeaderBytes = 8
	sentBytes       = 24

	// MaxSentRecord is the size of the largest record.
	MaxSentRecord = sentBytes + 8*MaxSentCheckpoints
)

// Sent is a prompt that a VM has just sent to a worker which had little of it.
//
//	offset size
//	0      8    id of the dispatch report
//	8      8    when it was sent, unix ns
//	16     4    ms from then until the worker will have computed it, as it looked
//	20     2    ref
//	22     2    n, at most 32
//	24     8n   fingerprints of checkpoints, the deepest first
//
// A cell begins with 8 bytes: magic "WPD1", wire version, 3 of 0. Sent records follow, newest last.
type Sent struct {
	ID          uint64
	UnixNanos   int64
	ReadyMillis uint32
	Ref         uint16
}

// BeginSent appends a cell's header.
func BeginSent(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, sentMagic), table.Wire, 0, 0, 0)
}

// AppendSent appends a record with the checkpoints that end beyond so many units, evenly thinned:
// the deepest is among them.
func AppendSent(b []byte, s *Sent, checkpoints []fingerprint.Checkpoint, beyond uint32) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.ID)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.UnixNanos))
	b = binary.LittleEndian.AppendUint32(b, s.ReadyMillis)
	b = binary.LittleEndian.AppendUint16(b, s.Ref)
	first := len(checkpoints)
	for first > 0 && checkpoints[first-1].End > beyond {
		first--
	}
	n := len(checkpoints) - first
	every := max(1, (n+MaxSentCheckpoints-1)/MaxSentCheckpoints)
	b = binary.LittleEndian.AppendUint16(b, uint16((n+every-1)/every))
	for i := len(checkpoints) - 1; i >= first; i -= every {
		b = binary.LittleEndian.AppendUint64(b, checkpoints[i].Fingerprint)
	}
	return b
}

// ForEachSent calls f for every record of a cell, with its bytes and its n.
func ForEachSent(b []byte, f func(s *Sent, record []byte, n int)) error {
	switch {
	case len(b) < sentHeaderBytes:
		return fault(len(b), "sent: header cut short")
	case len(b) > MaxSentBytes:
		return fault(MaxSentBytes, "sent: longer than 4 KiB")
	case binary.LittleEndian.Uint32(b) != sentMagic:
		return fault(0, "sent: wrong magic")
	case b[4] != table.Wire:
		return fault(4, "sent: unknown wire version")
	}
	var s Sent
	for at := sentHeaderBytes; at < len(b); {
		if len(b)-at < sentBytes {
			return fault(at, "sent: record cut short")
		}
		n := int(binary.LittleEndian.Uint16(b[at+22:]))
		if n > MaxSentCheckpoints || len(b)-at < sentBytes+8*n {
			return fault(at+22, "sent: more checkpoints than there is room for")
		}
		record := b[at : at+sentBytes+8*n]
		s = Sent{
			ID: binary.LittleEndian.Uint64(record), UnixNanos: int64(binary.LittleEndian.Uint64(record[8:])),
			ReadyMillis: binary.LittleEndian.Uint32(record[16:]), Ref: binary.LittleEndian.Uint16(record[20:]),
		}
		f(&s, record, n)
		at += len(record)
	}
	return nil
}

// SentCheckpoint is checkpoint i of a record.
func SentCheckpoint(record []byte, i int) uint64 {
	return binary.LittleEndian.Uint64(record[sentBytes+8*i:])
}
