package wire

import (
	"encoding/binary"
	"math"
)

const (
	cacheBytes = 16
	emptyUnit  = 10 // ms
)

// Cache is one record of the CACHES section: what control believes of a worker's prefix cache
// and of the work it was given lately. It goes with LOADS: control sends both or neither, and a
// reader that gets loads alone knows none of this.
//
//	offset size
//	0      2    ref
//	2      2    time since the cache was empty, 10 ms; 0 not known, or longer than that can say
//	4      4    tokens that fit without pushing out what is cached; counts with a tail age only
//	8      4    time since the cached block that goes next was used, ms; 0 not known
//	12     4    uncached tokens sent there lately by the whole fleet: each fades by 1/e in 10 s
type Cache struct {
	Ref           uint16
	FreeTokens    uint32
	TailAgeMillis uint32
	RecentTokens  uint32
	// EmptyAgeMillis is sent to 10 ms.
	EmptyAgeMillis uint32
}

// AppendCache appends the 16 bytes of c.
func AppendCache(b []byte, c *Cache) []byte {
	b = binary.LittleEndian.AppendUint16(b, c.Ref)
	age := (uint64(c.EmptyAgeMillis) + emptyUnit - 1) / emptyUnit
	if age > math.MaxUint16 {
		age = 0
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(age))
	b = binary.LittleEndian.AppendUint32(b, c.FreeTokens)
	b = binary.LittleEndian.AppendUint32(b, c.TailAgeMillis)
	return binary.LittleEndian.AppendUint32(b, c.RecentTokens)
}

// ForEachCache calls f for the records of a CACHES payload.
func ForEachCache(b []byte, f func(c *Cache) error) error {
	n, err := records(b, cacheBytes, "caches")
	if err != nil {
		return err
	}
	var c Cache
	for i := range n {
		r := b[i*cacheBytes:]
		c = Cache{
			Ref:           binary.LittleEndian.Uint16(r),
			FreeTokens:    binary.LittleEndian.Uint32(r[4:]),
			TailAgeMillis: binary.LittleEndian.Uint32(r[8:]),
			RecentTokens:  binary.LittleEndian.Uint32(r[12:]),

			EmptyAgeMillis: uint32(binary.LittleEndian.Uint16(r[2:])) * emptyUnit,
		}
		if err := f(&c); err != nil {
			return err
		}
	}
	return nil
}
