package fingerprint

import (
	"encoding/binary"

	"github.com/minio/highwayhash"
)

// saltKey separates salts and other small hashes from chain links: its first eight bytes are
// text, and its tail differs from keyConstant.
var saltKey = [32]byte([]byte("warmpath salt, version 1........"))

// Salt returns the start of a chain: a hash of everything but the text that decides whether
// two prompts may share cache blocks. Only what both the gateway and the engine's events know
// may enter: the pool, the canonical adapter name ("" for the base model) with its generation,
// the client's cache_salt ("" for none) and the mode.
//
// Hashed bytes: mode u8 | generation u64 | then for pool, adapter and cacheSalt each: length
// u32 | bytes. All little endian.
func Salt(pool, adapter string, adapterGeneration uint64, cacheSalt string, mode Mode) uint64 {
	var scratch [256]byte
	b := append(scratch[:0], byte(mode))
	b = binary.LittleEndian.AppendUint64(b, adapterGeneration)
	for _, s := range [...]string{pool, adapter, cacheSalt} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return highwayhash.Sum64(b, saltKey[:])
}

// Slow returns the key under which the table says who has a checkpoint in slower memory than the
// GPU's. It is its own inverse.
func Slow(fingerprint uint64) uint64 { return fingerprint ^ slowKey }

// slowKey is the first eight bytes of e.
const slowKey = 0xb7e151628aed2a6a

// Hash returns the HighwayHash-64 of a short string such as a worker's address or a session
// name, under the same fixed key on every gateway. It allocates only for strings over 256 bytes.
func Hash(s string) uint64 {
	var scratch [256]byte
	return highwayhash.Sum64(append(scratch[:0], s...), saltKey[:])
}
