package wire

import "encoding/binary"

const (
	// TakenBytes is the size of a taken record.
	TakenBytes = 32

	takenMagic = 0x31545057 // "WPT1"
)

// Taken says how far the courier has taken a VM's report chunks. It is written before the chunk
// is read: a VM that has written to a chunk and then finds no word of it here has written in time.
//
//	offset size
//	0      4    magic "WPT1"
//	4      4    shared queue that wakes the courier, 0 none
//	8      8    boot nonce of the VM
//	16     8    sequence of the last chunk that was taken, 0 none
//	24     8    boot nonce of the courier
type Taken struct {
	Queue    uint32
	Nonce    uint64
	Sequence uint64
	Courier  uint64
}

// AppendTaken appends the 32 bytes of t.
func AppendTaken(b []byte, t *Taken) []byte {
	b = binary.LittleEndian.AppendUint32(b, takenMagic)
	b = binary.LittleEndian.AppendUint32(b, t.Queue)
	b = binary.LittleEndian.AppendUint64(b, t.Nonce)
	b = binary.LittleEndian.AppendUint64(b, t.Sequence)
	return binary.LittleEndian.AppendUint64(b, t.Courier)
}

// DecodeTaken reads a taken record.
func DecodeTaken(b []byte) (Taken, error) {
	switch {
	case len(b) != TakenBytes:
		return Taken{}, fault(min(len(b), TakenBytes), "taken: length is not 32")
	case binary.LittleEndian.Uint32(b) != takenMagic:
		return Taken{}, fault(0, "taken: wrong magic")
	}
	return Taken{
		Queue:    binary.LittleEndian.Uint32(b[4:]),
		Nonce:    binary.LittleEndian.Uint64(b[8:]),
		Sequence: binary.LittleEndian.Uint64(b[16:]),
		Courier:  binary.LittleEndian.Uint64(b[24:]),
	}, nil
}

const (
	// NewsBytes is the size of a message by which a VM tells the courier of news.
	NewsBytes = 24

	newsMagic = 0x314e5057 // "WPN1"
)

// News tells the courier that a VM has begun a chunk with a dispatch in it.
//
//	offset size
//	0      4    magic "WPN1"
//	4      2    slot
//	6      2    0
//	8      8    boot nonce of the VM
//	16     8    sequence of the chunk
type News struct {
	Slot     uint16
	Nonce    uint64
	Sequence uint64
}

// AppendNews appends the 24 bytes of n.
func AppendNews(b []byte, n *News) []byte {
	b = binary.LittleEndian.AppendUint32(b, newsMagic)
	b = binary.LittleEndian.AppendUint16(b, n.Slot)
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, n.Nonce)
	return binary.LittleEndian.AppendUint64(b, n.Sequence)
}

// DecodeNews reads a message; ok is false for one that says something else.
func DecodeNews(b []byte) (n News, ok bool) {
	if len(b) != NewsBytes || binary.LittleEndian.Uint32(b) != newsMagic || binary.LittleEndian.Uint16(b[4:]) >= MaxSlots {
		return News{}, false
	}
	return News{
		Slot:     binary.LittleEndian.Uint16(b[4:]),
		Nonce:    binary.LittleEndian.Uint64(b[8:]),
		Sequence: binary.LittleEndian.Uint64(b[16:]),
	}, true
}
