package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	tableEpoch = 7
	// changeInterval is how often entry changes are published.
	changeInterval = 50 * time.Millisecond
	// perPage leaves a page room for changes, as the real control does.
	perPage = 64
)

// base stands in for the control service: it serves one big table by the
// courier's protocol, then a steady stream of entry changes, and acknowledges
// reports without believing them.
type base struct {
	bits     uint8
	entries  int
	records  []byte   // roster, loads, policy sections
	ranges   [][]byte // pages of each range
	digests  []byte
	known    []uint64 // fingerprints that changes touch
	changes  int      // a second
	workers  int
	fetched  atomic.Int64
	reported atomic.Int64 // report records
	changed  atomic.Int64 // entries sent as changes
	batches  atomic.Int64

	vocabularies []vocabularyFile
}

// newBase makes a table of n entries. Among them are the given ones, which are
// the prefixes of real traffic; random ones fill the rest evenly.
func newBase(n int, prefixes []table.Entry, workers, changes int, rng *rand.Rand) (*base, error) {
	b := &base{bits: sizeClass(n), changes: changes, workers: workers}
	pages := make([]table.Page, 1<<b.bits)
	for index := range pages {
		pages[index] = make(table.Page, table.PageBytes)
		pages[index].Init(b.bits, uint32(index))
	}
	for i := range prefixes {
		if !pages[table.PageIndex(prefixes[i].Fingerprint, b.bits)].Put(&prefixes[i]) {
			return nil, fmt.Errorf("build the base: a page is full of prefixes; use more than %d entries", n)
		}
	}
	each := n / len(pages)
	for index, page := range pages {
		for page.Count() < each {
			fp := uint64(index)<<(64-b.bits) | rng.Uint64()>>b.bits
			page.Put(&table.Entry{Fingerprint: fp, Refs: b.holders(rng)})
			if rng.IntN(16) == 0 {
				b.known = append(b.known, fp)
			}
		}
		b.entries += page.Count()
	}
	slices.Sort(b.known)
	sums := make([]uint64, table.Ranges(b.bits))
	b.ranges = make([][]byte, len(sums))
	for index, page := range pages {
		r := table.RangeOf(uint32(index))
		sums[r] ^= page.Digest()
		b.ranges[r] = append(b.ranges[r], page...)
	}
	for _, sum := range sums {
		b.digests = wire.AppendDigest(b.digests, sum)
	}
	return b, b.makeRecords()
}

// sizeClass is the smallest that holds n entries with room in every page.
func sizeClass(n int) uint8 {
	bits := uint8(6)
	for bits < 16 && n>>bits > perPage {
		bits += 2
	}
	return bits
}

func (b *base) holders(rng *rand.Rand) (refs [table.InlineRefs]uint16) {
	for i := range 1 + rng.IntN(3) {
		refs[i] = uint16(1 + (rng.IntN(b.workers)+i)%b.workers)
	}
	return refs
}

func address(worker int) string { return fmt.Sprintf("10.0.%d.%d:9000", worker/250, 1+worker%250) }

func (b *base) makeRecords() error {
	var roster, loads []byte
	for i := range b.workers {
		ref := uint16(i + 1)
		roster = wire.AppendWorker(roster, &wire.Worker{
			Ref: ref, Generation: 100 + uint64(ref), BlockTokens: 16, MaxRunning: 64, QueueLimit: 256, Address: []byte(address(i)),
		})
		loads = wire.AppendLoad(loads, &wire.Load{Ref: ref, State: 1, PrefillRate: 10000, Trust: 1})
	}
	policy, err := json.Marshal(map[string]any{"pools": []any{map[string]any{
		"name": "default", "index": 0, "models": []string{"*"}, "mode": "route", "policy": map[string]any{"name": "threshold"},
	}}})
	if err != nil {
		return fmt.Errorf("encode the policy: %w", err)
	}
	b.records = wire.AppendSection(b.records, wire.SectionRoster, roster)
	b.records = wire.AppendSection(b.records, wire.SectionLoads, loads)
	b.records = wire.AppendSection(b.records, wire.SectionPolicy, policy)
	return nil
}

func (b *base) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/table":
		b.serveTable(w, r)
	case "/v1/table/pages":
		n, err := strconv.Atoi(r.FormValue("range"))
		if err != nil || n < 0 || n >= len(b.ranges) {
			http.Error(w, "no such range", http.StatusBadRequest)
			return
		}
		frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Epoch: tableEpoch, To: 1})
		_, _ = w.Write(wire.AppendSection(frame, wire.SectionPages, b.ranges[n]))
		b.fetched.Add(1)
	case "/v1/batch":
		b.serveBatch(w, r)
	case "/v1/vocabulary/" + path.Base(r.URL.Path):
		b.servePiece(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (b *base) serveTable(w http.ResponseWriter, r *http.Request) {
	version, err := strconv.ParseUint(r.FormValue("version"), 10, 64)
	if err != nil || r.FormValue("epoch") != strconv.Itoa(tableEpoch) || version == 0 {
		frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Update, Flags: wire.FlagResync, Epoch: tableEpoch, To: 1})
		frame = wire.AppendSection(frame, wire.SectionGeometry, wire.AppendGeometry(nil, wire.Geometry{Bits: b.bits, Entries: uint32(b.entries)}))
		frame = append(frame, b.records...)
		_, _ = w.Write(wire.AppendSection(frame, wire.SectionDigests, b.digests))
		return
	}
	wait := time.NewTimer(changeInterval)
	defer wait.Stop()
	select {
	case <-r.Context().Done():
		return
	case <-wait.C:
	}
	frame := wire.AppendHeader(nil, &wire.Header{Kind: wire.Update, Epoch: tableEpoch, From: version, To: version + 1})
	// Loads are new with every update, as they are with a busy fleet.
	frame = append(frame, b.records...)
	_, _ = w.Write(wire.AppendSection(frame, wire.SectionPuts, b.someChanges(version)))
}

// someChanges are new holders for one interval's share of entries, in order of
// their fingerprints.
func (b *base) someChanges(version uint64) (puts []byte) {
	n := b.changes * int(changeInterval/time.Millisecond) / 1000
	if n == 0 || len(b.known) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(version, 1))
	stride := len(b.known)/n + 1
	for at := rng.IntN(stride); at < len(b.known); at += stride {
		puts = table.AppendEntry(puts, &table.Entry{Fingerprint: b.known[at], Refs: b.holders(rng)})
		b.changed.Add(1)
	}
	return puts
}

func (b *base) serveBatch(w http.ResponseWriter, r *http.Request) {
	frame, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack, Epoch: tableEpoch, To: 1})
	out, mark := wire.BeginSection(out, wire.SectionAcked)
	err = wire.ForEachSection(frame, func(s wire.Section) error {
		if s.Type != wire.SectionReports {
			return nil
		}
		slot, chunk, records, err := wire.DecodeReports(s.Payload)
		if err != nil {
			return err
		}
		out = wire.AppendAcked(out, wire.Acked{Slot: slot, Nonce: chunk.Nonce, Sequence: chunk.Sequence})
		return wire.ForEachReport(records, func(*wire.Report) error {
			b.reported.Add(1)
			return nil
		})
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.batches.Add(1)
	_, _ = w.Write(wire.EndSection(out, mark))
}
