package kvevents

import (
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/tinylib/msgp/msgp"
)

// Bounds of one payload. An engine's largest batch is a prompt of a million
// tokens, some 5 MB.
const (
	MaxPayloadBytes = 32 << 20
	MaxBlockTokens  = 1024
	maxName         = 1024 // bytes of an adapter's name, a salt, a medium
)

// Kind of an event.
type Kind uint8

// Kinds.
const (
	Stored Kind = iota + 1
	Removed
	Cleared
)

// Medium is where a block lies. They are bits: a block may lie in several.
type Medium uint8

// Media. What isn't known counts as disk, the slowest.
const (
	GPU Medium = 1 << iota
	CPU
	Disk
)

// Event is one event of a batch. Its slices belong to the batch.
type Event struct {
	Kind   Kind
	Hashes []uint64 // names of the blocks; byte hashes are folded with xxHash64
	// Parent is the block before the first; HasParent is false at the start of a prompt.
	Parent    uint64
	HasParent bool
	Tokens    []uint32
	BlockSize int // tokens
	Medium    Medium
	// Group is the cache group, -1 when the event doesn't say.
	Group int
	// FullAttention: the blocks are kept whole for as long as they are kept at
	// all. Sliding windows and states of recurrent layers are not.
	FullAttention bool
	Adapter       string // "" for the base model
	// CacheSalt is the client's, known at the start of a prompt only.
	CacheSalt string
	// Opaque is the first block whose content more than its tokens decides (an
	// image, an adapter without a name); len(Hashes) when there is none.
	Opaque int
}

// Batch is a decoded payload. The zero value is ready; Decode reuses its memory.
type Batch struct {
	Time   float64 // of the engine's clock, seconds
	Rank   int     // data-parallel rank, -1 unknown
	Events []Event
	// Unknown counts events of kinds that this package doesn't know.
	Unknown int

	hashes []uint64
	tokens []uint32
}

// An offsetError tells where a payload is wrong.
type offsetError struct {
	at   int
	what string
	err  error
}

func (e *offsetError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("event batch at byte %d: %s: %v", e.at, e.what, e.err)
	}
	return fmt.Sprintf("event batch at byte %d: %s", e.at, e.what)
}

func (e *offsetError) Unwrap() error { return e.err }

var errMany = errors.New("more elements than bytes")

// reader walks over one payload. The first error sticks.
type reader struct {
	all, b []byte
	err    *offsetError
}

func (r *reader) fail(what string, err error) {
	if r.err == nil {
		r.err = &offsetError{len(r.all) - len(r.b), what, err}
		r.b = nil
	}
}

func (r *reader) next() msgp.Type { return msgp.NextType(r.b) }

func (r *reader) isNil() bool {
	if r.next() != msgp.NilType {
		return false
	}
	r.b = r.b[1:]
	return true
}

func (r *reader) skip(what string) {
	rest, err := msgp.Skip(r.b)
	if err != nil {
		r.fail(what, err)
		return
	}
	r.b = rest
}

// array reads a header; no element takes less than a byte.
func (r *reader) array(what string) int {
	n, rest, err := msgp.ReadArrayHeaderBytes(r.b)
	if err == nil && int64(n) > int64(len(rest)) {
		err = errMany
	}
	if err != nil {
		r.fail(what, err)
		return 0
	}
	r.b = rest
	return int(n)
}

func (r *reader) mapping(what string) int {
	n, rest, err := msgp.ReadMapHeaderBytes(r.b)
	if err == nil && 2*int64(n) > int64(len(rest)) {
		err = errMany
	}
	if err != nil {
		r.fail(what, err)
		return 0
	}
	r.b = rest
	return int(n)
}

// text reads a string, nil being "". The bytes lie in the payload.
func (r *reader) text(what string) []byte {
	if r.isNil() {
		return nil
	}
	s, rest, err := msgp.ReadStringZC(r.b)
	if err == nil && len(s) > maxName {
		err = fmt.Errorf("%d bytes, the limit is %d", len(s), maxName)
	}
	if err != nil {
		r.fail(what, err)
		return nil
	}
	r.b = rest
	return s
}

// number reads an integer within 0..limit, nil being absent.
func (r *reader) number(what string, absent, limit int64) int64 {
	if r.isNil() {
		return absent
	}
	v, rest, err := msgp.ReadInt64Bytes(r.b)
	if err == nil && (v < 0 || v > limit) {
		err = fmt.Errorf("%d is outside 0..%d", v, limit)
	}
	if err != nil {
		r.fail(what, err)
		return absent
	}
	r.b = rest
	return v
}

// hash reads the name of a block: an integer of either sign, or bytes.
func (r *reader) hash(what string) uint64 {
	switch r.next() {
	case msgp.UintType:
		v, rest, err := msgp.ReadUint64Bytes(r.b)
		if err != nil {
			r.fail(what, err)
			return 0
		}
		r.b = rest
		return v
	case msgp.IntType:
		if v, rest, err := msgp.ReadInt64Bytes(r.b); err == nil {
			r.b = rest
			return uint64(v)
		}
	case msgp.BinType:
		if v, rest, err := msgp.ReadBytesZC(r.b); err == nil && len(v) > 0 && len(v) <= 64 {
			r.b = rest
			return xxhash.Sum64(v)
		}
	case msgp.StrType:
		if v, rest, err := msgp.ReadStringZC(r.b); err == nil && len(v) > 0 && len(v) <= 128 {
			r.b = rest
			return xxhash.Sum64(v)
		}
	}
	r.fail(what, errors.New("neither an integer nor up to 64 bytes"))
	return 0
}

func (r *reader) float(what string) float64 {
	switch r.next() {
	case msgp.Float64Type:
		if v, rest, err := msgp.ReadFloat64Bytes(r.b); err == nil {
			r.b = rest
			return v
		}
	case msgp.Float32Type:
		if v, rest, err := msgp.ReadFloat32Bytes(r.b); err == nil {
			r.b = rest
			return float64(v)
		}
	case msgp.IntType, msgp.UintType:
		return float64(r.number(what, 0, math.MaxInt64))
	}
	r.fail(what, errors.New("not a number"))
	return 0
}

// tokenIDs appends n token ids. They are nearly all of a payload, so the common
// encodings are read in line.
func (r *reader) tokenIDs(out []uint32, n int) []uint32 {
	b := r.b
	for range n {
		switch {
		case len(b) >= 3 && b[0] == 0xcd:
			out = append(out, uint32(b[1])<<8|uint32(b[2]))
			b = b[3:]
		case len(b) >= 5 && b[0] == 0xce:
			out = append(out, uint32(b[1])<<24|uint32(b[2])<<16|uint32(b[3])<<8|uint32(b[4]))
			b = b[5:]
		case len(b) >= 1 && b[0] < 0x80:
			out = append(out, uint32(b[0]))
			b = b[1:]
		default:
			v, rest, err := msgp.ReadUint32Bytes(b)
			if err != nil {
				r.b = b
				r.fail("token id", err)
				return out
			}
			out, b = append(out, v), rest
		}
	}
	r.b = b
	return out
}

// Decode reads a payload: arrays or maps at both levels, with more or fewer
// fields than this package knows. The error tells the offset; b is then not
// to be used. The batch refers to memory of its own, not to payload.
func Decode(payload []byte, b *Batch) error {
	*b = Batch{Rank: -1, Events: b.Events[:0], hashes: b.hashes[:0], tokens: b.tokens[:0]}
	if len(payload) > MaxPayloadBytes {
		return &offsetError{0, fmt.Sprintf("%d bytes, the limit is %d", len(payload), MaxPayloadBytes), nil}
	}
	r := &reader{all: payload, b: payload}
	switch r.next() {
	case msgp.MapType:
		n := r.mapping("batch")
		for i := 0; i < n && r.err == nil; i++ {
			switch string(r.text("name of a field of the batch")) {
			case "ts":
				b.Time = r.float("ts")
			case "events":
				b.events(r)
			case "data_parallel_rank", "attn_dp_rank":
				b.Rank = int(r.number("data-parallel rank", -1, 1<<16))
			default:
				r.skip("field of the batch")
			}
		}
	default:
		n := r.array("batch")
		if n > 0 && r.next() == msgp.StrType { // a tag
			r.skip("tag")
			n--
		}
		if n < 2 {
			r.fail("batch without events", nil)
			break
		}
		b.Time = r.float("ts")
		b.events(r)
		if n > 2 && r.err == nil {
			b.Rank = int(r.number("data-parallel rank", -1, 1<<16))
		}
		for i := 3; i < n && r.err == nil; i++ {
			r.skip("field of the batch")
		}
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("bytes behind the end", nil)
	}
	if r.err == nil && (math.IsNaN(b.Time) || math.IsInf(b.Time, 0)) {
		r.fail("ts is no time", nil)
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

func (b *Batch) events(r *reader) {
	n := r.array("events")
	for i := 0; i < n && r.err == nil; i++ {
		b.event(r)
	}
}
