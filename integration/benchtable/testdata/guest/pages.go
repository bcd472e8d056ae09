package main

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/table"
)

// lookupBudget lets every checkpoint have a page of its own.
const lookupBudget = 64

// pages is the module's way: pages in shared data, read through the filter's
// own page cache and written as its courier does, page by page with a
// compare-and-set.
type pages struct {
	bits   uint8
	fleet  *fleet.Fleet
	lookup table.Lookup
	value  abi.Scratch
	page   [table.PageBytes]byte
}

func (s *pages) init(bits uint8) {
	s.bits, s.lookup.Bits = bits, bits
	s.fleet = fleet.New("benchtable", &metrics.Set{}, route.NewRand(1))
}

func (s *pages) find(now int64, cps []fingerprint.Checkpoint, out []table.Match) []table.Match {
	s.fleet.Pages.Use(s.bits, now)
	return s.lookup.Find(cps, s.fleet.Pages.Get, lookupBudget, out)
}

// change writes the entries, which are in order of their fingerprints.
func (s *pages) change(_ uint64, entries []byte) (batches int) {
	for len(entries) > 0 {
		entries = s.changePage(entries)
	}
	return 1
}

// changePage writes the entries of the first page and returns the others.
func (s *pages) changePage(entries []byte) []byte {
	index := table.PageIndex(binary.LittleEndian.Uint64(entries), s.bits)
	key := s.fleet.Keys.PageView(s.bits, index)
	value, cas, status := abi.SharedData(key, &s.value)
	page := table.Page(s.page[:])
	if status == abi.OK && len(value) == table.PageBytes && table.Page(value).Check() == nil {
		copy(page, value)
	} else {
		page.Init(s.bits, index)
		cas = 0xFFFFFFFF
	}
	for len(entries) > 0 && table.PageIndex(binary.LittleEndian.Uint64(entries), s.bits) == index {
		e := table.DecodeEntry(entries)
		if e.Count() == 0 {
			page.Remove(e.Fingerprint)
		} else {
			page.Put(&e)
		}
		entries = entries[table.EntryBytes:]
	}
	if abi.SetSharedData(key, page, cas) != abi.OK {
		abi.Log(abi.LogError, "benchtable: a page has two writers")
	}
	s.fleet.Pages.Forget(index)
	return entries
}

func (*pages) tick() (batches int) { return 0 }
