package fleet

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// workerName is the opaque name of one generation of a worker: it tells a
// client which worker refused, and nothing about the network behind.
func workerName(address []byte, generation uint64) uint32 {
	var b [300]byte
	n := copy(b[8:], address)
	binary.LittleEndian.PutUint64(b[:8], generation)
	h := fingerprint.Hash(string(b[:8+n]))
	name := uint32(h ^ h>>32)
	if name == 0 {
		name = 1 // 0 stands for no name
	}
	return name
}

const hexDigits = "0123456789abcdef"

// FormatWorkerName writes a name as eight hex digits.
func FormatWorkerName(name uint32) string {
	var b [8]byte
	for i := range b {
		b[i] = hexDigits[name>>(28-4*i)&15]
	}
	return string(b[:])
}

// ParseWorkerName reads what FormatWorkerName wrote.
func ParseWorkerName(b []byte) (name uint32, ok bool) {
	if len(b) != 8 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			name = name<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			name = name<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return name, name != 0
}
