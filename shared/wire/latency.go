package wire

import (
	"encoding/binary"
	"math/bits"
)

const (
	latencyFixed  = 12
	latencyBucket = 8

	// TTFTBuckets is the number of buckets of a TTFT histogram: single milliseconds below 8, then 8
	// to a doubling up to 2^20 ms, so that a bucket is at most an eighth wide.
	TTFTBuckets = 8 + 17*8
)

// TTFTBucket returns the bucket of a time to first token in milliseconds.
func TTFTBucket(millis uint32) int {
	if millis < 8 {
		return int(millis)
	}
	doubling := bits.Len32(millis) - 4
	return min(8+doubling*8+int(millis>>doubling)-8, TTFTBuckets-1)
}

// TTFTBucketEnd returns the largest time of a bucket, in milliseconds.
func TTFTBucketEnd(bucket int) uint32 {
	if bucket < 8 {
		return uint32(bucket)
	}
	doubling := (bucket - 8) / 8
	return uint32((8+(bucket-8)%8+1)<<doubling) - 1
}

// Latency is one record of the LATENCY section of a batch: the times to first token of a pool's
// class, counted since the gateway's process began, so that a batch that is lost or comes twice
// changes nothing.
//
//	offset size
//	0      1    pool
//	1      1    class: 0, 1, 2
//	2      2    n, the number of buckets, ascending
//	4      8    nonce of the gateway's process
//	12     8n   bucket u16, 0 u16, count u32
type Latency struct {
	Pool, Class uint8
	Nonce       uint64
	// Counts by TTFTBucket. A decoded record shares it with the next one.
	Counts *[TTFTBuckets]uint32
}

// AppendLatency appends a record with the buckets that are not empty.
func AppendLatency(b []byte, l *Latency) []byte {
	start := len(b)
	b = append(b, l.Pool, l.Class, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, l.Nonce)
	n := uint16(0)
	for i, count := range l.Counts {
		if count == 0 {
			continue
		}
		n++
		b = binary.LittleEndian.AppendUint16(b, uint16(i))
		b = append(b, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, count)
	}
	binary.LittleEndian.PutUint16(b[start+2:], n)
	return b
}

// ForEachLatency calls f for the records of a LATENCY payload.
func ForEachLatency(b []byte, f func(l *Latency) error) error {
	var counts [TTFTBuckets]uint32
	for offset := 0; offset < len(b); {
		r := b[offset:]
		if len(r) < latencyFixed {
			return fault(len(b), "latency: record cut short")
		}
		n := int(binary.LittleEndian.Uint16(r[2:]))
		switch {
		case r[1] >= BypassClass:
			return fault(offset+1, "latency: no such class")
		case len(r) < latencyFixed+n*latencyBucket:
			return fault(offset+2, "latency: more buckets than there is room for")
		}
		clear(counts[:])
		before := -1
		for i := range n {
			at := latencyFixed + i*latencyBucket
			bucket := int(binary.LittleEndian.Uint16(r[at:]))
			count := binary.LittleEndian.Uint32(r[at+4:])
			if bucket <= before || bucket >= TTFTBuckets || count == 0 {
				return fault(offset+at, "latency: buckets don't ascend, or one is empty")
			}
			counts[bucket], before = count, bucket
		}
		if err := f(&Latency{Pool: r[0], Class: r[1], Nonce: binary.LittleEndian.Uint64(r[4:]), Counts: &counts}); err != nil {
			return err
		}
		offset += latencyFixed + n*latencyBucket
	}
	return nil
}
