package wire

import (
	"encoding/binary"
	"math"

	"github.com/warmpath/warmpath/shared/table"
)

const (
	rosterFixed = 20
	loadBytes   = 40
	evictUnit   = 10 // ms
	// MaxAddress bounds a worker's address: an IPv6 address with port is 47 bytes, a DNS name
	// with port up to 259; Envoy's endpoints are addresses.
	MaxAddress = 255
	// Never in AgeMillis: no report yet.
	Never = math.MaxUint32
)

// Worker is one record of the ROSTER section: what seldom changes about a worker.
//
//	offset size
//	0      2    ref, > 0
//	2      1    pool: index in the policy
//	3      1    data-parallel rank behind the address + 1; 0: the address is its own
//	4      8    generation
//	12     2    block size in tokens, 0 not known
//	14     2    max_running, 0 not known
//	16     2    queue limit, 0 not known
//	18     1    n, the length of the address, > 0
//	19     1    0
//	20     n    address, ip:port
type Worker struct {
	Ref         uint16
	Pool        uint8
	Rank        uint8 // data-parallel, + 1; 0 for a worker that has its address for itself
	Generation  uint64
	BlockTokens uint16
	MaxRunning  uint16
	QueueLimit  uint16
	Address     []byte
}

// AppendWorker appends a roster record; an address over MaxAddress is cut.
func AppendWorker(b []byte, w *Worker) []byte {
	address := w.Address[:min(len(w.Address), MaxAddress)]
	b = binary.LittleEndian.AppendUint16(b, w.Ref)
	b = append(b, w.Pool, w.Rank)
	b = binary.LittleEndian.AppendUint64(b, w.Generation)
	b = binary.LittleEndian.AppendUint16(b, w.BlockTokens)
	b = binary.LittleEndian.AppendUint16(b, w.MaxRunning)
	b = binary.LittleEndian.AppendUint16(b, w.QueueLimit)
	b = append(b, byte(len(address)), 0)
	return append(b, address...)
}

// ForEachWorker calls f for the records of a ROSTER payload. w and its Address are valid
// during the call.
func ForEachWorker(b []byte, f func(w *Worker) error) error {
	var w Worker
	for offset := 0; offset < len(b); {
		rest := b[offset:]
		if len(rest) < rosterFixed {
			return fault(len(b), "roster: record cut short")
		}
		n := int(rest[18])
		switch {
		case binary.LittleEndian.Uint16(rest) == 0:
			return fault(offset, "roster: ref 0")
		case n == 0:
			return fault(offset+18, "roster: empty address")
		case len(rest) < rosterFixed+n:
			return fault(len(b), "roster: address cut short")
		}
		w = Worker{
			Ref: binary.LittleEndian.Uint16(rest), Pool: rest[2], Rank: rest[3],
			Generation:  binary.LittleEndian.Uint64(rest[4:]),
			BlockTokens: binary.LittleEndian.Uint16(rest[12:]),
			MaxRunning:  binary.LittleEndian.Uint16(rest[14:]),
			QueueLimit:  binary.LittleEndian.Uint16(rest[16:]),
			Address:     rest[rosterFixed : rosterFixed+n : rosterFixed+n],
		}
		if err := f(&w); err != nil {
			return err
		}
		offset += rosterFixed + n
	}
	return nil
}

// Load is one record of the LOADS section: what changes all the time about a worker.
//
//	offset size
//	0      2    ref
//	2      1    state: 0 unknown, 1 healthy, 2 draining, 3 down
//	3      1    share of the cache that an announced eviction takes, 1/255; 0 none is announced
//	4      2    running requests
//	6      2    waiting requests
//	8      4    running KV share, float32, 0 to 1
//	12     4    prefill rate, float32, tokens/s
//	16     4    trust, float32, 0 to 1
//	20     2    requests in flight from the whole fleet
//	22     2    time left until that eviction is over, 10 ms
//	24     4    uncached tokens in flight from the whole fleet
//	28     4    age of the report at sending, ms; 0xFFFFFFFF never
//	32     4    time left of a negative mark, ms; 0 none
//	36     4    decode time, float32, seconds/token
type Load struct {
	Ref                   uint16
	State                 uint8
	Running, Waiting      uint16
	KVShare               float32
	PrefillRate           float32
	Trust                 float32
	FleetInFlight         uint16
	FleetUncachedTokens   uint32
	AgeMillis             uint32
	AvoidMillis           uint32
	DecodeSecondsPerToken float32
	// EvictShare of the worker's cache goes within EvictMillis; sent to 1/255 and 10 ms.
	EvictShare  float32
	EvictMillis uint32
}

// AppendLoad appends the 40 bytes of l. Numbers out of range are brought into it, NaN is 0: one
// odd metric of one engine must not make the whole section unreadable.
func AppendLoad(b []byte, l *Load) []byte {
	b = binary.LittleEndian.AppendUint16(b, l.Ref)
	b = append(b, min(l.State, 3), byte(share(l.EvictShare)*255+0.5))
	b = binary.LittleEndian.AppendUint16(b, l.Running)
	b = binary.LittleEndian.AppendUint16(b, l.Waiting)
	b = appendFloat(b, l.KVShare, 1)
	b = appendFloat(b, l.PrefillRate, math.MaxFloat32)
	b = appendFloat(b, l.Trust, 1)
	b = binary.LittleEndian.AppendUint16(b, l.FleetInFlight)
	b = binary.LittleEndian.AppendUint16(b, uint16(min((uint64(l.EvictMillis)+evictUnit-1)/evictUnit, math.MaxUint16)))
	b = binary.LittleEndian.AppendUint32(b, l.FleetUncachedTokens)
	b = binary.LittleEndian.AppendUint32(b, l.AgeMillis)
	b = binary.LittleEndian.AppendUint32(b, l.AvoidMillis)
	return appendFloat(b, l.DecodeSecondsPerToken, math.MaxFloat32)
}

// ForEachLoad calls f for the records of a LOADS payload. Floats are finite and not negative,
// shares and trust at most 1.
func ForEachLoad(b []byte, f func(l *Load) error) error {
	n, err := records(b, loadBytes, "loads")
	if err != nil {
		return err
	}
	var l Load
	for i := range n {
		r := b[i*loadBytes:]
		if r[2] > 3 {
			return fault(i*loadBytes+2, "loads: unknown state")
		}
		for _, c := range [...]struct {
			offset int
			high   float32
		}{{8, 1}, {12, math.MaxFloat32}, {16, 1}, {36, math.MaxFloat32}} {
			if v := float(r[c.offset:]); !(v >= 0 && v <= c.high) {
				return fault(i*loadBytes+c.offset, "loads: number out of range")
			}
		}
		l = Load{
			Ref: binary.LittleEndian.Uint16(r), State: r[2],
			Running: binary.LittleEndian.Uint16(r[4:]), Waiting: binary.LittleEndian.Uint16(r[6:]),
			KVShare: float(r[8:]), PrefillRate: float(r[12:]), Trust: float(r[16:]),
			FleetInFlight:         binary.LittleEndian.Uint16(r[20:]),
			FleetUncachedTokens:   binary.LittleEndian.Uint32(r[24:]),
			AgeMillis:             binary.LittleEndian.Uint32(r[28:]),
			AvoidMillis:           binary.LittleEndian.Uint32(r[32:]),
			DecodeSecondsPerToken: float(r[36:]),
			EvictShare:            float32(r[3]) / 255, EvictMillis: uint32(binary.LittleEndian.Uint16(r[22:])) * evictUnit,
		}
		if err := f(&l); err != nil {
			return err
		}
	}
	return nil
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// share brings f into 0 to 1; NaN is 0.
func share(f float32) float32 {
	if !(f > 0) {
		return 0
	}
	return min(f, 1)
}

func appendFloat(b []byte, f, high float32) []byte {
	if !(f > 0) {
		f = 0
	}
	f = min(f, high)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
}

// AppendSet appends one record of the SETS section: the holders of a checkpoint beyond the
// inline ones, as a bitmap over refs (bit r%8 of byte r/8 for ref r).
//
//	offset size
//	0      4    id, 1 to 2^24-1
//	4      2    n, the length of the bitmap, at most 8,192
//	6      2    0
//	8      n    bitmap
func AppendSet(b []byte, id uint32, bitmap []byte) []byte {
	bitmap = bitmap[:min(len(bitmap), table.MaxBitmapBytes)]
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(bitmap)))
	b = append(b, 0, 0)
	return append(b, bitmap...)
}

// ForEachSet calls f for the records of a SETS payload.
func ForEachSet(b []byte, f func(id uint32, bitmap []byte) error) error {
	for offset := 0; offset < len(b); {
		rest := b[offset:]
		if len(rest) < 8 {
			return fault(len(b), "sets: record cut short")
		}
		id, n := binary.LittleEndian.Uint32(rest), int(binary.LittleEndian.Uint16(rest[4:]))
		switch {
		case id == 0 || id >= 1<<24:
			return fault(offset, "sets: id out of range")
		case n > table.MaxBitmapBytes:
			return fault(offset+4, "sets: bitmap longer than all refs")
		case len(rest) < 8+n:
			return fault(len(b), "sets: bitmap cut short")
		}
		if err := f(id, rest[8:8+n:8+n]); err != nil {
			return err
		}
		offset += 8 + n
	}
	return nil
}

// FindSet returns the bitmap of a set in a SETS payload, nil if it is not there or the payload
// is damaged before it. It fits table.Lookup.Set.
func FindSet(b []byte, id uint32) []byte {
	for len(b) >= 8 {
		n := int(binary.LittleEndian.Uint16(b[4:]))
		if len(b) < 8+n {
			return nil
		}
		if binary.LittleEndian.Uint32(b) == id {
			return b[8 : 8+n : 8+n]
		}
		b = b[8+n:]
	}
	return nil
}
