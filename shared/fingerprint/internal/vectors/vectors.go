// Package vectors computes the golden vectors of package fingerprint. The same code runs in the
// native test, in a build without assembly and inside WebAssembly, and all must print the same.
package vectors

import (
	"strconv"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

// Lines returns one line per vector: a name, then end:fingerprint per checkpoint, "t" after the
// end of a turn end.
func Lines() []string {
	var lines []string
	var chain fingerprint.Chain
	add := func(name string) {
		line := name
		for _, cp := range chain.Finish() {
			line += " " + strconv.FormatUint(uint64(cp.End), 10)
			if cp.TurnEnd {
				line += "t"
			}
			line += ":" + strconv.FormatUint(cp.Fingerprint, 16)
		}
		lines = append(lines, line)
	}

	salts := []struct {
		name, pool, adapter string
		generation          uint64
		cacheSalt           string
		mode                fingerprint.Mode
	}{
		{"plain", "default", "", 0, "", fingerprint.Approximate},
		{"exact", "default", "", 0, "", fingerprint.Exact},
		{"adapter", "default", "sql-lora", 7, "", fingerprint.Approximate},
		{"tenant", "default", "", 0, "tenant-a", fingerprint.Approximate},
		{"shifted", "defaul", "t", 0, "", fingerprint.Approximate},
	}
	for _, s := range salts {
		salt := fingerprint.Salt(s.pool, s.adapter, s.generation, s.cacheSalt, s.mode)
		lines = append(lines, "salt/"+s.name+" "+strconv.FormatUint(salt, 16))
	}

	salt := fingerprint.Salt("default", "", 0, "", fingerprint.Approximate)
	for _, n := range []int{0, 63, 64, 65, 4096, 100_000} {
		chain.Reset(salt)
		chain.Write(text(n))
		add("bytes/" + strconv.Itoa(n))
	}

	chain.Reset(salt)
	for _, n := range []int{1, 700, 63, 64, 3000, 0, 900} {
		chain.Write(text(n))
		chain.TurnEnd()
	}
	add("turns")

	chain.Reset(fingerprint.Salt("default", "", 0, "", fingerprint.Exact))
	ids := make([]uint32, 1000)
	for i := range ids {
		ids[i] = uint32(i) * 2654435761 % 151_936
	}
	chain.WriteTokens(ids)
	add("tokens")

	lines = append(lines, "hash/address "+strconv.FormatUint(fingerprint.Hash("10.0.0.7:8000"), 16))
	return lines
}

// text returns n bytes of a fixed linear congruential sequence.
func text(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
