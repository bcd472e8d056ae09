package admission

import (
	"time"

	"github.com/warmpath/warmpath/shared/quota"
)

const leaseMagic = 0x324c5057 // "WPL2"

// lease is the gateway's lease: which one its cells hold and until when it
// counts.
//
//	offset size
//	0      4    magic "WPL2"
//	4      1    flags, as in the LEASES section
//	5      3    0
//	8      8    term
//	16     8    sequence
//	24     8    sending of the batch that it answers, unix ns
//	32     8    end, unix ns
//	40     8    end of the floors, unix ns
//	48     8    sequence of the last USAGE section
//	56     4    shared queue that wakes the courier, 0 none
//	60     4    0
type lease struct {
	magic              uint32
	Flags              uint8
	_                  [3]uint8
	Term, Sequence     uint64
	Sent, Until, Floor int64
	Usage              uint64
	Queue              uint32
	_                  uint32
}

func (l *lease) decode(b []byte) bool {
	*l = lease{}
	if len(b) == 0 {
		return true
	}
	if len(b) == len(bytesOfOne(l)) {
		copy(bytesOfOne(l), b)
	}
	if l.magic != leaseMagic {
		*l = lease{}
		return false
	}
	return true
}

func (l *lease) append(b []byte) []byte {
	l.magic = leaseMagic
	return append(b, bytesOfOne(l)...)
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
