package admission

import (
	"time"
	"unsafe"

	"github.com/warmpath/warmpath/filter/abi"
)

const (
	resetBytes = int(unsafe.Sizeof(reset{}))
	maxResets  = 32
	// resetLife is how long a prompt is remembered whose worker broke off.
	resetLife = time.Minute
)

// Resets remembers prompts whose workers' connections broke. One that broke two
// workers within a minute is not tried at a third: it may well be the cause.
//
// They stand in shared data, 24 bytes each, the newest first, at most 32:
//
//	offset size
//	0      8    last fingerprint of the prompt + length of the body
//	8      2    worker
//	10     2    another worker, 0 none
//	12     4    0
//	16     8    time of the last, unix ns
type Resets struct {
	known []reset
}

type reset struct {
	prompt uint64
	refs   [2]uint16
	_      uint32
	at     int64
}

// Dangerous tells whether a prompt should not be tried a second time.
func (r *Resets) Dangerous(prompt uint64, now int64) bool {
	for i := range r.known {
		if k := &r.known[i]; k.prompt == prompt && k.refs[1] != 0 && now-k.at < int64(resetLife) {
			return prompt != 0
		}
	}
	return false
}

// decode replaces what is known.
func (r *Resets) decode(b []byte) bool {
	r.known = r.known[:0]
	if len(b)%resetBytes != 0 || len(b) > maxResets*resetBytes {
		return false
	}
	r.known = fill(r.known, len(b)/resetBytes, b)
	return true
}

// note adds a worker that broke off.
func (r *Resets) note(prompt uint64, ref uint16, now int64) {
	found := reset{prompt: prompt}
	kept := r.known[:0]
	for _, k := range r.known {
		switch {
		case now-k.at >= int64(resetLife):
		case k.prompt == prompt:
			found = k
		default:
			kept = append(kept, k)
		}
	}
	switch {
	case found.refs[0] == 0 || found.refs[0] == ref:
		found.refs[0] = ref
	default:
		found.refs[1] = ref
	}
	found.at = now
	kept = append(kept, reset{})
	copy(kept[1:], kept)
	kept[0] = found
	r.known = kept[:min(len(kept), maxResets)]
}

// NoteReset remembers that a worker broke off at a prompt, for all VMs.
func (g *Gate) NoteReset(prompt uint64, ref uint16, now int64) {
	if prompt == 0 || ref == 0 || !g.on {
		return
	}
	for range casTries {
		cas, ok := g.read(g.fleet.Keys.Resets(), g.Resets.decode)
		if !ok {
			return
		}
		g.Resets.note(prompt, ref, now)
		if abi.SetSharedData(g.fleet.Keys.Resets(), bytesOf(g.Resets.known), cas) != abi.CASMismatch {
			return
		}
	}
}

// readResets takes over what other VMs have seen.
func (g *Gate) readResets() {
	value, _, status := abi.SharedData(g.fleet.Keys.Resets(), &g.scratch)
	if status == abi.OK {
		g.Resets.decode(value)
	}
}
