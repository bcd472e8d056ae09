package wire

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/warmpath/warmpath/shared/table"
)

// frames are one frame of each kind, in a wire version. testdata/v1 holds what the
// last release that spoke version 1 alone wrote for the same.
func frames(version uint8) map[string][]byte {
	header := func(h Header) []byte {
		h.Wire = version
		return AppendHeader(nil, &h)
	}
	page := table.Page(make([]byte, table.PageBytes))
	page.Init(6, table.PageIndex(exampleEntry.Fingerprint, 6))
	page.Put(&exampleEntry)

	resync := header(Header{Kind: Update, Flags: FlagResync | FlagOff, Epoch: 7, From: 41, To: 44})
	resync = AppendSection(resync, SectionGeometry, AppendGeometry(nil, Geometry{Bits: 6, Entries: 1}))
	resync = AppendSection(resync, SectionRoster, AppendWorker(nil, &exampleWorker))
	resync = AppendSection(resync, SectionLoads, AppendLoad(nil, &exampleLoad))
	resync = AppendSection(resync, SectionCaches, AppendCache(nil, &exampleCache))
	resync = AppendSection(resync, SectionHomes, AppendHome(nil, &exampleHome))
	resync = AppendSection(resync, SectionPolicy, []byte(`{"pools":[{"name":"default","models":["*"]}]}`))
	resync = AppendSection(resync, SectionExact, []byte(exampleExact))
	resync = AppendSection(resync, SectionAdmission, []byte(exampleAdmission))
	resync = AppendSection(resync, SectionSets, AppendSet(nil, 5, []byte{0x18, 0x01}))
	resync = AppendSection(resync, SectionDigests, AppendDigest(nil, page.Digest()))

	update := header(Header{Kind: Update, Epoch: 7, From: 44, To: 45})
	update = AppendSection(update, SectionPuts, table.AppendEntry(nil, &exampleEntry))
	update = AppendSection(update, SectionRemoves, AppendRemove(nil, 5))

	pages := AppendSection(header(Header{Kind: Pages, Epoch: 7, To: 45}), SectionPages, page)

	chunk := AppendChunk(nil, Chunk{Sequence: 9, Nonce: 0xabcdef})
	chunk = AppendDispatch(chunk, &exampleDispatch, exampleCPs)
	chunk = AppendDone(chunk, &exampleDone)
	batch := header(Header{Kind: Batch, Epoch: 7, From: 44, To: 44})
	batch = AppendSection(batch, SectionGateway, AppendGateway(nil, &exampleGateway))
	batch = AppendSection(batch, SectionInFlight, AppendInFlight(nil, exampleInFlight))
	batch = AppendSection(batch, SectionReady, AppendReady(nil, exampleReady))
	batch = AppendSection(batch, SectionUsage, AppendUsed(AppendUsage(nil, &exampleUsage), &exampleUsed))
	batch = AppendSection(batch, SectionLatency, AppendLatency(nil, &exampleLatency))
	batch = AppendReports(batch, 2, chunk)

	ack := header(Header{Kind: Ack, Epoch: 7, From: 44, To: 44})
	ack = AppendSection(ack, SectionAcked, AppendAcked(nil, exampleAcked))
	ack = AppendSection(ack, SectionLeases, AppendLease(AppendLeases(nil, &exampleLeases), &exampleLease))
	ack = AppendSection(ack, SectionHints, AppendHints(nil, exampleHints))

	return map[string][]byte{"resync": resync, "update": update, "pages": pages, "batch": batch, "ack": ack}
}

// TestTheVersionBeforeIsWrittenAsItsOwnProgramsWroteIt: whoever speaks that version
// alone reads what it always has, and what it writes is read.
func TestTheVersionBeforeIsWrittenAsItsOwnProgramsWroteIt(t *testing.T) {
	for name, frame := range frames(OldestVersion) {
		golden, err := os.ReadFile(filepath.Join("testdata", "v1", name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(frame, golden) {
			t.Errorf("%s: this version writes\n%x, the one before\n%x", name, frame, golden)
		}
		h, err := DecodeHeader(golden)
		if err != nil || h.Wire != OldestVersion {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// TestVersionsDifferInTheirHeadersAlone: sections are the same, so one set of
// decoders reads both.
func TestVersionsDifferInTheirHeadersAlone(t *testing.T) {
	before := frames(OldestVersion)
	for name, frame := range frames(Version) {
		if h, err := DecodeHeader(frame); err != nil || h.Wire != Version {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		if old := before[name]; !bytes.Equal(frame[:5], old[:5]) || !bytes.Equal(frame[6:], old[6:]) {
			t.Errorf("%s differs beyond its version", name)
		}
	}
	for _, version := range []byte{0, OldestVersion - 1, Version + 1, 255} {
		frame := bytes.Clone(before["update"])
		frame[5] = version
		if h, err := DecodeHeader(frame); err == nil {
			t.Errorf("version %d is taken: %+v", version, h)
		}
	}
}
