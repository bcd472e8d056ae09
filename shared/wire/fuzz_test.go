package wire

import (
	"bytes"
	"testing"

	"github.com/warmpath/warmpath/shared/table"
)

// walk decodes every section of a frame, and returns the frame encoded again from what was
// decoded; sections of unknown types are copied.
func walk(frame []byte) ([]byte, error) {
	h, err := DecodeHeader(frame)
	if err != nil {
		return nil, err
	}
	out := AppendHeader(nil, &h)
	err = ForEachSection(frame, func(s Section) error {
		var mark int
		var err error
		out, mark = BeginSection(out, s.Type)
		switch s.Type {
		case SectionGeometry:
			var g Geometry
			g, err = DecodeGeometry(s.Payload)
			out = AppendGeometry(out, g)
		case SectionRoster:
			err = ForEachWorker(s.Payload, func(w *Worker) error { out = AppendWorker(out, w); return nil })
		case SectionLoads:
			err = ForEachLoad(s.Payload, func(l *Load) error { out = AppendLoad(out, l); return nil })
		case SectionCaches:
			err = ForEachCache(s.Payload, func(c *Cache) error { out = AppendCache(out, c); return nil })
		case SectionHomes:
			err = ForEachHome(s.Payload, func(h *Home) error { out = AppendHome(out, h); return nil })
		case SectionCopies:
			err = ForEachCopy(s.Payload, func(c *Copy) error { out = AppendCopy(out, c); return nil })
		case SectionPuts:
			err = ForEachPut(s.Payload, func(e *table.Entry) error { out = table.AppendEntry(out, e); return nil })
		case SectionRemoves:
			err = ForEachRemove(s.Payload, func(f uint64) error { out = AppendRemove(out, f); return nil })
		case SectionSets:
			err = ForEachSet(s.Payload, func(id uint32, bitmap []byte) error { out = AppendSet(out, id, bitmap); return nil })
		case SectionDigests:
			err = ForEachDigest(s.Payload, func(_ int, d uint64) error { out = AppendDigest(out, d); return nil })
		case SectionPages:
			err = ForEachPage(s.Payload, func(p table.Page) error { out = append(out, p...); return nil })
		case SectionGateway:
			var g Gateway
			g, err = DecodeGateway(s.Payload)
			out = AppendGateway(out, &g)
		case SectionReports:
			slot, c, reports, e := DecodeReports(s.Payload)
			if err = e; err == nil {
				chunk := AppendChunk(nil, c)
				err = ForEachReport(reports, func(r *Report) error { chunk = appendAgain(chunk, r); return nil })
				out = AppendReports(out[:mark], slot, chunk)
			}
		case SectionAcked:
			err = ForEachAcked(s.Payload, func(a Acked) error { out = AppendAcked(out, a); return nil })
		case SectionInFlight:
			err = ForEachInFlight(s.Payload, func(f InFlight) error { out = AppendInFlight(out, f); return nil })
		case SectionReady:
			err = ForEachReady(s.Payload, func(r Ready) error { out = AppendReady(out, r); return nil })
		case SectionHints:
			var g Hints
			g, err = DecodeHints(s.Payload)
			out = AppendHints(out, g)
		case SectionLeases:
			out, err = leasesAgain(out, s.Payload)
		case SectionUsage:
			out, err = usageAgain(out, s.Payload)
		case SectionLatency:
			err = ForEachLatency(s.Payload, func(l *Latency) error { out = AppendLatency(out, l); return nil })
		default:
			out = append(out, s.Payload...)
		}
		out = EndSection(out, mark)
		return err
	})
	return out, err
}

func appendAgain(b []byte, r *Report) []byte {
	if r.Kind == Done {
		return AppendDone(b, r)
	}
	start := len(b)
	b = AppendDispatch(b, r, nil)
	for i := range r.Checkpoints() {
		cp := r.Checkpoint(i)
		b = AppendRemove(b, cp.Fingerprint)
		b = append(b, byte(cp.End), byte(cp.End>>8), byte(cp.End>>16), byte(cp.End>>24))
	}
	length, n := len(b)-start, r.Checkpoints()
	b[start], b[start+1] = byte(length), byte(length>>8)
	b[start+24], b[start+25] = byte(n), byte(n>>8)
	return b
}

// fuzzFrame checks that a frame either gives an error that lies within it, or decodes to
// something that encodes and decodes to itself.
func fuzzFrame(t *testing.T, frame []byte) {
	once, err := walk(frame)
	if err != nil {
		if e, ok := err.(*Error); !ok || e.Offset < 0 || e.Offset > len(frame) {
			t.Fatalf("error %v for %d bytes", err, len(frame))
		}
		return
	}
	twice, err := walk(once)
	if err != nil || !bytes.Equal(once, twice) {
		t.Fatalf("does not survive the trip: %v\n% x\n% x", err, once, twice)
	}
}

func exampleFrame(kind Kind) []byte {
	b := AppendHeader(nil, &Header{Kind: kind, Epoch: 7, From: 41, To: 44})
	switch kind {
	case Update:
		page := table.Page(make([]byte, table.PageBytes))
		page.Init(6, table.PageIndex(exampleEntry.Fingerprint, 6))
		page.Put(&exampleEntry)
		b = AppendSection(b, SectionGeometry, AppendGeometry(nil, Geometry{Bits: 6, Entries: 1}))
		b = AppendSection(b, SectionRoster, AppendWorker(nil, &exampleWorker))
		b = AppendSection(b, SectionLoads, AppendLoad(nil, &exampleLoad))
		b = AppendSection(b, SectionCaches, AppendCache(nil, &exampleCache))
		b = AppendSection(b, SectionHomes, AppendHome(nil, &exampleHome))
		b = AppendSection(b, SectionCopies, AppendCopy(nil, &exampleCopy))
		b = AppendSection(b, SectionPolicy, []byte(`{"off":false}`))
		b = AppendSection(b, SectionPuts, table.AppendEntry(nil, &exampleEntry))
		b = AppendSection(b, SectionRemoves, AppendRemove(nil, 5))
		b = AppendSection(b, SectionSets, AppendSet(nil, 1, []byte{0xff, 1}))
		b = AppendSection(b, SectionDigests, AppendDigest(nil, 6))
		b = AppendSection(b, SectionPages, page)
	case Batch:
		b = AppendSection(b, SectionGateway, AppendGateway(nil, &exampleGateway))
		chunk := AppendDispatch(AppendChunk(nil, Chunk{Sequence: 9, Nonce: 0xabcdef}), &exampleDispatch, exampleCPs)
		b = AppendReports(b, 2, AppendDone(chunk, &exampleDone))
		b = AppendSection(b, SectionInFlight, AppendInFlight(nil, exampleInFlight))
		b = AppendSection(b, SectionReady, AppendReady(nil, exampleReady))
		b = AppendSection(b, SectionUsage, exampleUsageBytes(nil))
		b = AppendSection(b, SectionLatency, AppendLatency(nil, &exampleLatency))
	case Ack:
		b = AppendSection(b, SectionAcked, AppendAcked(nil, exampleAcked))
		b = AppendSection(b, SectionHints, AppendHints(nil, exampleHints))
		b = AppendSection(b, SectionLeases, exampleLeasesBytes(nil))
	}
	return b
}

func FuzzUpdateFrame(f *testing.F) {
	frame := exampleFrame(Update)
	f.Add(frame)
	f.Add(frame[:100])
	f.Add(exampleFrame(Ack))
	f.Fuzz(fuzzFrame)
}

func FuzzBatchFrame(f *testing.F) {
	frame := exampleFrame(Batch)
	f.Add(frame)
	f.Add(frame[:90])
	f.Fuzz(fuzzFrame)
}

func FuzzReport(f *testing.F) {
	f.Add(AppendDispatch(nil, &exampleDispatch, exampleCPs))
	f.Add(AppendDone(nil, &exampleDone))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		if err := ForEachReport(b, func(r *Report) error { again = appendAgain(again, r); return nil }); err != nil {
			if e, ok := err.(*Error); !ok || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("error %v for %d bytes", err, len(b))
			}
			return
		}
		if len(again) != len(b) {
			t.Fatalf("%d bytes decode to %d", len(b), len(again))
		}
	})
}

func FuzzRow(f *testing.F) {
	f.Add(exampleRowBytes(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var flight []InFlight
		row, err := DecodeRow(b, func(r InFlight) { flight = append(flight, r) })
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("error %v for %d bytes", err, len(b))
			}
			return
		}
		again := AppendRow(nil, &row)
		for _, r := range flight {
			again = AppendInFlight(again, r)
		}
		again = EndRow(again, 0)
		second, err := DecodeRow(again, nil)
		if err != nil || second != row || len(again) != len(b) {
			t.Fatalf("%+v, %v after %+v", second, err, row)
		}
	})
}

func FuzzSharedRecords(f *testing.F) {
	f.Add(AppendCourier(nil, &exampleCourier), uint32(1))
	f.Add(AppendSet(nil, 5, []byte{1}), uint32(5))
	f.Add(table.AppendMeta(nil, &table.Meta{Bits: 8, Ready: true}), uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, id uint32) {
		if c, err := DecodeCourier(b); err == nil {
			if again, err := DecodeCourier(AppendCourier(nil, &c)); err != nil || again != c {
				t.Fatalf("%+v, %v", again, err)
			}
		}
		if m, err := table.DecodeMeta(b); err == nil {
			if !bytes.Equal(table.AppendMeta(nil, &m), b) {
				t.Fatalf("meta is not canonical: % x", b)
			}
		}
		if n := len(FindSet(b, id)); n > len(b) {
			t.Fatal("set longer than its section")
		}
	})
}
