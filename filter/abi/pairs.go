package abi

import "encoding/binary"

// Pairs is a header map as the host serialises it, little endian:
//
//	offset        size  meaning
//	0             4     n, the number of pairs
//	4 + 8i        4     length of key i
//	8 + 8i        4     length of value i
//	4 + 8n        ...   key 0, 0x00, value 0, 0x00, key 1, ...
//
// {"a": "bc"} is 01000000 01000000 02000000 6100 626300.
type Pairs struct {
	data []byte
	n    int
	next int // offset of the pair that the next Next returns
	i    int
}

// parsePairs checks that every pair lies inside data, so that Next needs no
// checks. An empty map may come as no bytes at all.
func parsePairs(data []byte) (Pairs, Status) {
	if len(data) == 0 {
		return Pairs{}, OK
	}
	if len(data) < 4 {
		return Pairs{}, ParseFailure
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	end := 4 + 8*n
	if end > uint64(len(data)) {
		return Pairs{}, ParseFailure
	}
	for i := range int(2 * n) {
		end += uint64(binary.LittleEndian.Uint32(data[4+4*i:])) + 1
		if end > uint64(len(data)) {
			return Pairs{}, ParseFailure
		}
	}
	return Pairs{data: data, n: int(n), next: int(4 + 8*n)}, OK
}

// Len is the number of pairs.
func (p *Pairs) Len() int { return p.n }

// Next returns the pairs one after the other, in the host's order; false after
// the last. Key and value are valid as long as the Scratch they were read to.
func (p *Pairs) Next() (key, value []byte, ok bool) {
	if p.i >= p.n {
		return nil, nil, false
	}
	keyEnd := p.next + int(binary.LittleEndian.Uint32(p.data[4+8*p.i:]))
	valueEnd := keyEnd + 1 + int(binary.LittleEndian.Uint32(p.data[8+8*p.i:]))
	key, value = p.data[p.next:keyEnd], p.data[keyEnd+1:valueEnd]
	p.next = valueEnd + 1
	p.i++
	return key, value, true
}

// AppendPairs appends pairs in the form that Pairs draws.
func AppendPairs(dst []byte, pairs [][2]string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(pairs)))
	for _, p := range pairs {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p[0])))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p[1])))
	}
	for _, p := range pairs {
		dst = append(append(dst, p[0]...), 0)
		dst = append(append(dst, p[1]...), 0)
	}
	return dst
}

// pairsBuffer and trailersBuffer are reused for the maps of outgoing calls,
// which the host reads before it returns.
var pairsBuffer, trailersBuffer []byte
