package admission

import (
	"encoding/binary"
	"time"

	"github.com/warmpath/warmpath/shared/quota"
)

const (
	leaseMagic = 0x314c5057 // "WPL1"
	leaseBytes = 56
)

// lease is the gateway's lease: which one its cells hold and until when it
// counts.
//
//	offset size
//	0      4    magic "WPL1"
//	4      1    flags, as in the LEASES section
//	5      3    0
//	8      8    term
//	16     8    sequence
//	24     8    sending of the batch that it answers, unix ns
//	32     8    end, unix ns
//	40     8    end of the floors, unix ns
//	48     8    sequence of the last USAGE section
type lease struct {
	Flags              uint8
	Term, Sequence     uint64
	Sent, Until, Floor int64
	Usage              uint64
}

func (l *lease) decode(b []byte) bool {
	if len(b) == 0 {
		*l = lease{}
		return true
	}
	if len(b) != leaseBytes || binary.LittleEndian.Uint32(b) != leaseMagic {
		return false
	}
	*l = lease{
		Flags: b[4], Term: binary.LittleEndian.Uint64(b[8:]), Sequence: binary.LittleEndian.Uint64(b[16:]),
		Sent: int64(binary.LittleEndian.Uint64(b[24:])), Until: int64(binary.LittleEndian.Uint64(b[32:])),
		Floor: int64(binary.LittleEndian.Uint64(b[40:])), Usage: binary.LittleEndian.Uint64(b[48:]),
	}
	return true
}

func (l *lease) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, leaseMagic)
	b = append(b, l.Flags, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = binary.LittleEndian.AppendUint64(b, l.Sequence)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Sent))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Until))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Floor))
	return binary.LittleEndian.AppendUint64(b, l.Usage)
}

// newer tells whether this lease is newer than another.
func (l *lease) newer(term, sequence uint64) bool {
	return l.Term > term || l.Term == term && l.Sequence > sequence
}

// level is how much is known now. A clock that went back to before the lease
// leaves the floor: nothing tells how long ago that was.
func (l *lease) level(now int64) quota.Level {
	switch {
	case l.Term == 0:
		return quota.Alone
	case now < l.Until && now >= l.Sent-int64(time.Second):
		return quota.Leased
	case now < l.Floor:
		return quota.AtFloor
	}
	return quota.Alone
}
