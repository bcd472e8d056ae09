package main

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

// logSlots is how many batches of changes wait for the slowest VM.
const logSlots = 32

// entry is 24 bytes, as in a page; fingerprint 0 is an empty slot.
type entry struct {
	fingerprint uint64
	refs        [table.InlineRefs]uint16
	info        uint32
}

// entries is every VM's own table: open addressing with linear probing. As a
// package variable it is no part of the Go heap: the collector's goal does not
// follow it, and a VM that never fills it pays nothing.
var entries [1 << slotBits]entry

// tableCopy is the other way: the VM that is given changes puts them into a ring
// in shared data, and each VM applies them to its own table at its next tick.
type tableCopy struct {
	value   abi.Scratch
	record  []byte
	applied uint64 // sequence of the last batch applied
	seen    [512]uint32
	touched []uint16
}

// change puts a batch into the ring; this VM applies it with the others.
func (s *tableCopy) change(sequence uint64, changes []byte) (batches int) {
	s.record = binary.LittleEndian.AppendUint64(s.record[:0], sequence)
	s.record = append(s.record, changes...)
	abi.SetSharedData(logKey(sequence), s.record, 0)
	abi.SetSharedData("benchtable.head", s.record[:8], 0)
	return 0
}

func logKey(sequence uint64) string {
	return "benchtable.log." + string(rune('a'+sequence%logSlots))
}

func (s *tableCopy) tick() (batches int) {
	value, _, status := abi.SharedData("benchtable.head", &s.value)
	if status != abi.OK || len(value) != 8 {
		return 0
	}
	head := binary.LittleEndian.Uint64(value)
	for ; s.applied < head; batches++ {
		record, _, status := abi.SharedData(logKey(s.applied+1), &s.value)
		if status != abi.OK || len(record) < 8 || binary.LittleEndian.Uint64(record) != s.applied+1 {
			abi.Log(abi.LogError, "benchtable: this VM fell behind the ring of changes")
			return batches
		}
		for b := record[8:]; len(b) >= table.EntryBytes; b = b[table.EntryBytes:] {
			e := table.DecodeEntry(b)
			if e.Count() == 0 {
				remove(e.Fingerprint)
			} else {
				put(&e)
			}
		}
		s.applied++
	}
	return batches
}

const slotMask = 1<<slotBits - 1

// home is where a fingerprint would be: the low bits, since a fingerprint is a
// good hash already.
func home(fp uint64) int { return int(fp & slotMask) }

func find(fp uint64) (at int, found bool) {
	for at = home(fp); entries[at].fingerprint != 0; at = (at + 1) & slotMask {
		if entries[at].fingerprint == fp {
			return at, true
		}
	}
	return at, false
}

func put(e *table.Entry) {
	at, _ := find(e.Fingerprint)
	entries[at] = entry{e.Fingerprint, e.Refs, e.Info}
}

// remove closes the gap by moving back what was displaced over it.
func remove(fp uint64) {
	gap, found := find(fp)
	if !found {
		return
	}
	for at := (gap + 1) & slotMask; entries[at].fingerprint != 0; at = (at + 1) & slotMask {
		if (at-home(entries[at].fingerprint))&slotMask >= (at-gap)&slotMask {
			entries[gap] = entries[at]
			gap = at
		}
	}
	entries[gap] = entry{}
}

// find answers the longest match of every worker: with a probe this cheap,
// all checkpoints are asked for, deepest first.
func (s *tableCopy) find(_ int64, cps []fingerprint.Checkpoint, out []table.Match) []table.Match {
	for i := len(cps) - 1; i >= 0; i-- {
		at, found := find(cps[i].Fingerprint)
		if !found {
			continue
		}
		for _, ref := range entries[at].refs {
			if ref != 0 && int(ref) < len(s.seen) && s.seen[ref] == 0 {
				s.seen[ref] = cps[i].End
				s.touched = append(s.touched, ref)
				out = append(out, table.Match{Ref: ref, Units: cps[i].End})
			}
		}
	}
	for _, ref := range s.touched {
		s.seen[ref] = 0
	}
	s.touched = s.touched[:0]
	return out
}
