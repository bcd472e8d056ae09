package wire

import "encoding/binary"

const (
	// CourierBytes is the size of the courier record.
	CourierBytes = 40
	// CreateCAS is the compare-and-set token that creates an absent key with exactly one winner.
	// 0 would overwrite, and a small number could equal an early real token.
	CreateCAS = 0xFFFFFFFF

	courierMagic = 0x31435057 // "WPC1"
)

// Courier is the election record: the VM that talks to control for its gateway.
//
//	offset size
//	0      4    magic "WPC1"
//	4      2    slot
//	6      2    0
//	8      8    boot nonce
//	16     8    epoch: grows with every take-over
//	24     8    expiry, unix ns
//	32     8    0
type Courier struct {
	Slot            uint16
	Nonce           uint64
	Epoch           uint64
	ExpiryUnixNanos int64
}

// AppendCourier appends the 40 bytes of c.
func AppendCourier(b []byte, c *Courier) []byte {
	b = binary.LittleEndian.AppendUint32(b, courierMagic)
	b = binary.LittleEndian.AppendUint16(b, c.Slot)
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, c.Nonce)
	b = binary.LittleEndian.AppendUint64(b, c.Epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.ExpiryUnixNanos))
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

// DecodeCourier reads a courier record.
func DecodeCourier(b []byte) (Courier, error) {
	switch {
	case len(b) != CourierBytes:
		return Courier{}, fault(min(len(b), CourierBytes), "courier: length is not 40")
	case binary.LittleEndian.Uint32(b) != courierMagic:
		return Courier{}, fault(0, "courier: wrong magic")
	case binary.LittleEndian.Uint16(b[4:]) >= MaxSlots:
		return Courier{}, fault(4, "courier: no such slot")
	}
	return Courier{
		Slot:            binary.LittleEndian.Uint16(b[4:]),
		Nonce:           binary.LittleEndian.Uint64(b[8:]),
		Epoch:           binary.LittleEndian.Uint64(b[16:]),
		ExpiryUnixNanos: int64(binary.LittleEndian.Uint64(b[24:])),
	}, nil
}
